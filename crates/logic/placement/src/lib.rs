//! Which OSTs a new file gets: an explicit list, else an explicit start, else round robin (spec namespace 2.9).
//!
//! Pure: the caller says which OSTs exist and which may be used, and keeps the one [`RoundRobin`] between calls.

#![warn(missing_docs)]

mod round_robin;

use types::Errno;

pub use round_robin::RoundRobin;

/// An OST as the allocator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ost {
    /// Its index.
    pub index: u32,
    /// Its node: stripes side by side go to different nodes where they can.
    pub node: u64,
    /// Neither full nor inactive nor read-only.
    pub usable: bool,
}

/// Why there is no place for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No OST has registered yet: the caller tries again.
    #[error("no OST is known yet")]
    NoneKnown,
    /// All OSTs are full or inactive.
    #[error("no OST can take a new file")]
    NoneUsable,
    /// Asked for by index, and not there.
    #[error("OST index {0} does not exist")]
    Unknown(u32),
    /// Asked for by index, and full or inactive.
    #[error("OST index {0} is full or inactive")]
    Unusable(u32),
}

impl PlacementError {
    /// For the application.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            PlacementError::NoneKnown => Errno::EINPROGRESS,
            PlacementError::NoneUsable | PlacementError::Unusable(_) => Errno::ENOSPC,
            PlacementError::Unknown(_) => Errno::EINVAL,
        }
    }
}
