//! Data of files: bytes between the application and the objects on the OSTs.

mod allocate;
mod append;
mod close;
mod copy;
mod exist;
mod glimpse;
mod group;
mod order;
mod read;
mod seek;
mod set_id;
mod sync;
mod truncate;
mod write;

use std::rc::Rc;

use layout::Layout;
use types::{Errno, Fid, TargetId};

use crate::file::Open;
use crate::{Error, Result};

pub(crate) use allocate::allocate;
pub use append::Appending;
pub(crate) use append::append;
pub(crate) use close::close;
pub(crate) use copy::copy;
pub(crate) use glimpse::{Question, settle};
pub(crate) use order::{Change as DataChange, UnderWay};
pub(crate) use read::{joined, read};
pub(crate) use seek::seek;
pub(crate) use set_id::look_at_mode;
pub(crate) use sync::fsync;
pub(crate) use write::write;

/// Largest offset of a byte: applications' offsets are signed.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Object and OST of a stripe.
fn place(layout: &Layout, stripe: u32) -> (Fid, TargetId) {
    let (object, ost) = layout.object(stripe);
    (object, TargetId::ost(ost.0))
}

/// The layout under which to write; a file made without one gets it with its first open for write,
/// or now.
async fn layout_for_write(open: &Rc<Open>) -> Result<Rc<Layout>> {
    if let Some(layout) = open.inode.layout() {
        return Ok(layout);
    }
    let stat = open.inner.stat(&open.ctx, open.inode.fid, open.handle).await?;
    open.inode.learn(&stat);
    if open.inode.layout().is_none() {
        let stat = open.inner.place(open.inode.fid).await?;
        open.inode.learn(&stat);
    }
    open.inode.layout().ok_or_else(|| Error::local(Errno::ENODATA, "layout").about(open.inode.fid))
}
