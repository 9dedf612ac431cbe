//! Truncate: first the MDT, then every object, under the file's EX lock.
//!
//! ```text
//! lock EX - MDT: size, marked dirty - punch each object to its share - MDT: size known - unlock
//! ```
//! If the file grows, the object that holds the last byte is created if it is missing. From then on
//! the objects alone give the size. If the client dies in between, the file stays dirty and its
//! objects give the size. Once begun, the call runs to its end, even if the caller dies.

use std::rc::Rc;

use env::LocalFuture;
use layout::{FileLayout, StripeSet};
use types::{Errno, Fid, Timespec};
use wire::body::{Claim, OstAttr, OstPunchReq, PunchFlags, SetattrFlags};
use wire::{Attr, Opcode, SizeState};

use super::keep::Reshaping;
use super::newer::Tries;
use super::{OFFSET_MAX, place};
use crate::client::Inner;
use crate::join::try_join;
use crate::namespace::AttrChange;
use crate::stat::Stat;
use crate::{Ctx, Error, Result, limits, size};

/// A cut under way.
struct Cutting(Rc<Inner>, Fid);

impl Cutting {
    fn begin(inner: &Rc<Inner>, fid: Fid) -> Cutting {
        *inner.cuts.0.borrow_mut().entry(fid).or_default() += 1;
        Cutting(inner.clone(), fid)
    }
}

impl Drop for Cutting {
    fn drop(&mut self) {
        let mut cuts = self.0.cuts.0.borrow_mut();
        let count = cuts.get_mut(&self.1).expect("each cut is counted");
        *count -= 1;
        if *count == 0 {
            cuts.remove(&self.1);
        }
    }
}

/// Answers to a stated size that mean: the file stays dirty.
const NOT_TAKEN: [Errno; 5] =
    [Errno::EACCES, Errno::EBUSY, Errno::ESTALE, Errno::EAGAIN, Errno::ENOENT];

impl Inner {
    /// Changes attributes, the size among them.
    pub(crate) async fn truncate(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        change: AttrChange,
    ) -> Result<Stat> {
        if change.attr.size > OFFSET_MAX {
            return Err(Error::local(Errno::EFBIG, "truncate").about(fid));
        }
        let _is_under_way = self.inodes.get(fid).map(|inode| Reshaping::begin(&inode));
        let _is_cut = Cutting::begin(self, fid);
        self.flush_file(fid).await;
        if self.config.bugs.cut_without_lock() {
            return self.truncate_locked(ctx, fid, change, self.claim(fid)).await;
        }
        // what another client keeps is sent before the lock is taken, which it may need
        if !self.grants.of(fid).may_write(fid) {
            self.stat_exact(ctx, fid, change.handle).await?;
        }
        let lock = self.lock_file(ctx, fid).await?;
        let done = self.truncate_locked(ctx, fid, change, lock.claim).await;
        lock.unlock().await.and(done)
    }

    async fn truncate_locked(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        change: AttrChange,
        claim: Claim,
    ) -> Result<Stat> {
        let (to, handle) = (change.attr.size, change.handle);
        let mut stat = self.setattr(ctx, fid, change).await?;
        if stat.layout.is_none() || stat.attr.size_state() != SizeState::Dirty {
            return Ok(stat); // never written and still empty: there is nothing to cut
        }
        let (layout, objects) = self.cut_newest(ctx, &mut stat, handle, to, claim).await?;
        let extents = size::add_up(&layout, &objects);
        (stat.attr.size, stat.attr.blocks) = (to, extents.blocks);
        if !self.inodes.get(fid).is_some_and(|inode| inode.has_writers()) {
            self.state_size(ctx, &stat.attr, stat.epoch, &size::existing(&objects)).await?;
        }
        Ok(stat)
    }

    /// After an open with O_TRUNC that the MDT has executed: the objects follow, before the open
    /// returns.
    pub(crate) async fn truncate_opened(self: &Rc<Self>, ctx: &Ctx, stat: &Stat) -> Result<()> {
        let fid = stat.attr.fid();
        if stat.layout.is_none() {
            return Ok(());
        }
        let _is_under_way = self.inodes.get(fid).map(|inode| Reshaping::begin(&inode));
        let _is_cut = Cutting::begin(self, fid);
        self.flush_file(fid).await; // what was written before
        let lock = self.lock_file(ctx, fid).await?;
        let done = self.cut_opened(ctx, stat, lock.claim).await;
        lock.unlock().await.and(done)
    }

