//! The kernel's FUSE structures and constants, protocol 7.31 to 7.45, laid out as in
//! `include/uapi/linux/fuse.h`.
//!
//! Host byte order. Every structure is padded to eight bytes. The tests compare the sizes with
//! those of the header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const KERNEL_VERSION: u32 = 7;
/// Newest minor version this layer has read the header of.
pub const KERNEL_MINOR_MAX: u32 = 45;
/// Oldest minor version it speaks: every structure below has its present size since then.
pub const KERNEL_MINOR_MIN: u32 = 31;
/// Node id of the root.
pub const ROOT_ID: u64 = 1;

/// What INIT negotiates. Bits 32 and up travel in `flags2`.
pub mod cap {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const SECURITY_CTX: u64 = 1 << 32;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    pub const HAS_RESEND: u64 = 1 << 39;
    pub const OVER_IO_URING: u64 = 1 << 41;

    /// Names, for options and logs.
    pub const NAMES: &[(&str, u64)] = &[
        ("async_read", ASYNC_READ),
        ("posix_locks", POSIX_LOCKS),
        ("atomic_o_trunc", ATOMIC_O_TRUNC),
        ("export_support", EXPORT_SUPPORT),
        ("big_writes", BIG_WRITES),
        ("dont_mask", DONT_MASK),
        ("flock_locks", FLOCK_LOCKS),
        ("auto_inval_data", AUTO_INVAL_DATA),
        ("do_readdirplus", DO_READDIRPLUS),
        ("readdirplus_auto", READDIRPLUS_AUTO),
        ("async_dio", ASYNC_DIO),
        ("writeback_cache", WRITEBACK_CACHE),
        ("parallel_dirops", PARALLEL_DIROPS),
        ("posix_acl", POSIX_ACL),
        ("max_pages", MAX_PAGES),
        ("cache_symlinks", CACHE_SYMLINKS),
        ("explicit_inval_data", EXPLICIT_INVAL_DATA),
        ("handle_killpriv_v2", HANDLE_KILLPRIV_V2),
        ("init_ext", INIT_EXT),
        ("direct_io_allow_mmap", DIRECT_IO_ALLOW_MMAP),
        ("over_io_uring", OVER_IO_URING),
    ];

    /// The bit of a name in [`NAMES`].
    #[must_use]
    pub fn by_name(name: &str) -> Option<u64> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit)
    }
}

pub const FATTR_MODE: u32 = 1 << 0;
pub const FATTR_UID: u32 = 1 << 1;
pub const FATTR_GID: u32 = 1 << 2;
pub const FATTR_SIZE: u32 = 1 << 3;
pub const FATTR_ATIME: u32 = 1 << 4;
pub const FATTR_MTIME: u32 = 1 << 5;
pub const FATTR_FH: u32 = 1 << 6;
pub const FATTR_ATIME_NOW: u32 = 1 << 7;
pub const FATTR_MTIME_NOW: u32 = 1 << 8;
pub const FATTR_LOCKOWNER: u32 = 1 << 9;
pub const FATTR_CTIME: u32 = 1 << 10;
pub const FATTR_KILL_SUIDGID: u32 = 1 << 11;

pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub const FOPEN_NONSEEKABLE: u32 = 1 << 2;
pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
pub const FOPEN_NOFLUSH: u32 = 1 << 5;
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

pub const RELEASE_FLUSH: u32 = 1 << 0;
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
pub const GETATTR_FH: u32 = 1 << 0;
pub const LK_FLOCK: u32 = 1 << 0;
pub const WRITE_CACHE: u32 = 1 << 0;
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;

pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

pub const NOTIFY_INVAL_INODE: i32 = 2;
pub const NOTIFY_INVAL_ENTRY: i32 = 3;
pub const NOTIFY_INC_EPOCH: i32 = 8;
/// Of a name: only its time is over (Linux 6.2).
pub const EXPIRE_ONLY: u32 = 1 << 0;
/// Kernels from this minor version on know it (Linux 6.16).
pub const EPOCH_MINOR: u32 = 44;
/// From this one on (Linux 6.14), the first answer about an inode is not believed where one was
/// dropped while it was on its way.
pub const EVICTIONS_MINOR: u32 = 42;

/// Smallest buffer that the kernel reads into.
pub const MIN_READ_BUFFER: usize = 8_192;

/// Room for `fuse_in_header` or `fuse_out_header` in a ring entry's header.
pub const URING_IN_OUT_HEADER_BYTES: usize = 128;
/// Room for the arguments of one operation in a ring entry's header.
pub const URING_OP_IN_BYTES: usize = 128;
/// Gives the kernel a ring entry's buffers and asks for its first request.
pub const URING_CMD_REGISTER: u32 = 1;
/// Answers the request of a ring entry and asks for the next.
pub const URING_CMD_COMMIT_AND_FETCH: u32 = 2;

macro_rules! structs {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $type),* })*
    };
}

