//! Changes of attributes that are acknowledged before they are sent: of a new file that this client
//! writes, under the WRITE bit.
//!
//! ```text
//! chmod, utimes --bit held, cannot fail--> acknowledged, joined to those before --> one request:
//!                            at the close, after KEPT_IDLE, or before anything else at its MDT;
//!                            with the close, where that brings the bytes too ([`super::fresh`])
//! ```
//! Invariants
//! - A change is kept only while no other client can rely on the file's attributes: the file is
//!   DIRTY, and a client that asks for them calls WRITE back. A client that changes them does so
//!   too, and one that the MDT would refuse by the mode that it has.
//! - Kept changes of an MDT's files are executed before this client asks that MDT for anything that
//!   shows or uses names and attributes ([`Inner::settle_attrs`]). So its calls take effect in
//!   their order. Three kinds of requests go ahead. A create that opens no file that is there uses
//!   no attributes of files. An open for reading by FID, and a question about one file, use those
//!   of that file alone. A lookup that turns out to be of such a file is repeated.
//! - A change is kept only if no MDT refuses it and it means the same later. This holds for
//!   explicit times, and for a mode without set-user-id, set-group-id and sticky bits, set by the
//!   owner or the superuser.
//! - A file has at most one such request under way, and nothing of it is kept meanwhile.

use std::rc::Rc;

use endpoint::Call;
use types::{Creds, Errno, Fid, Span, TargetId, TargetKind};
use wire::attr::AttrFlags;
use wire::body::{CreateFlags, CreateReq, FidReq, OpenReq, SetattrFlags, SetattrReq};
use wire::{Attr, decode_body};

pub(super) use super::kept_attrs::Leaving;
use crate::client::Inner;
use crate::flags::{O_EXCL, O_TRUNC, can_write};
use crate::inode::Inode;
use crate::limits::KEPT_IDLE;
use crate::namespace::AttrChange;
use crate::operations::{self, Attrs};
use crate::{Ctx, Error};

/// What may be kept. An owner is set to the one that it is: `cp` and `tar` do that.
const KEPT: SetattrFlags = SetattrFlags::MODE
    .union(SetattrFlags::UID)
    .union(SetattrFlags::GID)
    .union(SetattrFlags::ATIME)
    .union(SetattrFlags::MTIME)
    .union(SetattrFlags::KILL_SUID);

/// Set-user-id, set-group-id and sticky bit: writes and other owners change what they mean.
const SPECIAL: u32 = 0o7000;

/// Until a request is tried again that found no place in this client.
const FULL_PAUSE: Span = Span::millis(10);

impl Leaving {
    /// What is sent.
    pub(super) fn request(&self, inner: &Inner, fid: Fid) -> SetattrReq {
        self.change.request(fid, inner.env.wall())
    }
}

/// Whether an MDT refuses no such change of a file by this caller, and it means the same later.
fn is_certain(attr: &Attr, caller: &Creds, change: &AttrChange) -> bool {
    let has = |flag| change.valid.contains(flag);
    let is_plain = |mode: u32| mode & SPECIAL == 0;
    KEPT.contains(change.valid)
        && !change.valid.is_empty()
        && !attr.flags.intersects(AttrFlags::HAS_XATTR | AttrFlags::HAS_CAPABILITY)
        && is_plain(attr.mode)
        && (caller.uid == 0 || caller.uid == attr.uid)
        && (!has(SetattrFlags::MODE) || is_plain(change.attr.mode))
        && (!has(SetattrFlags::UID) || change.attr.uid == attr.uid)
        && (!has(SetattrFlags::GID) || change.attr.gid == attr.gid)
}