    async fn cut_opened(self: &Rc<Self>, ctx: &Ctx, stat: &Stat, claim: Claim) -> Result<()> {
        let mut newest = stat.clone();
        let (_, objects) = self.cut_newest(ctx, &mut newest, stat.handle, 0, claim).await?;
        if !self.inodes.get(stat.attr.fid()).is_some_and(|inode| inode.has_writers()) {
            self.state_size(ctx, &stat.attr, stat.epoch, &size::existing(&objects)).await?;
        }
        Ok(())
    }

    /// Cuts the objects of the newest layout, which is put into `stat`.
    async fn cut_newest(
        self: &Rc<Self>,
        ctx: &Ctx,
        stat: &mut Stat,
        handle: u64,
        to: u64,
        claim: Claim,
    ) -> Result<(Rc<FileLayout>, Vec<OstAttr>)> {
        let fid = stat.attr.fid();
        let mut tries = Tries::locked();
        loop {
            let none = || Error::local(Errno::EPROTO, "truncate").about(fid);
            let layout = stat.layout.clone().ok_or_else(none)?;
            match self.cut(ctx, stat, &layout, to, claim).await {
                Err(error) => {
                    let newer = tries.newer(self, ctx, fid, handle, &layout, error).await?;
                    (stat.layout, stat.stripes) = (newer.layout, newer.stripes);
                }
                Ok(objects) => return Ok((layout, objects)),
            }
        }
    }

    /// Cuts every object to its share of `to` bytes, as the MDT's answer `stat` allows, and tells
    /// the handles of this client what is there now. EIO where an object is lost, unless nothing is
    /// left of the file: then the MDT misses none.
    async fn cut(
        self: &Rc<Self>,
        ctx: &Ctx,
        stat: &Stat,
        layout: &Rc<FileLayout>,
        to: u64,
        claim: Claim,
    ) -> Result<Vec<OstAttr>> {
        let (fid, epoch, must_exist) = (stat.attr.fid(), stat.epoch, &stat.stripes);
        let inode = self.inodes.get(fid);
        let generation = inode.as_ref().and_then(|inode| {
            inode.with_view(|view| {
                view.truncate_begins();
                view.note_epoch(epoch);
                view.generation()
            })
        });
        let now = self.env.wall();
        let last = to.checked_sub(1).and_then(|last| layout.stripe_of(last));
        let punches = (0..layout.stripes()).map(|stripe| {
            // in the place of a lost object an empty one would look like what the file held
            let create = last == Some(stripe) && !must_exist.contains(stripe);
            let punch: LocalFuture<'_, Result<OstAttr>> =
                Box::pin(self.punch(ctx, fid, layout, stripe, to, create, now, claim));
            punch
        });
        let objects = try_join(punches.collect(), limits::BATCH_RPCS_MAX)
            .await
            .map_err(|error| error.about(fid))?;
        let lost = must_exist.without(&size::existing(&objects));
        self.check_lost(ctx, fid, layout, lost).await?;
        if let (Some(inode), Some(generation)) = (inode, generation) {
            inode.with_view(|view| view.truncated(&objects, generation));
        }
        Ok(objects)
    }

    #[expect(clippy::too_many_arguments, reason = "one punch is the product of all of them")]
    pub(super) async fn punch(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        layout: &FileLayout,
        stripe: u32,
        to: u64,
        create: bool,
        now: Timespec,
        claim: Claim,
    ) -> Result<OstAttr> {
        let (object, ost) = place(layout, stripe);
        let body = OstPunchReq {
            object: object.into(),
            parent: fid.into(),
            size: layout.object_size(stripe, to),
            mtime: now.sec,
            mtime_nsec: now.nsec,
            flags: PunchFlags::CREATE.when(create),
            claim,
            layout_version: layout.generation(),
            reserved: 0,
        };
        self.under_lease(fid, claim).await?;
        let call = self.call(ctx, Opcode::OstPunch, &body);
        Ok(self.ask_claiming(ost, (fid, claim), call).await?.reply.body())
    }

    /// Tells the MDT a size that was found out under `epoch`, and which stripes have an object;
    /// says whether it is clean now. Not taken where somebody writes, or from one who may not
    /// write: then it stays dirty.
    pub(crate) async fn state_size(
        self: &Rc<Self>,
        ctx: &Ctx,
        attr: &Attr,
        epoch: u64,
        stripes: &StripeSet,
    ) -> Result<bool> {
        let change = AttrChange { attr: *attr, epoch, ..AttrChange::of(SetattrFlags::SIZE_KNOWN) };
        match self.setattr_known(ctx, attr.fid(), change, stripes).await {
            Ok(stat) => Ok(stat.attr.size_state() != SizeState::Dirty),
            Err(error) if NOT_TAKEN.contains(&error.errno()) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
