//! Requests about names and attributes of striped directories. [`super::striped`] keeps the known
//! stripings.

use std::rc::Rc;

use env::LocalFuture;
use layout::dir::{Asked, Stripes};
use types::{Errno, Fid};
use wire::attr::AttrFlags;
use wire::body::{ReaddirRep, ReaddirReq};
use wire::{Attr, Opcode};

use super::lookup::is_gone;
use super::striped::{Kind, merge};
use crate::client::{Client, Inner, mdt_of};
use crate::join::try_join;
use crate::stat::Stat;
use crate::xattr::{DMV, INODE_MIGRATE, LMV, LMV_MIGRATE};
use crate::{Ctx, Error, Lease, Result, limits};

impl Inner {
    /// Attributes came from the MDT of the file.
    pub(crate) fn note(&self, attr: &Attr) {
        if attr.is_dir() && (attr.flags.contains(AttrFlags::STRIPED) || self.has_mdts.get()) {
            self.striped.note(attr, self.env.now());
        }
    }

    /// Whether a directory is striped. With one MDT there are no such directories.
    fn kind(&self, dir: Fid) -> Kind {
        match self.striped.kind(dir) {
            Kind::Unknown if !self.has_mdts.get() => Kind::Plain,
            kind => kind,
        }
    }

    /// The directory that holds a name: the directory itself, or one of its shards.
    pub(crate) async fn holder(self: &Rc<Self>, ctx: &Ctx, dir: Fid, name: &[u8]) -> Result<Fid> {
        if self.kind(dir) == Kind::Plain {
            return Ok(dir);
        }
        let stripes = Box::pin(self.stripes(ctx, dir)).await?;
        Ok(stripes.map_or(dir, |stripes| stripes.home(name)))
    }

    /// Sends a request about names to the directories or shards that hold them, and once more where
    /// the shards of a directory have changed since it was asked for them.
    ///
    /// # Errors
    /// Those of `ask`.
    pub(crate) async fn at_holders<T, const N: usize>(
        self: &Rc<Self>,
        ctx: &Ctx,
        names: [(Fid, &[u8]); N],
        ask: impl AsyncFn([Fid; N]) -> Result<T>,
    ) -> Result<T> {
        let mut holders = self.holders(ctx, names).await?;
        let mut tries = 0;
        loop {
            let error = match ask(holders).await {
                Err(error) if self.has_mdts.get() && error.errno() == Errno::ESTALE => error,
                done => return done,
            };
            let again = Box::pin(self.look_again(ctx, names, holders, tries)).await;
            holders = again.ok_or(error)?;
            tries += 1;
        }
    }

    async fn holders<const N: usize>(
        self: &Rc<Self>,
        ctx: &Ctx,
        names: [(Fid, &[u8]); N],
    ) -> Result<[Fid; N]> {
        let mut holders = [Fid::ZERO; N];
        for (holder, (dir, name)) in holders.iter_mut().zip(names) {
            *holder = self.holder(ctx, dir, name).await?;
        }
        Ok(holders)
    }

    /// Directories or shards that hold names now, after an MDT has refused `before`; nothing if
    /// that was right.
    async fn look_again<const N: usize>(
        self: &Rc<Self>,
        ctx: &Ctx,
        names: [(Fid, &[u8]); N],
        before: [Fid; N],
        tries: u32,
    ) -> Option<[Fid; N]> {
        let mut is_striped = false;
        for (dir, _) in names {
            self.refresh(ctx, dir).await.ok()?;
            is_striped |= matches!(self.kind(dir), Kind::Striped(_));
        }
        let now = self.holders(ctx, names).await.ok()?;
        if now != before {
            return (tries < limits::SHARD_TRIES).then_some(now);
        }
        if !is_striped {
            return (tries == 0).then_some(now); // it may have been split, and merged again
        }
        // a new shard that its MDT does not have yet is on its way
        let mut is_on_its_way = false;
        for holder in now {
            is_on_its_way |= self.stat(ctx, holder, 0).await.is_err_and(|error| is_gone(&error));
        }
        let most = if is_on_its_way { limits::SHARD_TRIES } else { limits::MOVING_TRIES };
        self.env.sleep(limits::MOVING_PAUSE).await;
        (tries < most).then_some(now)
    }

