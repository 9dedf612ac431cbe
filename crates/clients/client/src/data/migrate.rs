//! Migration: moves a file's bytes into other objects while other processes and clients read and
//! write the file.
//!
//! ```text
//! rounds:    look at the objects of F - copy what changed since the last look to T
//! last pass: lock of F - objects of F refuse this layout - copy what changed - T is durable -
//!            MDT: F and T swap their objects - unlock
//! ```
//! T is a file without a name that has the requested layout. From the first byte on, its objects
//! carry F as their file. After the swap, the last close of T destroys the old objects. If this
//! client dies before the swap, T and the new objects are removed.
//!
//! Each object reports its last change, so a round copies only the objects that changed. The rounds
//! end when the changed objects can be copied within [`MIGRATE_PAUSE`], or after
//! [`MIGRATE_ROUNDS_MAX`]. In the last pass the objects refuse every other client that reads or
//! writes F (ESTALE). That client waits for the file's lock.
//!
//! The last pass may fail after objects of F have received a generation. Then the MDT's layout of F
//! gets that generation before the lock is given back. Otherwise other clients would have to raise
//! it one by one, and a call tries a limited number of layouts.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use env::LocalFuture;
use futures_lite::future::or;
use layout::{Asked, FileLayout};
use types::{Errno, Extent, Fid, Span, TargetId, Timespec};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{Claim, ObjectRange, OstAttr, SetxattrReq, SwapReq, fallocate};
use wire::encode_body;

use super::glimpse::{Question, range};
use super::read::{joined, read_under};
use super::write::write_copy;
use super::{allocate, place, read, seek};
use crate::client::{Client, Inner, mdt_of};
use crate::file::File;
use crate::handle::Open;
use crate::inode::Inode;
use crate::join::try_join;
use crate::limits::{
    BATCH_RPCS_MAX, COPY_PIECE_BYTES, LAYOUTS_TRIED_MAX, MIGRATE_LOOK, MIGRATE_PAUSE,
    MIGRATE_PIECES, MIGRATE_RENEWALS_MAX, MIGRATE_ROUNDS_MAX, MIGRATE_STALL,
};
use crate::xattr::{LOV, LOV_SWAP};
use crate::{Ctx, Error, Result, SeekFor, flags, lost, size};

/// How a file is migrated, and how far it is.
#[derive(Debug, Default)]
pub struct Migration {
    /// Gives up (EBUSY) where somebody has changed the file since the copy began.
    pub gives_way: bool,
    /// Bytes that were copied, some of them more than once.
    pub copied: Cell<u64>,
    /// Bytes of the file when it was looked at last.
    pub size: Cell<u64>,
    /// Rounds that were begun; the last pass is none of them.
    pub rounds: Cell<u32>,
    /// How long others had to wait.
    pub pause: Cell<Span>,
    /// Set from outside: nobody wants it any more. It ends before the next piece (EINTR).
    pub is_given_up: Cell<bool>,
}

