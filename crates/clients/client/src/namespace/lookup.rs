//! lookup and getattr, single and in batches.

use std::rc::Rc;

use types::{Errno, Fid};
use wire::body::{Disposition, FidReq, GetattrFlags, LookupReq};
use wire::{Attr, Opcode};

use super::check_name;
use super::shards::check_seen;
use crate::client::{Client, Inner, mdt_of};
use crate::file::File;
use crate::stat::Stat;
use crate::{Ctx, Error, Glance, Lease, Result, Striping, limits};

impl Client {
    /// The file called `name` in `parent`.
    ///
    /// # Errors
    /// ENOENT, EACCES, ENOTDIR.
    pub async fn lookup(&self, ctx: &Ctx, parent: Fid, name: &[u8]) -> Result<Attr> {
        let mut gone = Error::local(Errno::ENOENT, "lookup").about(parent);
        for _ in 0..limits::MOVING_TRIES {
            let quiet = self.0.grants.quiet();
            let (mut stat, lease) = self.0.look_up(ctx, parent, name).await?;
            let fid = stat.attr.fid();
            match self.0.resolve_stat(ctx, &mut stat).await {
                Ok(false) => return Ok(stat.attr),
                Ok(true) => {
                    let asked = (lease, quiet);
                    // if not, the name may stand for another file by now
                    if self.0.names_still(ctx, (parent, name), fid, asked).await? {
                        return Ok(stat.attr);
                    }
                }
                Err(error) if is_gone(&error) => gone = error,
                Err(error) => return Err(error),
            }
        }
        Err(gone)
    }

    /// The same by the MDT's word alone, and how long it holds.
    ///
    /// # Errors
    /// As [`Client::lookup`].
    pub async fn lookup_glance(&self, ctx: &Ctx, parent: Fid, name: &[u8]) -> Result<Glance> {
        let mut known = self.0.named(parent, name);
        let has_no_name = |holder: Fid| {
            let has_none = self.0.grants.of(holder).has_no_name(holder, name);
            // a directory whose striping has changed has its names in other shards
            has_none && (holder == parent || self.0.grants.of(parent).is_believed(parent))
        };
        let is_absent =
            known.is_none() && self.0.known_holder(parent, name).is_some_and(has_no_name);
        let is_known = known.is_some() || is_absent;
        if self.0.look_ahead_of(ctx, parent, name, is_known) && !is_known {
            let arrived = self.0.arrived(parent, name);
            let _late = self.0.env.timeout(limits::AHEAD_WAIT, arrived).await;
            known = self.0.named(parent, name);
        }
        if let Some((attr, lease)) = known {
            return Ok(Glance { attr, lease, size_known: self.0.trusts(&attr) });
        }
        if is_absent {
            return Err(Error::local(Errno::ENOENT, "lookup").about(parent));
        }
        let (mut stat, lease) = self.0.look_up(ctx, parent, name).await?;
        Ok(self.0.glance(&mut stat, lease))
    }

    /// The file at `path`, from the root; "." is skipped, symbolic links are not followed.
    ///
    /// # Errors
    /// As [`Client::lookup`], for any part of the path.
    pub async fn lookup_path(&self, ctx: &Ctx, path: &[u8]) -> Result<Attr> {
        let mut attr = self.getattr(ctx, Fid::ROOT, None).await?;
        let names = path.split(|byte| *byte == b'/');
        for name in names.filter(|name| !matches!(*name, b"" | b".")) {
            attr = if name == b".." {
                let parent =
                    self.readdir(ctx, attr.fid(), 0, limits::READDIR_BYTES_MIN).await?.parent;
                self.getattr(ctx, parent, None).await?
            } else {
                self.lookup(ctx, attr.fid(), name).await?
            };
        }
        Ok(attr)
    }

