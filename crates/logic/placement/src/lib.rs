//! Which OSTs a new file gets: an explicit list, else an explicit start, else by free space while
//! that is unbalanced, else round robin. Lustre: `lod_qos.c`. The same for the MDT of a new
//! directory (Lustre: `lmv`).
//!
//! Pure: the caller passes in the OSTs, which of them may be used, and their room. It keeps the one
//! [`Allocator`] (or [`MdtAllocator`]) between calls.

mod allocator;
mod mdts;
mod policy;
mod round_robin;
mod space;
mod weighted;

use types::Errno;

pub use allocator::{Allocator, Rule};
pub use mdts::{Mdt, MdtAllocator, Wish};
pub use policy::Policy;
pub use round_robin::RoundRobin;
pub use space::Space;

/// An OST as the allocator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ost {
    pub index: u32,
    /// Its node: stripes side by side go to different nodes where they can.
    pub node: u64,
    /// Neither full nor inactive nor read-only, and not closed for new files.
    pub usable: bool,
    /// Its redundancy is lost: others are better.
    pub is_degraded: bool,
    /// Room for users, if it has told.
    pub bytes_avail: Option<u64>,
}

/// Why there is no place for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No OST has registered yet: the caller tries again.
    #[error("no OST is known yet")]
    NoneKnown,
    /// All OSTs are full, inactive or closed.
    #[error("no OST can take a new file")]
    NoneUsable,
    /// Asked for by index, and not there.
    #[error("OST index {0} does not exist")]
    Unknown(u32),
    /// In the list asked for, and full, inactive or closed.
    #[error("OST index {0} of the list is full, inactive or closed for new files")]
    Unusable(u32),
}

impl PlacementError {
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            PlacementError::NoneKnown => Errno::EINPROGRESS,
            PlacementError::NoneUsable => Errno::ENOSPC,
            PlacementError::Unusable(_) => Errno::EREMOTEIO,
            PlacementError::Unknown(_) => Errno::EINVAL,
        }
    }
}
