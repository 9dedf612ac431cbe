//! System calls, with the locks and the caching of `fs/namei.c` and `fs/fuse/dir.c`.

use std::rc::Rc;

use bytes::Bytes;
use fusedev::{Body, Op, Reply, abi};
use types::Errno;

use crate::cache::{Asked, Cache, Node};
use crate::walk::{Held, Trust};
use crate::{Kernel, Who};

const O_RDWR: u32 = 0o2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
/// RENAME_NOREPLACE.
const NOREPLACE: u32 = 1;
/// RENAME_EXCHANGE.
const EXCHANGE: u32 = 2;

/// Of a file.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The longest that the kernel asks for.
const ACL_BYTES: u32 = 65_536;

/// What `stat` tells.
pub type Stat = abi::Attr;

/// An inode that a call has found by its path.
#[derive(Clone)]
pub struct Found(pub(crate) Rc<Node>);

impl Found {
    /// Its inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        Cache::attr(&self.0).ino
    }

    /// Whose it was when attributes came last.
    #[must_use]
    pub fn owner(&self) -> u32 {
        Cache::attr(&self.0).uid
    }
}

/// `retry_estale`: once more, believing nothing.
macro_rules! once_more {
    ($trust:ident => $call:expr) => {{
        let $trust = Trust::Believed;
        match $call.await {
            Err(Errno::ESTALE) => {
                let $trust = Trust::Nothing;
                $call.await
            }
            answer => answer,
        }
    }};
}

impl Kernel {
    /// The inode that a path stands for, as each call finds it first.
    ///
    /// # Errors
    /// ENOENT, and what the handler answers.
    pub async fn path(&self, who: Who, path: &str) -> Result<Found, Errno> {
        once_more!(trust => self.walk(who, path, trust)).map(Found)
    }

