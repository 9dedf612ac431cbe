//! `open` flags as applications and messages carry them (Linux on x86-64).

/// Mask of the access mode.
pub const O_ACCMODE: u32 = 0o3;
/// Read only.
pub const O_RDONLY: u32 = 0;
/// Write only.
pub const O_WRONLY: u32 = 0o1;
/// Read and write.
pub const O_RDWR: u32 = 0o2;
/// Make the file if it is not there.
pub const O_CREAT: u32 = 0o100;
/// With O_CREAT: fail if it is there.
pub const O_EXCL: u32 = 0o200;
/// Cut to nothing.
pub const O_TRUNC: u32 = 0o1000;
/// Write at the end, atomically over all clients.
pub const O_APPEND: u32 = 0o2000;
/// Data is durable when write returns.
pub const O_DSYNC: u32 = 0o10_000;
/// FASYNC, the half of Lustre's `O_LOV_DELAY_CREATE` that the kernel passes on: a file that is made
/// gets no layout yet.
pub const O_DELAY_LAYOUT: u32 = 0o20_000;
/// Around the caches.
pub const O_DIRECT: u32 = 0o40_000;
/// Leave the access time alone.
pub const O_NOATIME: u32 = 0o1_000_000;
/// Data and metadata are durable when write returns; includes O_DSYNC.
pub const O_SYNC: u32 = 0o4_010_000;

/// Whether a handle with these flags may write.
pub(crate) fn can_write(flags: u32) -> bool {
    matches!(flags & O_ACCMODE, O_WRONLY | O_RDWR)
}

/// Whether a handle with these flags may read.
pub(crate) fn can_read(flags: u32) -> bool {
    flags & O_ACCMODE != O_WRONLY
}

/// Whether an open with these flags may change the bytes of a file: at once, or by its handle.
pub(crate) fn may_change(flags: u32) -> bool {
    can_write(flags) || flags & O_TRUNC != 0
}