/// Begins to send what is kept of a file's attributes.
pub(crate) fn send_attrs(inner: &Rc<Inner>, inode: &Rc<Inode>) {
    let attrs = &inode.keeping.attrs;
    if attrs.is_sending.get() {
        return;
    }
    let Some((ctx, mut change)) = attrs.kept.take() else { return };
    change.urgent = true; // a recall may wait for it, behind all requests of this client
    attrs.is_sending.set(true);
    let (inner, inode) = (inner.clone(), inode.clone());
    inner.env.clone().spawn("sending kept attributes", async move {
        let sent = loop {
            if inode.is_lost() {
                break Err(Error::local(Errno::EIO, "setattr").about(inode.fid));
            }
            match inner.setattr(&ctx, inode.fid, change).await {
                Err(error) if error.errno() == Errno::EBUSY => inner.env.sleep(FULL_PAUSE).await,
                sent => break sent,
            }
        };
        match sent {
            Ok(stat) => inode.learn(&stat),
            Err(error) => inner.lose_attrs(&inode, &error),
        }
        have_landed(&inner, &inode);
    });
}

/// What was under way is executed, or is lost.
pub(super) fn have_landed(inner: &Inner, inode: &Inode) {
    let attrs = &inode.keeping.attrs;
    attrs.is_sending.set(false);
    inner.keeper.unsettled.settled(inode);
    attrs.landed.notify_waiters();
}

/// A change was refused with the close of its file: it is sent by itself.
pub(super) fn send_again(inner: &Rc<Inner>, inode: &Rc<Inode>, leaving: Leaving) {
    let attrs = &inode.keeping.attrs;
    attrs.is_sending.set(false);
    attrs.kept.replace(Some((leaving.ctx, leaving.change)));
    send_attrs(inner, inode);
}

/// Returns when the MDT has executed what was kept of a file's attributes until now, or it is lost.
pub(crate) async fn flush_attrs(inner: &Rc<Inner>, inode: &Rc<Inode>) {
    send_attrs(inner, inode);
    let attrs = &inode.keeping.attrs;
    loop {
        let landed = attrs.landed.notified();
        if !attrs.is_sending.get() {
            return;
        }
        landed.await;
    }
}

/// Files with whose attributes the answer to a request, or what it does, has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Used {
    None,
    Of(Fid),
    /// Perhaps all files of the MDT.
    All,
}

fn used_attrs(call: &Call) -> Used {
    let body = call.bufs.first().map_or(&[][..], |body| body);
    match operations::row(call.opcode).attrs {
        Attrs::Ignores => Used::None,
        Attrs::Uses => Used::All,
        Attrs::OfNamed => Used::Of(decode_body::<FidReq>(body).fid.into()),
        Attrs::OfOpened => {
            let OpenReq { fid, open_flags, .. } = decode_body(body);
            let changes = can_write(open_flags) || open_flags & O_TRUNC != 0;
            if changes { Used::All } else { Used::Of(fid.into()) }
        }
        Attrs::IfItOpens => {
            let CreateReq { flags, open_flags, .. } = decode_body(body);
            let may_be_there = flags.contains(CreateFlags::OPEN) && open_flags & O_EXCL == 0;
            if may_be_there { Used::All } else { Used::None }
        }
    }
}

impl Inner {
    fn may_keep_attrs(&self, inode: &Inode, ctx: &Ctx, change: &AttrChange) -> bool {
        inode.with_view(|view| view.is_fresh()) == Some(true)
            && self.writeback.get()
            && !inode.is_lost()
            && inode.keeping.pauses.get() == 0
            && inode.layout().is_some()
            && self.grants.of(inode.fid).may_write(inode.fid)
            && is_certain(&inode.attr(), &ctx.creds, change)
    }

    /// Sends what is kept for another caller, and waits for it and for what is under way. False if
    /// more of it has come meanwhile.
    pub(crate) async fn may_join_attrs(self: &Rc<Self>, ctx: &Ctx, inode: &Rc<Inode>) -> bool {
        let attrs = &inode.keeping.attrs;
        if !attrs.takes(&ctx.creds) {
            flush_attrs(self, inode).await;
        }
        attrs.takes(&ctx.creds)
    }

