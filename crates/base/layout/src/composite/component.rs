//! One component: its bytes of the file, and where they are.

use types::Extent;

use super::error::{self, ComponentError};
use super::limits::COMPONENT_ID_MAX;
use crate::{Layout, STRIPE_SIZE_UNIT, Template};

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
    /// Which bytes; [`super::END_OF_FILE`] ends a component without an end.
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
    pub(super) fn last_id(&self) -> u32 {
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

    pub(super) fn check(&self, index: usize) -> Result<(), ComponentError> {
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