    /// Attributes of a file. The size of a file in one object is exact at some moment of the call;
    /// that of a striped file may show one write and miss another that ended during the call.
    /// `file`: a handle of it, if there is one.
    ///
    /// # Errors
    /// ENOENT if it is no more.
    pub async fn getattr(&self, ctx: &Ctx, fid: Fid, file: Option<&File>) -> Result<Attr> {
        self.getattr_leased(ctx, fid, file).await.map(|(attr, _)| attr)
    }

    /// The same, and how long it holds. What is granted is not asked for again.
    ///
    /// # Errors
    /// As [`Client::getattr`].
    pub async fn getattr_leased(
        &self,
        ctx: &Ctx,
        fid: Fid,
        file: Option<&File>,
    ) -> Result<(Attr, Lease)> {
        if let Some(believed) = self.0.believed(fid).filter(|(attr, _)| self.0.trusts(attr)) {
            return Ok(believed);
        }
        if let Some(asked) = self.0.known_but_shards(ctx, fid).await? {
            return Ok(asked);
        }
        let (mut stat, lease) = self.0.look_at_size(ctx, fid, file).await?;
        if !self.0.trusts_stat(&stat) && !crate::needs_glimpse(&stat.attr) {
            self.0.resolve_known(ctx, &mut stat).await?;
            return Ok((stat.attr, lease));
        }
        self.0.resolve_stat(ctx, &mut stat).await?;
        self.0.offer_size(ctx, &stat);
        Ok((stat.attr, lease))
    }

    /// The same by the MDT's word alone.
    ///
    /// # Errors
    /// As [`Client::getattr`].
    pub async fn glance(&self, ctx: &Ctx, fid: Fid) -> Result<Glance> {
        if let Some((attr, lease)) = self.0.believed(fid) {
            return Ok(Glance { attr, lease, size_known: self.0.trusts(&attr) });
        }
        if let Some((attr, lease)) = self.0.known_but_shards(ctx, fid).await? {
            return Ok(Glance { attr, lease, size_known: true });
        }
        let (mut stat, lease) = self.0.look(ctx, fid, None).await?;
        Ok(self.0.glance(&mut stat, lease))
    }

    /// Layout of a file, or default of a directory.
    ///
    /// # Errors
    /// ENOENT; EPROTO if the MDT sends what is no layout.
    pub async fn striping(&self, ctx: &Ctx, fid: Fid) -> Result<Striping> {
        let call =
            self.0.call(ctx, Opcode::MdtGetattr, &FidReq { fid: fid.into(), ..FidReq::default() });
        let record =
            self.0.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply.buf(1);
        match layout::Striping::decode(fid, &record) {
            Ok(layout::Striping::None) => Ok(Striping::None),
            Ok(layout::Striping::Layout(layout)) => Ok(Striping::File(layout)),
            Ok(layout::Striping::Template(template)) => Ok(Striping::Default(template)),
            Err(_) => Err(Error::local(Errno::EPROTO, "mds_getattr").about(fid)),
        }
    }
}

/// The file is not there any more, or not yet.
pub(crate) fn is_gone(error: &Error) -> bool {
    matches!(error.errno(), Errno::ESTALE | Errno::ENOENT)
}

impl Inner {
    /// Attributes of a file that nobody else can have changed, where this client knows them.
    fn believed(&self, fid: Fid) -> Option<(Attr, Lease)> {
        let believed = self.grants.of(fid).believed(fid)?;
        let (attr, lease) = self.complete_known(believed)?;
        Some((self.whole(attr)?, lease))
    }

    /// The same of a striped directory, of which only shards are asked that are not known.
    async fn known_but_shards(
        self: &Rc<Self>,
        ctx: &Ctx,
        dir: Fid,
    ) -> Result<Option<(Attr, Lease)>> {
        if !self.is_striped(dir) {
            return Ok(None);
        }
        let asked = Box::pin(self.ask_shards(ctx, dir)).await?;
        Ok(asked.and_then(|(attr, lease)| Some((self.whole(attr)?, lease))))
    }

