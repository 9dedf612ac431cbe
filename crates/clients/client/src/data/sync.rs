//! fsync and sync: the OSTs make data durable. The MDT makes durable the names and the mark that
//! the file was open for writing.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use endpoint::CallError;
use env::LocalFuture;
use types::{Errno, Fid, MDTS_MAX, TargetId};
use wire::body::{FidReq, ObjectRange, OstBatchReq};
use wire::{Opcode, updates};
use zerocopy::IntoBytes;

use super::glimpse::range;
use super::keep::flush;
use super::place;
use crate::client::{Client, Inner, mdt_of};
use crate::handle::Open;
use crate::join::try_join;
use crate::lost::{self, Heard};
use crate::{Ctx, Error, Result, limits};

/// Everything about the file that was acknowledged to anybody is durable when it returns, or its
/// caller hears that it is lost: once, whatever else fails.
pub(crate) async fn fsync(open: &Rc<Open>) -> Result<()> {
    flush(&open.inner, &open.inode).await;
    let synced = sync_file(open).await;
    let fid = open.inode.fid;
    let is_news = open.inner.losses.hear(fid, &open.heard);
    if is_news && open.inner.config.bugs.tell_one_handle() {
        open.inner.losses.forget(fid);
    }
    lost::check(is_news, fid, "fsync").and(synced)
}

async fn sync_file(open: &Rc<Open>) -> Result<()> {
    let inner = &open.inner;
    let mut by_ost: BTreeMap<TargetId, Vec<ObjectRange>> = BTreeMap::new();
    // other clients may have written where this handle knows of no objects
    if let Some(layout) = open.newest_layout().await? {
        for stripe in 0..layout.stripes() {
            by_ost.entry(place(&layout, stripe).1).or_default().push(range(&layout, stripe));
        }
    }
    let layout_version = open.inode.layout_version();
    let mut syncs: Vec<LocalFuture<'_, Result<()>>> =
        vec![Box::pin(inner.sync_names(&open.ctx, open.inode.fid))];
    for (ost, objects) in by_ost {
        syncs.push(Box::pin(inner.sync_ost(&open.ctx, ost, objects)));
    }
    try_join(syncs, limits::BATCH_RPCS_MAX).await.map_err(|error| error.about(open.inode.fid))?;
    open.inode.mdt_synced(layout_version);
    Ok(())
}

impl Client {
    /// Everything that was acknowledged to this client is durable when it returns.
    ///
    /// # Errors
    /// EIO from a target, which the error names; EIO once where acknowledged work is lost. EIO
    /// while an OST is out of use that has not confirmed all of this client's work.
    pub async fn sync(&self) -> Result<()> {
        self.0.flush_all().await;
        let ctx = Ctx::root();
        let mut syncs: Vec<LocalFuture<'_, Result<()>>> = Vec::new();
        for mdt in self.0.used_mdts() {
            syncs.push(Box::pin(self.0.sync_mdt(&ctx, mdt, Fid::ZERO)));
        }
        let written = self.0.written.borrow().clone();
        let is_in_use = |ost: &TargetId| !self.0.inactive.borrow().contains(ost);
        let (in_use, out_of_use): (Vec<_>, Vec<_>) = written.into_iter().partition(is_in_use);
        for ost in in_use {
            syncs.push(Box::pin(self.0.sync_ost(&ctx, ost, Vec::new())));
        }
        let synced = try_join(syncs, limits::BATCH_RPCS_MAX).await.map(|_| ());
        let unsure = out_of_use.into_iter().find(|ost| self.0.unconfirmed(*ost).changes > 0);
        let unsure = unsure.map(|ost| Error::call(&CallError::Inactive, ost, "sync"));
        let synced = synced.and(unsure.map_or(Ok(()), Err));
        lost::check(self.0.losses.hear_all(), Fid::ZERO, "sync").and(synced)
    }

    /// A directory's entries, as they are now, are durable when it returns. `heard` is of when the
    /// directory was opened.
    ///
    /// # Errors
    /// EIO from the MDT; EIO once where acknowledged entries or attributes of it are lost.
    pub async fn fsync_dir(&self, ctx: &Ctx, dir: Fid, heard: &Heard) -> Result<()> {
        let synced = self.0.sync_dir(ctx, dir).await;
        lost::check(self.0.losses.hear(dir, heard), dir, "fsync").and(synced)
    }
}

