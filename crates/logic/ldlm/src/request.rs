//! Requests for locks that applications hold, and the conflicts with them.

use std::ops::RangeInclusive;

use types::{Extent, Fid};

use crate::Mode;

/// Sorts of locks; each is a space of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `flock`: a conversion that must wait gives the old lock up first, as on a local file system.
    Flock,
    /// `fcntl`: ranges, with deadlock detection.
    Posix,
    /// The file's own lock, taken by O_APPEND and truncate.
    File,
}

impl Kind {
    /// In their order.
    pub(crate) const ALL: [Kind; 3] = [Kind::Flock, Kind::Posix, Kind::File];
}

/// Who holds a lock: a client's session and whatever that client calls an owner. A client that
/// comes back in another session holds nothing of what the one before held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    pub session: u64,
    /// Process or open file at that client.
    pub id: u64,
}

/// Names a wait: the cookie of a session's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId {
    pub session: u64,
    /// Its cookie, unique among its waits.
    pub cookie: u64,
}

impl WaitId {
    /// Those of a session.
    #[must_use]
    pub fn all_of(session: u64) -> RangeInclusive<WaitId> {
        WaitId { session, cookie: 0 }..=WaitId { session, cookie: u64::MAX }
    }
}

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    pub resource: Fid,
    /// Which sort of lock.
    pub kind: Kind,
    pub owner: Owner,
    /// Which bytes; [`Extent::ALL`] for the other kinds.
    pub extent: Extent,
    pub mode: Mode,
    /// Process, as F_GETLK tells it.
    pub pid: u32,
    /// Name of the wait at the owner's client.
    pub cookie: u64,
}

impl LockRequest {
    /// The name of its wait.
    #[must_use]
    pub fn wait_id(&self) -> WaitId {
        WaitId { session: self.owner.session, cookie: self.cookie }
    }
}

/// A granted range that stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub owner: Owner,
    pub extent: Extent,
    pub mode: Mode,
    pub pid: u32,
}
