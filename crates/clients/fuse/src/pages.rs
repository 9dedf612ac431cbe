//! Data of files that the kernel keeps in its page cache.
//!
//! ```text
//!  open for reading, under CACHE --> cached handle, pages true
//!        recall, end of the lease, own change of the data --> in doubt, until the next such open
//! ```
//! - The kernel cannot change a handle that is open. While pages are in doubt, the kernel may
//!   believe no attributes of the file, so each `read` through a cached handle asks for them
//!   first. The answer comes after all pages were dropped. So the read gets its bytes from the
//!   servers.
//! - The kernel asks nothing before it uses a page of a mapping, or splices one (`sendfile`). In
//!   doubt, such pages are dropped [`PAGES_LATE`] after they were read.
//! - A page is locked while its READ is under way. A notification about pages waits for that, so a
//!   page that an earlier READ brings does not survive it. READs wait for no notification.
//!
//! Whether the grant lasts, [`Client::cached_since`](client::Client::cached_since) says.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use env::LocalFuture;
use fusedev::abi::{self, cap};
use futures_lite::future::or;
use tokio::sync::Notify;
use types::{Errno, Fid};

use crate::fs::Fs;
use crate::limits::{GUARDED_MAX, PAGES_LATE, PAGES_WAIT};
use crate::nodes::Nodes;
use crate::tell::Guard;

/// The kernel has not dropped its pages.
struct StillThere;

const CHANGES: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_TRUNC) as u32;

/// Whether a file is opened so that its data may change.
pub(crate) fn changes_data(flags: u32) -> bool {
    flags & CHANGES != 0
}

/// What the kernel may have of one file.
#[derive(Default)]
struct OfNode {
    /// Since when all its pages are true; nothing where they are in doubt.
    clean: Option<u32>,
    /// Cached handles that are open.
    handles: BTreeSet<u64>,
    /// READs so far, and how many of them were before all pages were dropped.
    reads: u64,
    dropped: u64,
    /// How often it came into doubt.
    doubts: u64,
}

impl OfNode {
    fn may_have_pages(&self) -> bool {
        self.reads > self.dropped
    }
}

/// A notification under way that drops all pages of a node. Others who want the same wait for it,
/// because each takes a thread until the kernel has unlocked the pages.
#[derive(Default)]
struct Dropping {
    is_over: Cell<bool>,
    has_failed: Cell<bool>,
    ended: Notify,
}

impl Dropping {
    /// Says whether the pages are gone.
    async fn over(&self) -> bool {
        loop {
            let ended = self.ended.notified();
            if self.is_over.get() {
                return !self.has_failed.get();
            }
            ended.await;
        }
    }
}

/// The same of all files.
#[derive(Default)]
pub(crate) struct Pages {
    dropping: BTreeMap<u64, Rc<Dropping>>,
    nodes: BTreeMap<u64, OfNode>,
    by_handle: BTreeMap<u64, u64>,
    /// Nodes whose pages are to be dropped in a while.
    late: BTreeSet<u64>,
}

impl Pages {
    /// The kernel wants bytes of a node.
    pub(crate) fn read(&mut self, nodeid: u64) {
        let node = self.nodes.entry(nodeid).or_default();
        node.reads += 1;
        if node.clean.is_none() && !node.handles.is_empty() {
            self.late.insert(nodeid);
        }
    }

    /// The kernel has dropped its last reference to a node, and so all its pages.
    pub(crate) fn forget(&mut self, nodeid: u64) {
        self.nodes.remove(&nodeid);
        self.late.remove(&nodeid);
    }

    /// All pages are gone that the first `reads` READs brought.
    fn dropped(&mut self, nodeid: u64, reads: u64) {
        if let Some(node) = self.nodes.get_mut(&nodeid) {
            node.dropped = node.dropped.max(reads);
        }
    }

    /// A cached handle is opened, and all pages are true since then.
    fn open(&mut self, nodeid: u64, fh: u64, since: u32) {
        let node = self.nodes.entry(nodeid).or_default();
        node.clean = Some(since);
        node.handles.insert(fh);
        self.by_handle.insert(fh, nodeid);
    }

    /// The data may change. Returns whether there was anything to doubt.
    fn doubt(&mut self, nodeid: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&nodeid) else { return false };
        let is_used = !node.handles.is_empty();
        let is_news = node.clean.take().is_some() || is_used;
        node.doubts += 1;
        if is_used && node.may_have_pages() {
            self.late.insert(nodeid);
        }
        is_news
    }

    fn has_handles(&self, nodeid: u64) -> bool {
        self.nodes.get(&nodeid).is_some_and(|node| !node.handles.is_empty())
    }

    /// A handle is closed. Returns the node if that was its last one.
    fn close(&mut self, fh: u64) -> Option<u64> {
        let nodeid = self.by_handle.remove(&fh)?;
        let node = self.nodes.get_mut(&nodeid)?;
        node.handles.remove(&fh);
        node.handles.is_empty().then_some(nodeid)
    }
}

