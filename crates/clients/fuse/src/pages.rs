//! The data that the kernel may have in its page cache, as counts of its requests and answers.
//! [`crate::page_cache`] says when it may keep data.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tokio::sync::Notify;

const CHANGES: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_TRUNC) as u32;

/// Whether a file is opened so that its data may change.
pub(crate) fn changes_data(flags: u32) -> bool {
    flags & CHANGES != 0
}

/// What the kernel may have of one file.
#[derive(Default)]
pub(crate) struct OfNode {
    /// Since when all its pages are true; nothing where they are in doubt.
    pub(crate) clean: Option<u32>,
    /// Cached handles that are open.
    pub(crate) handles: BTreeSet<u64>,
    /// READs so far, and how many of them were before all pages were dropped.
    pub(crate) reads: u64,
    pub(crate) dropped: u64,
    /// How often it came into doubt.
    pub(crate) doubts: u64,
}

impl OfNode {
    pub(crate) fn may_have_pages(&self) -> bool {
        self.reads > self.dropped
    }
}

/// A notification under way that drops all pages of a node. Others who want the same wait for it,
/// because each takes a thread until the kernel has unlocked the pages.
#[derive(Default)]
pub(crate) struct Dropping {
    pub(crate) is_over: Cell<bool>,
    pub(crate) has_failed: Cell<bool>,
    pub(crate) ended: Notify,
}

impl Dropping {
    /// Says whether the pages are gone.
    pub(crate) async fn over(&self) -> bool {
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
    pub(crate) dropping: BTreeMap<u64, Rc<Dropping>>,
    pub(crate) nodes: BTreeMap<u64, OfNode>,
    by_handle: BTreeMap<u64, u64>,
    /// Nodes whose pages are to be dropped in a while.
    pub(crate) late: BTreeSet<u64>,
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
    pub(crate) fn dropped(&mut self, nodeid: u64, reads: u64) {
        if let Some(node) = self.nodes.get_mut(&nodeid) {
            node.dropped = node.dropped.max(reads);
        }
    }

    /// A cached handle is opened, and all pages are true since then.
    pub(crate) fn open(&mut self, nodeid: u64, fh: u64, since: u32) {
        let node = self.nodes.entry(nodeid).or_default();
        node.clean = Some(since);
        node.handles.insert(fh);
        self.by_handle.insert(fh, nodeid);
    }

    /// The data may change. Returns whether there was anything to doubt.
    pub(crate) fn doubt(&mut self, nodeid: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&nodeid) else { return false };
        let is_used = !node.handles.is_empty();
        let is_news = node.clean.take().is_some() || is_used;
        node.doubts += 1;
        if is_used && node.may_have_pages() {
            self.late.insert(nodeid);
        }
        is_news
    }

    pub(crate) fn has_handles(&self, nodeid: u64) -> bool {
        self.nodes.get(&nodeid).is_some_and(|node| !node.handles.is_empty())
    }

    /// A handle is closed. Returns the node if that was its last one.
    pub(crate) fn close(&mut self, fh: u64) -> Option<u64> {
        let nodeid = self.by_handle.remove(&fh)?;
        let node = self.nodes.get_mut(&nodeid)?;
        node.handles.remove(&fh);
        node.handles.is_empty().then_some(nodeid)
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