impl Client {
    /// Moves the bytes of `file` into objects as `striping` wants them; what that leaves open is
    /// as of a file made in `dir`. Everything else of the file stays, and so do handles that are
    /// open. A file without a layout gets one.
    ///
    /// # Errors
    /// EISDIR, EINVAL for what is no regular file; EPERM unless the caller owns it; EACCES where
    /// it may not be read, or nothing made in `dir`; ENODATA where the layout ends before the file;
    /// EBUSY ([`Migration::gives_way`]); ENOSPC. The file is as it was then.
    ///
    /// Boxed here, so that it is compiled here and not in each crate that calls it.
    pub fn migrate(
        &self,
        ctx: &Ctx,
        file: Fid,
        dir: Fid,
        striping: &Asked,
        migration: &Rc<Migration>,
    ) -> LocalFuture<'_, Result<()>> {
        let (client, ctx) = (self.clone(), ctx.clone());
        let (striping, migration) = (striping.clone(), migration.clone());
        let migrate =
            async move { client.migrate_whole(&ctx, file, dir, &striping, migration).await };
        Box::pin(self.0.run("migrate", migrate))
    }

    async fn migrate_whole(
        &self,
        ctx: &Ctx,
        fid: Fid,
        dir: Fid,
        striping: &Asked,
        migration: Rc<Migration>,
    ) -> Result<()> {
        let refused = |errno| Err(Error::local(errno, "migrate").about(fid));
        let stat = self.0.stat(ctx, fid, 0).await?;
        match stat.attr.file_type() {
            S_IFREG => {}
            S_IFDIR => return refused(Errno::EISDIR),
            _ => return refused(Errno::EINVAL),
        }
        // the MDT refuses this too, but at the end, when other callers have waited
        if ctx.creds.uid != 0 && ctx.creds.uid != stat.attr.uid {
            return refused(Errno::EPERM);
        }
        if stat.layout.is_none() {
            let value = layout::lov::encode_any_dir(striping);
            let value = value.map_err(|error| Error::local(error.errno(), "migrate").about(fid))?;
            return self.setxattr(ctx, fid, LOV, value.into(), 0).await;
        }
        let dir = self.dir_beside(ctx, dir, fid).await?;
        self.0.flush_file(fid).await;
        let file = self.open(ctx, fid, flags::O_NOATIME).await?;
        let mode = S_IFREG | 0o600;
        let made = self.tmpfile_as(ctx, dir, mode, flags::O_RDWR | flags::O_EXCL, Some(striping));
        let (_, other) = made.await?;
        other.0.wrote.set(true); // its objects are to be destroyed
        let mover = Mover::new(&file, &other, migration);
        let done = mover.run().await;
        let closed = other.close().await;
        let done = done.and(closed).and(file.close().await);
        self.0.settle_later(ctx, fid);
        done
    }

    /// Where a file without a name is made on the MDT of `fid`: in `dir`, or in its shard there.
    ///
    /// # Errors
    /// EXDEV: it has none.
    async fn dir_beside(&self, ctx: &Ctx, dir: Fid, fid: Fid) -> Result<Fid> {
        if mdt_of(dir) == mdt_of(fid) {
            return Ok(dir);
        }
        let stripes = self.0.stripes(ctx, dir).await?;
        let shard = stripes
            .and_then(|stripes| stripes.places().find(|shard| mdt_of(*shard) == mdt_of(fid)));
        shard.ok_or_else(|| Error::local(Errno::EXDEV, "migrate").about(fid))
    }
}

/// A file on its way.
struct Mover {
    inner: Rc<Inner>,
    ctx: Ctx,
    file: File,
    other: File,
    /// Writes the other one's objects, as the file's.
    copy: Rc<Open>,
    migration: Rc<Migration>,
    /// The MDT is asked to swap.
    swaps: Cell<bool>,
    /// The generation of which the file's objects were told, or some of them; 0: none.
    raised: Cell<u32>,
}

/// The file as it was when it was looked at.
struct Look {
    layout: Rc<FileLayout>,
    objects: Vec<OstAttr>,
}

impl Look {
    fn size(&self) -> u64 {
        size::add_up(&self.layout, &self.objects).size
    }

    /// The time of the last write: the copy is stamped with it. None at all would mean now.
    fn mtime(&self) -> Timespec {
        let mtime = size::add_up(&self.layout, &self.objects).mtime.unwrap_or_default();
        if mtime == Timespec::default() { mtime.next_nanosecond() } else { mtime }
    }

    /// If these are the same in a later look, the objects are the same. Both parts count, because
    /// an answer may have a change and the size before it: the OST reads one after the other,
    /// without a lock.
    fn marks(&self) -> Vec<Mark> {
        self.objects.iter().map(mark).collect()
    }

    /// Bytes of the objects of these stripes.
    fn bytes_of(&self, stripes: &BTreeSet<u32>) -> u64 {
        let bytes = |stripe: &u32| self.objects[*stripe as usize].size;
        stripes.iter().map(bytes).fold(0, u64::saturating_add)
    }
}