structs! {
    InHeader { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16 }
    OutHeader { len: u32, error: i32, unique: u64 }
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    ForgetIn { nlookup: u64 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut { fh: u64, open_flags: u32, padding: u32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteOut { size: u32, padding: u32 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    /// Its form without `SETXATTR_EXT`, which this layer never asks for.
    SetxattrIn { size: u32, flags: u32 }
    GetxattrIn { size: u32, padding: u32 }
    GetxattrOut { size: u32, padding: u32 }
    FileLock { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    LkOut { lk: FileLock }
    AccessIn { mask: u32, padding: u32 }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitInExt { flags2: u32, unused: [u32; 11] }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    InterruptIn { unique: u64 }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    PollIn { fh: u64, kh: u64, flags: u32, events: u32 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut { offset: u64 }
    CopyFileRangeIn { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 }
    SyncfsIn { padding: u64 }
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SxTime { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64,
        size: u64, blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    NotifyInvalInodeOut { ino: u64, off: i64, len: i64 }
    NotifyInvalEntryOut { parent: u64, namelen: u32, flags: u32 }
    UringEntInOut { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    UringCmdReq { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

/// What the kernel fills in front of a request on a ring, and reads in front of an answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UringReqHeader {
    pub in_out: [u8; URING_IN_OUT_HEADER_BYTES],
    pub op_in: [u8; URING_OP_IN_BYTES],
    pub ent: UringEntInOut,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_kernels_header() {
        let sizes = [
            ("fuse_in_header", size_of::<InHeader>(), 40),
            ("fuse_out_header", size_of::<OutHeader>(), 16),
            ("fuse_attr", size_of::<Attr>(), 88),
            ("fuse_entry_out", size_of::<EntryOut>(), 128),
            ("fuse_attr_out", size_of::<AttrOut>(), 104),
            ("fuse_forget_in", size_of::<ForgetIn>(), 8),
            ("fuse_forget_one", size_of::<ForgetOne>(), 16),
            ("fuse_batch_forget_in", size_of::<BatchForgetIn>(), 8),
            ("fuse_getattr_in", size_of::<GetattrIn>(), 16),
            ("fuse_mknod_in", size_of::<MknodIn>(), 16),
            ("fuse_mkdir_in", size_of::<MkdirIn>(), 8),
            ("fuse_rename_in", size_of::<RenameIn>(), 8),
            ("fuse_rename2_in", size_of::<Rename2In>(), 16),
            ("fuse_link_in", size_of::<LinkIn>(), 8),
            ("fuse_setattr_in", size_of::<SetattrIn>(), 88),
            ("fuse_open_in", size_of::<OpenIn>(), 8),
            ("fuse_create_in", size_of::<CreateIn>(), 16),
            ("fuse_open_out", size_of::<OpenOut>(), 16),
            ("fuse_release_in", size_of::<ReleaseIn>(), 24),
            ("fuse_flush_in", size_of::<FlushIn>(), 24),
            ("fuse_read_in", size_of::<ReadIn>(), 40),
            ("fuse_write_in", size_of::<WriteIn>(), 40),
            ("fuse_write_out", size_of::<WriteOut>(), 8),
            ("fuse_statfs_out", size_of::<StatfsOut>(), 80),
            ("fuse_fsync_in", size_of::<FsyncIn>(), 16),
            ("FUSE_COMPAT_SETXATTR_IN_SIZE", size_of::<SetxattrIn>(), 8),
            ("fuse_getxattr_in", size_of::<GetxattrIn>(), 8),
            ("fuse_getxattr_out", size_of::<GetxattrOut>(), 8),
            ("fuse_file_lock", size_of::<FileLock>(), 24),
            ("fuse_lk_in", size_of::<LkIn>(), 48),
            ("fuse_lk_out", size_of::<LkOut>(), 24),
            ("fuse_access_in", size_of::<AccessIn>(), 8),
            ("fuse_init_in", size_of::<InitIn>() + size_of::<InitInExt>(), 64),
            ("fuse_init_out", size_of::<InitOut>(), 64),
            ("fuse_interrupt_in", size_of::<InterruptIn>(), 8),
            ("fuse_ioctl_in", size_of::<IoctlIn>(), 32),
            ("fuse_ioctl_out", size_of::<IoctlOut>(), 16),
            ("fuse_poll_in", size_of::<PollIn>(), 24),
            ("fuse_fallocate_in", size_of::<FallocateIn>(), 32),
            ("fuse_dirent", size_of::<Dirent>(), 24),
            ("fuse_lseek_in", size_of::<LseekIn>(), 24),
            ("fuse_lseek_out", size_of::<LseekOut>(), 8),
            ("fuse_copy_file_range_in", size_of::<CopyFileRangeIn>(), 56),
            ("fuse_statx_in", size_of::<StatxIn>(), 24),
            ("fuse_sx_time", size_of::<SxTime>(), 16),
            ("fuse_statx", size_of::<Statx>(), 256),
            ("fuse_statx_out", size_of::<StatxOut>(), 288),
            ("fuse_syncfs_in", size_of::<SyncfsIn>(), 8),
            ("fuse_notify_inval_inode_out", size_of::<NotifyInvalInodeOut>(), 24),
            ("fuse_notify_inval_entry_out", size_of::<NotifyInvalEntryOut>(), 16),
            ("fuse_uring_ent_in_out", size_of::<UringEntInOut>(), 32),
            ("fuse_uring_req_header", size_of::<UringReqHeader>(), 288),
            (
                "fuse_uring_req_header.ring_ent_in_out",
                std::mem::offset_of!(UringReqHeader, ent),
                256,
            ),
            ("fuse_uring_cmd_req", size_of::<UringCmdReq>(), 24),
        ];
        for (name, ours, kernels) in sizes {
            assert_eq!(ours, kernels, "{name}");
        }
    }
}
