//! Superblock.
use std::path::Path;
use types::{FsName, NidAddr, TargetId, Timespec};
use crate::DiskError;

/// Who a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Compatible features.
    pub compat: u64,
    /// Features that a reader may ignore.
    pub ro_compat: u64,
    /// Features that must be known.
    pub incompat: u64,
    /// File system.
    pub fsname: FsName,
    /// Target.
    pub target: TargetId,
    /// Identity of this storage.
    pub uuid: u128,
    /// Where the MGS is reached.
    pub mgs: Vec<NidAddr>,
    /// When it was formatted.
    pub created: Timespec,
}

impl Superblock {
    /// A fresh target.
    #[must_use]
    pub fn new(fsname: FsName, target: TargetId, uuid: u128, mgs: Vec<NidAddr>, created: Timespec) -> Superblock {
        Superblock { compat: 0, ro_compat: 0, incompat: 0, fsname, target, uuid, mgs, created }
    }
}

/// Held while a target is served.
pub struct TargetLock;

/// Makes `dir` (created if it is not there) the target `superblock`.
pub fn format(_dir: &Path, _superblock: &Superblock, _reformat: bool) -> Result<(), DiskError> { unimplemented!() }
/// Reads who `dir` is.
pub fn open(_dir: &Path) -> Result<Superblock, DiskError> { unimplemented!() }
/// Locks `dir` against a second server.
pub fn lock(_dir: &Path) -> Result<TargetLock, DiskError> { unimplemented!() }
