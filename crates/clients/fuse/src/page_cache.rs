//! Data of files that the kernel keeps in its page cache.
//!
//! ```text
//!  open for reading, under CACHE --> cached handle, pages true
//!        recall, end of the lease, own change of the data --> in doubt, until the next such open
//! ```
//! - The kernel cannot change a handle that is open. While pages are in doubt, the kernel may
//!   keep no attributes of the file, so each `read` through a cached handle asks for them
//!   first. The answer comes after all pages were dropped. So the read gets its bytes from the
//!   servers.
//! - The kernel asks nothing before it uses a page of a mapping, or splices one (`sendfile`). In
//!   doubt, such pages are dropped [`PAGES_LATE`] after they were read.
//! - A page is locked while its READ is under way. A notification about pages waits for that, so a
//!   page that an earlier READ brings does not survive it. READs wait for no notification.
//!
//! Whether the grant lasts, [`Client::cached_since`](client::Client::cached_since) says.

use std::io;
use std::rc::Rc;

use env::LocalFuture;
use fusedev::abi::{self, cap};
use futures_lite::future::or;
use types::{Errno, Fid};

use crate::fs::Fs;
use crate::guard::Guard;
use crate::limits::{GUARDED_MAX, PAGES_LATE, PAGES_WAIT};
use crate::nodes::Nodes;
use crate::pages::Dropping;

/// The kernel has not dropped its pages.
struct StillThere;

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

    /// Whether the kernel may not believe attributes: each read of a file has to ask, or of names
    /// that are kept of a directory, or the kernel changes the link count by itself. An answer that
    /// nothing guards could be taken in after they came into doubt.
    pub(crate) fn must_ask(&self, fid: Fid, guard: Guard) -> bool {
        let nodes = self.nodes.borrow();
        let Some(nodeid) = nodes.id_of(fid) else { return false };
        let is_unlinking = nodes.is_unlinking(nodeid, self.env.now());
        drop(nodes);
        let has_handles = self.pages.borrow().has_handles(nodeid);
        is_unlinking
            || (has_handles && (guard == Guard::None || !self.pages_hold(nodeid, fid)))
            || self.must_ask_for_dir(nodeid, fid, guard)
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
