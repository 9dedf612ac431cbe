//! Glimpse: size, blocks and times of objects. One request per OST covers a whole batch, so the
//! cost of a file does not grow with its stripe count.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use env::LocalFuture;
use layout::{FileLayout, StripeSet};
use types::{Errno, Fid, TargetId, Timespec};
use wire::body::{ObjectRange, OstAttr, OstBatchReq};
use wire::{Attr, Opcode, SizeState, decode_body};
use zerocopy::IntoBytes;

use super::newer::check_told;
use super::place;
use crate::client::Inner;
use crate::inode::Inode;
use crate::join::try_join;
use crate::size::Found;
use crate::stat::Stat;
use crate::{Ctx, Error, Result, limits, size};

/// Objects of one file to ask about.
pub(crate) struct Question {
    pub(crate) layout: Rc<FileLayout>,
    pub(crate) stripes: Vec<u32>,
}

impl Question {
    pub(crate) fn all(layout: &Rc<FileLayout>) -> Question {
        Question { layout: layout.clone(), stripes: (0..layout.stripes()).collect() }
    }
}

/// What the OSTs say of one file, by stripe.
pub(crate) type Objects = BTreeMap<u32, OstAttr>;

impl Inner {
    /// Asks for all objects of all questions; answers in their order.
    pub(crate) async fn glimpse(
        self: &Rc<Self>,
        ctx: &Ctx,
        questions: &[Question],
    ) -> Result<Vec<Objects>> {
        // by OST and by the MDT of the objects' files
        let mut by_ost: BTreeMap<(TargetId, u32), Vec<(usize, u32)>> = BTreeMap::new();
        for (index, question) in questions.iter().enumerate() {
            for stripe in &question.stripes {
                let (object, ost) = place(&question.layout, *stripe);
                by_ost.entry((ost, object.mdt_index())).or_default().push((index, *stripe));
            }
        }
        let mut asks: Vec<LocalFuture<'_, Result<Vec<OstAttr>>>> = Vec::new();
        let mut order = Vec::new();
        for ((ost, mdt), objects) in &by_ost {
            for batch in objects.chunks(self.glimpse_batch.get()) {
                order.push(batch);
                asks.push(Box::pin(self.glimpse_ost(ctx, (*ost, *mdt), questions, batch)));
            }
        }
        let answers = try_join(asks, self.glimpse_in_flight.get()).await?;
        let mut found = vec![Objects::new(); questions.len()];
        for (batch, attrs) in order.into_iter().zip(answers) {
            for ((index, stripe), attr) in batch.iter().zip(attrs) {
                found[*index].insert(*stripe, attr);
            }
        }
        Ok(found)
    }

    async fn glimpse_ost(
        self: &Rc<Self>,
        ctx: &Ctx,
        (ost, mdt): (TargetId, u32),
        questions: &[Question],
        batch: &[(usize, u32)],
    ) -> Result<Vec<OstAttr>> {
        let objects: Vec<_> =
            batch.iter().map(|(index, stripe)| range(&questions[*index].layout, *stripe)).collect();
        let store = self.remote(TargetId::mdt(mdt)).claim().store;
        let body = OstBatchReq { count: objects.len() as u32, store, ..OstBatchReq::default() };
        let call = self
            .call(ctx, Opcode::OstGlimpse, &body)
            .buf(Bytes::copy_from_slice(objects.as_bytes()));
        let attrs = self.ask(ost, call).await?.reply.buf(1);
        if attrs.len() < size_of::<OstAttr>() * objects.len() {
            return Err(Error::local(Errno::EPROTO, "ost_glimpse"));
        }
        Ok(attrs.chunks_exact(size_of::<OstAttr>()).take(objects.len()).map(decode_body).collect())
    }

    /// Puts the true size into what the MDT said of a file. The objects of a file that this client
    /// alone has written are not asked. Says whether the MDT was asked again: all attributes are of
    /// that moment then.
    pub(crate) async fn resolve_stat(self: &Rc<Self>, ctx: &Ctx, stat: &mut Stat) -> Result<bool> {
        if self.settle_known(stat) {
            return Ok(false);
        }
        if self.has_kept(stat.attr.fid()) {
            self.flush_file(stat.attr.fid()).await;
            if self.settle_known(stat) {
                return Ok(false);
            }
        }
        self.resolve(ctx, stat).await
    }

    /// Adds what this client knows to what the MDT said of a file. Says whether its size is exact
    /// then, without a question to an OST.
    pub(crate) fn settle_known(&self, stat: &mut Stat) -> bool {
        let inode = self.inodes.get(stat.attr.fid());
        if let Some(inode) = &inode {
            inode.access.borrow().show(&mut stat.attr);
        }
        let Some(layout) = stat.layout.as_ref().filter(|_| crate::needs_glimpse(&stat.attr)) else {
            return true;
        };
        let own = inode
            .filter(|_| !stat.is_kept_elsewhere)
            .and_then(|inode| inode.own_objects(stat.epoch, layout));
        let Some(own) = own else { return false };
        let objects = (0..).zip(own).filter(|(_, object)| object.exists != 0).collect();
        settle(&mut stat.attr, stat.mtime_set, &StripeSet::default(), layout, &objects);
        true
    }

    /// Whether the size in these attributes, which the MDT knows, is used without its objects.
    pub(crate) fn trusts(&self, attr: &Attr) -> bool {
        self.som.get() || !attr.is_file()
    }

    /// The same of what the MDT said of a file. It has the last word on a file without objects.
    pub(crate) fn trusts_stat(&self, stat: &Stat) -> bool {
        stat.layout.is_none() || self.trusts(&stat.attr)
    }

