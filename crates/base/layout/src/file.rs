//! The layout of a file: one striping or several components, with all its objects under one
//! numbering.
//!
//! Stripes are numbered through the components that have objects, in file order, from 0 on. A
//! component gets objects only after all components before it, so a stripe keeps its number while
//! components are made and added.
//!
//! Invariants
//! - The pieces of an extent cover all of it that has a place, exactly once and in file order.
//! - [`FileLayout::file_size`] of the object sizes that [`FileLayout::object_size`] gives is the
//!   file size again, if the components up to it have objects.

use types::{Extent, Fid, OstIndex};

use crate::composite::{At, Composite, END_OF_FILE, Parts, Place};
use crate::map::{Piece, Pieces};
use crate::{ComponentError, Layout, Origin};

/// Where the bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLayout {
    file: Fid,
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Plain(Layout),
    /// With the number of each component's first stripe, and behind them the count of all.
    Composite(Composite, Vec<u32>),
}

impl From<Layout> for FileLayout {
    fn from(layout: Layout) -> FileLayout {
        FileLayout { file: Fid::ZERO, shape: Shape::Plain(layout) }
    }
}

/// A stripe within its component.
struct Within<'a> {
    start: u64,
    end: u64,
    /// None: with the inode, at the MDT.
    layout: Option<&'a Layout>,
    stripe: u32,
}

impl FileLayout {
    /// The components of `file`, which have passed [`Composite::check`].
    #[must_use]
    pub fn composite(file: Fid, composite: Composite) -> FileLayout {
        let mut firsts = vec![0];
        let mut count = 0;
        for component in &composite.components {
            count += match &component.place {
                Place::Mdt => 1,
                Place::Wanted(_) | Place::Extendable(..) | Place::Extension(_) => 0,
                Place::Objects(layout) => u32::from(layout.stripe_count),
            };
            firsts.push(count);
        }
        FileLayout { file, shape: Shape::Composite(composite, firsts) }
    }

    /// The one striping, if there are no components.
    #[must_use]
    pub fn as_plain(&self) -> Option<&Layout> {
        match &self.shape {
            Shape::Plain(layout) => Some(layout),
            Shape::Composite(..) => None,
        }
    }

    /// The components, if there are some.
    #[must_use]
    pub fn as_composite(&self) -> Option<&Composite> {
        match &self.shape {
            Shape::Plain(_) => None,
            Shape::Composite(composite, _) => Some(composite),
        }
    }

    /// Whether every field is within its bounds.
    pub fn check(&self) -> Result<(), ComponentError> {
        match &self.shape {
            Shape::Plain(layout) => Ok(layout.check()?),
            Shape::Composite(composite, _) => composite.check(),
        }
    }

