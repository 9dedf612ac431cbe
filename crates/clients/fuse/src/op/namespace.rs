//! Names, attributes and links.

use bytes::Bytes;
use client::{Attr, Glance};
use fusedev::abi;
use fusedev::{Body, Header, Reply};
use types::{Errno, Fid, SYMLINK_BYTES_MAX};

use crate::convert;
use crate::error::errno;
use crate::fs::Fs;
use crate::guard::Guard;
use crate::tell::exact;

const RENAME_FLAGS: u32 = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE;

impl Fs {
    /// The kernel keeps the directory locked meanwhile, so no OST is asked: a size that only they
    /// know comes with GETATTR.
    pub(crate) async fn lookup(&self, header: &Header, name: &[u8]) -> Reply {
        let ctx = self.ctx(header, 0);
        // Asked when a file handle is opened, of files too that the kernel has forgotten.
        if name == b"." {
            let found = self.client.glance(&ctx, self.fid_of_handle(header.nodeid)?).await;
            return found.map(|glance| Body::Entry(self.entry(&glance, None))).map_err(errno);
        }
        let parent = self.fid(header.nodeid)?;
        let found = match name {
            // Asked for the path to a directory whose handle was opened.
            b".." => {
                let page = self.client.readdir(&ctx, parent, 0, 4_096).await.map_err(errno)?;
                let up = if page.parent.is_zero() { parent } else { page.parent };
                self.client.glance(&ctx, up).await
            }
            name => self.client.lookup_glance(&ctx, parent, convert::name(name)?).await,
        };
        let place = Some((header.nodeid, name)).filter(|_| name != b"..");
        found.map(|glance| Body::Entry(self.entry(&glance, place))).map_err(errno)
    }

    pub(crate) async fn getattr(&self, header: &Header, fh: Option<u64>) -> Reply {
        self.look(header, fh).await.map(|glance| self.attr(&glance, Guard::Version))
    }

    /// Attributes of the node, through an open file where there is one.
    async fn look(&self, header: &Header, fh: Option<u64>) -> Result<Glance, Errno> {
        let fid = self.fid(header.nodeid)?;
        self.freshen_pages(header.nodeid, fid).await?;
        if self.has_stale_names(header.nodeid, fid) {
            Box::pin(self.drop_stale_names(header.nodeid)).await?;
        }
        let file = fh.and_then(|fh| self.file(fh).ok()).or_else(|| self.file_of(fid));
        match self.client.getattr_leased(&self.ctx(header, 0), fid, file.as_ref()).await {
            Err(error) if error.errno() == Errno::ESTALE => {
                let gone = self.removed_dir(header.nodeid, fid).ok_or(Errno::ESTALE)?;
                Ok(exact(gone))
            }
            found => {
                found.map(|(attr, lease)| Glance { attr, lease, size_known: true }).map_err(errno)
            }
        }
    }

    /// A directory that is open here and was removed: as it was last, without names. The servers
    /// keep nothing of it.
    fn removed_dir(&self, nodeid: u64, fid: Fid) -> Option<Attr> {
        self.dirs.borrow().of(fid)?;
        let attr = self.nodes.borrow().seen(nodeid)?;
        Some(Attr { nlink: 0, ..attr })
    }

    /// Asked for what `Getattr` does not carry: when the file was made.
    pub(crate) async fn statx(&self, header: &Header, fh: Option<u64>) -> Reply {
        let glance = self.look(header, fh).await?;
        let mut attr = glance.attr;
        self.nodes.borrow_mut().saw(attr.fid(), attr.mode);
        self.nodes.borrow_mut().tell(&mut attr, true);
        Ok(Body::Statx(convert::statx_out(
            &attr,
            self.ino,
            self.believe_attr(&glance, Guard::Version),
        )))
    }

    pub(crate) async fn setattr(&self, header: &Header, args: &abi::SetattrIn) -> Reply {
        let node = self.nodes.borrow().get(header.nodeid).ok_or(Errno::ESTALE)?;
        let set = convert::set_attr(args, node.mode & libc::S_IFMT == libc::S_IFDIR);
        // A truncate through a handle is allowed by that handle; anything else may be about an
        // unlinked open file.
        let file = if args.valid & abi::FATTR_FH != 0 { Some(self.file(args.fh)?) } else { None };
        let file = file.or_else(|| if set.size.is_none() { self.file_of(node.fid) } else { None });
        if set.size.is_some() {
            self.doubt_pages(header.nodeid);
            self.appends.finish(node.fid).await;
        }
        let changed = self
            .client
            .setattr_glance(&self.ctx(header, 0), node.fid, &set, file.as_ref())
            .await
            .map_err(errno)?;
        Ok(self.attr(&changed, Guard::None))
    }