    /// Puts the size that the objects tell into the MDT's attributes of a file, although the MDT
    /// knows it. If they cannot tell it, the MDT's size stays.
    pub(crate) async fn resolve_known(self: &Rc<Self>, ctx: &Ctx, stat: &mut Stat) -> Result<()> {
        let Some(layout) = stat.layout.clone() else { return Ok(()) };
        let mut attr = Attr { size_state: SizeState::Dirty as u32, size: 0, ..stat.attr };
        let (mtime_set, must_exist) = (stat.mtime_set, &stat.stripes);
        let found = self.resolve_attr(ctx, &mut attr, mtime_set, must_exist, &layout).await?;
        if !found.is_old_layout && found.lost.is_empty() {
            stat.attr = Attr { size_state: stat.attr.size_state, ..attr };
        }
        Ok(())
    }

    /// Puts the true size into the MDT's attributes of a dirty file. If its objects went meanwhile,
    /// the file has others, or is gone. If they have got more of it, the size is asked for again.
    /// Says whether the MDT was asked again, as [`Inner::resolve_stat`] does.
    pub(crate) async fn resolve(self: &Rc<Self>, ctx: &Ctx, stat: &mut Stat) -> Result<bool> {
        self.flush_file(stat.attr.fid()).await;
        let mut is_later = stat.is_kept_elsewhere;
        if stat.is_kept_elsewhere {
            let now = self.stat_exact(ctx, stat.attr.fid(), 0).await?;
            (stat.attr, stat.layout, stat.epoch) = (now.attr, now.layout, now.epoch);
            (stat.mtime_set, stat.stripes) = (now.mtime_set, now.stripes);
            stat.is_kept_elsewhere = false;
        }
        for _ in 0..limits::LAYOUTS_TRIED_MAX {
            let Some(layout) = stat.layout.clone() else { return Ok(is_later) };
            let (mtime_set, must_exist) = (stat.mtime_set, &stat.stripes);
            let mut attr = stat.attr;
            let found = self.resolve_attr(ctx, &mut attr, mtime_set, must_exist, &layout).await?;
            if found.is_old_layout && self.follow(ctx, stat, &layout).await {
                is_later = true;
                continue;
            }
            stat.attr = attr;
            stat.stripes.add_all(&found.there);
            stat.lost = !found.lost.is_empty();
            return Ok(is_later);
        }
        Err(Error::local(Errno::EBUSY, "ost_glimpse").about(stat.attr.fid()))
    }

    /// Whether the file has another layout by now.
    async fn follow(self: &Rc<Self>, ctx: &Ctx, stat: &mut Stat, layout: &FileLayout) -> bool {
        let Ok(now) = self.stat(ctx, stat.attr.fid(), 0).await else { return false };
        if now.layout.as_ref().is_none_or(|now| now.generation() == layout.generation()) {
            return false;
        }
        (stat.attr, stat.layout, stat.epoch) = (now.attr, now.layout, now.epoch);
        (stat.mtime_set, stat.stripes) = (now.mtime_set, now.stripes);
        true
    }

    /// The same where the modification time was set by hand at `mtime_set`, and the objects of
    /// `must_exist` must be there.
    pub(crate) async fn resolve_attr(
        self: &Rc<Self>,
        ctx: &Ctx,
        attr: &mut Attr,
        mtime_set: Timespec,
        must_exist: &StripeSet,
        layout: &Rc<FileLayout>,
    ) -> Result<Found> {
        if !crate::needs_glimpse(attr) || self.config.bugs.forget_glimpse() {
            return Ok(Found::default());
        }
        let found = self
            .glimpse(ctx, &[Question::all(layout)])
            .await
            .map_err(|error| error.about(attr.fid()))?;
        Ok(settle(attr, mtime_set, must_exist, layout, &found[0]))
    }

    /// Size of an open file now, whatever the MDT believes; ESTALE where `layout` is old, EIO where
    /// an object is lost, since nobody knows it then.
    pub(crate) async fn current_size(
        self: &Rc<Self>,
        ctx: &Ctx,
        attr: &Attr,
        inode: &Inode,
        layout: &Rc<FileLayout>,
    ) -> Result<u64> {
        let mut attr = Attr { size_state: SizeState::Dirty as u32, size: 0, ..*attr };
        let must_exist = inode.stripes_of(layout);
        if self.config.bugs.forget_glimpse() {
            return Ok(attr.size);
        }
        let objects = self
            .glimpse(ctx, &[Question::all(layout)])
            .await
            .map_err(|error| error.about(inode.fid))?
            .remove(0);
        check_told(layout, &objects)?;
        let found = settle(&mut attr, Timespec::default(), &must_exist, layout, &objects);
        self.check_lost(ctx, inode.fid, layout, found.lost).await?;
        Ok(attr.size)
    }
}

/// The objects' word for the attributes.
pub(crate) fn settle(
    attr: &mut Attr,
    mtime_set: Timespec,
    must_exist: &StripeSet,
    layout: &FileLayout,
    found: &Objects,
) -> Found {
    let objects: Vec<_> =
        (0..layout.stripes()).map(|i| found.get(&i).copied().unwrap_or_default()).collect();
    let sizes: Vec<_> =
        objects.iter().map(|object| (object.exists != 0).then_some(object.size)).collect();
    let is_destroyed = |object: &OstAttr| object.layout_version == u32::MAX;
    let is_old_layout = objects.iter().any(is_destroyed) || layout.is_outgrown(&sizes);
    Found { is_old_layout, ..size::resolve(attr, mtime_set, must_exist, layout, &objects) }
}

/// One object, as a batch names it.
pub(crate) fn range(layout: &FileLayout, stripe: u32) -> ObjectRange {
    let (object, _) = layout.object(stripe);
    let base = Fid { ver: 0, ..object };
    ObjectRange { base: base.into(), first: object.ver, count: 1 }
}
