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
//! - Borders are multiples of [`crate::STRIPE_SIZE_UNIT`] and of the stripe size of the component
//!   that ends there, so no stripe crosses a border.
//! - Only the first component can be at the MDT.
//! - An extension follows the objects that it is room for, and no objects follow an extension.
//! - An id is never reused during the life of a file.
//! - The layout fits into an extended attribute in Lustre's form.

mod component;
mod error;
pub mod extend;
mod limits;
mod map;
mod record;
mod steps;
mod template;

use types::Fid;

pub use component::{Component, Place};
pub use error::ComponentError;
pub use limits::{
    COMPONENT_ID_MAX, COMPOSITE_BYTES_MAX, END_OF_FILE, EXTENSION_BYTES_MAX, MDT_BYTES_MAX,
};
pub use map::{At, Part, Parts};
pub(crate) use record::{KIND, KIND_TEMPLATE};
pub use template::{CompositeTemplate, TemplateComponent, Wanted};

use crate::lov::bytes::bytes_of;
use crate::{Layout, Origin};

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
    /// Of the first components, because others may have been added. A spill is that of any.
    pub origin: Origin,
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
        let bytes = bytes_of(&self.components);
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
                let parts = steps::begun(&component, objects, step)?;
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
            let is_last = index + 1 == had && steps::is_room(open.first());
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
            && steps::are_left(rest, open, before.last_id)
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

#[cfg(test)]
pub(crate) mod tests;