    pub(crate) async fn readlink(&self, header: &Header) -> Reply {
        let (fid, ctx) = (self.fid(header.nodeid)?, self.ctx(header, 0));
        let target = self.client.readlink(&ctx, fid).await.map_err(errno)?;
        self.was_read(&ctx, header.nodeid);
        Ok(Body::Data(target))
    }

    pub(crate) async fn symlink(&self, header: &Header, name: &[u8], target: &Bytes) -> Reply {
        if target.len() > SYMLINK_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let parent = self.fid(header.nodeid)?;
        let made = self
            .client
            .symlink_glance(&self.ctx(header, 0), parent, convert::name(name)?, target)
            .await;
        made.map(|glance| Body::Entry(self.entry(&glance, Some((header.nodeid, name)))))
            .map_err(errno)
    }

    pub(crate) async fn mknod(
        &self,
        header: &Header,
        name: &[u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    ) -> Reply {
        let parent = self.fid(header.nodeid)?;
        let ctx = self.ctx(header, umask);
        let made = self
            .client
            .mknod_glance(&ctx, parent, convert::name(name)?, mode, u64::from(rdev))
            .await;
        made.map(|glance| Body::Entry(self.entry(&glance, Some((header.nodeid, name)))))
            .map_err(errno)
    }

    pub(crate) async fn mkdir(&self, header: &Header, name: &[u8], mode: u32, umask: u32) -> Reply {
        let parent = self.fid(header.nodeid)?;
        let made = self
            .client
            .mkdir_glance(&self.ctx(header, umask), parent, convert::name(name)?, mode & 0o7777)
            .await;
        made.map(|glance| Body::Entry(self.entry(&glance, Some((header.nodeid, name)))))
            .map_err(errno)
    }

    pub(crate) async fn unlink(&self, header: &Header, name: &[u8]) -> Reply {
        let parent = self.fid(header.nodeid)?;
        let done = self.client.unlink(&self.ctx(header, 0), parent, convert::name(name)?).await;
        done.map_err(errno)?;
        self.nodes.borrow_mut().names.remove(&(header.nodeid, name.into()));
        Ok(Body::Empty)
    }

    pub(crate) async fn rmdir(&self, header: &Header, name: &[u8]) -> Reply {
        let parent = self.fid(header.nodeid)?;
        let done = self.client.rmdir(&self.ctx(header, 0), parent, convert::name(name)?).await;
        done.map_err(errno)?;
        self.nodes.borrow_mut().names.remove(&(header.nodeid, name.into()));
        Ok(Body::Empty)
    }

    pub(crate) async fn rename(
        &self,
        header: &Header,
        name: &[u8],
        newdir: u64,
        newname: &[u8],
        flags: u32,
    ) -> Reply {
        if flags & !RENAME_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        let (from, to) = (self.fid(header.nodeid)?, self.fid(newdir)?);
        let (name, newname) = (convert::name(name)?, convert::name(newname)?);
        let is_exchange = flags & libc::RENAME_EXCHANGE != 0;
        let moving =
            self.moving((header.nodeid, name.into()), (newdir, newname.into()), is_exchange);
        let done = self.client.rename(&self.ctx(header, 0), from, name, to, newname, flags).await;
        done.map_err(errno)?;
        moving.done();
        self.doubt_kept_dirs();
        Ok(Body::Empty)
    }

    pub(crate) async fn link(&self, header: &Header, oldnodeid: u64, newname: &[u8]) -> Reply {
        let (fid, parent) = (self.fid(oldnodeid)?, self.fid(header.nodeid)?);
        let name = convert::name(newname)?;
        let linked = self.client.link_glance(&self.ctx(header, 0), fid, parent, name).await;
        let place = Some((header.nodeid, newname));
        linked
            .map(|glance| Body::Entry(self.entry_guarded(&glance, place, Guard::None)))
            .map_err(errno)
    }
}
