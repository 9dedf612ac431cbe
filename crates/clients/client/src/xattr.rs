//! Extended attributes. The MDT stores all of them. `lustre.lov` and `trusted.lov` are views of the
//! layout in Lustre's binary form ([`layout::lov`]). `lustre.lmv` and `lustre.dmv` are those of a
//! directory's striping and of its default for new subdirectories ([`layout::dir`]). `lustre.som`
//! is the MDT's knowledge of a file's size.
//!
//! Tools that copy files list the attributes of each and set them at the copy (`cp -a`). Four calls
//! of theirs need no request where the file is open here:
//! - A list, if the file is known to have no attribute but the layout.
//! - The value of the layout, if no client has the file open for writing.
//! - A layout for a file that has one. It changes nothing.
//! - An access list that says no more than a mode, for a new file whose attributes are kept back.

use std::rc::Rc;

use bytes::Bytes;
use layout::lov::{self, LovError};
use types::{Acl, Errno, Fid};
use wire::body::{FidReq, LayoutReq, SetxattrReq};
use wire::{Attr, Opcode};

use crate::client::{CallBuilder, Client, Inner, mdt_of};
use crate::grants::Scope;
use crate::namespace::{AttrChange, split_nul};
use crate::stat::Stat;
use crate::{Ctx, Error, Result, SetAttr};

/// The layout of a file or directory.
pub(crate) const LOV: &[u8] = b"lustre.lov";
/// The same for the superuser.
const TRUSTED_LOV: &[u8] = b"trusted.lov";
/// Who may do what with a file.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Gives a file the objects of another one. [`Client::migrate`] is what uses it.
pub(crate) const LOV_SWAP: &[u8] = b"lustre.lov.swap";
/// Takes components away from a file.
pub(crate) const LOV_DEL: &[u8] = b"lustre.lov.del";
/// The shards of a directory.
pub(crate) const LMV: &[u8] = b"lustre.lmv";
/// Set only: the names of a directory move to the MDTs that are named.
pub(crate) const LMV_MIGRATE: &[u8] = b"lustre.lmv.migrate";
/// Set only: moves an inode to the MDT that is named, under another FID.
pub(crate) const INODE_MIGRATE: &[u8] = b"lustre.inode.migrate";
/// The default of a directory for new subdirectories.
pub(crate) const DMV: &[u8] = b"lustre.dmv";
/// What the MDT knows of a file's size (Lustre: `trusted.som`).
const SOM: &[u8] = b"lustre.som";
/// Its flags: the size is exact; it was before the file was opened for writing.
const SOM_STRICT: u16 = 1;
const SOM_STALE: u16 = 2;
/// Longest name of an attribute (XATTR_NAME_MAX).
const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value (XATTR_SIZE_MAX).
const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// Flags, six bytes of zeros, size and blocks, little-endian.
fn som(attr: &Attr) -> Result<Bytes> {
    if !attr.is_file() {
        return Err(Error::local(Errno::ENODATA, "getxattr").about(attr.fid()));
    }
    let flags = if crate::needs_glimpse(attr) { SOM_STALE } else { SOM_STRICT };
    let words = [u64::from(flags), attr.size, attr.blocks];
    Ok(words.map(u64::to_le_bytes).concat().into())
}

impl Client {
    /// Value of an attribute.
    ///
    /// # Errors
    /// ENODATA if it has none of that name; EOPNOTSUPP for an unknown name space.
    pub async fn getxattr(&self, ctx: &Ctx, fid: Fid, name: &[u8]) -> Result<Bytes> {
        check(name, "getxattr")?;
        if self.0.grants.of(fid).is_absent(fid, name) {
            return Err(Error::local(Errno::ENODATA, "getxattr").about(fid));
        }
        if name == SOM {
            return som(&self.0.stat(ctx, fid, 0).await?.attr);
        }
        if let Some(value) = self.0.known_layout(ctx, fid, name) {
            return Ok(value);
        }
        let call = self.0.call(ctx, Opcode::MdtGetxattr, &fid_req(fid)).name(name);
        Ok(self.0.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply.buf(1))
    }

