//! mkdir, mknod, symlink, link: operations that create a name without opening a file.

use std::rc::Rc;

use layout::Asked;
use types::{Errno, Fid, SYMLINK_BYTES_MAX};
use wire::attr::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use wire::body::{CreateFlags, CreateReq, LinkReq};
use wire::{Attr, Opcode};

use super::check_name;
use crate::client::{CallBuilder, Client, Inner, mdt_of};
use crate::grants::Scope;
use crate::inode::Stat;
use crate::{Ctx, Error, Glance, Lease, Result};

pub(super) struct Make<'a> {
    pub(super) parent: Fid,
    pub(super) name: &'a [u8],
    pub(super) mode: u32,
    pub(super) rdev: u64,
    pub(super) target: &'a [u8],
    pub(super) striping: Option<&'a Asked>,
    pub(super) open_flags: u32,
    pub(super) flags: CreateFlags,
}

impl Inner {
    pub(super) fn create_call(&self, ctx: &Ctx, make: &Make<'_>) -> Result<CallBuilder> {
        check_name(make.name, "create")?;
        let record = match make.striping {
            Some(striping) => {
                striping.check().map_err(|error| Error::local(error.errno(), "create"))?;
                striping.encode()
            }
            None => Vec::new(),
        };
        let body = CreateReq {
            parent: make.parent.into(),
            mode: make.mode,
            umask: ctx.umask,
            rdev: make.rdev,
            open_flags: make.open_flags,
            flags: make.flags,
            ..CreateReq::default()
        };
        Ok(self.call(ctx, Opcode::MdtCreate, &body).name(make.name).name(make.target).buf(record))
    }

    async fn link(self: &Rc<Self>, ctx: &Ctx, fid: Fid, parent: Fid, name: &[u8]) -> Result<Stat> {
        check_name(name, "link")?;
        let body = LinkReq { fid: fid.into(), parent: parent.into(), ..LinkReq::default() };
        let call = self.call(ctx, Opcode::MdtLink, &body).name(name);
        let linked = self.change(Scope::link(fid, parent, name), mdt_of(parent), call).await;
        linked.map(|(stat, _)| stat).map_err(|error| error.about(fid))
    }
}

impl Client {
    /// Makes a directory.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOENT, ENOSPC.
    pub async fn mkdir(&self, ctx: &Ctx, parent: Fid, name: &[u8], mode: u32) -> Result<Attr> {
        self.mkdir_glance(ctx, parent, name, mode).await.map(|glance| glance.attr)
    }

    /// The same, and how long it holds.
    ///
    /// # Errors
    /// As [`Client::mkdir`].
    pub async fn mkdir_glance(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        mode: u32,
    ) -> Result<Glance> {
        self.make(ctx, parent, name, S_IFDIR | mode & !S_IFMT, 0, b"", CreateFlags::empty()).await
    }

    /// Makes a file (without a layout: it gets one when it is first opened for writing, or by
    /// `lustre.lov`), a fifo, a socket or a device; `mode` with type bits, none mean a regular
    /// file.
    ///
    /// # Errors
    /// EEXIST, EACCES, EPERM for devices, EINVAL for other types.
    pub async fn mknod(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        mode: u32,
        rdev: u64,
    ) -> Result<Attr> {
        self.mknod_glance(ctx, parent, name, mode, rdev).await.map(|glance| glance.attr)
    }

    /// The same, and how long it holds.
    ///
    /// # Errors
    /// As [`Client::mknod`].
    pub async fn mknod_glance(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        mode: u32,
        rdev: u64,
    ) -> Result<Glance> {
        let mode = if mode & S_IFMT == 0 { mode | S_IFREG } else { mode };
        if matches!(mode & S_IFMT, S_IFDIR | S_IFLNK) {
            return Err(Error::local(Errno::EINVAL, "mknod"));
        }
        let flags = CreateFlags::NO_LAYOUT.when(mode & S_IFMT == S_IFREG);
        self.make(ctx, parent, name, mode, rdev, b"", flags).await
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// EEXIST, EACCES; ENAMETOOLONG for a target over 4,095 bytes.
    pub async fn symlink(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        self.symlink_glance(ctx, parent, name, target).await.map(|glance| glance.attr)
    }

    /// The same, and how long it holds.
    ///
    /// # Errors
    /// As [`Client::symlink`].
    pub async fn symlink_glance(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        target: &[u8],
    ) -> Result<Glance> {
        if target.len() > SYMLINK_BYTES_MAX {
            return Err(Error::local(Errno::ENAMETOOLONG, "symlink"));
        }
        self.make(ctx, parent, name, S_IFLNK | 0o777, 0, target, CreateFlags::empty()).await
    }

    /// Gives the file another name.
    ///
    /// # Errors
    /// EEXIST, EACCES, EMLINK, EPERM for a directory.
    pub async fn link(&self, ctx: &Ctx, fid: Fid, parent: Fid, name: &[u8]) -> Result<Attr> {
        let mut stat = self.0.link(ctx, fid, parent, name).await?;
        self.0.resolve(ctx, &mut stat).await?;
        Ok(stat.attr)
    }

    /// The same by the MDT's word alone.
    ///
    /// # Errors
    /// As [`Client::link`].
    pub async fn link_glance(
        &self,
        ctx: &Ctx,
        fid: Fid,
        parent: Fid,
        name: &[u8],
    ) -> Result<Glance> {
        let mut stat = self.0.link(ctx, fid, parent, name).await?;
        Ok(self.0.glance(&mut stat, Lease::default()))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the calls above, in their order"
    )]
    async fn make(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        mode: u32,
        rdev: u64,
        target: &[u8],
        flags: CreateFlags,
    ) -> Result<Glance> {
        let make = Make { parent, name, mode, rdev, target, striping: None, open_flags: 0, flags };
        let call = self.0.create_call(ctx, &make)?;
        let (stat, lease) = self.0.change(Scope::entry(parent, name), mdt_of(parent), call).await?;
        Ok(Glance { attr: stat.attr, lease, size_known: true })
    }
}