    /// Keeps a change of attributes, if it may be kept. Returns what its caller is told then.
    pub(crate) async fn keep_attrs(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        change: &AttrChange,
    ) -> Option<Attr> {
        let inode = self.inodes.get(fid)?;
        if !self.may_keep_attrs(&inode, ctx, change) {
            return None;
        }
        if !self.may_join_attrs(ctx, &inode).await || !self.may_keep_attrs(&inode, ctx, change) {
            return None;
        }
        let attrs = &inode.keeping.attrs;
        if attrs.put(ctx, change) {
            self.keeper.unsettled.0.borrow_mut().insert(fid, inode.clone());
            self.send_attrs_later(&inode);
        }
        self.keeper.count(|stats| stats.setattrs += 1);
        if change.valid.contains(SetattrFlags::ATIME) {
            inode.access.borrow_mut().was_set();
        }
        let mut attr = inode.attr();
        attrs.show(&mut attr);
        attr.set_ctime(attr.ctime().max(self.env.wall()));
        Some(attr)
    }

    fn send_attrs_later(self: &Rc<Self>, inode: &Rc<Inode>) {
        let (inner, inode) = (self.clone(), inode.clone());
        self.env.spawn("kept attributes", async move {
            inner.env.sleep(KEPT_IDLE).await;
            send_attrs(&inner, &inode);
        });
    }

    /// Returns when all files of this MDT have the attributes that callers were told.
    pub(crate) async fn settle_attrs(self: &Rc<Self>, mdt: TargetId) {
        self.settle_files(self.keeper.unsettled.at(mdt.index)).await;
    }

    /// The same of these files.
    pub(crate) async fn settle_files(self: &Rc<Self>, files: Vec<Rc<Inode>>) {
        files.iter().for_each(|inode| send_attrs(self, inode));
        for inode in files {
            flush_attrs(self, &inode).await;
        }
    }

    /// The files for which a request to this target has to wait so.
    pub(crate) fn unsettled_for(&self, target: TargetId, call: &Call) -> Vec<Rc<Inode>> {
        let unsettled = &self.keeper.unsettled;
        if target.kind != TargetKind::Mdt || unsettled.is_empty() {
            return Vec::new();
        }
        match used_attrs(call) {
            Used::None => Vec::new(),
            Used::Of(fid) => unsettled.of(fid).into_iter().collect(),
            Used::All => unsettled.at(target.index),
        }
    }

    /// Files of this MDT whose attributes it may not have as callers were told.
    pub(crate) fn unsettled_at(&self, mdt: TargetId) -> Vec<Fid> {
        self.keeper.unsettled.at(mdt.index).iter().map(|inode| inode.fid).collect()
    }

    fn lose_attrs(self: &Rc<Self>, inode: &Inode, error: &Error) {
        let target_id = error.target().map(|target| target.name(self.config.fsname));
        let target_id = target_id.map(tracing::field::display);
        tracing::warn!(target_id, fid = %inode.fid, %error, "an acknowledged change of attributes is lost");
        self.lose_file(inode.fid);
    }