    /// `fstat` of a path's inode.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn stat(&self, who: Who, found: &Found) -> Result<Stat, Errno> {
        self.attr(who, &found.0).await
    }

    /// `getxattr` of the access list of a path's inode. A file without one is remembered too.
    pub async fn acl(&self, who: Who, found: &Found) {
        if Cache::has_acl(&found.0) {
            return;
        }
        let op = Op::Getxattr { name: Bytes::from_static(ACCESS_LIST), size: ACL_BYTES };
        match self.ask(who, found.0.id, op).await {
            Ok(_) | Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Cache::keep_acl(&found.0),
            Err(errno) => tracing::debug!(%errno, "an access list is not known"),
        }
    }

    /// `open(O_CREAT | O_EXCL)` and `close`. A CREATE that was answered with ESTALE may have made
    /// a file, and the next attempt makes another one: so each has a caller of its own.
    ///
    /// # Errors
    /// EEXIST, and what the handler answers.
    pub async fn create(
        &self,
        mut who: impl FnMut() -> Who,
        path: &str,
        mode: u32,
    ) -> Result<Stat, Errno> {
        once_more!(trust => self.try_create(who(), path, mode, trust))
    }

    async fn try_create(
        &self,
        who: Who,
        path: &str,
        mode: u32,
        trust: Trust,
    ) -> Result<Stat, Errno> {
        let (dir, name) = self.parent(who, path, trust).await?;
        let alone = self.alone(who, &dir).await;
        if self.find(who, (&dir, name), Held::Alone, Trust::Nothing).await?.is_some() {
            return Err(Errno::EEXIST);
        }
        let args =
            abi::CreateIn { flags: O_RDWR | O_CREAT | O_EXCL, mode, umask: 0, open_flags: 0 };
        let op = Op::Create { name: Bytes::copy_from_slice(name), args };
        let asked = self.0.cache.borrow().asked();
        let (out, open) = match self.ask(who, dir.id, op).await? {
            Body::Create(out, open) => (out, open),
            other => panic!("a new file was due: {other:?}"),
        };
        self.instantiate((&dir, name), &out, asked);
        drop(alone);
        let (fh, lock_owner) = (open.fh, 0);
        self.ask_nothing(who, out.nodeid, Op::Flush { fh, lock_owner }).await?;
        let args = abi::ReleaseIn { fh, flags: O_RDWR, ..Default::default() };
        self.ask_nothing(who, out.nodeid, Op::Release(args)).await?;
        Ok(out.attr)
    }

    /// `d_instantiate` of what was made: nothing can be newer than its attributes.
    fn instantiate(&self, (dir, name): (&Rc<Node>, &[u8]), out: &abi::EntryOut, asked: Asked) {
        let (mut cache, now) = (self.0.cache.borrow_mut(), self.0.env.now());
        let node = cache.take(out, asked.to_change(), now);
        cache.tell((dir, name), &node, out, asked, now);
        Cache::distrust(dir);
    }

    /// `unlink`.
    ///
    /// # Errors
    /// ENOENT, and what the handler answers.
    pub async fn unlink(&self, who: Who, path: &str) -> Result<(), Errno> {
        once_more!(trust => self.try_unlink(who, path, trust))
    }

    async fn try_unlink(&self, who: Who, path: &str, trust: Trust) -> Result<(), Errno> {
        let (dir, name) = self.parent(who, path, trust).await?;
        let _alone = self.alone(who, &dir).await;
        let found = self.find(who, (&dir, name), Held::Alone, trust).await?;
        let node = found.ok_or(Errno::ENOENT)?;
        let _inode = self.alone(who, &node).await;
        let op = Op::Unlink { name: Bytes::copy_from_slice(name) };
        self.ask_nothing(who, dir.id, op).await?;
        let mut cache = self.0.cache.borrow_mut();
        Cache::distrust(&dir);
        cache.unlinked(&node);
        cache.take_name(&dir, name);
        Ok(())
    }

    /// `link` of an inode that its path was found to stand for.
    ///
    /// # Errors
    /// EEXIST, and what the handler answers.
    pub async fn link(&self, who: Who, found: &Found, path: &str) -> Result<(), Errno> {
        once_more!(trust => self.try_link(who, found, path, trust))
    }

    async fn try_link(
        &self,
        who: Who,
        found: &Found,
        path: &str,
        trust: Trust,
    ) -> Result<(), Errno> {
        let (dir, name) = self.parent(who, path, trust).await?;
        let _alone = self.alone(who, &dir).await;
        if self.find(who, (&dir, name), Held::Alone, Trust::Nothing).await?.is_some() {
            return Err(Errno::EEXIST);
        }
        let _inode = self.alone(who, &found.0).await;
        let op = Op::Link { oldnodeid: found.0.id, newname: Bytes::copy_from_slice(name) };
        let asked = self.0.cache.borrow().asked();
        match self.ask(who, dir.id, op).await? {
            Body::Entry(out) => self.instantiate((&dir, name), &out, asked),
            other => panic!("an entry was due: {other:?}"),
        }
        Ok(())
    }

    /// `renameat2`. True where the kernel has done nothing, since both names stood for one file
    /// when it looked at them.
    ///
    /// # Errors
    /// ENOENT, EEXIST, and what the handler answers.
    pub async fn rename(&self, who: Who, from: &str, to: &str, flags: u32) -> Result<bool, Errno> {
        once_more!(trust => self.try_rename(who, from, to, flags, trust))
    }

    async fn try_rename(
        &self,
        who: Who,
        from: &str,
        to: &str,
        flags: u32,
        trust: Trust,
    ) -> Result<bool, Errno> {
        let (from_dir, from) = self.parent(who, from, trust).await?;
        let (to_dir, to) = self.parent(who, to, trust).await?;
        // lock_rename: in one order always
        let mut dirs = [&from_dir, &to_dir];
        dirs.sort_by_key(|dir| dir.id);
        let _first = self.alone(who, dirs[0]).await;
        let _second = match dirs[0].id == dirs[1].id {
            true => None,
            false => Some(self.alone(who, dirs[1]).await),
        };
        let old = self.find(who, (&from_dir, from), Held::Alone, trust).await?;
        let new = self.find(who, (&to_dir, to), Held::Alone, Trust::Nothing).await?;
        let old = old.ok_or(Errno::ENOENT)?;
        match &new {
            Some(_) if flags & NOREPLACE != 0 => return Err(Errno::EEXIST),
            None if flags & EXCHANGE != 0 => return Err(Errno::ENOENT),
            Some(new) if new.id == old.id => return Ok(true),
            _ => {}
        }
        let op = Op::Rename {
            name: Bytes::copy_from_slice(from),
            newdir: to_dir.id,
            newname: Bytes::copy_from_slice(to),
            flags,
        };
        self.ask_nothing(who, from_dir.id, op).await?;
        let mut cache = self.0.cache.borrow_mut();
        Cache::distrust(&from_dir);
        Cache::distrust(&to_dir);
        if let Some(new) = new.filter(|_| flags & EXCHANGE == 0) {
            cache.unlinked(&new);
        }
        cache.rename((&from_dir, from), (&to_dir, to), flags & EXCHANGE != 0);
        Ok(false)
    }

    /// `chmod` of an inode that its path was found to stand for.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn chmod(&self, who: Who, found: &Found, mode: u32) -> Result<(), Errno> {
        let _alone = self.alone(who, &found.0).await;
        let args = abi::SetattrIn { valid: abi::FATTR_MODE, mode, ..Default::default() };
        self.set(&found.0, self.ask(who, found.0.id, Op::Setattr(args)).await)
    }

    /// Attributes after a change: nothing can be newer.
    fn set(&self, node: &Rc<Node>, reply: Reply) -> Result<(), Errno> {
        match reply? {
            Body::Attr(out) => {
                let told = (out.attr, (out.attr_valid, out.attr_valid_nsec));
                let mut cache = self.0.cache.borrow_mut();
                let asked = cache.asked().to_change();
                cache.learn(node, told, asked, self.0.env.now());
                Cache::forget_acl(node);
                Ok(())
            }
            other => panic!("attributes were due: {other:?}"),
        }
    }

    /// `mkdir`.
    ///
    /// # Errors
    /// EEXIST, and what the handler answers.
    pub async fn mkdir(&self, who: Who, path: &str, mode: u32) -> Result<(), Errno> {
        let (dir, name) = self.parent(who, path, Trust::Believed).await?;
        let _alone = self.alone(who, &dir).await;
        if self.find(who, (&dir, name), Held::Alone, Trust::Nothing).await?.is_some() {
            return Err(Errno::EEXIST);
        }
        let op = Op::Mkdir { name: Bytes::copy_from_slice(name), mode, umask: 0 };
        let asked = self.0.cache.borrow().asked();
        match self.ask(who, dir.id, op).await? {
            Body::Entry(out) => self.instantiate((&dir, name), &out, asked),
            other => panic!("an entry was due: {other:?}"),
        }
        Ok(())
    }
}
