//! create and open: a name and a handle in one request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use endpoint::{Call, Keep};
use layout::Asked;
use types::{Errno, Fid, Instant, TargetId};
use wire::attr::{S_IFMT, S_IFREG};
use wire::body::{CreateFlags, CreateReq, Disposition, OpenReq};
use wire::{Attr, Opcode};

use super::lookup::is_gone;
use super::make::Make;
use crate::client::{Client, Inner, mdt_of};
use crate::data::is_made;
use crate::file::File;
use crate::grants::Scope;
use crate::handle::Open;
use crate::{Ctx, Error, Glance, Lease, Result, flags, limits};

impl Client {
    /// Opens `name` in `parent`, making it if it is not there (with O_EXCL it must not be).
    /// `striping`: of a file that is made; else its directory's default, or with O_DELAY_LAYOUT
    /// none before `lustre.lov` is set or data written. One request, unless O_TRUNC has objects to
    /// cut.
    ///
    /// # Errors
    /// EEXIST with O_EXCL, EACCES, EISDIR, ENOSPC; EINVAL for a striping out of bounds.
    pub async fn create(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        mode: u32,
        open_flags: u32,
        striping: Option<&Asked>,
    ) -> Result<(Attr, File)> {
        let (glance, file) =
            self.create_glance(ctx, parent, name, mode, open_flags, striping).await?;
        let mut attr = glance.attr;
        let inode = &file.0.inode;
        if let Some(layout) = inode.layout().filter(|_| !glance.size_known) {
            self.0.flush_file(attr.fid()).await;
            let (mtime_set, stripes) = (inode.mtime_set(), inode.stripes());
            let found = self.0.resolve_attr(ctx, &mut attr, mtime_set, &stripes, &layout).await?;
            if found.is_old_layout {
                attr = self.getattr(ctx, attr.fid(), None).await?;
            }
        }
        *file.0.attr.borrow_mut() = attr;
        Ok((attr, file))
    }

    /// The same by the MDT's word alone, unless O_TRUNC has objects to cut.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub async fn create_glance(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        mode: u32,
        open_flags: u32,
        striping: Option<&Asked>,
    ) -> Result<(Glance, File)> {
        let open_flags = open_flags | flags::O_CREAT;
        let mode = S_IFREG | mode & !S_IFMT;
        let later = open_flags & flags::O_DELAY_LAYOUT != 0 && striping.is_none();
        let make = Make {
            mode,
            striping,
            open_flags,
            flags: CreateFlags::OPEN
                | CreateFlags::NO_LAYOUT.when(later)
                | CreateFlags::KEEPS.when(self.0.may_keep_writes(open_flags)),
            ..Make::new(parent, name)
        };
        let (file, mut lease) = match self.create_once(ctx, &make).await? {
            Opened::Here(file, lease) => (file, lease),
            Opened::Elsewhere(fid, name) => Box::pin(self.follow(ctx, &make, (fid, name))).await?,
        };
        let attr = file.attr();
        if !file.0.made {
            // the kernel takes an answer to a create without asking whether it is old
            lease.attrs = Instant::default();
        }
        // A file that this call made, or cut, has no bytes: only one that was there may have
        // others.
        let is_empty = open_flags & flags::O_TRUNC != 0 || file.0.made;
        let size_known =
            is_empty || !crate::needs_glimpse(&attr) || file.0.inode.layout().is_none();
        Ok((Glance { attr, lease, size_known }, file))
    }

    async fn create_once(&self, ctx: &Ctx, make: &Make<'_>) -> Result<Opened> {
        let made = self.0.at_holders(ctx, [(make.parent, make.name)], async |[parent]| {
            let call = self.0.create_call(ctx, &Make { parent, ..*make })?.keep(Keep::Open);
            let scope = Scope::entry(parent, make.name);
            let scope = if flags::may_change(make.open_flags) { scope.or_changed() } else { scope };
            self.0.open_by(ctx, scope, mdt_of(parent), call.into(), make.open_flags).await
        });
        made.await
    }

    /// The name leads to a file of another MDT, which opens it. If it has no such file, the name
    /// may be about to move.
    async fn follow(
        &self,
        ctx: &Ctx,
        make: &Make<'_>,
        (mut fid, mut name): (Fid, Lease),
    ) -> Result<(File, Lease)> {
        let open_flags = make.open_flags & !(flags::O_CREAT | flags::O_EXCL);
        for _ in 0..limits::MOVING_TRIES {
            match self.open(ctx, fid, open_flags).await {
                Ok(file) => return Ok((file, name.without_attrs())),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
            self.0.env.sleep(limits::MOVING_PAUSE).await;
            match self.create_once(ctx, make).await? {
                Opened::Here(file, lease) => return Ok((file, lease)),
                Opened::Elsewhere(other, lease) => (fid, name) = (other, lease),
            }
        }
        Err(Error::local(Errno::ENOENT, "create").about(make.parent))
    }

    /// Makes a file without a name in the file system of `dir` and opens it, as `O_TMPFILE` does:
    /// it goes with its last close, unless a link gives it a name, which O_EXCL forbids. Its layout
    /// is as of a file made in `dir`.
    ///
    /// # Errors
    /// EACCES; EINVAL where it is not opened for writing; ENOSPC.
    pub async fn tmpfile(
        &self,
        ctx: &Ctx,
        dir: Fid,
        mode: u32,
        open_flags: u32,
    ) -> Result<(Attr, File)> {
        self.tmpfile_as(ctx, dir, mode, open_flags, None).await
    }

    /// The same with a striping.
    pub(crate) async fn tmpfile_as(
        &self,
        ctx: &Ctx,
        dir: Fid,
        mode: u32,
        open_flags: u32,
        striping: Option<&Asked>,
    ) -> Result<(Attr, File)> {
        let bad = |error: layout::ComponentError| Error::local(error.errno(), "create");
        striping.map_or(Ok(()), |striping| striping.check().map_err(bad))?;
        let record = striping.map_or_else(Vec::new, Asked::encode);
        let body = CreateReq {
            parent: dir.into(),
            mode: S_IFREG | mode & !S_IFMT,
            umask: ctx.umask,
            open_flags,
            flags: CreateFlags::OPEN
                | CreateFlags::TMPFILE
                | CreateFlags::KEEPS.when(self.0.may_keep_writes(open_flags)),
            ..CreateReq::default()
        };
        let make = || {
            let call = self.0.call(ctx, Opcode::MdtCreate, &body);
            let call = call.name(b"").name(b"").name(&record).keep(Keep::Open);
            self.0.open_by(ctx, Scope::open(), mdt_of(dir), call.into(), open_flags)
        };
        let mut made = make().await;
        if made.as_ref().is_err_and(|error| error.errno() == Errno::ESTALE) {
            // Made once, but the MDT restarted before its answer arrived, and swept the file as an
            // orphan. No other client can have seen it, so another one does as well.
            made = make().await;
        }
        let file = made?.here()?;
        Ok((file.attr(), file))
    }

    /// Opens a file that is there. Without a request where a handle of it rests.
    ///
    /// # Errors
    /// EACCES, EISDIR, ENOENT, ELOOP for a symbolic link.
    pub async fn open(&self, ctx: &Ctx, fid: Fid, open_flags: u32) -> Result<File> {
        if let Some(file) = self.0.reopen(ctx, fid, open_flags) {
            return Ok(file);
        }
        let call = self.0.call(
            ctx,
            Opcode::MdtOpen,
            &OpenReq {
                fid: fid.into(),
                open_flags,
                room: self.0.room_on_open(fid, open_flags),
                caches: u32::from(
                    self.0.may_cache(open_flags) || self.0.may_keep_writes(open_flags),
                ),
                restates: u32::from(!flags::may_change(open_flags)),
            },
        );
        self.0.keeper.brought.is_opened(fid, self.0.env.now());
        if flags::may_change(open_flags) {
            self.0.end_rest(fid);
            self.0.flush_file(fid).await;
        }
        let call = call.keep(Keep::Open);
        let scope = match flags::may_change(open_flags) {
            true => Scope::open_to_change(fid),
            false => Scope::open(),
        };
        let opened = self.0.open_by(ctx, scope, mdt_of(fid), call.into(), open_flags).await;
        opened.and_then(Opened::here).map_err(|error| error.about(fid))
    }
}