    /// Files whose handles the MDT has taken away lose what is kept of them.
    pub(crate) fn lose_attrs_at(self: &Rc<Self>, mdt: u32) {
        for inode in self.keeper.unsettled.at(mdt) {
            if inode.keeping.attrs.kept.take().is_some() {
                let error =
                    Error::local(Errno::EIO, "setattr").about(inode.fid).by(TargetId::mdt(mdt));
                self.lose_attrs(&inode, &error);
            }
            self.keeper.unsettled.settled(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::keep::kept_attrs::KeptAttrs;
    use crate::flags::{O_RDONLY, O_RDWR, O_WRONLY};
    use types::Timespec;
    use wire::attr::S_IFREG;
    use wire::{Opcode, encode_body};

    fn file() -> Attr {
        Attr { mode: S_IFREG | 0o600, uid: 7, gid: 8, ..Attr::default() }
    }

    fn caller(uid: u32) -> Creds {
        Creds { uid, gid: 8, ..Creds::default() }
    }

    fn change(valid: SetattrFlags, attr: Attr) -> AttrChange {
        AttrChange { valid, attr, ..AttrChange::default() }
    }

    fn chmod(mode: u32) -> AttrChange {
        change(SetattrFlags::MODE, Attr { mode, ..Attr::default() })
    }

    #[test]
    fn only_what_no_mdt_refuses_is_kept() {
        let (owner, root, other) = (caller(7), caller(0), caller(9));
        let times = change(SetattrFlags::ATIME | SetattrFlags::MTIME, Attr::default());
        for sure in [chmod(0o644), times] {
            assert!(is_certain(&file(), &owner, &sure) && is_certain(&file(), &root, &sure));
            assert!(!is_certain(&file(), &other, &sure), "it may not");
        }
        for mode in [0o4755, 0o2755, 0o1755] {
            assert!(!is_certain(&file(), &owner, &chmod(mode)));
            assert!(!is_certain(&Attr { mode, ..file() }, &owner, &chmod(0o644)));
        }
        for flags in [AttrFlags::HAS_XATTR, AttrFlags::HAS_CAPABILITY] {
            assert!(!is_certain(&Attr { flags, ..file() }, &root, &times));
        }
        for valid in [SetattrFlags::MTIME_NOW, SetattrFlags::SIZE, SetattrFlags::empty()] {
            assert!(!is_certain(&file(), &root, &change(valid, Attr::default())));
        }
    }

    #[test]
    fn an_owner_is_kept_only_where_it_stays() {
        let owner = SetattrFlags::UID | SetattrFlags::GID | SetattrFlags::KILL_SUID;
        let chown = |uid, gid| change(owner, Attr { uid, gid, ..Attr::default() });
        assert!(is_certain(&file(), &caller(0), &chown(7, 8)));
        assert!(!is_certain(&file(), &caller(0), &chown(9, 8)));
        assert!(!is_certain(&file(), &caller(0), &chown(7, 9)));
    }

    #[test]
    fn a_request_about_one_file_waits_for_that_file_alone() {
        let fid = Fid::new(0x2_0000_0400, 9);
        let used = |opcode, body| used_attrs(&Call::new(opcode, vec![body]));
        let named = encode_body(&FidReq { fid: fid.into(), ..FidReq::default() });
        for opcode in [Opcode::MdtGetattr, Opcode::MdtGetxattr, Opcode::MdtListxattr] {
            assert_eq!(used(opcode, named.clone()), Used::Of(fid));
        }
        let open = |open_flags| {
            let body = OpenReq { fid: fid.into(), open_flags, ..OpenReq::default() };
            used(Opcode::MdtOpen, encode_body(&body))
        };
        assert_eq!(open(O_RDONLY), Used::Of(fid));
        for flags in [O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC] {
            assert_eq!(open(flags), Used::All, "it changes another file");
        }
        let create = |flags, open_flags| {
            let body = CreateReq { flags, open_flags, ..CreateReq::default() };
            used(Opcode::MdtCreate, encode_body(&body))
        };
        assert_eq!(create(CreateFlags::OPEN, 0), Used::All, "it may be there");
        assert_eq!(create(CreateFlags::OPEN, O_EXCL), Used::None);
        assert_eq!(create(CreateFlags::empty(), 0), Used::None);
        for opcode in [Opcode::MdtReaddir, Opcode::MdtSetxattr, Opcode::MdtRename] {
            assert_eq!(used(opcode, named.clone()), Used::All);
        }
        assert_eq!(used(Opcode::MdtClose, named), Used::None);
    }

    #[test]
    fn changes_become_one() {
        let (attrs, ctx) = (KeptAttrs::default(), Ctx::user(7, 8));
        let mut times = Attr::default();
        times.set_mtime(Timespec::new(50, 1));
        assert!(attrs.put(&ctx, &chmod(0o640)));
        assert!(!attrs.put(&ctx, &change(SetattrFlags::MTIME, times)));
        assert!(!attrs.put(&ctx, &chmod(0o604)));
        let mut shown = file();
        attrs.show(&mut shown);
        assert_eq!((shown.mode, shown.mtime()), (S_IFREG | 0o604, Timespec::new(50, 1)));
        assert!(attrs.takes(&caller(7)) && !attrs.takes(&caller(0)), "another caller's is apart");
        let (_, sent) = attrs.kept.take().expect("it is kept");
        assert_eq!(sent.valid, SetattrFlags::MODE | SetattrFlags::MTIME);
        assert!(attrs.is_clean() && attrs.was_kept());
    }
}
