//! Composite layouts: a file is divided into components, and each component has its own striping.
//! Lustre: progressive file layouts (LU-8998), data on MDT (LU-3285), self-extending layouts
//! (LU-10070).
//!
//! ```text
//!  0      64K          64M                      end of file
//!  | Mdt  | 1 stripe   | 8 stripes, no objects yet  ->
//! ```
//! A component that is only wanted has no objects and reads as zeros. It gets its objects with the
//! first write into it or beyond it. Offsets in objects are computed from the file's offset, not
//! from the component's start. So components can be made, cut and added without moving data.
//!
//! An extendable component gets its extent in steps, as long as its OSTs have room ([`extend`]):
//! ```text
//!  0           64M      192M                   1G            end of file
//!  | Extendable, steps of 64M                  | Wanted      ->   as requested
//!  | Objects   | Extension                     | Wanted      ->   its first objects
//!  | Objects            | Extension            | Wanted      ->   its OSTs have room
//!  | Objects            | Objects                            ->   they have none
//! ```
//!
//! Invariants ([`Composite::check`])
//! - Components cover the file from offset 0 in order, without holes or overlap.
//! - Borders are multiples of [`STRIPE_SIZE_UNIT`] and of the stripe size of the component that
//!   ends there, so no stripe crosses a border.
//! - Only the first component can be at the MDT.
//! - An extension follows the objects that it is room for, and no objects follow an extension.
//! - An id is never reused during the life of a file.
//! - The layout fits into an extended attribute in Lustre's form.

mod error;
pub mod extend;
mod map;
mod record;
mod template;

use types::{Extent, Fid};

pub use error::ComponentError;
pub use map::{At, Part, Parts};
pub(crate) use record::{KIND, KIND_TEMPLATE};
pub use template::{CompositeTemplate, TemplateComponent, Wanted};

use crate::{Layout, STRIPE_SIZE_UNIT, Template, lov};

/// End of a component that reaches to the end of the file, however long it grows (Lustre:
/// `LUSTRE_EOF`).
pub const END_OF_FILE: u64 = u64::MAX;
/// Bytes of a file that the MDT may hold at most (Lustre: the bound of its tools).
pub const MDT_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a layout in Lustre's form: the value of an extended attribute.
pub const COMPOSITE_BYTES_MAX: usize = 64 << 10;
/// Ids of components are below: Lustre's upper bits name mirrors.
pub const COMPONENT_ID_MAX: u32 = 0xffff;
/// Largest step of an extendable component: the last multiple of [`STRIPE_SIZE_UNIT`] that Lustre's
/// form can say, in KiB of 32 bits.
pub const EXTENSION_BYTES_MAX: u64 =
    ((u32::MAX as u64) << 10) / STRIPE_SIZE_UNIT as u64 * STRIPE_SIZE_UNIT as u64;

/// Where the bytes of a component are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// With the inode, at its MDT.
    Mdt,
    /// Nowhere yet; how its objects shall be. The stripe size is given.
    Wanted(Template),
    /// The same, and its objects get so many bytes of the extent at a time. The rest is then an
    /// [`Place::Extension`]. It takes two ids, its own and the next one.
    Extendable(Template, u64),
    /// Nowhere: room for the component before it, which gets it in steps of so many bytes.
    Extension(u64),
    /// In objects of OSTs.
    Objects(Layout),
}

/// Bytes of a file that are striped in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name in commands, from 1.
    pub id: u32,
    /// Which bytes; [`END_OF_FILE`] ends a component without an end.
    pub extent: Extent,
    /// Where they are.
    pub place: Place,
}

impl Component {
    /// Bytes on an object before the next one's turn; at the MDT the whole component.
    #[must_use]
    pub fn stripe_size(&self) -> u64 {
        match &self.place {
            Place::Mdt => self.extent.end(),
            Place::Wanted(template) | Place::Extendable(template, _) => {
                u64::from(template.stripe_size)
            }
            Place::Extension(_) => u64::from(STRIPE_SIZE_UNIT),
            Place::Objects(layout) => u64::from(layout.stripe_size),
        }
    }

    /// Its last id: an extendable component has two.
    fn last_id(&self) -> u32 {
        match &self.place {
            Place::Extendable(..) => self.id.saturating_add(1),
            Place::Mdt | Place::Wanted(_) | Place::Extension(_) | Place::Objects(_) => self.id,
        }
    }

