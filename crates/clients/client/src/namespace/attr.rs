//! setattr: mode, owner, times. A size change is a truncate.

use std::rc::Rc;

use layout::StripeSet;
use types::{Fid, Timespec};
use wire::body::SetattrFlags;
use wire::{Attr, Opcode};

use super::change::AttrChange;
use crate::client::{Client, Inner, mdt_of};
use crate::data::Pause;
use crate::file::File;
use crate::grants::Scope;
use crate::stat::Stat;
use crate::{Ctx, Glance, Lease, Result, SetAttr};

impl Client {
    /// Changes attributes. `set.size` truncates or extends the file, atomically against appends and
    /// other truncates. `file`: the handle through which it is done (ftruncate), if any.
    ///
    /// # Errors
    /// EPERM, EACCES, ENOENT; EINVAL or EISDIR for a size of what is no regular file.
    pub async fn setattr(
        &self,
        ctx: &Ctx,
        fid: Fid,
        set: &SetAttr,
        file: Option<&File>,
    ) -> Result<Attr> {
        let (mut stat, _, size_known) = self.0.set(ctx, fid, set, file).await?;
        if !size_known {
            self.0.resolve(ctx, &mut stat).await?;
        }
        Ok(self.0.was_set(set, &mut stat))
    }

    /// The same by the MDT's word alone, unless a size is set, and how long that holds. Of a new
    /// file that this client alone writes, the change may be acknowledged before it is sent.
    ///
    /// # Errors
    /// As [`Client::setattr`].
    pub async fn setattr_glance(
        &self,
        ctx: &Ctx,
        fid: Fid,
        set: &SetAttr,
        file: Option<&File>,
    ) -> Result<Glance> {
        let change = AttrChange::new(set, file.map_or(0, |file| file.0.handle));
        if let Some(attr) = self.0.keep_attrs(ctx, fid, &change).await {
            return Ok(Glance { attr, lease: Lease::default(), size_known: false });
        }
        let (mut stat, lease, size_known) = self.0.set(ctx, fid, set, file).await?;
        let attr = self.0.was_set(set, &mut stat);
        Ok(Glance { attr, lease, size_known })
    }

    /// Tells the MDT in the background that a directory or symbolic link was read at `now`. Files
    /// that are open tell it with their close. It is worth no retry: what was missed is made up for
    /// by the next read.
    pub fn was_read(&self, ctx: &Ctx, fid: Fid, now: Timespec) {
        let mut change = AttrChange { valid: SetattrFlags::READ_AT, ..AttrChange::default() };
        change.attr.set_atime(now);
        let (inner, ctx) = (self.0.clone(), ctx.clone());
        self.0.env.spawn("access time", async move {
            if let Err(error) = inner.setattr(&ctx, fid, change).await {
                tracing::debug!("an access time is not kept: {error}");
            }
        });
    }
}

impl Inner {
    /// Changes attributes; says how long the answer holds, and whether the size in it is exact.
    async fn set(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        set: &SetAttr,
        file: Option<&File>,
    ) -> Result<(Stat, Lease, bool)> {
        let change = AttrChange::new(set, file.map_or(0, |file| file.0.handle));
        // what is kept meanwhile might be refused once the file has another owner
        let _pause = self.inodes.get(fid).map(|inode| Pause::begin(&inode));
        Box::pin(self.settle_attrs(mdt_of(fid))).await;
        if set.size.is_none() {
            let (mut stat, mut lease) = self.setattr_leased(ctx, fid, change).await?;
            self.complete(ctx, &mut stat, &mut lease).await?;
            let size_known = stat.layout.is_none() || !crate::needs_glimpse(&stat.attr);
            return Ok((stat, lease, size_known));
        }
        let (inner, ctx) = (self.clone(), ctx.clone());
        let stat =
            self.run("truncate", async move { inner.truncate(&ctx, fid, change).await }).await?;
        Ok((stat, Lease::default(), true))
    }

    /// Takes the answer to a change of attributes; what the caller is told.
    fn was_set(&self, set: &SetAttr, stat: &mut Stat) -> Attr {
        if let Some(inode) = self.inodes.get(stat.attr.fid()) {
            if set.atime.is_some() {
                inode.access.borrow_mut().was_set();
            }
            inode.learn(stat);
            inode.access.borrow().show(&mut stat.attr);
        }
        stat.attr
    }

    pub(crate) async fn setattr(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        change: AttrChange,
    ) -> Result<Stat> {
        self.setattr_leased(ctx, fid, change).await.map(|(stat, _)| stat)
    }

    /// The same with a size, and with all stripes that have an object.
    pub(crate) async fn setattr_known(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        change: AttrChange,
        stripes: &StripeSet,
    ) -> Result<Stat> {
        let change = AttrChange { stripes: stripes.first_part(), ..change };
        self.send_attrs(ctx, fid, change, stripes.second_part()).await.map(|(stat, _)| stat)
    }

    async fn setattr_leased(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        change: AttrChange,
    ) -> Result<(Stat, Lease)> {
        self.send_attrs(ctx, fid, change, Vec::new()).await
    }

    /// `more_stripes`: those from 64 on, as they are sent.
    async fn send_attrs(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        change: AttrChange,
        more_stripes: Vec<u8>,
    ) -> Result<(Stat, Lease)> {
        let body = change.request(fid, self.env.wall());
        let mut call = self.call(ctx, Opcode::MdtSetattr, &body).urgent(change.urgent);
        if !more_stripes.is_empty() {
            call = call.buf(more_stripes);
        }
        let is_cut = change.valid.contains(SetattrFlags::SIZE);
        let scope = if is_cut { Scope::shape(fid) } else { Scope::stat(fid) };
        let changed = self.change(scope, mdt_of(fid), call).await;
        changed.map_err(|error| error.about(fid))
    }
}
