//! Requests about names and attributes of striped directories. [`super::striped`] keeps what is
//! known of them.

use std::rc::Rc;

use env::LocalFuture;
use layout::dir::{Asked, Stripes};
use types::{Errno, Fid};
use wire::attr::{ATTR_SHARD, ATTR_STRIPED};
use wire::body::{ReaddirRep, ReaddirReq};
use wire::{Attr, Opcode};

use super::striped::{Kind, merge};
use crate::client::{Client, Inner, mdt_of};
use crate::inode::Stat;
use crate::join::try_join;
use crate::xattr::{DMV, LMV};
use crate::{Ctx, Error, Lease, Result, limits};

impl Inner {
    /// Attributes came from the MDT of the file.
    pub(crate) fn note(&self, attr: &Attr) {
        if attr.is_dir() && (attr.flags & ATTR_STRIPED != 0 || self.has_mdts.get()) {
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
        Ok(stripes.map_or(dir, |stripes| shard(&stripes, name)))
    }

    /// The same where that is known without a request.
    pub(crate) fn known_holder(&self, dir: Fid, name: &[u8]) -> Option<Fid> {
        match self.kind(dir) {
            Kind::Plain => Some(dir),
            Kind::Striped(stripes) => stripes.map(|stripes| shard(&stripes, name)),
            Kind::Unknown => None,
        }
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
                if attr.flags & ATTR_STRIPED == 0 {
                    return Ok(None);
                }
            }
        }
        let value = Client(self.clone()).getxattr(ctx, dir, LMV).await?;
        let stripes = Stripes::decode(&value).map_err(|error| {
            tracing::warn!("the MDT sent a broken striping: {error}");
            Error::local(Errno::EPROTO, "getxattr").about(dir)
        })?;
        Ok(Some(self.striped.learn(dir, stripes, self.env.now())))
    }

    /// Completes attributes of a striped directory with those of its shards; the lease ends with
    /// the first of theirs. Attributes of anything else stay.
    pub(crate) async fn complete(
        self: &Rc<Self>,
        ctx: &Ctx,
        stat: &mut Stat,
        lease: &mut Lease,
    ) -> Result<()> {
        if stat.attr.flags & ATTR_STRIPED == 0 {
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
        let Some(stripes) = self.stripes(ctx, attr.fid()).await? else { return Ok(()) };
        let asks = stripes.shards.iter().map(|shard| -> LocalFuture<'_, Result<(Attr, Lease)>> {
            Box::pin(self.shard_attr(ctx, *shard))
        });
        let found = try_join(asks.collect(), limits::BATCH_RPCS_MAX).await?;
        let (shards, leases): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        merge(attr, &shards);
        for of_shard in leases {
            *lease = lease.and(of_shard);
        }
        Ok(())
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
        if attr.flags & ATTR_STRIPED == 0 {
            return Some((attr, lease));
        }
        let stripes = self.striped.shards(attr.fid())?;
        let known = stripes.shards.iter().map(|shard| self.grants.of(*shard).believed(*shard));
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
        if attr.flags & ATTR_SHARD == 0 {
            return Ok(dir);
        }
        let body = ReaddirReq { fid: dir.into(), entries_max: 1, ..ReaddirReq::default() };
        let reply = self.ask(mdt_of(dir), self.call(ctx, Opcode::MdtReaddir, &body)).await?.reply;
        Ok(reply.body::<ReaddirRep>().parent.into())
    }
}

/// The shard of a name.
fn shard(stripes: &Stripes, name: &[u8]) -> Fid {
    stripes.shards.get(stripes.shard_of(name)).copied().unwrap_or_default()
}

/// Refuses a shard where a caller has asked for it: it is no file of theirs.
pub(crate) fn check_seen(attr: &Attr, stage: &'static str) -> Result<()> {
    match attr.flags & ATTR_SHARD {
        0 => Ok(()),
        _ => Err(Error::local(Errno::ESTALE, stage).about(attr.fid())),
    }
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
