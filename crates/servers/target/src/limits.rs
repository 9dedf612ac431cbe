//! Bounds of all targets.

/// Commits that an operation waits for on a full store before it is refused. LMDB keeps the last
/// two transactions alive, so the second one after a removal can take the pages that it freed.
pub(crate) const FULL_COMMITS_MAX: u32 = 2;
/// Highest `device_mibps`.
pub(crate) const DEVICE_MIBPS_MAX: u64 = 1 << 20;