    /// Whether it has what it needs to take data.
    #[must_use]
    pub fn is_instantiated(&self) -> bool {
        matches!(self.place, Place::Mdt | Place::Objects(_))
    }

    /// Its objects, if it has some.
    #[must_use]
    pub fn objects(&self) -> Option<&Layout> {
        match &self.place {
            Place::Objects(layout) => Some(layout),
            Place::Mdt | Place::Wanted(_) | Place::Extendable(..) | Place::Extension(_) => None,
        }
    }

    fn check(&self, index: usize) -> Result<(), ComponentError> {
        let (start, end) = (self.extent.start(), self.extent.end());
        error::check_border(start)?;
        if self.id == 0 || self.last_id() > COMPONENT_ID_MAX {
            return Err(ComponentError::Id(self.id));
        }
        match &self.place {
            Place::Mdt => return error::check_mdt(index, end),
            Place::Wanted(template) => template.check()?,
            Place::Extendable(template, step) => {
                error::check_step(*step)?;
                template.check()?;
            }
            Place::Extension(step) => error::check_step(*step)?,
            Place::Objects(layout) => layout.check()?,
        }
        error::check_end(end, self.stripe_size())
    }
}

/// An extension is room for the objects before it, and nothing that has a place follows it.
fn check_beside(before: Option<&Component>, component: &Component) -> Result<(), ComponentError> {
    match (before.map(|before| &before.place), &component.place) {
        (Some(Place::Objects(objects)), Place::Extension(_)) => {
            error::check_end(component.extent.end(), u64::from(objects.stripe_size))
        }
        (_, Place::Extension(_)) => Err(ComponentError::Extension),
        (Some(Place::Extension(_)), Place::Objects(_)) => Err(ComponentError::Extension),
        _ => Ok(()),
    }
}

/// A layout of several components. Built from outside, it must pass [`Composite::check`] before
/// anything else is called; decoding and [`CompositeTemplate::resolve`] do that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composite {
    /// Raised with every change.
    pub generation: u32,
    /// The last id that was given.
    pub last_id: u32,
    /// In the order of the file.
    pub components: Vec<Component>,
    /// The object at the MDT, where that is not the file's own: the file took over the layout of
    /// another one.
    pub mdt_object: Option<Fid>,
}

