//! close: sends size, blocks and times to the MDT, so that a later `stat` asks no OST.
//!
//! The MDT accepts the size only if this handle was the only one open for writing since it opened.
//!
//! A data change whose caller was killed may still be under way. The close waits until the target
//! has executed the change or never will. Until then the MDT counts a writer and accepts a size
//! from no client.
//!
//! If several handles were open for writing, the reply to the last close says that the file is
//! still dirty. The client then asks for the size once more and states it in the background, under
//! the epoch that this close left behind.

use std::rc::Rc;

use endpoint::Keep;
use types::{Errno, Fid};
use wire::body::{CloseFlags, CloseReq, OstAttr};
use wire::{Opcode, SizeState, encode_body};

use super::closing::ReadyClose;
use super::glimpse::Question;
use super::keep::fresh::{self, Fresh};
use super::keep::{Pause, begin_flush, flush_whole};
use crate::client::{Inner, mdt_of};
use crate::grants::Scope;
use crate::handle::Open;
use crate::stat::Stat;
use crate::{Ctx, Error, Result, flags, limits, size};

/// When the request of a close leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Once it is ready: the caller's next request has to come after it.
    AtOnce,
    /// With others that are ready ([`super::closes`]).
    InTurn,
}

/// Closes the handle. Runs to its end once begun.
pub(crate) async fn close(open: &Rc<Open>, leaves: Leaves) -> Result<()> {
    let writes = flags::can_write(open.flags);
    // the MDT may take the right away with the close
    let pause = writes.then(|| Pause::begin(&open.inode));
    let done = match writes {
        true => tell_written(open, leaves).await,
        false => tell(open, leaves).await,
    };
    drop(pause);
    let heard = open.check_heard("close");
    match done.transpose() {
        Some(done) => end(open, done).and(heard),
        None => Err(Error::local(Errno::ETIMEDOUT, "close").about(open.inode.fid)),
    }
}

/// The handle counts no more. Until then this client uses no attributes that the MDT has granted of
/// a file that it writes.
fn end(open: &Open, done: Result<Stat>) -> Result<()> {
    let (inner, fid) = (&open.inner, open.inode.fid);
    if inner.inodes.detach(&open.inode, open.flags) {
        inner.losses.closed(fid);
        inner.grants.of(fid).forget_bytes(fid);
    }
    let is_dirty = done?.attr.size_state() == SizeState::Dirty;
    if flags::can_write(open.flags) && is_dirty && !open.inode.has_writers() {
        inner.settle_later(&open.ctx, fid);
    }
    Ok(())
}

/// Closes when all is sent that is kept. The bytes of a new file may go with the close. Nothing: as
/// [`tell`].
async fn tell_written(open: &Rc<Open>, leaves: Leaves) -> Result<Option<Stat>> {
    begin_flush(open);
    if let Some(fresh) = fresh::take(open).await {
        let closed = bring(open, &fresh).await;
        match closed {
            Ok(stat) => {
                fresh.closed(&stat);
                return Ok(Some(stat));
            }
            Err(error) if error.is_refusal() => fresh.write(&error).await,
            Err(error) => {
                fresh.lost(&error);
                return Err(error);
            }
        }
    }
    flush_whole(&open.inner, &open.inode).await;
    tell(open, leaves).await
}

/// Closes with all bytes of the file, and kept attributes.
async fn bring(open: &Open, fresh: &Fresh) -> Result<Stat> {
    let fid = open.inode.fid;
    let mut call = open.call(Opcode::MdtClose, &fresh.body()).buf(fresh.bytes());
    if let Some(attrs) = fresh.attrs() {
        call = call.buf(encode_body(&attrs));
    }
    // one that is refused has closed nothing: the bytes are written, and the handle is closed then
    let keep = Keep::Closes { opens: Rc::new(vec![open.xid]) };
    let call = call.keep(keep).urgent(true); // a recall may wait for it
    let closed = open.inner.change(Scope::written(fid), mdt_of(fid), call).await;
    closed.map(|(stat, _)| stat).map_err(|error| error.about(fid))
}

/// Closes when no change is under way. A soft mount does not wait long. Nothing: the handle is
/// closed in the background. For as long as a change may still be executed, both the MDT and this
/// client count a writer.
async fn tell(open: &Rc<Open>, leaves: Leaves) -> Result<Option<Stat>> {
    if open.inode.is_lost() || settle(open).await {
        return tell_now(open, leaves).await.map(Some);
    }
    let later = open.clone();
    let pause = Pause::begin(&open.inode);
    open.inner.env.spawn("close", async move {
        let _pause = pause;
        later.inode.under_way.settled().await;
        let done = tell_now(&later, leaves).await;
        if let Err(error) = end(&later, done) {
            tracing::debug!("a handle was closed late: {error}");
        }
    });
    Ok(None)
}

