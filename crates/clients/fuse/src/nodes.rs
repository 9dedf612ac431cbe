//! Node ids, the kernel's names for files, and the FIDs that they stand for.
//!
//! Invariants
//! - A FID that the kernel knows has exactly one node id.
//! - A node id is never given twice in the life of a mount, so the kernel can never mistake one
//!   file for another.
//! - A node lives while the kernel holds references to it: each entry it is told counts one, FORGET
//!   takes them back.
//! - The root is always there.
//! - The kernel cuts its pages to any size that it is told. So a size that is not known when it is
//!   told is the one of before: [`Nodes::tell`].

use std::collections::BTreeMap;

use client::Attr;
use fusedev::abi::ROOT_ID;
use types::{Fid, Instant, Timespec};

use crate::limits::ANSWER_LATE;

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) fid: Fid,
    /// Mode as the last attributes said; type bits never change.
    pub(crate) mode: u32,
    lookups: u64,
    /// Of a file: size and modification time as the kernel has them.
    told: Option<(u64, Timespec)>,
    /// Who was told last that its attributes may be believed.
    believer: Option<Believer>,
}

/// Threads that were told to believe attributes, and may not have run since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Believer {
    at: Instant,
    thread: u32,
    /// Others were told shortly before.
    several: bool,
}

pub(crate) struct Nodes {
    by_id: BTreeMap<u64, Node>,
    by_fid: BTreeMap<Fid, u64>,
    /// What directories and symbolic links looked like last: `fstat` of a directory that is open
    /// and removed shows it, and whether a read changes an access time depends on it.
    seen: BTreeMap<u64, Attr>,
    last: u64,
}