    /// Asks the MDT of a directory whether it is striped, whatever is known.
    pub(crate) async fn refresh(self: &Rc<Self>, ctx: &Ctx, dir: Fid) -> Result<()> {
        let dir = self.striped.master(dir);
        self.striped.forget(dir);
        self.stat(ctx, dir, 0).await.map(drop) // this notes what it is
    }

    /// The same where that is known without a request. While names move it is not, because a name
    /// that the shard does not have may be about to come.
    pub(crate) fn known_holder(&self, dir: Fid, name: &[u8]) -> Option<Fid> {
        match self.kind(dir) {
            Kind::Plain => Some(dir),
            Kind::Striped(stripes) => {
                let settled = stripes.filter(|stripes| stripes.leaving.is_none());
                settled.map(|stripes| stripes.home(name))
            }
            Kind::Unknown => None,
        }
    }

    /// Whether names of a directory are known to move between its shards.
    pub(crate) fn is_moving(&self, dir: Fid) -> bool {
        self.striped.shards(dir).is_some_and(|stripes| stripes.leaving.is_some())
    }

    /// Whether a directory is known to be striped.
    pub(crate) fn is_striped(&self, dir: Fid) -> bool {
        matches!(self.kind(dir), Kind::Striped(_))
    }

    /// The shards of a directory, if it has some.
    pub(crate) async fn stripes(
        self: &Rc<Self>,
        ctx: &Ctx,
        dir: Fid,
    ) -> Result<Option<Rc<Stripes>>> {
        match self.kind(dir) {
            Kind::Plain => return Ok(None),
            Kind::Striped(Some(stripes)) => return Ok(Some(stripes)),
            Kind::Striped(None) => {}
            Kind::Unknown => {
                let known = self.grants.of(dir).believed(dir);
                let attr = match known {
                    Some((attr, _)) => attr,
                    None => self.stat(ctx, dir, 0).await?.attr,
                };
                if !attr.flags.contains(AttrFlags::STRIPED) {
                    return Ok(None);
                }
            }
        }
        let version = self.striped.version(dir);
        let value = match Client(self.clone()).getxattr(ctx, dir, LMV).await {
            Err(error) if error.errno() == Errno::ENODATA => {
                self.stat(ctx, dir, 0).await?; // it is plain by now, and this notes that
                return Ok(None);
            }
            value => value?,
        };
        let stripes = Stripes::decode(&value).map_err(|error| {
            tracing::warn!("the MDT sent a broken striping: {error}");
            Error::local(Errno::EPROTO, "getxattr").about(dir)
        })?;
        Ok(Some(self.striped.learn(dir, stripes, version, self.env.now())))
    }

    /// Completes attributes of a striped directory with those of its shards; the lease ends with
    /// the first of theirs. Attributes of anything else stay.
    pub(crate) async fn complete(
        self: &Rc<Self>,
        ctx: &Ctx,
        stat: &mut Stat,
        lease: &mut Lease,
    ) -> Result<()> {
        if !stat.attr.flags.contains(AttrFlags::STRIPED) {
            return Ok(());
        }
        Box::pin(self.add_shards(ctx, &mut stat.attr, lease)).await
    }

