//! The data target of an MDT, as the MDT of the same process uses it without a request.
//!
//! A file that is made with all of its bytes gets its object first and its records then. The MDT
//! commits such records only after [`Data::sync`], so there is no name without its bytes.

use std::rc::Rc;

use bytes::Bytes;
use env::LocalFuture;
use types::{Errno, Fid, Nid, Timespec};

/// All bytes of a file that is about to be made.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// The file, and its object.
    pub fid: Fid,
    /// Number of the store of its MDT.
    pub store: u64,
    /// From its first byte on, at least one.
    pub bytes: Bytes,
    /// The time of the change.
    pub mtime: Timespec,
    /// A replay: it had its room before.
    pub replay: bool,
    /// For statistics: the client.
    pub from: Nid,
    /// For statistics: its job.
    pub job: [u8; 32],
}

/// What an MDT asks of its data target inside their process.
pub trait Data {
    /// Writes the object of a new file; its blocks, in units of 512 bytes. After a failure there
    /// may be an object.
    ///
    /// ENOSPC; EROFS if the target takes no changes, EAGAIN while it recovers; ESTALE for an object
    /// that was destroyed, EIO for one of another file.
    fn write_new(self: Rc<Self>, file: NewFile) -> LocalFuture<'static, Result<u64, Errno>>;

    /// Removes the object of a file that was not made, durably. `store`: as in [`NewFile`]. An
    /// object of another file stays.
    fn remove_new(self: Rc<Self>, fid: Fid, store: u64) -> LocalFuture<'static, Result<(), Errno>>;

    /// Makes everything durable that was written before this call. EIO: the target has failed.
    fn sync(self: Rc<Self>) -> LocalFuture<'static, Result<(), Errno>>;
}
