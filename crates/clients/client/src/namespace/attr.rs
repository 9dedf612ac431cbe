//! setattr: mode, owner, times. A size change is a truncate.

use std::rc::Rc;

use layout::StripeSet;
use types::{Fid, Timespec};
use wire::attr::S_IFMT;
use wire::body::{SetattrFlags, SetattrReq};
use wire::{Attr, Opcode};

use crate::client::{Client, Inner, mdt_of};
use crate::data::Pause;
use crate::file::File;
use crate::grants::Scope;
use crate::inode::Stat;
use crate::{Ctx, Glance, Lease, Result, SetAttr, SetTime};

/// A setattr request in the words of the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttrChange {
    pub(crate) valid: SetattrFlags,
    pub(crate) attr: Attr,
    pub(crate) handle: u64,
    pub(crate) epoch: u64,
    /// With SIZE_KNOWN: bit i: stripe i of the first 64 has an object.
    pub(crate) stripes: u64,
    /// A recall may wait for it.
    pub(crate) urgent: bool,
}

impl AttrChange {
    /// One of these kinds.
    pub(crate) fn of(valid: SetattrFlags) -> AttrChange {
        AttrChange { valid, ..AttrChange::default() }
    }

    fn new(set: &SetAttr, handle: u64) -> AttrChange {
        let mut change = AttrChange { handle, ..AttrChange::default() };
        let (valid, attr) = (&mut change.valid, &mut change.attr);
        put(set.mode, SetattrFlags::MODE, valid, &mut attr.mode);
        put(set.uid, SetattrFlags::UID, valid, &mut attr.uid);
        put(set.gid, SetattrFlags::GID, valid, &mut attr.gid);
        put(set.size, SetattrFlags::SIZE, valid, &mut attr.size);
        put(set.projid, SetattrFlags::PROJID, valid, &mut attr.projid);
        match set.atime {
            Some(SetTime::At(time)) => {
                *valid |= SetattrFlags::ATIME;
                attr.set_atime(time);
            }
            Some(SetTime::Now) => *valid |= SetattrFlags::ATIME_NOW,
            None => {}
        }
        match set.mtime {
            Some(SetTime::At(time)) => {
                *valid |= SetattrFlags::MTIME;
                attr.set_mtime(time);
            }
            Some(SetTime::Now) => *valid |= SetattrFlags::MTIME_NOW,
            None => {}
        }
        if let Some(time) = set.ctime {
            *valid |= SetattrFlags::CTIME;
            attr.set_ctime(time);
        }
        if set.kill_suid {
            *valid |= SetattrFlags::KILL_SUID;
        }
        change
    }

    /// What is sent for this file at `now`, by this client's clock.
    pub(crate) fn request(&self, fid: Fid, now: Timespec) -> SetattrReq {
        let mut attr = self.attr.with_fid(fid);
        attr.set_btime(now);
        SetattrReq {
            attr,
            valid: self.valid,
            handle: self.handle,
            write_epoch: self.epoch,
            stripes: self.stripes,
            ..SetattrReq::default()
        }
    }

    /// Both, one after the other.
    pub(crate) fn then(mut self, later: &AttrChange) -> AttrChange {
        later.put_into(&mut self.attr);
        self.valid |= later.valid;
        self.handle = later.handle;
        self
    }

    /// What becomes of attributes by it, but for the change time.
    pub(crate) fn show(&self, attr: &mut Attr) {
        let before = *attr;
        self.put_into(attr);
        attr.mode = before.mode & S_IFMT | attr.mode & !S_IFMT;
    }

    /// Mode, owner and times that it sets.
    fn put_into(&self, attr: &mut Attr) {
        let has = |flag| self.valid.contains(flag);
        if has(SetattrFlags::MODE) {
            attr.mode = self.attr.mode;
        }
        if has(SetattrFlags::UID) {
            attr.uid = self.attr.uid;
        }
        if has(SetattrFlags::GID) {
            attr.gid = self.attr.gid;
        }
        if has(SetattrFlags::ATIME) {
            attr.set_atime(self.attr.atime());
        }
        if has(SetattrFlags::MTIME) {
            attr.set_mtime(self.attr.mtime());
        }
    }
}

fn put<T>(value: Option<T>, flag: SetattrFlags, valid: &mut SetattrFlags, field: &mut T) {
    if let Some(value) = value {
        *valid |= flag;
        *field = value;
    }
}

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
        let scope = if is_cut { Scope::shape(fid) } else { Scope::attrs(fid) };
        let changed = self.change(scope, mdt_of(fid), call).await;
        changed.map_err(|error| error.about(fid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_sent() {
        assert_eq!(AttrChange::new(&SetAttr::default(), 0).valid, SetattrFlags::empty());
        let set = SetAttr {
            size: Some(0),
            mtime: Some(SetTime::At(Timespec::new(5, 6))),
            atime: Some(SetTime::Now),
            ..SetAttr::default()
        };
        let change = AttrChange::new(&set, 9);
        assert_eq!(
            change.valid,
            SetattrFlags::SIZE | SetattrFlags::MTIME | SetattrFlags::ATIME_NOW
        );
        assert_eq!((change.handle, change.attr.mtime()), (9, Timespec::new(5, 6)));
    }
}