impl Composite {
    /// Whether every component is within its bounds, and beside its neighbours.
    pub fn check(&self) -> Result<(), ComponentError> {
        let mut at = 0;
        if self.components.is_empty() {
            return Err(ComponentError::None);
        }
        for (index, component) in self.components.iter().enumerate() {
            component.check(index)?;
            let start = component.extent.start();
            if start != at {
                return Err(ComponentError::Gap { start, end: at });
            }
            at = component.extent.end();
            let before = index.checked_sub(1).and_then(|before| self.components.get(before));
            check_beside(before, component)?;
        }
        if self.mdt_object.is_some() && self.components[0].place != Place::Mdt {
            return Err(ComponentError::MdtNotFirst);
        }
        let ids = self.components.iter().flat_map(|component| component.id..=component.last_id());
        let mut ids: Vec<u32> = ids.collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ComponentError::Id(pair[0]));
        }
        if ids.last().is_some_and(|last| *last > self.last_id) {
            return Err(ComponentError::Id(self.last_id));
        }
        let bytes = lov::composite::bytes_of(self);
        if bytes > COMPOSITE_BYTES_MAX { Err(ComponentError::TooLarge(bytes)) } else { Ok(()) }
    }

    /// Where the last component ends: a write behind it fails (ENODATA).
    #[must_use]
    pub fn end(&self) -> u64 {
        self.components.last().map_or(0, |last| last.extent.end())
    }

    /// Components that must have their place before bytes below `behind` are written: also those
    /// before it that were skipped, so that a component with objects has none without before it.
    /// For a truncate to size z, `behind` is z.
    pub fn missing(&self, behind: u64) -> impl Iterator<Item = usize> + '_ {
        let needed = move |component: &Component| component.extent.start() < behind;
        self.components
            .iter()
            .enumerate()
            .filter(move |(_, component)| needed(component) && !component.is_instantiated())
            .map(|(index, _)| index)
    }

    /// Gives the component at `index` its objects; an extendable one gets its first step.
    ///
    /// # Errors
    /// It has some already, or is no component that gets some, or these do not fit it. Nothing is
    /// changed then.
    pub fn instantiate(&mut self, index: usize, objects: Layout) -> Result<(), ComponentError> {
        let component = self.components.get(index).ok_or(ComponentError::None)?.clone();
        match component.place {
            Place::Mdt | Place::Objects(_) => Err(ComponentError::Instantiated(component.id)),
            Place::Extension(_) => Err(ComponentError::Extension),
            Place::Wanted(_) => {
                let fresh = Component { place: Place::Objects(objects), ..component };
                self.with(|layout| layout.components[index] = fresh)
            }
            Place::Extendable(_, step) => {
                let parts = extend::begun(&component, objects, step)?;
                self.with(|layout| drop(layout.components.splice(index..=index, parts)))
            }
        }
    }

    /// Whether this can be `before` with places for more of its bytes: what had a place has the
    /// same one, components that are left are as they were, and new ids are those of extensions.
    #[must_use]
    pub fn grew_from(&self, before: &Composite) -> bool {
        let had = before.components.iter().take_while(|part| part.is_instantiated()).count();
        let Some((now, rest)) = self.components.split_at_checked(had) else { return false };
        let (was, open) = before.components.split_at(had);
        let fits = |(index, (now, was)): (usize, (&Component, &Component))| {
            let is_last = index + 1 == had && extend::is_room(open.first());
            let reaches = match is_last {
                true => now.extent.end() >= was.extent.end(),
                false => now.extent.end() == was.extent.end(),
            };
            (now.id, &now.place) == (was.id, &was.place) && reaches
        };
        self.mdt_object == before.mdt_object
            && self.end() == before.end()
            && before.last_id <= self.last_id
            && now.iter().zip(was).enumerate().all(fits)
            && extend::are_left(rest, open, before.last_id)
    }

    /// Whether objects that were there have got more of the file since `before`.
    #[must_use]
    pub fn stretches(&self, before: &Composite) -> bool {
        let longer = |(now, was): (&Component, &Component)| {
            was.is_instantiated() && now.extent.end() > was.extent.end()
        };
        self.components.iter().zip(&before.components).any(longer)
    }

    /// Whether this is `before` with components behind it that have no objects.
    #[must_use]
    pub fn was_added_to(&self, before: &Composite) -> bool {
        let count = before.components.len();
        let Some((old, new)) = self.components.split_at_checked(count) else { return false };
        let is_new = |part: &Component| part.id > before.last_id && !part.is_instantiated();
        old == before.components && new.iter().all(is_new)
    }

    /// Adds components behind the last one.
    ///
    /// # Errors
    /// The file has an end already that nothing can follow, or they do not fit. Nothing is changed
    /// then.
    pub fn add(
        &mut self,
        more: &CompositeTemplate,
        default: &Template,
    ) -> Result<(), ComponentError> {
        let more = more.resolve_from(self.end(), self.last_id, default)?;
        self.with(|layout| {
            layout.last_id = more.last_id;
            layout.components.extend(more.components);
        })
    }

    /// Takes away the component `id` and all behind it; what they held is lost. Their objects are
    /// to be destroyed.
    ///
    /// # Errors
    /// There is none of this id, or nothing would be left. Nothing is changed then.
    pub fn cut_from(&mut self, id: u32) -> Result<Vec<Component>, ComponentError> {
        let index = self.components.iter().position(|component| component.id == id);
        let index = index.filter(|index| *index > 0).ok_or(ComponentError::Id(id))?;
        let mut gone = Vec::new();
        self.with(|layout| gone = layout.components.split_off(index))?;
        Ok(gone)
    }

    /// Changes it, unless the outcome is no layout.
    fn with(&mut self, change: impl FnOnce(&mut Composite)) -> Result<(), ComponentError> {
        let mut changed = self.clone();
        change(&mut changed);
        changed.generation = self.generation.wrapping_add(1);
        changed.check()?;
        *self = changed;
        Ok(())
    }
}

const _: () = assert!(MDT_BYTES_MAX.is_multiple_of(STRIPE_SIZE_UNIT as u64));

#[cfg(test)]
pub(crate) mod tests;
