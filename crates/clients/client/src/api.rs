//! Argument and result types of the calls.

use layout::{Asked, FileLayout};
use types::{Fid, TargetId, Timespec};
use wire::body::StatfsState;
use wire::dirent::Dirent;

pub use wire::Attr;

use crate::Lease;

/// A file by the MDT's word alone: no OST was asked.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// Where the size is not known, size, blocks and times are what the MDT knew last.
    pub attr: Attr,
    /// How long that holds.
    pub lease: Lease,
    /// The size is exact: nobody writes the file.
    pub size_known: bool,
}

/// Attributes to change; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission, set-id and sticky bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// Truncate or extend to this size.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// New change time, in place of the server's clock.
    pub ctime: Option<Timespec>,
    /// New project id.
    pub projid: Option<u32>,
    /// Drop set-user-id and set-group-id.
    pub kill_suid: bool,
}

/// What an access or modification time becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Now, by the server's clock.
    Now,
    /// This time.
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
    /// FID that `..` names.
    pub parent: Fid,
}

/// Space and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Unit of the counts of blocks below.
    pub block_bytes: u64,
    /// Blocks of all OSTs that answered.
    pub blocks: u64,
    /// Blocks that can still be written.
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
    /// MGT, MDT or OST, and its index.
    pub id: TargetId,
    /// `testfs-OST0002`.
    pub name: String,
    /// State of the import: FULL, REPLAY, DISCONN and so on.
    pub state: String,
    /// Whether the session with it is up.
    pub connected: bool,
    /// False after `active=0`: calls for it fail at once.
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
    /// What it lacks, and what its administrator said of it.
    pub marks: StatfsState,
}

/// What a file or directory says of striping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Striping {
    /// A file or directory without any.
    None,
    /// A file's layout.
    File(FileLayout),
    /// A directory's default for new files.
    Default(Asked),
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
    /// Gives back what is held.
    Unlock,
}

/// A lock to take, test or give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSpec {
    /// flock(2), POSIX, or the file lock of append and truncate.
    pub kind: LockKind,
    /// Shared or exclusive, or what is given back.
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
    /// How the other process holds it.
    pub mode: LockMode,
    /// First byte of the range in the way.
    pub start: u64,
    /// First byte behind it.
    pub end: u64,
    /// Process that holds it, on its own client.
    pub pid: u32,
}
