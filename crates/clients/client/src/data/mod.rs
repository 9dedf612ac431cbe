//! File data: bytes between the application and the objects on the OSTs.

mod allocate;
mod append;
mod close;
mod closes;
mod closing;
mod copy;
mod cut;
mod cuts;
mod exist;
mod glimpse;
mod group;
mod keep;
mod left;
mod lend;
mod migrate;
mod newer;
mod on_open;
mod order;
mod read;
mod read_on_open;
mod seek;
mod set_id;
mod sync;
mod truncate;
mod under_way;
mod write;
mod writer;

use std::rc::Rc;

use layout::FileLayout;
use types::{Errno, Fid, TargetId};

use crate::handle::Open;
use crate::{Error, Result};

pub(crate) use allocate::allocate;
pub use append::Appending;
pub(crate) use append::append;
pub(crate) use close::{Leaves, close};
pub(crate) use closing::Closes;
pub(crate) use copy::copy;
pub(crate) use cuts::Cuts;
pub(crate) use glimpse::{Objects as Told, Question, settle};
pub use keep::KeptStats;
pub(crate) use keep::{
    Keeper, Keeping, Pause, begin_flush, flush, flush_attrs, is_made, keep_append, send_off,
};
pub use migrate::Migration;
pub use on_open::OnOpenStats;
pub(crate) use on_open::{FILE_BYTES_MAX, OnOpen};
pub(crate) use order::DataChange;
pub(crate) use read::{joined, read};
pub(crate) use seek::seek;
pub(crate) use set_id::look_at_mode;
pub(crate) use sync::fsync;
pub(crate) use under_way::UnderWay;
pub(crate) use write::write;

/// Largest offset of a byte: applications' offsets are signed.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Object and OST of a stripe.
fn place(layout: &FileLayout, stripe: u32) -> (Fid, TargetId) {
    let (object, ost) = layout.object(stripe);
    (object, TargetId::ost(ost.0))
}

/// The layout under which to write bytes below `behind`. A file made without one gets it with its
/// first open for write, or now; a component gets its objects now. What the last one that is known
/// does not reach may lie in one that was added.
async fn layout_for_write(open: &Rc<Open>, behind: u64) -> Result<Rc<FileLayout>> {
    let refused = || Error::local(Errno::ENODATA, "layout").about(open.inode.fid);
    let known = open.layout_for_read().await?;
    let is_only_seen = open.inode.is_only_seen();
    let known =
        known.filter(|layout| !is_only_seen && !layout.misses(behind) && behind <= layout.end());
    let layout = match known {
        Some(layout) => layout,
        None => {
            let (ctx, fid) = (&open.ctx, open.inode.fid);
            let stat = open.inner.lay_out(ctx, fid, open.handle, behind).await?;
            open.inode.learn(&stat);
            open.inode.layout().filter(|layout| !layout.misses(behind)).ok_or_else(refused)?
        }
    };
    if behind <= layout.end() { Ok(layout) } else { Err(refused()) }
}