    /// As a record. The layout has passed [`FileLayout::check`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match &self.shape {
            Shape::Plain(layout) => layout.encode(),
            Shape::Composite(composite, _) => composite.encode(),
        }
    }

    /// The requests and defaults that it was made of, as far as is known.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match &self.shape {
            Shape::Plain(layout) => layout.origin,
            Shape::Composite(composite, _) => composite.origin,
        }
    }

    /// The same, made of these.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> FileLayout {
        match &mut self.shape {
            Shape::Plain(layout) => layout.origin = origin,
            Shape::Composite(composite, _) => composite.origin = origin,
        }
        self
    }

    /// Raised with every change.
    #[must_use]
    pub fn generation(&self) -> u32 {
        match &self.shape {
            Shape::Plain(layout) => u32::from(layout.generation),
            Shape::Composite(composite, _) => composite.generation,
        }
    }

    /// The same under the next generation; none where there are no more.
    #[must_use]
    pub fn renewed(&self) -> Option<FileLayout> {
        let mut renewed = self.clone();
        match &mut renewed.shape {
            Shape::Plain(layout) => layout.generation = layout.generation.checked_add(1)?,
            Shape::Composite(composite, _) => {
                composite.generation = composite.generation.checked_add(1)?;
            }
        }
        Some(renewed)
    }

    /// The same under this generation; none where it cannot have that.
    #[must_use]
    pub fn at_generation(&self, generation: u32) -> Option<FileLayout> {
        let mut renewed = self.clone();
        match &mut renewed.shape {
            Shape::Plain(layout) => layout.generation = u16::try_from(generation).ok()?,
            Shape::Composite(composite, _) => composite.generation = generation,
        }
        Some(renewed)
    }

    /// The same objects, as those of `file`.
    #[must_use]
    pub fn of_file(&self, file: Fid) -> FileLayout {
        let Shape::Composite(composite, _) = &self.shape else { return self.clone() };
        let mdt_object = self.mdt_object().filter(|object| *object != file);
        FileLayout::composite(file, Composite { mdt_object, ..composite.clone() })
    }

    /// Whether the stripes of `before` that are here too have the same objects.
    #[must_use]
    pub fn keeps(&self, before: &FileLayout) -> bool {
        self.objects().zip(before.objects()).all(|(now, then)| now == then)
    }

    /// The first stripe of the component `id` or behind it; none where there is no such component.
    #[must_use]
    pub fn first_stripe_of(&self, id: u32) -> Option<u32> {
        let Shape::Composite(composite, firsts) = &self.shape else { return None };
        let index = composite.components.iter().position(|component| component.id == id)?;
        firsts.get(index).copied()
    }

    /// How many objects the file has a place for.
    #[must_use]
    pub fn stripes(&self) -> u32 {
        match &self.shape {
            Shape::Plain(layout) => u32::from(layout.stripe_count),
            Shape::Composite(_, firsts) => firsts.last().copied().unwrap_or(0),
        }
    }

    /// Stripings whose objects are on OSTs, in the order of the file.
    pub fn stripings(&self) -> impl Iterator<Item = &Layout> {
        let (plain, composite) = match &self.shape {
            Shape::Plain(layout) => (Some(layout), None),
            Shape::Composite(composite, _) => (None, Some(composite)),
        };
        let components = composite.into_iter().flat_map(|composite| &composite.components);
        plain.into_iter().chain(components.filter_map(|component| component.objects()))
    }

    /// Whether the first bytes are with the inode, at the MDT.
    #[must_use]
    pub fn is_at_mdt(&self) -> bool {
        let first = self.as_composite().and_then(|composite| composite.components.first());
        first.is_some_and(|first| first.place == Place::Mdt)
    }

    /// The object of the bytes at the MDT: the file's own, or that of the file whose layout it took
    /// over.
    #[must_use]
    pub fn mdt_object(&self) -> Option<Fid> {
        let named = self.as_composite().and_then(|composite| composite.mdt_object);
        self.is_at_mdt().then_some(named.unwrap_or(self.file))
    }

    /// Index of the data target of the file's MDT.
    fn data_target(&self) -> u32 {
        types::DOM_FIRST.saturating_add(self.file.mdt_index())
    }

    /// Object of stripe `stripe`, which must be below [`FileLayout::stripes`], and the OST that has
    /// it, or the place for data of an MDT.
    #[must_use]
    pub fn object(&self, stripe: u32) -> (Fid, OstIndex) {
        if let Shape::Plain(layout) = &self.shape {
            return layout.object(stripe);
        }
        let within = self.within(stripe).expect("a stripe is below the count");
        match within.layout {
            Some(layout) => layout.object(within.stripe),
            None => {
                let object = self.mdt_object().expect("a stripe without striping is at the MDT");
                (object, OstIndex(self.data_target()))
            }
        }
    }

    /// All stripes with their object and OST.
    pub fn objects(&self) -> impl Iterator<Item = (u32, Fid, OstIndex)> + '_ {
        (0..self.stripes()).map(|stripe| {
            let (object, ost) = self.object(stripe);
            (stripe, object, ost)
        })
    }

    /// Indexes of the OSTs with objects, each as often as it has one.
    pub fn osts(&self) -> impl Iterator<Item = u32> + '_ {
        self.objects().map(|(_, _, ost)| ost.0)
    }

    /// Whether the file has these objects: those of a base, or the one at the MDT.
    #[must_use]
    pub fn has_base(&self, base: Fid) -> bool {
        self.stripings().any(|layout| layout.base == base) || self.mdt_object() == Some(base)
    }

    /// Whether it has this object on this OST.
    #[must_use]
    pub fn has_object(&self, object: Fid, ost: u32) -> bool {
        let is_it = |layout: &Layout| {
            layout.osts.get(object.ver as usize) == Some(&ost)
                && layout.base.stripe(object.ver) == object
        };
        self.stripings().any(is_it)
            || (self.mdt_object() == Some(object) && ost == self.data_target())
    }

    /// The pieces of `extent` that have a place, in file order.
    #[must_use]
    pub fn pieces(&self, extent: Extent) -> FilePieces<'_> {
        FilePieces(match &self.shape {
            Shape::Plain(layout) => Inner::Plain(layout.pieces(extent)),
            Shape::Composite(composite, firsts) => Inner::Parts(composite.parts(extent), firsts),
        })
    }

    /// Stripe that holds the byte at `offset`; none where that has no place.
    #[must_use]
    pub fn stripe_of(&self, offset: u64) -> Option<u32> {
        match &self.shape {
            Shape::Plain(layout) => Some(layout.stripe_of(offset)),
            Shape::Composite(composite, firsts) => {
                let index = composite.component_of(offset)?;
                match &composite.components[index].place {
                    Place::Mdt => Some(firsts[index]),
                    Place::Wanted(_) | Place::Extendable(..) | Place::Extension(_) => None,
                    Place::Objects(layout) => Some(firsts[index] + layout.stripe_of(offset)),
                }
            }
        }
    }

    /// File size that object sizes add up to; `None` is an object that does not exist. Stripes
    /// beyond the list do not exist either.
    #[must_use]
    pub fn file_size(&self, sizes: &[Option<u64>]) -> u64 {
        let (composite, firsts) = match &self.shape {
            Shape::Plain(layout) => return layout.file_size(sizes),
            Shape::Composite(composite, firsts) => (composite, firsts),
        };
        let end = |index: usize| {
            let cut = |stripe: u32| sizes.len().min(stripe as usize);
            composite.end_of(index, &sizes[cut(firsts[index])..cut(firsts[index + 1])])
        };
        (0..composite.components.len()).map(end).max().unwrap_or(0)
    }

    /// Whether an object has bytes behind the end of its component. Then the component has become
    /// longer, and this layout is old.
    #[must_use]
    pub fn is_outgrown(&self, sizes: &[Option<u64>]) -> bool {
        let outgrows = |(stripe, size): (u32, &Option<u64>)| {
            size.is_some_and(|size| size > self.object_offset(stripe, END_OF_FILE))
        };
        self.as_composite().is_some() && (0..self.stripes()).zip(sizes).any(outgrows)
    }

    /// Size that the object of `stripe` has in a file of `file_size` bytes without holes.
    #[must_use]
    pub fn object_size(&self, stripe: u32, file_size: u64) -> u64 {
        if let Shape::Plain(layout) = &self.shape {
            return layout.object_size(stripe, file_size);
        }
        match self.within(stripe) {
            Some(within) if file_size > within.start => within.offset_of(file_size),
            _ => 0,
        }
    }

    /// Where in the object of `stripe` its bytes at or behind `offset` of the file begin; where
    /// the component ends if they would begin behind it.
    #[must_use]
    pub fn object_offset(&self, stripe: u32, offset: u64) -> u64 {
        match &self.shape {
            Shape::Plain(layout) => layout.object_size(stripe, offset),
            Shape::Composite(..) => {
                self.within(stripe).map_or(0, |within| within.offset_of(offset))
            }
        }
    }

    /// File offset of the byte at `offset` of the object of `stripe`; none where that is not the
    /// place of a byte of the file.
    #[must_use]
    pub fn file_offset(&self, stripe: u32, offset: u64) -> Option<u64> {
        if let Shape::Plain(layout) = &self.shape {
            return Some(layout.file_offset(stripe, offset));
        }
        let within = self.within(stripe)?;
        let at = match within.layout {
            Some(layout) => layout.file_offset(within.stripe, offset),
            None => offset,
        };
        (within.start <= at && at < within.end).then_some(at)
    }

    /// Whether a component must get objects before bytes below `behind` are written.
    #[must_use]
    pub fn misses(&self, behind: u64) -> bool {
        self.as_composite().is_some_and(|composite| composite.missing(behind).next().is_some())
    }

    /// Whether every component has what it needs, and none can be added: then nobody gives this
    /// file objects any more.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.misses(u64::MAX) && self.end() == END_OF_FILE
    }

    /// Where the last component ends: a write behind it fails (ENODATA).
    #[must_use]
    pub fn end(&self) -> u64 {
        self.as_composite().map_or(END_OF_FILE, Composite::end)
    }

    fn within(&self, stripe: u32) -> Option<Within<'_>> {
        match &self.shape {
            Shape::Plain(layout) => {
                Some(Within { start: 0, end: END_OF_FILE, layout: Some(layout), stripe })
            }
            Shape::Composite(composite, firsts) => {
                let index = firsts.partition_point(|first| *first <= stripe).checked_sub(1)?;
                let component = composite.components.get(index)?;
                Some(Within {
                    start: component.extent.start(),
                    end: component.extent.end(),
                    layout: component.objects(),
                    stripe: stripe - firsts[index],
                })
            }
        }
    }
}

impl Within<'_> {
    fn offset_of(&self, offset: u64) -> u64 {
        let at = offset.clamp(self.start, self.end);
        self.layout.map_or(at, |layout| layout.object_size(self.stripe, at))
    }
}

/// Iterator over the pieces of an extent of a file, of [`FileLayout::pieces`].
#[derive(Clone, Debug)]
pub struct FilePieces<'a>(Inner<'a>);

#[derive(Clone, Debug)]
enum Inner<'a> {
    Plain(Pieces),
    Parts(Parts<'a>, &'a [u32]),
}

impl Iterator for FilePieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let (parts, firsts) = match &mut self.0 {
            Inner::Plain(pieces) => return pieces.next(),
            Inner::Parts(parts, firsts) => (parts, firsts),
        };
        loop {
            let part = parts.next()?;
            let stripe = firsts[part.component];
            let at = part.extent.start();
            match part.at {
                At::Hole => {}
                At::Object(piece) => {
                    return Some(Piece { stripe: stripe + piece.stripe, ..piece });
                }
                At::Mdt => {
                    let len = part.extent.end() - at;
                    return Some(Piece { stripe, object_offset: at, file_offset: at, len });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