impl Inner {
    /// A zero FID means everything, and the room of removed files.
    pub(crate) async fn sync_mdt(
        self: &Rc<Self>,
        ctx: &Ctx,
        mdt: TargetId,
        fid: Fid,
    ) -> Result<()> {
        self.sync_with_names(ctx, mdt, fid).await.map(|_| ())
    }

    /// The same. Returns other MDTs that have names of the file.
    async fn sync_with_names(
        self: &Rc<Self>,
        ctx: &Ctx,
        mdt: TargetId,
        fid: Fid,
    ) -> Result<BTreeSet<u32>> {
        let call =
            self.call(ctx, Opcode::MdtSync, &FidReq { fid: fid.into(), ..FidReq::default() });
        let answer = self.ask(mdt, call).await?;
        let others: Option<Vec<u32>> = updates::decode(&answer.reply.buf(1));
        Ok(others.into_iter().flatten().filter(|mdt| *mdt < MDTS_MAX).collect())
    }

    /// A directory is durable, and the names in all its shards. What is lost of them is lost of it.
    async fn sync_dir(self: &Rc<Self>, ctx: &Ctx, dir: Fid) -> Result<()> {
        // what this client knew of the shards may be forgotten; a directory that is gone has none
        let stripes = match self.stripes(ctx, dir).await {
            Err(error) if ![Errno::ENOENT, Errno::ESTALE].contains(&error.errno()) => {
                return Err(error);
            }
            stripes => stripes.ok().flatten(),
        };
        let synced = self.sync_names(ctx, dir).await;
        if let Some(stripes) = stripes {
            self.losses.join(dir, stripes.places());
        }
        synced
    }

    /// A file is durable, and its names at whatever MDT they are. MDTs where this client has met a
    /// name are asked at once, and others when the file's MDT has named them. All of them are asked
    /// for the file: a sync of everything also waits for objects of removed files.
    async fn sync_names(self: &Rc<Self>, ctx: &Ctx, fid: Fid) -> Result<()> {
        let mut known = self.elsewhere.mdts_of(fid);
        if let Some(stripes) = self.striped.shards(fid) {
            known.extend(stripes.places().map(|shard| shard.mdt_index()));
        }
        known.remove(&fid.mdt_index());
        let mut syncs: Vec<LocalFuture<'_, Result<BTreeSet<u32>>>> =
            vec![Box::pin(self.sync_with_names(ctx, mdt_of(fid), fid))];
        for mdt in &known {
            syncs.push(Box::pin(self.sync_with_names(ctx, TargetId::mdt(*mdt), fid)));
        }
        let told = try_join(syncs, limits::BATCH_RPCS_MAX).await?;
        let is_new = |mdt: &u32| *mdt != fid.mdt_index() && !known.contains(mdt);
        let news: BTreeSet<u32> = told.into_iter().flatten().filter(is_new).collect();
        let syncs = news.into_iter().map(|mdt| -> LocalFuture<'_, Result<()>> {
            Box::pin(self.sync_mdt(ctx, TargetId::mdt(mdt), fid))
        });
        try_join(syncs.collect(), limits::BATCH_RPCS_MAX).await.map(drop)
    }

    /// An OST is full. Objects of removed files go after the MDT's next commit, on their own within
    /// a second or two; a sync of everything waits for that, so that what was removed before a
    /// write counts for it. Says whether it is worth a second try.
    pub(crate) async fn make_room(self: &Rc<Self>, ctx: &Ctx) -> bool {
        let mdts = self.used_mdts().into_iter();
        let syncs = mdts.map(|mdt| -> LocalFuture<'_, Result<()>> {
            Box::pin(self.sync_mdt(ctx, mdt, Fid::ZERO))
        });
        try_join(syncs.collect(), limits::BATCH_RPCS_MAX).await.is_ok()
    }

    /// No objects mean everything.
    pub(crate) async fn sync_ost(
        self: &Rc<Self>,
        ctx: &Ctx,
        ost: TargetId,
        objects: Vec<ObjectRange>,
    ) -> Result<()> {
        let body = OstBatchReq { count: objects.len() as u32, ..OstBatchReq::default() };
        let call =
            self.call(ctx, Opcode::OstSync, &body).buf(Bytes::copy_from_slice(objects.as_bytes()));
        self.ask(ost, call).await.map(|_| ())
    }
}
