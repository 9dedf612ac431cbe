//! Path walk: from names to inodes.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use fusedev::{Body, Op, abi};
use types::Errno;

use crate::cache::{Cache, Dentry, Node};
use crate::waits::Lock;
use crate::{Kernel, Who};

/// The directory's lock, where the caller has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    No,
    Alone,
}

/// What is asked for although it is believed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Names within their time.
    Believed,
    /// Nothing: the call has met ESTALE (`LOOKUP_REVAL`), or it makes or replaces the name.
    Nothing,
}

impl Kernel {
    /// `d_lookup`, `d_revalidate` and the slow way behind them.
    pub(crate) async fn find(
        &self,
        who: Who,
        (dir, name): (&Rc<Node>, &[u8]),
        held: Held,
        trust: Trust,
    ) -> Result<Option<Rc<Node>>, Errno> {
        let known = self.0.cache.borrow().name(dir, name);
        if let Some(dentry) = known
            && self.is_still(who, (dir, name), &dentry, trust).await?
        {
            return Ok(Some(dentry.node.clone()));
        }
        let _shared = match held {
            Held::No => Some(self.shared(who, dir).await),
            Held::Alone => None,
        };
        let turn = self.turn(dir, name);
        let key = Lock::Name(dir.id, name.to_vec());
        let _only = self.0.waits.mutex(who, key, &turn).await;
        let made = self.0.cache.borrow().name(dir, name);
        match made {
            Some(dentry) if self.is_still(who, (dir, name), &dentry, trust).await? => {
                Ok(Some(dentry.node.clone()))
            }
            _ => self.look_up(who, dir, name).await,
        }
    }

    /// `d_alloc_parallel`: one looks a name up, others wait.
    fn turn(&self, dir: &Node, name: &[u8]) -> Arc<tokio::sync::Mutex<()>> {
        let mut lookups = self.0.lookups.borrow_mut();
        lookups.retain(|_, turn| Arc::strong_count(turn) > 1);
        lookups.entry((dir.id, name.to_vec())).or_default().clone()
    }

    /// `fuse_dentry_revalidate`.
    async fn is_still(
        &self,
        who: Who,
        (dir, name): (&Rc<Node>, &[u8]),
        dentry: &Rc<Dentry>,
        trust: Trust,
    ) -> Result<bool, Errno> {
        let now = self.0.env.now();
        if self.0.cache.borrow().is_of_old(dentry) {
            self.0.cache.borrow_mut().drop_name(dir, name, dentry);
            return Ok(false);
        }
        if trust == Trust::Believed && self.0.cache.borrow().is_fresh(dentry, now) {
            return Ok(true);
        }
        let asked = self.0.cache.borrow().asked();
        let answer = self.ask(who, dir.id, lookup(name)).await;
        let now = self.0.env.now();
        let mut cache = self.0.cache.borrow_mut();
        match answer {
            Ok(Body::Entry(out)) if out.nodeid == dentry.node.id => {
                cache.take(&out, asked, now);
                cache.renew(dentry, &out, now);
                return Ok(true);
            }
            Ok(Body::Entry(out)) if out.nodeid != 0 => self.0.device.forget(out.nodeid, 1),
            Err(Errno::EINTR) => return Err(Errno::EINTR),
            _ => {}
        }
        cache.drop_name(dir, name, dentry);
        Ok(false)
    }

    /// `fuse_lookup`.
    async fn look_up(
        &self,
        who: Who,
        dir: &Rc<Node>,
        name: &[u8],
    ) -> Result<Option<Rc<Node>>, Errno> {
        let asked = self.0.cache.borrow().asked();
        match self.ask(who, dir.id, lookup(name)).await {
            Ok(Body::Entry(out)) if out.nodeid != 0 => {
                let now = self.0.env.now();
                let mut cache = self.0.cache.borrow_mut();
                let node = cache.take(&out, asked, now);
                cache.tell((dir, name), &node, &out, asked, now);
                Ok(Some(node))
            }
            Ok(Body::Entry(_)) | Err(Errno::ENOENT) => Ok(None),
            Ok(other) => panic!("an entry was due: {other:?}"),
            Err(errno) => Err(errno),
        }
    }

    /// The directory in which the last part of a path is, and that part.
    pub(crate) async fn parent<'a>(
        &self,
        who: Who,
        path: &'a str,
        trust: Trust,
    ) -> Result<(Rc<Node>, &'a [u8]), Errno> {
        let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut at = self.0.cache.borrow().root();
        for part in dirs.split('/').filter(|part| !part.is_empty()) {
            self.may_pass(who, &at).await?;
            let found = self.find(who, (&at, part.as_bytes()), Held::No, trust).await?;
            at = found.ok_or(Errno::ENOENT)?;
        }
        self.may_pass(who, &at).await?;
        Ok((at, name.as_bytes()))
    }

    pub(crate) async fn walk(&self, who: Who, path: &str, trust: Trust) -> Result<Rc<Node>, Errno> {
        let (dir, name) = self.parent(who, path, trust).await?;
        if name.is_empty() {
            return Ok(dir);
        }
        self.find(who, (&dir, name), Held::No, trust).await?.ok_or(Errno::ENOENT)
    }

    /// `fuse_permission`: owner and mode of a directory must be believed.
    async fn may_pass(&self, who: Who, dir: &Rc<Node>) -> Result<(), Errno> {
        let now = self.0.env.now();
        if self.0.cache.borrow().is_believed(dir, now) {
            return Ok(());
        }
        self.fetch(who, dir).await.map(drop)
    }

    /// `fuse_do_getattr`: what was answered, which need not be what is remembered.
    pub(crate) async fn fetch(&self, who: Who, node: &Rc<Node>) -> Result<abi::Attr, Errno> {
        Cache::forget_acl(node);
        let asked = self.0.cache.borrow().asked();
        match self.ask(who, node.id, Op::Getattr { fh: None }).await? {
            Body::Attr(out) => {
                let told = (out.attr, (out.attr_valid, out.attr_valid_nsec));
                self.0.cache.borrow_mut().learn(node, told, asked, self.0.env.now());
                Ok(out.attr)
            }
            other => panic!("attributes were due: {other:?}"),
        }
    }

    /// `fuse_update_get_attr`.
    pub(crate) async fn attr(&self, who: Who, node: &Rc<Node>) -> Result<abi::Attr, Errno> {
        let now = self.0.env.now();
        if self.0.cache.borrow().is_believed(node, now) {
            return Ok(Cache::attr(node));
        }
        self.fetch(who, node).await
    }
}

pub(crate) fn lookup(name: &[u8]) -> Op {
    Op::Lookup { name: Bytes::copy_from_slice(name) }
}
