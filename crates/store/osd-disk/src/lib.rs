//! The OSD on a disk: records in LMDB ([`DiskMeta`]), objects as files ([`DiskObjects`]), and the
//! superblock that says which target a directory belongs to.

#![allow(
    unsafe_code,
    reason = "LMDB's C interface, io_uring, preadv2; each use says why it is sound"
)]
mod durable;
mod error;
pub mod export;
mod meta;
mod obj;
mod statvfs;
pub mod superblock;
#[cfg(test)]
mod testdir;

pub use error::DiskError;
pub use meta::{
    BeforeSync, CopyError, CopyProgress, DiskMeta, Inline, MetaOptions, Scrub, ScrubPhase,
    ScrubState, tear_records,
};
pub use obj::{DiskObjects, ObjOptions};
pub use statvfs::Statvfs;
pub use superblock::{Superblock, TargetLock};