impl Fs {
    /// How a file is opened: through the page cache where its data may be kept. Else direct, so
    /// that no page is used, or through a page cache that the kernel checks and drops at each open,
    /// where it could not map the file otherwise.
    pub(crate) async fn opened(&self, nodeid: u64, fid: Fid, fh: u64, flags: u32) -> abi::OpenOut {
        if self.client.may_cache(flags) && self.keep_pages(nodeid, fid, fh).await {
            planted::reached("fuse: a file was opened through the page cache");
            return abi::OpenOut { fh, open_flags: abi::FOPEN_KEEP_CACHE, padding: 0 };
        }
        self.open_out(fh)
    }

    /// Whether this kernel can be made to ask before it reads, and to drop pages.
    pub(crate) fn may_keep_pages(&self) -> bool {
        self.notifier.tells_names() && self.capabilities.get() & cap::AUTO_INVAL_DATA != 0
    }

    /// Whether the kernel may keep the pages of a file, with those that it has. Not while it may
    /// still take in attributes that nothing guards: it would not ask before reads.
    async fn keep_pages(&self, nodeid: u64, fid: Fid, fh: u64) -> bool {
        let Some(since) = self.client.cached_since(fid) else { return false };
        let now = self.env.now();
        let is_guarded =
            |nodes: &Nodes| nodes.believed(fid, now).is_some_and(|told| told.attrs_until <= now);
        if !is_guarded(&self.nodes.borrow()) {
            return false;
        }
        let (is_clean, doubts) = {
            let mut pages = self.pages.borrow_mut();
            let node = pages.nodes.entry(nodeid).or_default();
            (node.clean == Some(since) || !node.may_have_pages(), node.doubts)
        };
        if !is_clean && self.drop_pages(nodeid).await.is_err() {
            return false;
        }
        let lasts = self.client.cached_since(fid) == Some(since);
        let mut pages = self.pages.borrow_mut();
        if !lasts || pages.nodes.entry(nodeid).or_default().doubts != doubts {
            return false;
        }
        pages.open(nodeid, fh, since);
        self.client.told_kernel_data(fid);
        true
    }

    /// Whether all pages of a file are true.
    fn pages_hold(&self, nodeid: u64, fid: Fid) -> bool {
        let clean = self.pages.borrow().nodes.get(&nodeid).and_then(|node| node.clean);
        clean.is_some() && (self.bugs.keep_pages() || self.client.cached_since(fid) == clean)
    }

    /// Whether each read of a file has to ask, so that the kernel may not believe attributes. An
    /// answer that nothing guards could be taken in after the pages came into doubt.
    pub(crate) fn must_ask(&self, fid: Fid, guard: Guard) -> bool {
        let Some(nodeid) = self.nodes.borrow().id_of(fid) else { return false };
        let has_handles = self.pages.borrow().has_handles(nodeid);
        has_handles && (guard == Guard::None || !self.pages_hold(nodeid, fid))
    }

    /// The kernel asks for attributes, perhaps before it reads through a cached handle: it finds no
    /// page in doubt.
    pub(crate) async fn freshen_pages(&self, nodeid: u64, fid: Fid) -> Result<(), Errno> {
        let is_used = {
            let pages = self.pages.borrow();
            let node = pages.nodes.get(&nodeid);
            node.is_some_and(|node| !node.handles.is_empty() && node.may_have_pages())
        };
        if !is_used || self.pages_hold(nodeid, fid) {
            return Ok(());
        }
        planted::reached("fuse: pages in doubt were dropped before a read");
        self.drop_pages(nodeid).await.map_err(|_| Errno::EIO)
    }

    /// Drops all pages that the kernel has of a node now.
    async fn drop_pages(&self, nodeid: u64) -> Result<(), StillThere> {
        let reads = self.pages.borrow().nodes.get(&nodeid).map_or(0, |node| node.reads);
        loop {
            let under_way = self.pages.borrow().dropping.get(&nodeid).cloned();
            let under_way = under_way.unwrap_or_else(|| self.begin_dropping(nodeid));
            if !under_way.over().await {
                return Err(StillThere);
            }
            let pages = self.pages.borrow();
            if pages.nodes.get(&nodeid).is_none_or(|node| node.dropped >= reads) {
                return Ok(());
            }
        }
    }