    async fn add_shards(
        self: &Rc<Self>,
        ctx: &Ctx,
        attr: &mut Attr,
        lease: &mut Lease,
    ) -> Result<()> {
        let dir = attr.fid();
        for _ in 0..limits::SHARD_TRIES {
            let Some(stripes) = self.stripes(ctx, dir).await? else { return Ok(()) };
            let places: Vec<Fid> = stripes.places().collect();
            let asks = places.iter().map(|shard| -> LocalFuture<'_, Result<(Attr, Lease)>> {
                Box::pin(self.shard_attr(ctx, *shard))
            });
            match try_join(asks.collect(), limits::BATCH_RPCS_MAX).await {
                Ok(found) => {
                    let (shards, leases): (Vec<_>, Vec<_>) = found.into_iter().unzip();
                    merge(attr, &shards);
                    for of_shard in leases {
                        *lease = lease.and(of_shard);
                    }
                    return Ok(());
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
            // its shards have changed, or are about to come
            self.striped.forget(dir);
            *attr = self.stat(ctx, dir, 0).await?.attr;
            *lease = Lease::default();
            if !attr.flags.contains(AttrFlags::STRIPED) {
                return Ok(());
            }
            self.env.sleep(limits::MOVING_PAUSE).await;
        }
        Err(Error::local(Errno::ESTALE, "mds_getattr").about(dir))
    }

    /// Attributes of a striped directory whose own are known, with those of its shards. Nothing if
    /// its own are not known.
    pub(super) async fn ask_shards(
        self: &Rc<Self>,
        ctx: &Ctx,
        dir: Fid,
    ) -> Result<Option<(Attr, Lease)>> {
        let known = self.grants.of(dir).believed(dir);
        let known = known.filter(|(attr, _)| attr.flags.contains(AttrFlags::STRIPED));
        let Some((mut attr, mut lease)) = known else { return Ok(None) };
        self.add_shards(ctx, &mut attr, &mut lease).await?;
        Ok(Some((attr, lease)))
    }

    async fn shard_attr(self: &Rc<Self>, ctx: &Ctx, shard: Fid) -> Result<(Attr, Lease)> {
        let grants = self.grants.of(shard);
        if let Some(known) = grants.believed(shard) {
            return Ok(known);
        }
        let asking = grants.asking();
        let stat = self.stat(ctx, shard, 0).await?;
        let lease = asking.told(&stat);
        Ok((stat.attr, lease))
    }

    /// The same without a request. Nothing if attributes of a shard are not known.
    pub(crate) fn complete_known(
        &self,
        (mut attr, mut lease): (Attr, Lease),
    ) -> Option<(Attr, Lease)> {
        if !attr.flags.contains(AttrFlags::STRIPED) {
            return Some((attr, lease));
        }
        let stripes = self.striped.shards(attr.fid())?;
        let known = stripes.places().map(|shard| self.grants.of(shard).believed(shard));
        let known: Option<Vec<_>> = known.collect();
        let (shards, leases): (Vec<_>, Vec<_>) = known?.into_iter().unzip();
        merge(&mut attr, &shards);
        for of_shard in leases {
            lease = lease.and(of_shard);
        }
        Some((attr, lease))
    }
}

impl Inner {
    /// The directory that callers see, of a directory or shard.
    pub(crate) async fn shown_dir(self: &Rc<Self>, ctx: &Ctx, dir: Fid) -> Result<Fid> {
        let master = self.striped.master(dir);
        if master != dir {
            return Ok(master);
        }
        let (attr, _) = self.shard_attr(ctx, dir).await?;
        if !attr.flags.contains(AttrFlags::SHARD) {
            return Ok(dir);
        }
        let body = ReaddirReq { fid: dir.into(), entries_max: 1, ..ReaddirReq::default() };
        let reply = self.ask(mdt_of(dir), self.call(ctx, Opcode::MdtReaddir, &body)).await?.reply;
        Ok(reply.body::<ReaddirRep>().parent.into())
    }
}

/// Refuses a shard where a caller has asked for it: it is no file of theirs.
pub(crate) fn check_seen(attr: &Attr, stage: &'static str) -> Result<()> {
    if attr.flags.contains(AttrFlags::SHARD) {
        return Err(Error::local(Errno::ESTALE, stage).about(attr.fid()));
    }
    Ok(())
}

impl Client {
    /// The shards of a directory; nothing of one that is not striped.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR; EPROTO if the MDT sends what is no striping.
    pub async fn dir_stripes(&self, ctx: &Ctx, dir: Fid) -> Result<Option<Stripes>> {
        let value = match self.getxattr(ctx, dir, LMV).await {
            Err(error) if error.errno() == Errno::ENODATA => return Ok(None),
            value => value?,
        };
        let broken = |_| Error::local(Errno::EPROTO, "getxattr").about(dir);
        Stripes::decode(&value).map(Some).map_err(broken)
    }

