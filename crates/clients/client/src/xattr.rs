//! Extended attributes. The MDT stores all of them. `lustre.lov` and `trusted.lov` are views of the
//! layout in Lustre's binary form ([`layout::lov`]). `lustre.lmv` and `lustre.dmv` are those of a
//! directory's striping and of its default for new subdirectories ([`layout::dir`]). `lustre.som`
//! is the MDT's knowledge of a file's size.

use std::rc::Rc;

use bytes::Bytes;
use types::{Errno, Fid};
use wire::body::{FidReq, LayoutReq, SetxattrReq};
use wire::{Attr, Opcode};

use crate::client::{Client, Inner, mdt_of};
use crate::grants::Scope;
use crate::namespace::split_nul;
use crate::stat::Stat;
use crate::{Ctx, Error, Result};

/// The layout of a file or directory.
pub(crate) const LOV: &[u8] = b"lustre.lov";
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
        self.0
            .change(Scope::attrs(fid), mdt_of(fid), call)
            .await
            .map(|_| ())
            .map_err(|error| error.about(fid))
    }
}

impl Inner {
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
        let done = self.change(scope, mdt_of(fid), call).await;
        done.map(|(stat, _)| stat).map_err(|error| error.about(fid))
    }
}

fn fid_req(fid: Fid) -> FidReq {
    FidReq { fid: fid.into(), ..FidReq::default() }
}

fn check(name: &[u8], stage: &'static str) -> Result<()> {
    let good = !name.is_empty() && name.len() <= XATTR_NAME_BYTES_MAX && !name.contains(&0);
    if good { Ok(()) } else { Err(Error::local(Errno::ERANGE, stage)) }
}
