//! A new small file whose bytes are at the MDT goes there with its close, in one request.
//!
//! ```text
//! close --all bytes are in one run, none was sent--> MdtClose with the bytes --taken--> done
//!                                                        '--refused--> write, close
//! ```
//! Invariants
//! - The bytes count as being sent until the close is answered. So a recall, an fsync, a read and
//!   an unmount wait for it.
//! - The MDT knows DATA: it said so when it made the file ([`Disposition::BYTES`]), and has not
//!   restarted since, or the file's view would not be untouched.
//! - The request stays with this client until the close is durable, and a replay has the bytes.
//!
//! Until the close is durable, an open of the file has to wait for a commit. A mount whose programs
//! open files at once again would pay for that each time. So after such an open this client writes
//! and closes in two requests for a while.
//!
//! [`Disposition::BYTES`]: wire::body::Disposition::BYTES

use std::rc::Rc;

use bytes::Bytes;
use layout::FileLayout;
use types::{Errno, Extent, Fid};
use wire::body::{CloseFlags, CloseReq, SetattrReq};
use wire::{PUT_BYTES_MAX, SizeState};

use super::attrs::{self, flush_attrs, have_landed, send_again};
use super::{Leaving, begin_all, flush, landed, leave, send_leaving};
use crate::Error;
use crate::handle::Open;
use crate::stat::Stat;

/// Whether all bytes of a file that has these are at its MDT, in one request.
fn fits(layout: &FileLayout, fid: Fid, extent: Extent) -> bool {
    extent.start() == 0
        && extent.end() <= PUT_BYTES_MAX as u64
        && layout.mdt_object() == Some(fid)
        && layout.stripe_of(extent.end() - 1) == Some(0)
}

/// All bytes of a file, and changes of its attributes, on their way with its close.
pub(in crate::data) struct Fresh {
    open: Rc<Open>,
    leaving: Leaving,
    attrs: Option<attrs::Leaving>,
}

/// Whether all that is kept of a file may go with its close.
fn may_go(open: &Open) -> bool {
    let (inner, inode) = (&open.inner, &open.inode);
    let extent = inode.keeping.kept.borrow().as_ref().map(|kept| kept.run.extent());
    let (Some(extent), Some(layout)) = (extent, inode.layout()) else { return false };
    inode.keeping.drawn.get() == 0
        && fits(&layout, inode.fid, extent)
        && inode.takes_bytes(&layout)
        && inode.attr().nlink > 0
        && !inode.is_lost()
        && inode.access.borrow().pending().is_none()
        && inner.keeper.brought.may_bring(inner.env.now())
}

/// One of several descriptors of a handle is closed: begins to send all that is kept of its file,
/// without what may go with the close of the handle, which mostly follows at once.
pub(crate) fn begin_flush(open: &Open) {
    if !may_go(open) {
        begin_all(&open.inner, &open.inode);
    }
}

/// Takes what the close of a file may bring. Kept attributes go too, unless another caller has set
/// them or they are under way.
pub(in crate::data) async fn take(open: &Rc<Open>) -> Option<Fresh> {
    let attrs = &open.inode.keeping.attrs;
    if !attrs.takes(&open.ctx.creds) {
        flush_attrs(&open.inner, &open.inode).await;
    }
    if !attrs.takes(&open.ctx.creds) || !may_go(open) {
        return None;
    }
    let leaving = leave(&open.inode)?;
    Some(Fresh { open: open.clone(), leaving, attrs: attrs.leave() })
}

impl Fresh {
    /// The close that brings them.
    pub(in crate::data) fn body(&self) -> CloseReq {
        let Fresh { open, leaving, attrs } = self;
        let epoch = open.inode.with_view(|view| view.epoch()).unwrap_or(0);
        CloseReq {
            fid: open.inode.fid.into(),
            handle: open.handle,
            flags: CloseFlags::WROTE | CloseFlags::DATA | CloseFlags::ATTRS.when(attrs.is_some()),
            size: leaving.data.len() as u64,
            mtime: leaving.mtime.sec,
            mtime_nsec: leaving.mtime.nsec,
            write_epoch: epoch,
            stripes: 1,
            ..CloseReq::default()
        }
    }

    pub(in crate::data) fn bytes(&self) -> Bytes {
        self.leaving.data.clone()
    }

    pub(in crate::data) fn attrs(&self) -> Option<SetattrReq> {
        let attrs = self.attrs.as_ref();
        attrs.map(|attrs| attrs.request(&self.open.inner, self.open.inode.fid))
    }

    /// The MDT has closed the handle. They are lost if it has not taken them, which an MDT of a
    /// version before this does.
    pub(in crate::data) fn closed(self, stat: &Stat) {
        let (size, fid) = (self.leaving.data.len() as u64, self.open.inode.fid);
        if stat.attr.size_state() != SizeState::Clean || stat.attr.size != size {
            return self.lost(&Error::local(Errno::EIO, "mds_close").about(fid));
        }
        planted::reached("client: a close brought all bytes of a file");
        let inner = &self.open.inner;
        inner.keeper.give_back(&self.leaving.costs); // the room at the data target is as before
        inner.keeper.brought.note(fid, inner.env.now());
        if self.attrs.is_some() {
            have_landed(inner, &self.open.inode);
        }
        landed(inner, &self.open.inode, self.leaving.number, self.leaving.data.len());
    }

    /// The MDT does not take them: returns when they are written, or lost. Attributes are under way
    /// then. Of a file that was removed meanwhile it never takes them, and those of others all the
    /// same.
    pub(in crate::data) async fn write(self, why: &Error) {
        let Fresh { open, leaving, attrs } = self;
        if why.errno() != Errno::ENOENT {
            open.inner.keeper.brought.rest(open.inner.env.now());
        }
        if let Some(attrs) = attrs {
            send_again(&open.inner, &open.inode, attrs);
        }
        send_leaving(&open.inner, &open.inode, leaving);
        flush(&open.inner, &open.inode).await;
    }

    /// They may not be at the MDT, and nothing can be done about it.
    pub(in crate::data) fn lost(self, error: &Error) {
        let Fresh { open, leaving, attrs } = self;
        let inner = &open.inner;
        inner.keeper.sent(&leaving.costs);
        inner.lose_kept(open.inode.fid, leaving.extent, error);
        if attrs.is_some() {
            have_landed(inner, &open.inode);
        }
        landed(inner, &open.inode, leaving.number, leaving.data.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::layout;

    #[test]
    fn bytes_at_an_ost_do_not_go_with_a_close() {
        let extent = |start, end| Extent::new(start, end).expect("not empty");
        let striped = layout(1);
        assert!(!fits(&striped, Fid::ROOT, extent(0, 9)));
    }
}
