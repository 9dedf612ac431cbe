//! The handler's notifications, with the locks of `fs/fuse/inode.c` and `dir.c`.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use env::{Env, LocalFuture};
use fusedev::Hears;
use tokio::sync::oneshot;

use crate::Version;
use crate::cache::Cache;

pub(crate) struct Ear {
    pub(crate) env: Env,
    pub(crate) cache: Rc<RefCell<Cache>>,
    pub(crate) version: Version,
}

impl Hears for Ear {
    fn inval_inode(&self, nodeid: u64, offset: i64, _: i64) -> io::Result<()> {
        assert!(offset < 0, "whole files lose their pages");
        self.cache.borrow_mut().invalidate(nodeid)
    }

    /// `fuse_reverse_inval_inode` with a range. Goes on although nobody waits for it any more.
    fn drop_pages(&self, nodeid: u64) -> LocalFuture<'static, io::Result<()>> {
        let (done, outcome) = oneshot::channel();
        let cache = self.cache.clone();
        self.env.spawn("inval pages", async move {
            let node = cache.borrow().node(nodeid);
            let heard = cache.borrow_mut().invalidate(nodeid);
            if let Some(node) = node {
                *node.page.clone().lock_owned().await = None;
            }
            drop(done.send(heard));
        });
        Box::pin(async move { outcome.await.map_err(io::Error::other)? })
    }

    /// Goes on although nobody waits for it any more, as the thread does that tells it.
    fn inval_entry(&self, parent: u64, name: &[u8]) -> LocalFuture<'static, io::Result<()>> {
        let (done, outcome) = oneshot::channel();
        let inval = inval_entry(self.cache.clone(), self.version, parent, name.to_vec());
        self.env.spawn("inval entry", async move {
            drop(done.send(inval.await));
        });
        Box::pin(async move { outcome.await.map_err(io::Error::other)? })
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

/// `fuse_reverse_inval_entry`.
async fn inval_entry(
    cache: Rc<RefCell<Cache>>,
    version: Version,
    parent: u64,
    name: Vec<u8>,
) -> io::Result<()> {
    let dir = cache.borrow().node(parent).ok_or(io::ErrorKind::NotFound)?;
    if version == Version::LooksFirst && cache.borrow().name(&dir, &name).is_none() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let _alone = dir.lock.clone().write_owned().await;
    cache.borrow_mut().take_name(&dir, &name).ok_or(io::ErrorKind::NotFound)?;
    Cache::distrust(&dir);
    Ok(())
}