/// Last change and size of an object.
type Mark = (u64, u64);

fn mark(object: &OstAttr) -> Mark {
    (object.changed, object.size)
}

/// What the other one has of the file.
struct Copied {
    layout: Rc<FileLayout>,
    /// Of each object when it was copied.
    marks: Vec<Mark>,
}

/// Stripes whose bytes may be other ones than were copied.
fn moved(copied: Option<&Copied>, look: &Look) -> BTreeSet<u32> {
    let known = |stripe: u32| copied.and_then(|copied| copied.marks.get(stripe as usize));
    let stripes = (0..look.layout.stripes()).zip(&look.objects);
    let other = stripes.filter(|(stripe, object)| known(*stripe) != Some(&mark(object)));
    other.map(|(stripe, _)| stripe).collect()
}

/// What of `extent` lies in these stripes, in pieces that are copied one at a time.
fn pieces(layout: &FileLayout, extent: Extent, stripes: &BTreeSet<u32>) -> Vec<Extent> {
    let mut found: Vec<Extent> = Vec::new();
    for piece in layout.pieces(extent).filter(|piece| stripes.contains(&piece.stripe)) {
        let (mut at, end) = (piece.file_offset, piece.file_offset + piece.len);
        while at < end {
            let upto = end.min((at / COPY_PIECE_BYTES + 1) * COPY_PIECE_BYTES);
            let whole = Extent::new(at, upto).expect("not empty");
            match found.last_mut() {
                Some(last) if last.end() == at && !at.is_multiple_of(COPY_PIECE_BYTES) => {
                    *last = Extent::new(last.start(), upto).expect("not empty");
                }
                _ => found.push(whole),
            }
            at = upto;
        }
    }
    found
}

impl Mover {
    fn new(file: &File, other: &File, migration: Rc<Migration>) -> Mover {
        let (inner, ctx) = (file.0.inner.clone(), file.0.ctx.clone());
        let copy = Rc::new(Open {
            inner: inner.clone(),
            inode: Rc::new(Inode::apart(file.fid())),
            ctx: ctx.clone(),
            flags: flags::O_RDWR,
            handle: 0,
            claim: file.0.claim,
            made: false,
            xid: other.0.xid,
            attr: file.0.attr.clone(),
            wrote: Cell::new(false),
            closed: Cell::new(true), // there is nothing to close
            heard: inner.losses.listen(file.fid()),
        });
        let (file, other) = (file.clone(), other.clone());
        let (swaps, raised) = (Cell::new(false), Cell::new(0));
        Mover { inner, ctx, file, other, copy, migration, swaps, raised }
    }

    async fn run(&self) -> Result<()> {
        let mut copied = None;
        self.rounds(&mut copied).await?;
        let lock = self.inner.lock_file(&self.ctx, self.file.fid()).await?;
        let done = match lock.claim == self.copy.claim {
            true => self.last_pass(copied, lock.claim).await,
            false => Err(self.refused(Errno::EIO)), // the handles are of another session
        };
        lock.unlock().await.and(done)
    }

    fn refused(&self, errno: Errno) -> Error {
        Error::local(errno, "migrate").about(self.file.fid())
    }

    /// While everybody writes: until what is left is little.
    async fn rounds(&self, copied: &mut Option<Copied>) -> Result<()> {
        let began = self.inner.env.now();
        for round in 0..MIGRATE_ROUNDS_MAX {
            let look = self.look().await?;
            let moved = moved(copied.as_ref(), &look);
            let took = self.inner.env.now() - began;
            let done = self.migration.copied.get();
            let bytes = look.bytes_of(&moved);
            if moved.is_empty() || (round > 0 && is_quick(bytes, done, took)) {
                break;
            }
            self.migration.rounds.set(round + 1);
            self.follow(copied, look, &moved, None).await?;
            if self.migration.gives_way {
                break;
            }
        }
        // so that the last pass has little to make durable
        self.sync_copy().await?;
        super::fsync(&self.file.0).await
    }