    /// The same of the file that a name stands for. Only where a kernel has found that the caller
    /// may look names up there.
    fn named(&self, dir: Fid, name: &[u8]) -> Option<(Attr, Lease)> {
        let dir = self.known_holder(dir, name)?;
        let (attr, lease) = self.complete_known(self.grants.named(dir, name)?)?;
        let attr = self.whole(attr)?;
        self.order.found(dir, name, attr.fid());
        Some((attr, lease))
    }

    /// Attributes of a file as a caller sees them. A file without a name goes with its last close,
    /// and of one that is open here for writing the objects may know better.
    fn whole(&self, mut attr: Attr) -> Option<Attr> {
        let inode = self.inodes.get(attr.fid());
        let has_writers = inode.as_ref().is_some_and(|inode| inode.has_writers());
        if !attr.is_dir() && (attr.nlink == 0 || has_writers) {
            return None;
        }
        if let Some(inode) = inode {
            inode.access.borrow().show(&mut attr);
        }
        Some(attr)
    }

    async fn look_up(
        self: &Rc<Self>,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
    ) -> Result<(Stat, Lease)> {
        check_name(name, "lookup")?;
        let quiet = self.grants.quiet();
        let (mut stat, mut lease) = self.look_up_once(ctx, parent, name).await?;
        if stat.disposition.contains(Disposition::REMOTE) {
            let found = (stat, lease, quiet);
            return Box::pin(self.look_up_elsewhere(ctx, (parent, name), found)).await;
        }
        check_seen(&stat.attr, "lookup")?;
        self.complete(ctx, &mut stat, &mut lease).await?;
        Ok((stat, lease))
    }