/// What an open returns.
enum Opened {
    /// A handle, and how long what was told holds.
    Here(File, Lease),
    /// The file is at another MDT; how long its name holds.
    Elsewhere(Fid, Lease),
}

impl Opened {
    /// Of an open without a name, which goes to the right MDT.
    fn here(self) -> Result<File> {
        match self {
            Opened::Here(file, _) => Ok(file),
            Opened::Elsewhere(fid, _) => Err(Error::local(Errno::EPROTO, "open").about(fid)),
        }
    }
}

impl Inner {
    /// Sends an open and makes a handle of the answer. Runs to its end once begun: a handle whose
    /// caller was interrupted is dropped, and so closed.
    async fn open_by(
        self: &Rc<Self>,
        ctx: &Ctx,
        scope: Scope,
        mdt: TargetId,
        call: Call,
        open_flags: u32,
    ) -> Result<Opened> {
        let (inner, ctx, stage) = (self.clone(), ctx.clone(), call.opcode.name());
        self.run("open", async move {
            let dirs: Vec<Fid> = scope.named_in().collect();
            let changing = inner.grants.at(mdt.index).changing(scope);
            let call = Call { hold: changing.hold(), ..call };
            let asked = inner.env.now();
            let answer = match inner.ask(mdt, call).await {
                Ok(answer) => answer,
                Err(error) => {
                    changing.failed(&error);
                    return Err(error);
                }
            };
            let stat = inner.stat_of(mdt, &answer.reply, stage)?;
            inner.note_names(&dirs, &stat);
            let lease = changing.done(&stat);
            if stat.disposition.contains(Disposition::REMOTE) {
                return Ok(Opened::Elsewhere(stat.attr.fid(), lease));
            }
            let inode = inner.inodes.attach(&stat, open_flags);
            if inode.has_writers() {
                inner.grants.of(inode.fid).forget_bytes(inode.fid);
            } else if let Some(bytes) = &stat.bytes {
                inner.grants.of(inode.fid).keep_bytes(&stat, lease, bytes);
            }
            inode.mode_until.set(asked + limits::MODE_AGE);
            let heard = inner.losses.listen(stat.attr.fid());
            let file = File(Rc::new(Open {
                inode,
                inner: inner.clone(),
                ctx,
                flags: open_flags,
                handle: stat.handle,
                claim: inner.remote(mdt).claim(),
                made: stat.disposition.contains(Disposition::CREATED),
                xid: answer.xid,
                attr: RefCell::new(stat.attr),
                wrote: Cell::new(false),
                closed: Cell::new(false),
                heard,
            }));
            if file.0.made {
                is_made(&file.0);
            }
            if stat.disposition.contains(Disposition::TRUNCATE) {
                Box::pin(inner.truncate_opened(&file.0.ctx, &stat)).await?; // rare and large
                file.0.wrote.set(flags::can_write(open_flags));
            }
            Ok(Opened::Here(file, lease))
        })
        .await
    }
}
