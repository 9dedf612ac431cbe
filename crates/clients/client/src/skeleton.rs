//! Signatures of the public API.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use env::Env;
use layout::Template;
use types::{Errno, Fid, FsName};

use crate::*;

fn none<T>() -> Result<T> {
    Err(Error::local(Errno::ENOSYS, "not here yet"))
}

/// A mounted file system. Cheap to clone; belongs to one executor thread.
#[derive(Clone)]
pub struct Client(Rc<()>);

/// An open file. Cheap to clone; close once, explicitly (a handle dropped unclosed is closed in the background).
#[derive(Clone)]
pub struct File(Rc<Cell<u32>>);

#[allow(unused_variables, clippy::unused_async)]
impl Client {
    pub async fn mount(env: &Env, config: MountConfig) -> Result<Client> { none() }
    pub async fn unmount(self) {}
    pub fn env(&self) -> &Env { unimplemented!() }
    pub fn fsname(&self) -> FsName { unimplemented!() }
    /// For whom calls wait now (D9): "testfs-OST0002 (reconnecting for 3 s)".
    pub fn waiting_on(&self) -> Vec<String> { Vec::new() }
    pub async fn lookup(&self, ctx: &Ctx, parent: Fid, name: &[u8]) -> Result<Attr> { none() }
    /// Path from the root, symbolic links not followed.
    pub async fn lookup_path(&self, ctx: &Ctx, path: &str) -> Result<Attr> { none() }
    pub async fn getattr(&self, ctx: &Ctx, fid: Fid, file: Option<&File>) -> Result<Attr> { none() }
    /// Sizes of many files (as readdir gave them) at the cost of one RPC per OST.
    pub async fn getattr_many(&self, ctx: &Ctx, attrs: &mut [Attr]) -> Result<()> { none() }
    pub async fn setattr(&self, ctx: &Ctx, fid: Fid, set: &SetAttr, file: Option<&File>) -> Result<Attr> { none() }
    pub async fn mkdir(&self, ctx: &Ctx, parent: Fid, name: &[u8], mode: u32) -> Result<Attr> { none() }
    pub async fn mknod(&self, ctx: &Ctx, parent: Fid, name: &[u8], mode: u32, rdev: u64) -> Result<Attr> { none() }
    pub async fn symlink(&self, ctx: &Ctx, parent: Fid, name: &[u8], target: &[u8]) -> Result<Attr> { none() }
    pub async fn create(
        &self, ctx: &Ctx, parent: Fid, name: &[u8], mode: u32, open_flags: u32, striping: Option<&Template>,
    ) -> Result<(Attr, File)> { none() }
    pub async fn open(&self, ctx: &Ctx, fid: Fid, open_flags: u32) -> Result<File> { none() }
    pub async fn unlink(&self, ctx: &Ctx, parent: Fid, name: &[u8]) -> Result<()> { none() }
    pub async fn rmdir(&self, ctx: &Ctx, parent: Fid, name: &[u8]) -> Result<()> { none() }
    /// `flags`: RENAME_NOREPLACE 1, RENAME_EXCHANGE 2.
    pub async fn rename(&self, ctx: &Ctx, parent: Fid, name: &[u8], new_parent: Fid, new_name: &[u8], flags: u32) -> Result<()> { none() }
    pub async fn link(&self, ctx: &Ctx, fid: Fid, parent: Fid, name: &[u8]) -> Result<Attr> { none() }
    pub async fn readlink(&self, ctx: &Ctx, fid: Fid) -> Result<Bytes> { none() }
    pub async fn readdir(&self, ctx: &Ctx, dir: Fid, cookie: u64, bytes_max: u32) -> Result<DirPage> { none() }
    pub async fn getxattr(&self, ctx: &Ctx, fid: Fid, name: &[u8]) -> Result<Bytes> { none() }
    /// `flags`: XATTR_CREATE 1, XATTR_REPLACE 2.
    pub async fn setxattr(&self, ctx: &Ctx, fid: Fid, name: &[u8], value: Bytes, flags: u32) -> Result<()> { none() }
    pub async fn listxattr(&self, ctx: &Ctx, fid: Fid) -> Result<Vec<Vec<u8>>> { none() }
    pub async fn removexattr(&self, ctx: &Ctx, fid: Fid, name: &[u8]) -> Result<()> { none() }
    pub async fn striping(&self, ctx: &Ctx, fid: Fid) -> Result<Striping> { none() }
    pub async fn statfs(&self) -> Result<Statfs> { none() }
    pub async fn df(&self) -> Vec<TargetSpace> { Vec::new() }
    pub fn osts(&self) -> Vec<TargetState> { Vec::new() }
    pub fn mdts(&self) -> Vec<TargetState> { Vec::new() }
    /// Everything acknowledged so far is durable when it returns.
    pub async fn sync(&self) -> Result<()> { none() }
    /// Directory's entries are durable when it returns.
    pub async fn fsync_dir(&self, ctx: &Ctx, dir: Fid) -> Result<()> { none() }
    /// All paths of a file, from the root, with a leading slash.
    pub async fn fid2path(&self, ctx: &Ctx, fid: Fid) -> Result<Vec<String>> { none() }
    pub async fn lock(&self, ctx: &Ctx, fid: Fid, spec: LockSpec) -> Result<()> { none() }
    pub async fn test_lock(&self, ctx: &Ctx, fid: Fid, spec: LockSpec) -> Result<Option<LockConflict>> { none() }
}

#[allow(unused_variables, clippy::unused_async)]
impl File {
    pub fn fid(&self) -> Fid { Fid::ZERO }
    /// Attributes as the open gave them.
    pub fn attr(&self) -> Attr { Attr::default() }
    /// O_* of the open.
    pub fn flags(&self) -> u32 { 0 }
    /// Short only at the end of the file.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes> { none() }
    /// All of it, or an error. With O_APPEND `offset` is ignored.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<usize> { none() }
    pub async fn fsync(&self, datasync: bool) -> Result<()> { none() }
    pub async fn close(&self) -> Result<()> { none() }
}