    /// The file as the MDT and the OSTs say it is now.
    async fn look(&self) -> Result<Look> {
        for _ in 0..LAYOUTS_TRIED_MAX {
            let stat = self.inner.stat(&self.ctx, self.file.fid(), self.file.0.handle).await?;
            self.file.0.inode.see(&stat);
            let layout = stat.layout.ok_or_else(|| self.refused(Errno::EPROTO))?;
            let objects = self.inner.glimpse(&self.ctx, &[Question::all(&layout)]).await;
            let objects = objects.map_err(|error| error.about(self.file.fid()))?.remove(0);
            if objects.values().all(|object| object.layout_version != u32::MAX) {
                let look = Look { layout, objects: objects.into_values().collect() };
                self.check_whole(&look).await?;
                return Ok(look);
            }
        }
        Err(self.refused(Errno::EBUSY)) // another one migrates it all the time
    }

    /// Refuses a file of which an object is lost: the copy would be a file without those bytes.
    async fn check_whole(&self, look: &Look) -> Result<()> {
        let must_exist = self.file.0.inode.stripes_of(&look.layout);
        let lost = must_exist.without(&size::existing(&look.objects));
        self.inner.check_lost(&self.ctx, self.file.fid(), &look.layout, lost).await
    }

    /// Copies the stripes that `moved`, read under `claimed` where others are refused.
    async fn follow(
        &self,
        copied: &mut Option<Copied>,
        look: Look,
        moved: &BTreeSet<u32>,
        claimed: Option<&Rc<FileLayout>>,
    ) -> Result<()> {
        let size = look.size();
        self.migration.size.set(size);
        let mtime = look.mtime();
        let keeps = |before: &Copied| {
            look.layout.keeps(&before.layout) && before.layout.stripes() <= look.layout.stripes()
        };
        let mut is_first = copied.is_none();
        let mut all = BTreeSet::new();
        if copied.as_ref().is_some_and(|before| !keeps(before)) {
            // components went, or other objects came: nothing of the copy counts
            self.cut(0, mtime).await?;
            all = (0..look.layout.stripes()).collect();
            is_first = true;
        }
        let moved = if all.is_empty() { moved } else { &all };
        let (layout, marks) = (look.layout.clone(), look.marks());
        *copied = Some(Copied { layout: layout.clone(), marks });
        let target = self.target(size).await?;
        let source = claimed.unwrap_or(&layout);
        let mut at = 0;
        while at < size && !moved.is_empty() {
            let data = self.find(source, claimed.is_some(), SeekFor::Data, at).await?.min(size);
            if let Some(hole) = Extent::new(at, data).filter(|_| !is_first) {
                let mode = fallocate::PUNCH_HOLE | fallocate::KEEP_SIZE;
                allocate::reshape(&self.copy, &target, mode, hole, mtime).await?;
            }
            let Some(rest) = Extent::new(data, size) else { break };
            let end = self.find(source, claimed.is_some(), SeekFor::Hole, data).await?;
            let end = end.clamp(data + 1, rest.end());
            let run = Extent::new(data, end).expect("not empty");
            let pieces = pieces(source, run, moved);
            for some in pieces.chunks(MIGRATE_PIECES) {
                if self.migration.is_given_up.get() {
                    return Err(self.refused(Errno::EINTR));
                }
                let copies = some.iter().map(|piece| {
                    let copy: LocalFuture<'_, Result<()>> =
                        Box::pin(self.copy(source, claimed.is_some(), &target, *piece, mtime));
                    copy
                });
                try_join(copies.collect(), MIGRATE_PIECES).await?;
            }
            at = end;
        }
        Ok(())
    }

