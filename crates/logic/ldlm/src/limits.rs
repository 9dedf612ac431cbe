//! Bounds of a lock space.

/// Waiters of one target at most. A waiter is some 100 bytes: 6 MiB in all. A request beyond is
/// refused (`ENOLCK`).
pub const WAITERS_MAX: usize = 65_536;

/// Ranges that are held of one target at most: 1 M ranges of 80 bytes. A request beyond is refused
/// (`ENOLCK`).
pub const HELD_RANGES_MAX: usize = 1 << 20;

/// Waiters for extents of one object that a server should admit: its worker slots bound them in
/// practice.
pub const EXTENT_WAITERS_MAX: usize = 65_536;

const _: () = assert!(WAITERS_MAX <= HELD_RANGES_MAX);
