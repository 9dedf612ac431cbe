//! Numbered values of fields in bodies.

use crate::body::UnlinkReq;

impl UnlinkReq {
    /// Whether the name must be a directory (rmdir).
    #[must_use]
    pub fn wants_dir(&self) -> bool {
        self.is_dir != 0
    }
}

/// Values of [`ConnectRep::outcome`](crate::body::ConnectRep::outcome).
pub mod connect {
    /// A fresh session.
    pub const NEW: u32 = 0;
    /// The session goes on: resend what has no answer.
    pub const RESUMED: u32 = 1;
    /// The target restarted and knows the client: replay above `last_committed`, then ReplayDone,
    /// then resend.
    pub const RECOVER: u32 = 2;
    /// The client was known once and is no more: everything it had is gone; the session in the
    /// reply is fresh.
    pub const EVICTED: u32 = 3;
}

/// Values of [`CancelRep::outcome`](crate::body::CancelRep::outcome).
pub mod cancel {
    /// It has not begun and never will, also if it arrives later.
    pub const DROPPED: u32 = 0;
    /// It has begun: its own answer was sent, or will be.
    pub const EXECUTED: u32 = 1;
}

/// Modes of [`OstFallocateReq`](crate::body::OstFallocateReq), with the values of
/// `fallocate(2)`; any other combination is refused.
pub mod fallocate {
    /// Allocate; the object grows if the range ends behind it.
    pub const ALLOCATE: u32 = 0;
    /// The size stays.
    pub const KEEP_SIZE: u32 = 1;
    /// Free the range, which reads as zeros then; always with [`KEEP_SIZE`].
    pub const PUNCH_HOLE: u32 = 2;
    /// The range is allocated and reads as zeros.
    pub const ZERO_RANGE: u32 = 16;

    /// Whether `mode` is one that exists.
    #[must_use]
    pub fn is_known(mode: u32) -> bool {
        mode & !KEEP_SIZE == ALLOCATE
            || mode == PUNCH_HOLE | KEEP_SIZE
            || mode & !KEEP_SIZE == ZERO_RANGE
    }
}

/// Values in [`LockReq`](crate::body::LockReq) and [`LockRep`](crate::body::LockRep).
pub mod lock {
    /// Kind: BSD flock, whole file, by open file description.
    pub const FLOCK: u32 = 0;
    /// Kind: POSIX fcntl, by range and process.
    pub const POSIX: u32 = 1;
    /// Kind: the file's own lock: O_APPEND and truncate take EX.
    pub const FILE: u32 = 2;
    /// Mode: shared.
    pub const SHARED: u32 = 0;
    /// Mode: exclusive.
    pub const EXCLUSIVE: u32 = 1;
    /// Mode: none (unlock).
    pub const UNLOCK: u32 = 2;
    /// State: another lock is in the way.
    pub const REFUSED: u32 = 0;
    /// State: the lock is held, or given back.
    pub const GRANTED: u32 = 1;
    /// State: still waiting; the client asks again with the same cookie.
    pub const WAITING: u32 = 2;
}