    /// Where data or a hole begins; the end of all offsets where neither follows.
    async fn find(
        &self,
        layout: &Rc<FileLayout>,
        is_claimed: bool,
        what: SeekFor,
        at: u64,
    ) -> Result<u64> {
        let found = match is_claimed {
            true => seek::seek_under(&self.file.0, layout, what, at).await,
            false => seek::seek(&self.file.0, what, at).await,
        };
        match found {
            Err(error) if error.errno() == Errno::ENXIO => Ok(u64::MAX),
            found => found,
        }
    }

    /// A file that became shorter meanwhile has changed: what it has lost is cut later.
    async fn copy(
        &self,
        layout: &Rc<FileLayout>,
        is_claimed: bool,
        target: &Rc<FileLayout>,
        piece: Extent,
        mtime: Timespec,
    ) -> Result<()> {
        let open = &self.file.0;
        let data = joined(match is_claimed {
            true => read_under(open, layout, piece).await?,
            false => read(open, piece.start(), (piece.end() - piece.start()) as usize).await?,
        });
        let Some(piece) = Extent::new(piece.start(), piece.start() + data.len() as u64) else {
            return Ok(());
        };
        write_copy(&self.copy, target, piece, &data, mtime).await?;
        self.migration.copied.set(self.migration.copied.get() + data.len() as u64);
        Ok(())
    }

    /// The layout of the other one as the file's, with objects for bytes below `size`.
    async fn target(&self, size: u64) -> Result<Rc<FileLayout>> {
        let (fid, handle) = (self.other.fid(), self.other.0.handle);
        let stat = self.inner.lay_out(&self.ctx, fid, handle, size).await?;
        self.other.0.inode.learn(&stat);
        let layout = self.other_layout()?;
        Ok(Rc::new(layout.of_file(self.file.fid())))
    }

    fn other_layout(&self) -> Result<Rc<FileLayout>> {
        self.other.0.inode.layout().ok_or_else(|| self.refused(Errno::EPROTO))
    }

    /// The other one ends where the file does, and all its objects have one time.
    async fn cut(&self, size: u64, mtime: Timespec) -> Result<()> {
        let target = self.target(size).await?;
        let (fid, claim) = (self.file.fid(), self.copy.claim);
        let last = size.checked_sub(1).and_then(|last| target.stripe_of(last));
        let cuts = (0..target.stripes()).map(|stripe| {
            let create = last == Some(stripe);
            let inner = &self.inner;
            let cut: LocalFuture<'_, Result<OstAttr>> =
                Box::pin(inner.punch(&self.ctx, fid, &target, stripe, size, create, mtime, claim));
            cut
        });
        try_join(cuts.collect(), BATCH_RPCS_MAX).await.map(drop).map_err(|error| error.about(fid))
    }

    /// What was copied is durable, or the migration ends here.
    async fn sync_copy(&self) -> Result<()> {
        let layout = self.other_layout()?;
        let mut by_ost: BTreeMap<TargetId, Vec<ObjectRange>> = BTreeMap::new();
        for stripe in 0..layout.stripes() {
            by_ost.entry(place(&layout, stripe).1).or_default().push(range(&layout, stripe));
        }
        let syncs = by_ost.into_iter().map(|(ost, objects)| {
            let sync: LocalFuture<'_, Result<()>> =
                Box::pin(self.inner.sync_ost(&self.ctx, ost, objects));
            sync
        });
        let fid = self.file.fid();
        try_join(syncs.collect(), BATCH_RPCS_MAX).await.map_err(|error| error.about(fid))?;
        lost::check(self.inner.losses.is_news(fid, &self.copy.heard), fid, "migrate")
    }

    /// Under the file's lock.
    async fn last_pass(&self, mut copied: Option<Copied>, claim: Claim) -> Result<()> {
        let began = self.inner.env.now();
        let takes = self.take_over(&mut copied, claim);
        let stalls = async {
            self.stalls().await;
            Err(self.refused(Errno::ETIMEDOUT))
        };
        let done = or(takes, stalls).await;
        if done.is_err() {
            // what is left of it the next callers do, one generation at a time
            let _ = self.inner.env.timeout(MIGRATE_STALL, self.catch_up(claim)).await;
        }
        self.migration.pause.set(self.inner.env.now() - began);
        done
    }