    /// Whether a name that stood for a file has stood for it until now: by a grant, or because it
    /// is asked again.
    async fn names_still(
        self: &Rc<Self>,
        ctx: &Ctx,
        (parent, name): (Fid, &[u8]),
        fid: Fid,
        (lease, quiet): (Lease, Option<u64>),
    ) -> Result<bool> {
        if self.has_named(parent, lease, quiet) {
            return Ok(true);
        }
        match self.look_up_once(ctx, parent, name).await {
            Ok((now, _)) => Ok(now.attr.fid() == fid),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a name has stood for its file since this client asked for it, when it was `quiet`.
    fn has_named(&self, parent: Fid, lease: Lease, quiet: Option<u64>) -> bool {
        let has_taken = quiet.is_none() || quiet != self.grants.quiet();
        !has_taken && self.grants.of(parent).still_names(lease)
    }

    /// A name leads to a file of another MDT, which is asked. If it has no such file, the name may
    /// be about to move. The two answers are of one moment only if the name still stands for the
    /// file after the second one: by a grant, or because it is asked again. This client was `quiet`
    /// when it first asked for the name: a grant is not called back for its own changes.
    async fn look_up_elsewhere(
        self: &Rc<Self>,
        ctx: &Ctx,
        (parent, name): (Fid, &[u8]),
        (mut stat, mut lease, mut quiet): (Stat, Lease, Option<u64>),
    ) -> Result<(Stat, Lease)> {
        for _ in 0..limits::MOVING_TRIES {
            if !stat.disposition.contains(Disposition::REMOTE) {
                check_seen(&stat.attr, "lookup")?;
                self.complete(ctx, &mut stat, &mut lease).await?;
                return Ok((stat, lease));
            }
            let fid = stat.attr.fid();
            let found = match self.look(ctx, fid, None).await {
                Err(error) if !is_gone(&error) => return Err(error),
                Ok((found, attrs)) if self.has_named(parent, lease, quiet) => {
                    return Ok((found, lease.naming(attrs)));
                }
                Ok(found) => Some(found),
                Err(_) => {
                    self.env.sleep(limits::MOVING_PAUSE).await;
                    None
                }
            };
            quiet = self.grants.quiet();
            (stat, lease) = self.look_up_once(ctx, parent, name).await?;
            if let Some((found, attrs)) = found.filter(|_| stat.attr.fid() == fid) {
                return Ok((found, lease.naming(attrs)));
            }
        }
        Err(Error::local(Errno::ENOENT, "lookup").about(parent))
    }

    /// By the word of the MDT that has the name.
    pub(super) async fn look_up_once(
        self: &Rc<Self>,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
    ) -> Result<(Stat, Lease)> {
        self.at_holders(ctx, [(parent, name)], async |[parent]| {
            self.look_up_at(ctx, parent, name).await
        })
        .await
    }

    async fn look_up_at(
        self: &Rc<Self>,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
    ) -> Result<(Stat, Lease)> {
        let mdt = mdt_of(parent);
        let body = LookupReq { parent: parent.into(), ..LookupReq::default() };
        let mut unsettled = self.unsettled_at(mdt);
        let (asking, stat) = loop {
            let asking = self.grants.at(mdt.index).asking();
            let call = self.call(ctx, Opcode::MdtLookup, &body).name(name);
            let answer = self.ask(mdt, call).await?;
            let stat = self.stat_of(mdt, &answer.reply, "mds_getattr_name")?;
            if !unsettled.contains(&stat.attr.fid()) {
                break (asking, stat);
            }
            Box::pin(self.settle_attrs(mdt)).await; // the answer may lack what callers were told
            unsettled.clear();
        };
        self.order.found(parent, name, stat.attr.fid());
        self.elsewhere.note(parent, stat.attr.fid());
        let lease = asking.told_name(parent, name, &stat);
        self.shed_grants(mdt.index);
        Ok((stat, lease))
    }

    pub(crate) async fn look(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        file: Option<&File>,
    ) -> Result<(Stat, Lease)> {
        self.look_as(ctx, fid, file, GetattrFlags::empty()).await
    }

    /// The same, with the size that the file's only writer tells, if it is another client.
    async fn look_at_size(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        file: Option<&File>,
    ) -> Result<(Stat, Lease)> {
        let flags = GetattrFlags::SIZE.when(self.glimpse_batch.get() > 1);
        self.look_as(ctx, fid, file, flags).await
    }

    async fn look_as(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        file: Option<&File>,
        flags: GetattrFlags,
    ) -> Result<(Stat, Lease)> {
        let asking = self.grants.of(fid).asking();
        let mut stat = self.stat_as(ctx, fid, file.map_or(0, |file| file.0.handle), flags).await?;
        check_seen(&stat.attr, "mds_getattr")?;
        if let Some(inode) = self.inodes.get(fid) {
            inode.see(&stat);
        }
        let mut lease = asking.told(&stat);
        self.complete(ctx, &mut stat, &mut lease).await?;
        Ok((stat, lease))
    }

    /// What the MDT's answer is worth without a question to an OST.
    pub(crate) fn glance(&self, stat: &mut Stat, lease: Lease) -> Glance {
        let size_known = self.settle_known(stat) && self.trusts_stat(stat);
        Glance { attr: stat.attr, lease, size_known }
    }

    /// What the MDT says of a file.
    pub(crate) async fn stat(self: &Rc<Self>, ctx: &Ctx, fid: Fid, handle: u64) -> Result<Stat> {
        self.stat_as(ctx, fid, handle, GetattrFlags::empty()).await
    }

    /// The same, when the objects have what other clients have written.
    pub(crate) async fn stat_exact(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        handle: u64,
    ) -> Result<Stat> {
        self.stat_as(ctx, fid, handle, GetattrFlags::EXACT).await
    }

    async fn stat_as(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        handle: u64,
        flags: GetattrFlags,
    ) -> Result<Stat> {
        let call = self.call(
            ctx,
            Opcode::MdtGetattr,
            &FidReq { fid: fid.into(), handle, flags, ..FidReq::default() },
        );
        let answer = self.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?;
        self.stat_of(mdt_of(fid), &answer.reply, "mds_getattr")
    }
}