impl Nodes {
    pub(crate) fn new() -> Nodes {
        let root = Node { fid: Fid::ROOT, mode: libc::S_IFDIR, ..Node::default() };
        let root = Node { lookups: 1, ..root };
        Nodes {
            by_id: BTreeMap::from([(ROOT_ID, root)]),
            by_fid: BTreeMap::from([(Fid::ROOT, ROOT_ID)]),
            seen: BTreeMap::new(),
            last: ROOT_ID,
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<Node> {
        self.by_id.get(&id).copied()
    }

    /// The kernel is being told of this file: one more reference.
    pub(crate) fn look_up(&mut self, fid: Fid, mode: u32) -> u64 {
        let id = *self.by_fid.entry(fid).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        let node = self.by_id.entry(id).or_insert(Node { fid, mode, ..Node::default() });
        node.lookups += 1;
        node.mode = mode;
        id
    }

    /// The kernel is about to hear these attributes. Where the size is not known it hears the size
    /// and the modification time of before: another size would cut its pages, another time drop
    /// them.
    pub(crate) fn tell(&mut self, attr: &mut Attr, size_known: bool) {
        let node = self.by_fid.get(&attr.fid()).and_then(|id| self.by_id.get_mut(id));
        let Some(node) = node.filter(|_| attr.is_file()) else { return };
        match node.told {
            Some((size, mtime)) if !size_known => {
                attr.size = size;
                attr.set_mtime(mtime);
            }
            _ => node.told = Some((attr.size, attr.mtime())),
        }
    }

    /// A thread is told that it may believe the attributes.
    pub(crate) fn believes(&mut self, id: u64, thread: u32, now: Instant) {
        let Some(node) = self.by_id.get_mut(&id) else { return };
        let before = node.believer.filter(|before| now - before.at < ANSWER_LATE);
        let several = before.is_some_and(|before| before.several || before.thread != thread);
        node.believer = Some(Believer { at: now, thread, several });
    }

    /// A change that `thread` has asked for was made. Whether another thread may still have to take
    /// in attributes of before, which the kernel would then believe: it does not count its own
    /// changes of a directory as news. A thread that asks again has taken in what it was told.
    pub(crate) fn outdates(&mut self, id: u64, thread: u32, now: Instant) -> bool {
        let Some(node) = self.by_id.get_mut(&id) else { return false };
        let told = node.believer.filter(|told| now - told.at < ANSWER_LATE);
        let outdates = told.is_some_and(|told| told.several || told.thread != thread);
        if outdates {
            node.believer = None;
        }
        outdates
    }

    /// The kernel takes the file for at least as long as `end`, because it wrote there.
    pub(crate) fn grew(&mut self, id: u64, end: u64) {
        if let Some((size, _)) = self.by_id.get_mut(&id).and_then(|node| node.told.as_mut()) {
            *size = end.max(*size);
        }
    }

    /// The kernel takes the file for empty, because it opened it so.
    pub(crate) fn was_cut(&mut self, id: u64) {
        if let Some((size, _)) = self.by_id.get_mut(&id).and_then(|node| node.told.as_mut()) {
            *size = 0;
        }
    }

    /// Attributes of a directory or symbolic link that the kernel knows came.
    pub(crate) fn saw_times(&mut self, attr: &Attr) {
        if let Some(id) = self
            .by_fid
            .get(&attr.fid())
            .filter(|_| matches!(attr.file_type(), libc::S_IFDIR | libc::S_IFLNK))
        {
            self.seen.insert(*id, *attr);
        }
    }

    /// What a directory or symbolic link looked like last.
    pub(crate) fn seen(&self, id: u64) -> Option<Attr> {
        self.seen.get(&id).copied()
    }

    pub(crate) fn saw(&mut self, fid: Fid, mode: u32) {
        if let Some(node) = self.by_fid.get(&fid).and_then(|id| self.by_id.get_mut(id)) {
            node.mode = mode;
        }
    }

    pub(crate) fn forget(&mut self, id: u64, lookups: u64) {
        if id == ROOT_ID {
            return;
        }
        let Some(node) = self.by_id.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 {
            let fid = node.fid;
            self.by_id.remove(&id);
            self.by_fid.remove(&fid);
            self.seen.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Fid = Fid { seq: 0x400, oid: 1, ver: 0 };

    #[test]
    fn a_file_has_one_id_until_all_references_are_forgotten() {
        let mut nodes = Nodes::new();
        let id = nodes.look_up(A, 0);
        assert_eq!(nodes.look_up(A, 0), id);
        nodes.forget(id, 1);
        assert_eq!(nodes.get(id).map(|node| node.fid), Some(A));
        nodes.forget(id, 1);
        assert_eq!(nodes.get(id), None);
    }

    #[test]
    fn a_directory_is_remembered_as_it_was_until_it_is_forgotten() {
        let mut nodes = Nodes::new();
        let attr = Attr { mode: libc::S_IFDIR | 0o700, uid: 5, ..Attr::default() }.with_fid(A);
        nodes.saw_times(&attr);
        let id = nodes.look_up(A, attr.mode);
        assert_eq!(nodes.seen(id), None, "the kernel did not know it when it was seen");
        nodes.saw_times(&attr);
        assert_eq!(nodes.seen(id).map(|attr| attr.uid), Some(5));
        nodes.forget(id, 1);
        assert_eq!((nodes.seen(id), nodes.seen.len()), (None, 0));
    }

    #[test]
    fn a_size_that_is_not_known_is_the_one_of_before() {
        let told = |nodes: &mut Nodes, size, sec, known| {
            let mut attr = Attr { mode: libc::S_IFREG, size, mtime: sec, ..Attr::default() };
            attr = attr.with_fid(A);
            nodes.tell(&mut attr, known);
            (attr.size, attr.mtime)
        };
        let mut nodes = Nodes::new();
        let id = nodes.look_up(A, libc::S_IFREG);
        assert_eq!(told(&mut nodes, 5, 1, false), (5, 1), "there is no size of before");
        assert_eq!(told(&mut nodes, 100, 2, true), (100, 2));
        assert_eq!(told(&mut nodes, 7, 3, false), (100, 2));
        nodes.grew(id, 300);
        nodes.grew(id, 200);
        assert_eq!(told(&mut nodes, 7, 3, false), (300, 2), "the kernel wrote up to there");
        nodes.was_cut(id);
        assert_eq!(told(&mut nodes, 7, 3, false), (0, 2));
        assert_eq!(told(&mut nodes, 7, 3, true), (7, 3));
    }

    #[test]
    fn an_id_is_never_given_twice() {
        let mut nodes = Nodes::new();
        let first = nodes.look_up(A, 0);
        nodes.forget(first, 1);
        assert!(nodes.look_up(A, 0) > first);
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let mut nodes = Nodes::new();
        nodes.forget(ROOT_ID, u64::MAX);
        assert_eq!(nodes.look_up(Fid::ROOT, 0), ROOT_ID);
    }

    #[test]
    fn forgetting_too_much_or_the_unknown_harms_nobody() {
        let mut nodes = Nodes::new();
        let id = nodes.look_up(A, 0);
        nodes.forget(id, 100);
        nodes.forget(id, 1);
        nodes.forget(77, 1);
        assert_eq!(nodes.get(id), None);
    }
}
