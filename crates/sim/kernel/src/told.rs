//! The handler's notifications, with the locks of `fs/fuse/inode.c` and `dir.c`.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use env::{Env, LocalFuture};
use fusedev::Hears;
use tokio::sync::oneshot;

use crate::Version;
use crate::cache::Cache;
use crate::waits::{Lock, Party, Waits};

pub(crate) struct Ear {
    pub(crate) env: Env,
    pub(crate) cache: Rc<RefCell<Cache>>,
    pub(crate) version: Version,
    pub(crate) waits: Waits,
}

impl Hears for Ear {
    fn inval_inode(&self, nodeid: u64, offset: i64, _: i64) -> io::Result<()> {
        assert!(offset < 0, "whole files lose their pages");
        self.cache.borrow_mut().invalidate(nodeid)
    }

    /// `fuse_reverse_inval_inode` with a range. Goes on although nobody waits for it any more.
    fn drop_pages(&self, nodeid: u64) -> LocalFuture<'static, io::Result<()>> {
        let (done, outcome) = oneshot::channel();
        let (cache, waits, own) =
            (self.cache.clone(), self.waits.clone(), self.waits.notification());
        self.env.spawn("inval pages", async move {
            let node = cache.borrow().node(nodeid);
            let heard = cache.borrow_mut().invalidate(nodeid);
            if let Some(node) = node {
                *waits.mutex(own, Lock::Page(nodeid), &node.page).await.guard = None;
                node.kept.borrow_mut().drop_pages();
            }
            drop(done.send(heard));
        });
        let outcome: LocalFuture<'static, io::Result<()>> =
            Box::pin(async move { outcome.await.map_err(io::Error::other)? });
        self.waits.outcome(own, outcome)
    }

    /// Goes on although nobody waits for it any more, as the thread does that tells it.
    fn inval_entry(&self, parent: u64, name: &[u8]) -> LocalFuture<'static, io::Result<()>> {
        self.tell_of_name(parent, name, false)
    }

    fn expire_entry(&self, parent: u64, name: &[u8]) -> LocalFuture<'static, io::Result<()>> {
        self.tell_of_name(parent, name, true)
    }

    fn inc_epoch(&self) -> io::Result<()> {
        if !self.has_epochs() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.cache.borrow_mut().inc_epoch();
        Ok(())
    }

    fn has_epochs(&self) -> bool {
        self.version != Version::Old
    }
}

impl Ear {
    fn tell_of_name(
        &self,
        parent: u64,
        name: &[u8],
        expires_only: bool,
    ) -> LocalFuture<'static, io::Result<()>> {
        let (done, outcome) = oneshot::channel();
        let own = self.waits.notification();
        let told = (own, self.waits.clone());
        let name = (parent, name.to_vec());
        let inval = inval_entry(self.cache.clone(), self.version, told, name, expires_only);
        self.env.spawn("inval entry", async move {
            drop(done.send(inval.await));
        });
        let outcome: LocalFuture<'static, io::Result<()>> =
            Box::pin(async move { outcome.await.map_err(io::Error::other)? });
        self.waits.outcome(own, outcome)
    }
}

/// `fuse_reverse_inval_entry`.
async fn inval_entry(
    cache: Rc<RefCell<Cache>>,
    version: Version,
    (own, waits): (Party, Waits),
    (parent, name): (u64, Vec<u8>),
    expires_only: bool,
) -> io::Result<()> {
    let dir = cache.borrow().node(parent).ok_or(io::ErrorKind::NotFound)?;
    if version == Version::LooksFirst && cache.borrow().name(&dir, &name).is_none() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let _alone = waits.alone(own, Lock::Inode(parent), &dir.lock).await;
    let known = cache.borrow().name(&dir, &name).ok_or(io::ErrorKind::NotFound)?;
    match expires_only {
        true => Cache::expire(&known),
        false => drop(cache.borrow_mut().take_name(&dir, &name)),
    }
    Cache::distrust(&dir);
    Ok(())
}
