//! Attributes of a file as messages and inode records carry them.

use types::{Fid, Timespec};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use crate::flags::AttrFlags;

/// What the MDT knows of a file's size. Inode records and close requests carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum SizeState {
    /// No byte was ever written: size is the MDT's (0, or what truncate set), there are no objects.
    #[default]
    NeverWritten = 0,
    /// Size, blocks and mtime of the MDT are exact.
    Clean = 1,
    /// Somebody may be writing, or died writing: ask the OSTs.
    Dirty = 2,
}

impl SizeState {
    /// From the wire; what is unknown is dirty, the safe reading.
    #[must_use]
    pub fn from_u32(value: u32) -> SizeState {
        match value {
            0 => SizeState::NeverWritten,
            1 => SizeState::Clean,
            _ => SizeState::Dirty,
        }
    }
}

/// Attributes: 128 bytes, little-endian.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Attr {
    /// Sequence of the file's FID.
    pub fid_seq: u64,
    /// Number in that sequence.
    pub fid_oid: u32,
    /// Version of the FID, 0.
    pub fid_ver: u32,
    /// Type and permission bits (`st_mode`).
    pub mode: u32,
    /// Names of the file; of a directory 2 and one for each subdirectory.
    pub nlink: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Bytes, exact unless the size state says that the objects know more.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Device number of a device file (`st_rdev`).
    pub rdev: u64,
    /// Access time, seconds since 1970.
    pub atime: i64,
    /// Modification time, seconds since 1970.
    pub mtime: i64,
    /// Change time, seconds since 1970.
    pub ctime: i64,
    /// Birth time, seconds since 1970.
    pub btime: i64,
    /// Nanoseconds of the access time.
    pub atime_nsec: u32,
    /// Nanoseconds of the modification time.
    pub mtime_nsec: u32,
    /// Nanoseconds of the change time.
    pub ctime_nsec: u32,
    /// Nanoseconds of the birth time.
    pub btime_nsec: u32,
    /// [`SizeState`].
    pub size_state: u32,
    /// Raised with every change of the layout.
    pub layout_version: u32,
    /// Project id.
    pub projid: u32,
    /// What is not in any other field.
    pub flags: AttrFlags,
    /// Transno of the last change (version-based recovery).
    pub version: u64,
}

const _: () = assert!(size_of::<Attr>() == 128);

impl Attr {
    /// The FID of its three parts.
    #[must_use]
    pub fn fid(&self) -> Fid {
        Fid { seq: self.fid_seq, oid: self.fid_oid, ver: self.fid_ver }
    }

    /// The same attributes under another FID.
    #[must_use]
    pub fn with_fid(mut self, fid: Fid) -> Attr {
        (self.fid_seq, self.fid_oid, self.fid_ver) = (fid.seq, fid.oid, fid.ver);
        self
    }

    /// What the MDT knows of its size.
    #[must_use]
    pub fn size_state(&self) -> SizeState {
        SizeState::from_u32(self.size_state)
    }

    /// Type bits of the mode.
    #[must_use]
    pub fn file_type(&self) -> u32 {
        self.mode & S_IFMT
    }

    /// Whether the type bits of its mode say directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type() == S_IFDIR
    }

    /// Whether the type bits of its mode say regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type() == S_IFREG
    }

    /// Access time, with its nanoseconds.
    #[must_use]
    pub fn atime(&self) -> Timespec {
        Timespec::new(self.atime, self.atime_nsec)
    }

    /// Modification time, with its nanoseconds.
    #[must_use]
    pub fn mtime(&self) -> Timespec {
        Timespec::new(self.mtime, self.mtime_nsec)
    }

    /// Change time, with its nanoseconds.
    #[must_use]
    pub fn ctime(&self) -> Timespec {
        Timespec::new(self.ctime, self.ctime_nsec)
    }

    /// Set the access time.
    pub fn set_atime(&mut self, time: Timespec) {
        (self.atime, self.atime_nsec) = (time.sec, time.nsec);
    }

    /// Set the modification time.
    pub fn set_mtime(&mut self, time: Timespec) {
        (self.mtime, self.mtime_nsec) = (time.sec, time.nsec);
    }

    /// Set the change time.
    pub fn set_ctime(&mut self, time: Timespec) {
        (self.ctime, self.ctime_nsec) = (time.sec, time.nsec);
    }

    /// Birth time, with its nanoseconds.
    #[must_use]
    pub fn btime(&self) -> Timespec {
        Timespec::new(self.btime, self.btime_nsec)
    }

    /// Set the birth time.
    pub fn set_btime(&mut self, time: Timespec) {
        (self.btime, self.btime_nsec) = (time.sec, time.nsec);
    }
}

/// Mask of the type bits of a mode.
pub const S_IFMT: u32 = 0o170_000;
/// Fifo.
pub const S_IFIFO: u32 = 0o010_000;
/// Character device.
pub const S_IFCHR: u32 = 0o020_000;
/// Directory.
pub const S_IFDIR: u32 = 0o040_000;
/// Block device.
pub const S_IFBLK: u32 = 0o060_000;
/// Regular file.
pub const S_IFREG: u32 = 0o100_000;
/// Symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// Socket.
pub const S_IFSOCK: u32 = 0o140_000;
/// Set user id.
pub const S_ISUID: u32 = 0o4_000;
/// Set group id.
pub const S_ISGID: u32 = 0o2_000;
/// Sticky.
pub const S_ISVTX: u32 = 0o1_000;