    /// Sets an attribute. `flags`: XATTR_CREATE 1, XATTR_REPLACE 2. `lustre.lov` gives a file
    /// without layout one, and a directory its default; on a file that has a layout it changes
    /// nothing and succeeds.
    ///
    /// # Errors
    /// EEXIST, ENODATA by the flags; E2BIG over 64 KiB; ENOSPC, EPERM.
    pub async fn setxattr(
        &self,
        ctx: &Ctx,
        fid: Fid,
        name: &[u8],
        value: Bytes,
        flags: u32,
    ) -> Result<()> {
        check(name, "setxattr")?;
        if name == LOV_SWAP {
            return Err(Error::local(Errno::EOPNOTSUPP, "setxattr").about(fid));
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Error::local(Errno::E2BIG, "setxattr").about(fid));
        }
        if name == INODE_MIGRATE {
            let (inner, ctx) = (self.0.clone(), ctx.clone());
            let moved = async move { inner.move_inode(&ctx, fid, value).await };
            return self.0.run("inode-migrate", moved).await;
        }
        if self.0.has_such_a_layout(ctx, fid, name, &value)
            || flags == 0 && self.0.keeps_acl(ctx, fid, name, &value).await
        {
            return Ok(());
        }
        let body = SetxattrReq { fid: fid.into(), flags, ..SetxattrReq::default() };
        let set = self.0.set_attribute(ctx, body, name, value.clone()).await;
        if name == LMV || name == LMV_MIGRATE {
            self.0.striped.forget(fid); // its shards are other ones now
        }
        match set {
            Err(error) if name == LOV_DEL && error.errno() == Errno::EBUSY => {
                let (inner, ctx) = (self.0.clone(), ctx.clone());
                let cut = async move { inner.cut_components(&ctx, fid, value).await };
                self.0.run("component-del", cut).await
            }
            set => set.map(drop),
        }
    }

    /// Names of all attributes.
    ///
    /// # Errors
    /// ENOENT.
    pub async fn listxattr(&self, ctx: &Ctx, fid: Fid) -> Result<Vec<Vec<u8>>> {
        if self.0.has_lasting_layout(fid) && self.0.grants.of(fid).has_no_xattrs(fid) {
            return Ok(vec![LOV.to_vec()]);
        }
        let call = self.0.call(ctx, Opcode::MdtListxattr, &fid_req(fid));
        let names =
            self.0.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply.buf(1);
        // tools that copy attributes would take them along
        let is_shown = |name: &&[u8]| *name != LMV && *name != DMV;
        Ok(split_nul(&names).filter(is_shown).map(<[u8]>::to_vec).collect())
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// ENODATA if it has none of that name.
    pub async fn removexattr(&self, ctx: &Ctx, fid: Fid, name: &[u8]) -> Result<()> {
        check(name, "removexattr")?;
        let call = self.0.call(ctx, Opcode::MdtRemovexattr, &fid_req(fid)).name(name);
        self.0.change_attribute(Scope::attrs(fid), fid, call).await.map(drop)
    }
}

impl Inner {
    /// Whether a file is open here and has a layout that it cannot lose.
    fn has_lasting_layout(&self, fid: Fid) -> bool {
        let inode = self.inodes.get(fid);
        inode.is_some_and(|inode| inode.layout().is_some() && !inode.is_only_seen())
    }

    /// The layout of a file that is open here, as the MDT would show it, if it is not open for
    /// writing. A writer may get more objects, and no grant is called back for that. The MDT grants
    /// attributes only of files without a writer, and calls them back before one opens the file. Of
    /// a new file it grants them to its maker too. After a migration that failed, the generation
    /// that is shown may be older than the MDT's; the objects are the same.
    fn known_layout(&self, ctx: &Ctx, fid: Fid, name: &[u8]) -> Option<Bytes> {
        let is_shown = name == LOV || name == TRUSTED_LOV && ctx.creds.uid == 0;
        if !is_shown || !self.has_lasting_layout(fid) {
            return None;
        }
        let inode = self.inodes.get(fid).filter(|inode| !inode.has_writers())?;
        let (attr, _) = self.grants.of(fid).believed(fid)?;
        let layout = inode.layout_of(attr.layout_version)?;
        Some(lov::encode_any_file(&layout, fid).into())
    }

    /// Whether the MDT would change nothing, because the file has a layout.
    fn has_such_a_layout(&self, ctx: &Ctx, fid: Fid, name: &[u8], value: &[u8]) -> bool {
        let may = match name {
            TRUSTED_LOV => ctx.creds.uid == 0,
            LOV => ctx.creds.uid == 0 || self.is_owner(ctx, fid),
            _ => return false,
        };
        let is_layout = || matches!(lov::decode_any(value), Ok(_) | Err(LovError::Unsupported(_)));
        may && self.has_lasting_layout(fid) && is_layout()
    }

    /// Whether the caller owns a file whose attributes nobody else can have changed: they are
    /// granted, or this client may keep what it writes.
    fn is_owner(&self, ctx: &Ctx, fid: Fid) -> bool {
        let grants = self.grants.of(fid);
        let inode = || self.inodes.get(fid).filter(|_| grants.may_write(fid));
        let granted = grants.believed(fid).map(|(attr, _)| attr);
        let attr = granted.or_else(|| inode().map(|inode| inode.attr()));
        attr.is_some_and(|attr| attr.uid == ctx.creds.uid)
    }