    /// Gives the file's layout at the MDT the generation of which its objects were told.
    async fn catch_up(&self, claim: Claim) -> Result<()> {
        let raised = self.raised.get();
        if raised == 0 {
            return Ok(());
        }
        let (fid, handle) = (self.file.fid(), self.file.0.handle);
        let renew =
            |generation, look| self.inner.renew_layout(&self.ctx, fid, handle, generation, look);
        let mut stat = renew(raised, true).await?;
        for _ in 0..MIGRATE_RENEWALS_MAX {
            let layout = stat.layout.as_ref().ok_or_else(|| self.refused(Errno::EPROTO))?;
            let generation = layout.generation();
            if generation >= raised {
                break;
            }
            self.inner.under_lease(fid, claim).await?;
            stat = renew(generation, false).await?;
        }
        self.file.0.inode.learn(&stat);
        Ok(())
    }

    /// Returns when the migration was given up, or nothing was copied for [`MIGRATE_STALL`]: other
    /// callers wait, and for an OST that may have no part of the file. It does not return while the
    /// MDT is asked to swap.
    async fn stalls(&self) {
        let env = &self.inner.env;
        let (mut copied, mut since) = (self.migration.copied.get(), env.now());
        loop {
            env.sleep(MIGRATE_LOOK).await;
            let now = self.migration.copied.get();
            if now != copied {
                (copied, since) = (now, env.now());
            }
            let is_over = self.migration.is_given_up.get() || env.now() - since > MIGRATE_STALL;
            if is_over && !self.swaps.get() {
                return;
            }
        }
    }

    /// Again where the layout changed since the objects were told: a component got objects.
    async fn take_over(&self, copied: &mut Option<Copied>, claim: Claim) -> Result<()> {
        let fid = self.file.fid();
        for _ in 0..LAYOUTS_TRIED_MAX {
            let before = self.look().await?;
            if self.migration.gives_way && !moved(copied.as_ref(), &before).is_empty() {
                return Err(self.refused(Errno::EBUSY));
            }
            self.target(before.size()).await?; // it has its objects, so its generation stays
            let layout = before.layout;
            let theirs = self.other_layout()?.generation();
            let next = layout.generation().max(theirs).checked_add(2);
            let claimed = next.and_then(|next| layout.at_generation(next));
            let claimed = Rc::new(claimed.ok_or_else(|| self.refused(Errno::EOVERFLOW))?);
            self.inner.under_lease(fid, claim).await?;
            self.raised.set(claimed.generation()); // they are never told of a lower one later
            self.inner.raise(&self.ctx, fid, &layout, 0, claimed.generation(), claim).await?;
            let objects = self.inner.glimpse(&self.ctx, &[Question::all(&layout)]).await?.remove(0);
            let look = Look { layout, objects: objects.into_values().collect() };
            self.check_whole(&look).await?;
            let moved = moved(copied.as_ref(), &look);
            if self.migration.gives_way && !moved.is_empty() {
                return Err(self.refused(Errno::EBUSY));
            }
            if !moved.is_empty() {
                planted::reached("client: a migration copied in its last pass");
            }
            let (generation, next) = (look.layout.generation(), claimed.generation());
            let (size, mtime) = (look.size(), look.mtime());
            if !self.inner.config.bugs.migrate_without_last_pass() {
                self.follow(copied, look, &moved, Some(&claimed)).await?;
            }
            self.cut(size, mtime).await?;
            self.sync_copy().await?;
            if self.other_layout()?.generation() >= next {
                continue; // the file became longer before its objects were told
            }
            self.inner.under_lease(fid, claim).await?;
            self.swaps.set(true);
            let swapped = self.swap(generation, next).await;
            self.swaps.set(false);
            match swapped {
                Err(error) if error.errno() == Errno::EAGAIN => {}
                done => return done,
            }
        }
        Err(self.refused(Errno::EBUSY))
    }

