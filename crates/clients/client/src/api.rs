//! Values that calls take and return.

use layout::{Layout, Template};
use types::{Fid, TargetId, Timespec};
use wire::dirent::Dirent;

pub use wire::Attr;

/// Attributes to change; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Truncate or extend to this size.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time.
    pub ctime: Option<Timespec>,
    /// Project.
    pub projid: Option<u32>,
    /// Drop set-user-id and set-group-id.
    pub kill_suid: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Now, by the server's clock.
    Now,
    /// This.
    At(Timespec),
}

/// What a seek looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    /// Bytes that were written, or allocated with zeros.
    Data,
    /// Bytes that were not; the end of the file is a hole.
    Hole,
}

/// A page of a directory, in the directory's own order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirPage {
    /// Entries without "." and ".."; attributes as the MDT has them, so the size of a dirty file is
    /// not known (see [`crate::needs_glimpse`] and [`crate::Client::getattr_many`]).
    pub entries: Vec<Dirent>,
    /// Nothing stands behind them.
    pub at_end: bool,
    /// For "..".
    pub parent: Fid,
}

/// Space and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks free.
    pub blocks_free: u64,
    /// Blocks free for users.
    pub blocks_avail: u64,
    /// Inodes in all.
    pub files: u64,
    /// Inodes free.
    pub files_free: u64,
}

/// One target as this client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetState {
    /// Which.
    pub id: TargetId,
    /// `testfs-OST0002`.
    pub name: String,
    /// State of the import: FULL, REPLAY, DISCONN and so on.
    pub state: String,
    /// It answers now.
    pub connected: bool,
    /// Set active.
    pub active: bool,
    /// Where it is served.
    pub nid: String,
}

/// Space of one target, for `lfs df`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpace {
    /// Which, and its state.
    pub target: TargetState,
    /// Nothing where it did not answer in time.
    pub space: Option<Statfs>,
}

/// What a file or directory says of striping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Striping {
    /// A file or directory without any.
    None,
    /// A file's layout.
    File(Layout),
    /// A directory's default for new files.
    Default(Template),
}

/// Sort of an application's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    /// BSD `flock`, whole file, by open file description.
    Flock,
    /// POSIX `fcntl`, by range and process.
    Posix,
}

/// Mode of an application's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Shared, read.
    Shared,
    /// Exclusive, write.
    Exclusive,
    /// Give back.
    Unlock,
}

/// A lock to take, test or give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSpec {
    /// Sort.
    pub kind: LockKind,
    /// Mode.
    pub mode: LockMode,
    /// First byte (fcntl).
    pub start: u64,
    /// First byte behind (fcntl); `u64::MAX`: to the end.
    pub end: u64,
    /// Who holds it at this client: the kernel's lock owner.
    pub owner: u64,
    /// Wait until it is free; else EAGAIN.
    pub wait: bool,
}

impl LockSpec {
    /// A lock on the whole file.
    #[must_use]
    pub fn whole(kind: LockKind, mode: LockMode, owner: u64, wait: bool) -> LockSpec {
        LockSpec { kind, mode, start: 0, end: u64::MAX, owner, wait }
    }
}

/// Who stands in a lock's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockConflict {
    /// Its mode.
    pub mode: LockMode,
    /// Its first byte.
    pub start: u64,
    /// First byte behind it.
    pub end: u64,
    /// Its process.
    pub pid: u32,
}