    /// Keeps an access list back that is only the mode of a new file. If there is another list, a
    /// mode would change its mask.
    async fn keeps_acl(self: &Rc<Self>, ctx: &Ctx, fid: Fid, name: &[u8], value: &[u8]) -> bool {
        let Some(mode) = mode_of(value).filter(|_| name == ACL_ACCESS) else { return false };
        let Some(inode) = self.inodes.get(fid) else { return false };
        // asked about the list afterwards: another one may come while this waits
        if !self.may_join_attrs(ctx, &inode).await || !self.grants.of(fid).has_no_xattrs(fid) {
            return false;
        }
        let change = AttrChange::new(&SetAttr { mode: Some(mode), ..SetAttr::default() }, 0);
        self.keep_attrs(ctx, fid, &change).await.is_some()
    }

    /// Gives a file the objects that a write of bytes below `behind` needs, for a handle that may
    /// write; a file without layout gets its directory's default first.
    pub(crate) async fn lay_out(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        handle: u64,
        behind: u64,
    ) -> Result<Stat> {
        let body = LayoutReq { fid: fid.into(), handle, behind, ..LayoutReq::default() };
        self.intend(ctx, body).await
    }

    /// A layout of a file that is later than `generation`; with `look` only if there is one, else
    /// that one.
    pub(crate) async fn renew_layout(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        handle: u64,
        generation: u32,
        look: bool,
    ) -> Result<Stat> {
        let (refused, look) = (generation.saturating_add(1), u32::from(look));
        let body = LayoutReq { fid: fid.into(), handle, refused, look, ..LayoutReq::default() };
        self.intend(ctx, body).await
    }

    async fn intend(self: &Rc<Self>, ctx: &Ctx, body: LayoutReq) -> Result<Stat> {
        let fid = Fid::from(body.fid);
        let call = self.call(ctx, Opcode::MdtLayout, &body);
        let answer = self.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?;
        Stat::of(&answer.reply, "mds_layout_intent")
    }

    /// Sets an attribute of a file whose objects refuse the layout before `refused` already (0:
    /// none).
    pub(crate) async fn set_attribute(
        self: &Rc<Self>,
        ctx: &Ctx,
        body: SetxattrReq,
        name: &[u8],
        value: Bytes,
    ) -> Result<Stat> {
        let fid = Fid::from(body.fid);
        let call = self.call(ctx, Opcode::MdtSetxattr, &body).name(name).buf(value);
        let is_layout = name.starts_with(LOV);
        let scope = if is_layout { Scope::shape(fid) } else { Scope::attrs(fid) };
        self.change_attribute(scope, fid, call).await
    }

    /// What may be kept of a file that is open here depends on its attributes. The answer for an
    /// inode that has moved, or was to move, does not describe the whole file.
    async fn change_attribute(
        self: &Rc<Self>,
        scope: Scope,
        fid: Fid,
        call: CallBuilder,
    ) -> Result<Stat> {
        let done = self.change(scope, mdt_of(fid), call).await;
        let (stat, _) = done.map_err(|error| error.about(fid))?;
        let is_whole = stat.attr.fid() == fid && stat.layout.is_some();
        if let Some(inode) = self.inodes.get(fid).filter(|_| is_whole) {
            inode.learn(&stat);
        }
        Ok(stat)
    }
}

/// The mode that an access list is, if it says no more.
fn mode_of(list: &[u8]) -> Option<u32> {
    let acl = Acl::decode(list).ok().flatten()?;
    acl.is_minimal().then(|| acl.mode())
}

fn fid_req(fid: Fid) -> FidReq {
    FidReq { fid: fid.into(), ..FidReq::default() }
}

fn check(name: &[u8], stage: &'static str) -> Result<()> {
    let good = !name.is_empty() && name.len() <= XATTR_NAME_BYTES_MAX && !name.contains(&0);
    if good { Ok(()) } else { Err(Error::local(Errno::ERANGE, stage)) }
}

#[cfg(test)]
mod tests {
    use super::mode_of;

    #[test]
    fn an_access_list_is_a_mode_if_it_says_no_more() {
        let acl = |entries: &[(u16, u16)]| -> Vec<u8> {
            let entry = |&(tag, perm): &(u16, u16)| {
                let id = u32::MAX.to_le_bytes();
                [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id].concat()
            };
            [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
        };
        let plain = acl(&[(1, 6), (4, 4), (32, 0)]);
        assert_eq!(mode_of(&plain), Some(0o640));
        assert_eq!(mode_of(&acl(&[(1, 6), (4, 4), (16, 4), (32, 0)])), None, "a mask");
        for wrong in [&plain[..27], &acl(&[])[..], b""] {
            assert_eq!(mode_of(wrong), None, "an MDT refuses it, or takes the list away");
        }
    }
}
