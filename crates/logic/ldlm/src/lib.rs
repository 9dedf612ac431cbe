//! The lock space of a target: which locks are held, which requests wait, and which is granted
//! next.
//!
//! Pure: no clock, no task, no network. The server feeds requests in and carries out the results
//! (which waiters are granted now). [`ExtentLocks`] orders byte ranges of objects for the length of
//! an operation (OST). [`LockSpace`] keeps the locks that applications hold across calls: `flock`,
//! `fcntl` and the file's own lock (MDT). [`grants`] has both sides of client caching, which lasts
//! until the MDT calls it back.
//!
//! Invariants
//! - Two granted locks that overlap are both shared, or belong to one owner.
//! - First come, first served: nothing is granted past an earlier conflicting waiter, so readers
//!   cannot starve a writer. The only waiter that is passed is one that waits for the requester
//!   itself, because queueing behind it would be a deadlock.
//! - Every call that may free something returns all waiters that this lets in, in the order in
//!   which they came.
//!
//! Lustre: `ldlm_lock.c`, `ldlm_extent.c`, `ldlm_flock.c`.

mod book;
mod extent;
pub mod grants;
mod held;
mod limits;
mod ranges;
mod request;
mod space;

pub use extent::{ExtentLocks, LockId};
pub use limits::{
    HELD_BYTES_MAX, HELD_BYTES_OF_SESSION_MAX, OWNER_BYTES, RANGE_BYTES, WAITERS_MAX,
    WAITERS_OF_SESSION_MAX,
};
pub use request::{Conflict, Kind, LockRequest, Owner, WaitId};
pub use space::{Enqueued, LockSpace};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// With others that share (Lustre: PR).
    Shared,
    /// Alone (Lustre: PW, EX).
    Exclusive,
}

impl Mode {
    /// Whether locks of these modes may overlap.
    #[must_use]
    pub fn admits(self, other: Mode) -> bool {
        self == Mode::Shared && other == Mode::Shared
    }
}

/// What became of a request for an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is held now.
    Granted,
    /// It stands in line; a later `cancel` returns its id.
    Waiting,
}
