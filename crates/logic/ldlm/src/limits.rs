//! Bounds of a lock space.

/// Waiters of one target at most. A waiter is some 100 bytes: 6 MiB in all. A request beyond is
/// refused (`ENOLCK`).
pub const WAITERS_MAX: usize = 65_536;

/// Waiters of one session at most; a request beyond is refused (`ENOLCK`).
pub const WAITERS_OF_SESSION_MAX: usize = 4_096;

/// What the held locks of one target may take in memory, counted as [`OWNER_BYTES`] and
/// [`RANGE_BYTES`]. A request beyond is refused (`ENOLCK`).
pub const HELD_BYTES_MAX: usize = 512 << 20;

/// The same of one session: some 65,000 files, or a million ranges of one. Clients that state their
/// locks again after a restart may have twice that, because waits that were granted count late.
pub const HELD_BYTES_OF_SESSION_MAX: usize = 64 << 20;

/// An owner that holds something on a file: nodes of three trees that may hold nothing else, and an
/// entry among all that sessions hold.
pub const OWNER_BYTES: usize = 960;

/// A range that an owner holds.
pub const RANGE_BYTES: usize = 64;

// What waits when a bound is reached is granted nevertheless.
const _: () = assert!(
    WAITERS_OF_SESSION_MAX * (OWNER_BYTES + 2 * RANGE_BYTES) <= HELD_BYTES_OF_SESSION_MAX
        && WAITERS_MAX * (OWNER_BYTES + 2 * RANGE_BYTES) <= HELD_BYTES_MAX
);
