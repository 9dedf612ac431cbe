//! Mapping between a file and the places of its components.
//!
//! Invariants
//! - The parts of an extent cover all of it that lies before the end of the last component, exactly
//!   once and in file order.
//! - The largest [`Composite::end_of`] over the components, computed from the object sizes that
//!   [`Composite::object_size`] gives, is the file size again.

use types::Extent;

use super::{Component, Composite, Place};
use crate::map::{Piece, Pieces};

/// A run of bytes of a file that has one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the component.
    pub component: usize,
    /// Which bytes of the file.
    pub extent: Extent,
    /// Where they are.
    pub at: At,
}

/// Where a run of bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// With the inode, at the same offset.
    Mdt,
    /// Nowhere yet: they read as zeros.
    Hole,
    /// In an object.
    Object(Piece),
}

/// Iterator over the parts of an extent.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    components: &'a [Component],
    /// Of the next component to begin.
    next: usize,
    /// What is left of the one that was begun.
    pieces: Option<Pieces>,
    at: u64,
    end: u64,
}

impl Iterator for Parts<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        loop {
            if let Some(piece) = self.pieces.as_mut().and_then(Iterator::next) {
                let extent = Extent::new(piece.file_offset, piece.file_offset + piece.len)?;
                return Some(Part { component: self.next - 1, extent, at: At::Object(piece) });
            }
            let component = self.components.get(self.next)?;
            let extent = Extent::new(self.at, self.end.min(component.extent.end()))?;
            let index = self.next;
            (self.next, self.at, self.pieces) = (index + 1, extent.end(), None);
            let at = match &component.place {
                Place::Mdt => At::Mdt,
                Place::Wanted(_) | Place::Extendable(..) | Place::Extension(_) => At::Hole,
                Place::Objects(layout) => {
                    self.pieces = Some(layout.pieces(extent));
                    continue;
                }
            };
            return Some(Part { component: index, extent, at });
        }
    }
}

impl Composite {
    /// Index of the component that holds the byte at `offset`.
    #[must_use]
    pub fn component_of(&self, offset: u64) -> Option<usize> {
        let index = self.components.partition_point(|component| component.extent.end() <= offset);
        (index < self.components.len()).then_some(index)
    }

    /// The parts of `extent`, in file order. What lies behind the last component is no part.
    #[must_use]
    pub fn parts(&self, extent: Extent) -> Parts<'_> {
        let next = self.component_of(extent.start()).unwrap_or(self.components.len());
        let (at, end) = (extent.start(), extent.end());
        Parts { components: &self.components, next, pieces: None, at, end }
    }

    /// File size that a component speaks of: `sizes` of its objects, `None` where one does not
    /// exist; at the MDT, one size. Zero where it holds nothing. The file's is the largest.
    #[must_use]
    pub fn end_of(&self, index: usize, sizes: &[Option<u64>]) -> u64 {
        let Some(component) = self.components.get(index) else { return 0 };
        let end = match &component.place {
            Place::Mdt => sizes.first().copied().flatten().unwrap_or(0),
            Place::Wanted(_) | Place::Extendable(..) | Place::Extension(_) => 0,
            Place::Objects(layout) => layout.file_size(sizes),
        };
        let end = end.min(component.extent.end());
        if end > component.extent.start() { end } else { 0 }
    }

    /// Size of the object of `stripe` of a component in a file of `file_size` bytes without holes;
    /// at the MDT, of what is with the inode (stripe 0).
    #[must_use]
    pub fn object_size(&self, index: usize, stripe: u32, file_size: u64) -> u64 {
        let Some(component) = self.components.get(index) else { return 0 };
        let filled = file_size.min(component.extent.end());
        if filled <= component.extent.start() {
            return 0;
        }
        match &component.place {
            Place::Mdt => filled,
            Place::Wanted(_) | Place::Extendable(..) | Place::Extension(_) => 0,
            Place::Objects(layout) => layout.object_size(stripe, filled),
        }
    }

    /// What a truncate to `file_size` must cut: components that reach behind it and hold something.
    pub fn cut_by(&self, file_size: u64) -> impl Iterator<Item = usize> + '_ {
        let reaches = move |component: &Component| component.extent.end() > file_size;
        let cut = move |component: &Component| component.is_instantiated() && reaches(component);
        (0..self.components.len()).filter(move |index| cut(&self.components[*index]))
    }
}