    async fn swap(&self, generation: u32, next: u32) -> Result<()> {
        let fid = self.file.fid();
        let swap = SwapReq {
            other: self.other.fid().into(),
            handle: self.other.0.handle,
            generation,
            other_generation: self.other_layout()?.generation(),
            next,
            ..SwapReq::default()
        };
        let body = SetxattrReq { fid: fid.into(), ..SetxattrReq::default() };
        let swapped = self.inner.set_attribute(&self.ctx, body, LOV_SWAP, encode_body(&swap));
        let stat = swapped.await?;
        self.file.0.inode.learn(&stat);
        self.inner.sync_mdt(&self.ctx, mdt_of(fid), fid).await
    }
}

/// Whether so many bytes are copied within the pause that others are asked for.
fn is_quick(bytes: u64, copied: u64, took: Span) -> bool {
    let rate = copied as f64 / took.as_secs_f64().max(1e-6);
    bytes as f64 <= rate * MIGRATE_PAUSE.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn layout(stripe_count: u16) -> Rc<FileLayout> {
        Rc::new(crate::testing::layout(stripe_count))
    }

    fn look(layout: &Rc<FileLayout>, changed: &[u64]) -> Look {
        let object = |changed: &u64| OstAttr { exists: 1, changed: *changed, ..OstAttr::default() };
        Look { layout: layout.clone(), objects: changed.iter().map(object).collect() }
    }

    #[test]
    fn what_has_another_last_change_is_copied_again() {
        let layout = layout(3);
        let all = moved(None, &look(&layout, &[0, 7, 8]));
        assert_eq!(all, BTreeSet::from([0, 1, 2]), "nothing was copied");
        let copied = Copied { layout: layout.clone(), marks: vec![(0, 0), (7, 0), (8, 0)] };
        assert!(moved(Some(&copied), &look(&layout, &[0, 7, 8])).is_empty());
        let again = moved(Some(&copied), &look(&layout, &[5, 7, 3]));
        assert_eq!(again, BTreeSet::from([0, 2]), "also where a change was lost");
        let fewer = Copied { layout: layout.clone(), marks: vec![(0, 0)] };
        assert_eq!(moved(Some(&fewer), &look(&layout, &[0, 7, 8])), BTreeSet::from([1, 2]));
        let mut longer = look(&layout, &[0, 7, 8]);
        longer.objects[1].size = 5;
        assert_eq!(moved(Some(&copied), &longer), BTreeSet::from([1]), "it was seen too short");
    }

    #[test]
    fn pieces_are_of_the_stripes_that_moved_and_cover_them_once() {
        let extent = |start: u64, end: u64| Extent::new(start * KIB, end * KIB).expect("not empty");
        let two = layout(2);
        let odd = pieces(&two, extent(32, 300), &BTreeSet::from([1]));
        assert_eq!(odd, [extent(64, 128), extent(192, 256)]);
        let both = pieces(&two, extent(32, 300), &BTreeSet::from([0, 1]));
        assert_eq!(both, [extent(32, 300)]);
        let long = pieces(&two, extent(0, 20 * KIB), &BTreeSet::from([0, 1]));
        let bound = COPY_PIECE_BYTES / KIB;
        assert_eq!(long, [extent(0, bound), extent(bound, 2 * bound), extent(2 * bound, 20 * KIB)]);
        assert!(pieces(&two, extent(0, 64), &BTreeSet::from([1])).is_empty());
    }

    #[test]
    fn a_pause_is_short_where_the_copy_is_fast() {
        let second = Span::secs(1);
        assert!(is_quick(100 << 20, 500 << 20, second));
        assert!(!is_quick(101 << 20, 500 << 20, second));
        assert!(is_quick(0, 0, Span::ZERO) && !is_quick(1, 0, Span::ZERO));
    }
}