    /// The default of a directory for new subdirectories, if it has one.
    ///
    /// # Errors
    /// As [`Client::dir_stripes`].
    pub async fn dir_default(&self, ctx: &Ctx, dir: Fid) -> Result<Option<Asked>> {
        let value = match self.getxattr(ctx, dir, DMV).await {
            Err(error) if error.errno() == Errno::ENODATA => return Ok(None),
            value => value?,
        };
        let broken = |_| Error::local(Errno::EPROTO, "getxattr").about(dir);
        Asked::decode(&value).map(Some).map_err(broken)
    }

    /// Begins to move the names of a directory to other shards, or back to the directory itself.
    /// They move in the background, and inodes stay where they are.
    ///
    /// # Errors
    /// EPERM; EBUSY if its names move already; ENODEV for an MDT that does not exist; EINVAL for a
    /// striping out of bounds.
    pub async fn restripe(&self, ctx: &Ctx, dir: Fid, asked: &Asked) -> Result<()> {
        let bad = |error: layout::dir::DirError| Error::local(error.errno(), "setxattr").about(dir);
        asked.check().map_err(bad)?;
        self.setxattr(ctx, dir, LMV, asked.encode().into(), 0).await
    }

    /// Begins to move the names of a directory to the MDTs that are named, in the background.
    /// Inodes stay where they are. A directory whose names are there stays as it is.
    ///
    /// # Errors
    /// EPERM for a caller that is not root; EBUSY if its names move already; ENODEV for an MDT that
    /// does not exist or is away; ENOSPC and EREMOTEIO for one that is full or closed; EINVAL
    /// without an MDT, for the root, and for a striping out of bounds.
    pub async fn migrate_names(&self, ctx: &Ctx, dir: Fid, asked: &Asked) -> Result<()> {
        let bad = |error: layout::dir::DirError| Error::local(error.errno(), "setxattr").about(dir);
        asked.check().map_err(bad)?;
        self.setxattr(ctx, dir, LMV_MIGRATE, asked.encode().into(), 0).await
    }

    /// Moves a file or directory to an MDT, under another FID. Its names lead to the new FID, and
    /// the old one is gone. A directory moves when its names are on that MDT, or when it has none.
    ///
    /// # Errors
    /// EPERM for a caller that is not root; EBUSY if it is open, or changes; ENOTEMPTY for a
    /// directory with names elsewhere; EXDEV if bytes of the file are at its MDT; EMLINK if two of
    /// its names are in one directory that is elsewhere; ENODEV, ENOSPC and EREMOTEIO for an MDT
    /// that is not there, full or closed; EINVAL for the root and for shards.
    pub async fn migrate_inode(&self, ctx: &Ctx, fid: Fid, mdt: u32) -> Result<()> {
        let asked = Asked { index: mdt.cast_signed(), ..Asked::default() };
        self.setxattr(ctx, fid, INODE_MIGRATE, asked.encode().into(), 0).await
    }

    /// Sets or removes that.
    ///
    /// # Errors
    /// EPERM; EINVAL for a striping out of bounds.
    pub async fn set_dir_default(&self, ctx: &Ctx, dir: Fid, asked: Option<&Asked>) -> Result<()> {
        let Some(asked) = asked else { return self.removexattr(ctx, dir, DMV).await };
        let bad = |error: layout::dir::DirError| Error::local(error.errno(), "setxattr").about(dir);
        asked.check().map_err(bad)?;
        self.setxattr(ctx, dir, DMV, asked.encode().into(), 0).await
    }
}