    fn begin_dropping(&self, nodeid: u64) -> Rc<Dropping> {
        let dropping = Rc::<Dropping>::default();
        let reads = {
            let mut pages = self.pages.borrow_mut();
            pages.dropping.insert(nodeid, dropping.clone());
            pages.nodes.get(&nodeid).map_or(0, |node| node.reads)
        };
        let (notifier, pages, ending) =
            (self.notifier.clone(), self.pages.clone(), dropping.clone());
        self.env.spawn("pages dropped", async move {
            match notifier.drop_pages(nodeid).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(nodeid, %error, "the kernel does not drop pages");
                    ending.has_failed.set(true);
                }
                _ => pages.borrow_mut().dropped(nodeid, reads),
            }
            pages.borrow_mut().dropping.remove(&nodeid);
            ending.is_over.set(true);
            ending.ended.notify_waiters();
        });
        dropping
    }

    /// The data of a node may change from now on, here or elsewhere. Returns whether the kernel had
    /// anything of it.
    pub(crate) fn doubt_pages(&self, nodeid: u64) -> bool {
        let is_news = self.pages.borrow_mut().doubt(nodeid);
        if is_news {
            self.nodes.borrow_mut().doubts(nodeid);
            if let Err(error) = self.notifier.inval_inode(nodeid, -1, 0)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(nodeid, %error, "the kernel does not hear that data changes");
            }
        }
        is_news
    }

    /// A handle is closed. What the kernel keeps without one it cannot use before the next open.
    pub(crate) fn closed(&self, fh: u64) {
        let Some(nodeid) = self.pages.borrow_mut().close(fh) else { return };
        if let Ok(fid) = self.fid(nodeid) {
            self.client.told_kernel_last(fid, self.env.now() + GUARDED_MAX);
        }
    }

    /// Pages in doubt that no read asks for are dropped in a while.
    pub(crate) fn drop_late(self: &Rc<Self>) {
        let late = std::mem::take(&mut self.pages.borrow_mut().late);
        if late.is_empty() {
            return;
        }
        let fs = self.clone();
        self.env.spawn("late pages", async move {
            fs.env.sleep(PAGES_LATE).await;
            for nodeid in late {
                let Ok(fid) = fs.fid(nodeid) else { continue };
                if !fs.pages_hold(nodeid, fid) {
                    // all at once: those of one file may be locked for long
                    let fs = fs.clone();
                    fs.env.clone().spawn("late pages of a file", async move {
                        let _ = fs.drop_pages(nodeid).await; // it is logged
                    });
                }
            }
        });
    }

    /// The MDT calls the data of a file back. A `read` asks from now on; pages that a READ keeps
    /// locked for long are not waited for.
    pub(crate) fn give_up_pages(self: &Rc<Self>, fid: Fid) -> Option<LocalFuture<'static, ()>> {
        if self.bugs.keep_pages() {
            return None;
        }
        let nodeid = self.nodes.borrow().id_of(fid)?;
        if !self.doubt_pages(nodeid) {
            return None;
        }
        planted::reached("fuse: pages were called back");
        self.drop_late();
        let fs = self.clone();
        Some(Box::pin(async move {
            let late = async {
                fs.env.sleep(PAGES_WAIT).await;
                Ok(())
            };
            let _in_time = or(fs.drop_pages(nodeid), late).await;
        }))
    }

    /// The same of all files, or of those that one MDT has, and nothing is waited for.
    pub(crate) fn doubt_all_pages(self: &Rc<Self>, mdt: Option<u32>) {
        let nodes: Vec<u64> = self.pages.borrow().nodes.keys().copied().collect();
        let is_of = |nodeid| self.fid(nodeid).map_or(true, |fid| mdt == Some(fid.mdt_index()));
        for nodeid in nodes.into_iter().filter(|nodeid| mdt.is_none() || is_of(*nodeid)) {
            self.doubt_pages(nodeid);
        }
        self.drop_late();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u64 = 7;

    fn may_have(pages: &Pages) -> bool {
        pages.nodes.get(&NODE).is_some_and(OfNode::may_have_pages)
    }

    #[test]
    fn pages_that_are_read_while_others_are_dropped_count() {
        let mut pages = Pages::default();
        assert!(!may_have(&pages));
        pages.read(NODE);
        let before = pages.nodes[&NODE].reads;
        pages.read(NODE);
        pages.dropped(NODE, before);
        assert!(may_have(&pages));
        pages.dropped(NODE, before + 1);
        pages.dropped(NODE, before);
        assert!(!may_have(&pages));
        pages.forget(NODE);
        pages.dropped(NODE, 9);
        assert!(pages.nodes.is_empty());
    }

    #[test]
    fn only_what_a_handle_can_use_is_dropped_late() {
        let mut pages = Pages::default();
        pages.read(NODE);
        assert!(!pages.doubt(NODE), "no handle uses it, and the next open drops it");
        pages.open(NODE, 1, 5);
        pages.open(NODE, 2, 5);
        pages.read(NODE);
        assert!(pages.late.is_empty(), "it is true");
        assert!(pages.doubt(NODE) && pages.late.contains(&NODE));
        pages.late.clear();
        pages.read(NODE);
        assert!(pages.late.contains(&NODE));
        assert_eq!((pages.close(1), pages.close(2), pages.close(2)), (None, Some(NODE), None));
        assert!(!pages.has_handles(NODE));
    }
}