async fn tell_now(open: &Rc<Open>, leaves: Leaves) -> Result<Stat> {
    let fid = open.inode.fid;
    if open.inode.is_lost() {
        return Err(Error::local(Errno::EIO, "close").about(fid));
    }
    let mut body = CloseReq { fid: fid.into(), handle: open.handle, ..CloseReq::default() };
    let mut more_stripes = Vec::new();
    if open.wrote.get() {
        body.flags |= CloseFlags::WROTE;
        more_stripes = state_size(open, &mut body).await;
    }
    if open.inode.access.borrow().pending().is_some() {
        super::keep::flush_attrs(&open.inner, &open.inode).await; // an older time comes first
    }
    let atime = open.inode.access.borrow().pending();
    if let Some(atime) = atime {
        body.flags |= CloseFlags::ATIME;
        (body.atime, body.atime_nsec) = (atime.sec, atime.nsec);
    }
    let scope = match flags::can_write(open.flags) {
        true => Some(Scope::written(fid)),
        false => atime.map(|_| Scope::data(fid)),
    };
    let (ctx, projid) = (open.ctx.clone(), open.inode.projid());
    let ready = ReadyClose { body, more_stripes, open: open.xid, ctx, projid, scope };
    let closed = match leaves {
        Leaves::InTurn if ready.more_stripes.is_empty() => open.inner.close_in_turn(ready).await,
        Leaves::AtOnce | Leaves::InTurn => open.inner.close_alone(ready).await,
    };
    let stat = closed.map_err(|error| {
        match error.errno() {
            // it was on its way when the session that it belongs to ended
            Errno::EBADF => Error::local(Errno::EIO, "mds_close").about(fid),
            _ => error.about(fid),
        }
    })?;
    if let Some(atime) = atime {
        open.inode.access.borrow_mut().told(atime);
    }
    Ok(stat)
}

/// Waits for what is under way, as long as the mount allows. Says whether nothing is any more.
async fn settle(open: &Open) -> bool {
    let settled = open.inode.under_way.settled();
    match open.inner.patience() {
        Some(patience) => open.inner.env.timeout(patience, settled).await.is_some(),
        None => {
            settled.await;
            true
        }
    }
}

/// Fills the size in, where it is known or can be asked. Without it the file stays dirty, which is
/// always true. Returns the stripes from 64 on that have an object, as they are sent.
async fn state_size(open: &Rc<Open>, body: &mut CloseReq) -> Vec<u8> {
    let Some(layout) = open.inode.layout() else { return Vec::new() };
    if !open.inode.under_way.is_empty() {
        return Vec::new();
    }
    let Some(view) = open.inode.with_view(|view| view.clone()).filter(size::WriteView::may_state)
    else {
        return Vec::new();
    };
    let question = Question { layout: layout.clone(), stripes: view.unknown(&layout) };
    let asked = match open.inner.glimpse(&open.ctx, &[question]).await {
        Ok(mut found) => found.remove(0),
        Err(error) => {
            tracing::debug!("the file stays dirty at close: {error}");
            return Vec::new();
        }
    };
    let objects = view.complete(&layout, &asked);
    let stripes = size::existing(&objects);
    if !open.inode.stripes_of(&layout).without(&stripes).is_empty() {
        tracing::debug!(fid = %open.inode.fid, "the file stays dirty at close: an object of it is missing");
        return Vec::new();
    }
    put_size(body, &layout, &objects, view.epoch());
    body.stripes = stripes.first_part();
    stripes.second_part()
}

fn put_size(body: &mut CloseReq, layout: &layout::FileLayout, objects: &[OstAttr], epoch: u64) {
    let extents = size::add_up(layout, objects);
    body.flags |= CloseFlags::SIZE;
    (body.size, body.blocks) = (extents.size, extents.blocks);
    let mtime = extents.mtime.unwrap_or_default();
    (body.mtime, body.mtime_nsec) = (mtime.sec, mtime.nsec);
    body.write_epoch = epoch;
}

impl Inner {
    /// Finds out and states the size of a dirty file that nobody writes any more, in the
    /// background.
    pub(crate) fn settle_later(self: &Rc<Self>, ctx: &Ctx, fid: Fid) {
        let (inner, ctx) = (self.clone(), ctx.clone());
        self.env.spawn("settle size", async move {
            if let Err(error) = inner.settle_size(&ctx, fid).await {
                tracing::debug!("the file stays dirty: {error}");
            }
        });
    }

    /// A stat found a dirty file's size: if it looks as if nobody wrote any more (its writer died),
    /// the MDT may have it, so that the next stat need not ask. Refused once, it is not offered
    /// again before something has changed.
    pub(crate) fn offer_size(self: &Rc<Self>, ctx: &Ctx, stat: &Stat) {
        let attr = stat.attr;
        let fid = attr.fid();
        let quiet = attr.mtime().sec + limits::QUIET_SECS <= self.env.wall().sec;
        let here = self.inodes.get(fid).is_some_and(|inode| inode.has_writers());
        if !crate::needs_glimpse(&attr)
            || stat.lost
            || !quiet
            || self.cuts.has(fid)
            || here
            || self.config.bugs.forget_glimpse()
            || stat.layout.is_none()
        {
            return;
        }
        let mut offered = self.offered.borrow_mut();
        if offered.len() >= limits::OFFERED_MAX {
            offered.clear();
        }
        if offered.insert((fid, ctx.creds.uid), stat.epoch) == Some(stat.epoch) {
            return;
        }
        let (inner, ctx, epoch, stripes) =
            (self.clone(), ctx.clone(), stat.epoch, stat.stripes.clone());
        self.env.spawn("offer size", async move {
            if let Err(error) = inner.state_size(&ctx, &attr, epoch, &stripes).await {
                tracing::debug!("the file stays dirty: {error}");
            }
        });
    }

    async fn settle_size(self: &Rc<Self>, ctx: &Ctx, fid: Fid) -> Result<()> {
        let mut stat = self.stat(ctx, fid, 0).await?;
        self.resolve(ctx, &mut stat).await?;
        let is_sure = !stat.lost && !self.cuts.has(fid) && !self.config.bugs.forget_glimpse();
        if crate::needs_glimpse(&stat.attr) && is_sure {
            self.state_size(ctx, &stat.attr, stat.epoch, &stat.stripes).await?;
        }
        Ok(())
    }
}
