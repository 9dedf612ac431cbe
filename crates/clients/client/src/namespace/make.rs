//! `mkdir`, `mknod`, `symlink`, `link`: operations that create a name without opening a file.

use std::rc::Rc;

use bytes::Bytes;
use layout::{Asked, dir};
use types::{Errno, Fid, SYMLINK_BYTES_MAX};
use wire::attr::{AttrFlags, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use wire::body::{CreateFlags, CreateReq, Disposition, LinkReq};
use wire::{Attr, Opcode};

use super::check_name;
use super::lookup::is_gone;
use crate::client::{CallBuilder, Client, Inner, mdt_of};
use crate::grants::Scope;
use crate::stat::Stat;
use crate::{Ctx, Error, Glance, Lease, Result, limits};

#[derive(Clone, Copy)]
pub(super) struct Make<'a> {
    pub(super) parent: Fid,
    pub(super) name: &'a [u8],
    pub(super) mode: u32,
    pub(super) rdev: u64,
    pub(super) target: &'a [u8],
    pub(super) striping: Option<&'a Asked>,
    /// Of a directory.
    pub(super) spread: Option<&'a dir::Asked>,
    /// All bytes of a file, with `CreateFlags::DATA`.
    pub(super) data: Option<&'a Bytes>,
    pub(super) open_flags: u32,
    pub(super) flags: CreateFlags,
}

impl<'a> Make<'a> {
    /// A name, of which the rest is to be said.
    pub(super) fn new(parent: Fid, name: &'a [u8]) -> Make<'a> {
        Make {
            parent,
            name,
            mode: 0,
            rdev: 0,
            target: b"",
            striping: None,
            spread: None,
            data: None,
            open_flags: 0,
            flags: CreateFlags::empty(),
        }
    }
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
        let spread = match make.spread {
            Some(spread) => {
                spread.check().map_err(|error| Error::local(error.errno(), "mkdir"))?;
                Some(spread.encode())
            }
            None => None,
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
        let call = self.call(ctx, Opcode::MdtCreate, &body);
        let call = call.name(make.name).name(make.target).buf(record);
        Ok(match (spread, make.data) {
            (Some(spread), _) => call.buf(spread),
            (None, Some(data)) => call.buf(data.clone()),
            (None, None) => call,
        })
    }

    async fn link(self: &Rc<Self>, ctx: &Ctx, fid: Fid, parent: Fid, name: &[u8]) -> Result<Stat> {
        check_name(name, "link")?;
        let linked = self.at_holders(ctx, [(parent, name)], async |[parent]| {
            let body = LinkReq { fid: fid.into(), parent: parent.into(), ..LinkReq::default() };
            let call = self.call(ctx, Opcode::MdtLink, &body).name(name);
            self.change(Scope::link(fid, parent, name), mdt_of(parent), call).await
        });
        let (linked, _) = linked.await.map_err(|error| error.about(fid))?;
        if !linked.disposition.contains(Disposition::REMOTE) {
            return Ok(linked);
        }
        match Box::pin(self.look(ctx, fid, None)).await {
            Ok((stat, _)) => Ok(stat),
            Err(error) if is_gone(&error) => Ok(linked), // it is removed again
            Err(error) => Err(error),
        }
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
        let make = Make { mode: S_IFDIR | mode & !S_IFMT, ..Make::new(parent, name) };
        self.make(ctx, make).await
    }

    /// Makes a directory at the MDTs that `spread` names; nothing: as the parent's default says.
    /// The parent's MDT may hear later than this client of an MDT that is new, and is asked again.
    ///
    /// # Errors
    /// As [`Client::mkdir`]; EPERM if the caller may not choose; ENODEV for an MDT that does not
    /// exist; EINVAL for a striping out of bounds.
    pub async fn mkdir_spread(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        mode: u32,
        spread: Option<&dir::Asked>,
    ) -> Result<Attr> {
        let make = Make { mode: S_IFDIR | mode & !S_IFMT, spread, ..Make::new(parent, name) };
        let until = self.env().now() + limits::NEW_MDT_WAIT;
        loop {
            let made = self.make(ctx, make).await.map(|glance| glance.attr);
            let is_unknown = |error: &Error| error.errno() == Errno::ENODEV;
            if !made.as_ref().is_err_and(is_unknown)
                || !spread.is_some_and(|spread| self.knows(spread))
                || self.env().now() >= until
            {
                return made;
            }
            self.env().sleep(limits::NEW_MDT_PAUSE).await;
        }
    }

    /// Whether this client knows all MDTs that are named.
    fn knows(&self, spread: &dir::Asked) -> bool {
        let mdts = self.mdts();
        let first = u32::try_from(spread.index).ok().filter(|_| spread.mdts.is_empty());
        let mut named = first.iter().chain(&spread.mdts);
        named.all(|named| mdts.iter().any(|mdt| mdt.id.index == *named))
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
        self.make(ctx, Make { mode, rdev, flags, ..Make::new(parent, name) }).await
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
        self.make(ctx, Make { mode: S_IFLNK | 0o777, target, ..Make::new(parent, name) }).await
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

    pub(super) async fn make(&self, ctx: &Ctx, make: Make<'_>) -> Result<Glance> {
        let made = self.0.at_holders(ctx, [(make.parent, make.name)], async |[parent]| {
            let call = self.0.create_call(ctx, &Make { parent, ..make })?;
            let scope = Scope::entry(parent, make.name);
            self.0.change(scope, mdt_of(parent), call).await
        });
        let (stat, mut lease) = made.await?;
        if stat.attr.flags.contains(AttrFlags::STRIPED) {
            lease = lease.without_attrs(); // its shards have a part in them
        }
        Ok(Glance { attr: stat.attr, lease, size_known: true })
    }
}
