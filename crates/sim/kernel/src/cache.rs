//! The kernel's cache: inodes by node id, names by directory. Without I/O.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use fusedev::abi;
use tokio::sync::{Mutex, RwLock};
use types::{Instant, Span};

use crate::NameKey;
use crate::kept::Kept;

/// An inode.
pub(crate) struct Node {
    pub(crate) id: u64,
    generation: u64,
    /// `i_rwsem`: of a directory shared by lookups and listings.
    pub(crate) lock: Arc<RwLock<()>>,
    /// References that the handler was told of.
    looks: Cell<u64>,
    attr: RefCell<abi::Attr>,
    /// The last tick in which the attributes are believed; zero for not at all.
    until: Cell<u64>,
    /// When attributes were applied last, in the connection's count; zero for never.
    version: Cell<u64>,
    /// The access list is kept, or that there is none.
    has_acl: Cell<bool>,
    /// The only page of a file, where it is read. Locked while its READ is under way.
    pub(crate) page: Arc<Mutex<Option<Bytes>>>,
    /// Names that are kept of a directory.
    pub(crate) kept: RefCell<Kept>,
}

/// A name that stands for a file.
pub(crate) struct Dentry {
    pub(crate) node: Rc<Node>,
    until: Cell<u64>,
    /// The epoch in which it was looked up.
    epoch: u64,
    /// Its directory is not forgotten before it.
    _dir: Rc<Node>,
}

/// What a request was sent at; its answer may be too old by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Of attributes.
    version: u64,
    epoch: u64,
    evictions: u64,
}

impl Asked {
    /// The same, where no attributes can be newer: a change.
    pub(crate) fn to_change(self) -> Asked {
        Asked { version: 0, ..self }
    }
}

pub(crate) struct Cache {
    tick: Span,
    /// `fc->attr_version`.
    version: u64,
    /// `fc->epoch`.
    epoch: u64,
    /// `fc->evict_ctr`; not counted by old kernels.
    evictions: u64,
    pub(crate) counts_evictions: bool,
    nodes: BTreeMap<u64, Rc<Node>>,
    names: BTreeMap<NameKey, Rc<Dentry>>,
}

/// Seconds and nanoseconds of a validity.
pub(crate) type Valid = (u64, u32);

impl Cache {
    pub(crate) fn new(tick: Span) -> Cache {
        let root = Node {
            id: abi::ROOT_ID,
            generation: 0,
            lock: Arc::default(),
            looks: Cell::new(1),
            attr: RefCell::default(),
            until: Cell::new(0),
            version: Cell::new(0),
            has_acl: Cell::new(false),
            page: Arc::default(),
            kept: RefCell::default(),
        };
        let nodes = BTreeMap::from([(abi::ROOT_ID, Rc::new(root))]);
        Cache {
            tick,
            version: 1,
            epoch: 1,
            evictions: 1,
            counts_evictions: true,
            nodes,
            names: BTreeMap::new(),
        }
    }

    pub(crate) fn root(&self) -> Rc<Node> {
        self.nodes[&abi::ROOT_ID].clone()
    }

    /// `jiffies`.
    fn ticks(&self, now: Instant) -> u64 {
        now.0 / self.tick.0
    }

    /// `fuse_time_to_jiffies`: rounded up from a tick that has begun before.
    fn deadline(&self, now: Instant, (secs, nanos): Valid) -> u64 {
        match secs.saturating_mul(1_000_000_000).saturating_add(nanos.into()) {
            0 => 0,
            span => self.ticks(now) + span.div_ceil(self.tick.0),
        }
    }

    /// To be taken before a request whose answer has attributes or names.
    pub(crate) fn asked(&self) -> Asked {
        Asked { version: self.version, epoch: self.epoch, evictions: self.evictions }
    }

    pub(crate) fn node(&self, nodeid: u64) -> Option<Rc<Node>> {
        self.nodes.get(&nodeid).cloned()
    }

    pub(crate) fn is_believed(&self, node: &Node, now: Instant) -> bool {
        node.until.get() >= self.ticks(now)
    }

    pub(crate) fn attr(node: &Node) -> abi::Attr {
        *node.attr.borrow()
    }

    /// Attributes of a request. An older answer than the last one changes nothing.
    pub(crate) fn learn(
        &mut self,
        node: &Node,
        (attr, valid): (abi::Attr, Valid),
        asked: Asked,
        now: Instant,
    ) {
        if asked.version != 0 && node.version.get() > asked.version {
            return;
        }
        let is_first = node.version.get() == 0;
        self.version += 1;
        node.version.set(self.version);
        node.until.set(self.deadline(now, valid));
        if is_first && asked.version != 0 && self.evictions != asked.evictions {
            Cache::distrust(node); // it may be the answer about one that was dropped
        }
        *node.attr.borrow_mut() = attr;
    }

    pub(crate) fn has_acl(node: &Node) -> bool {
        node.has_acl.get()
    }

    /// An answer told the access list.
    pub(crate) fn keep_acl(node: &Node) {
        node.has_acl.set(true);
    }

    /// `forget_all_cached_acls`.
    pub(crate) fn forget_acl(node: &Node) {
        node.has_acl.set(false);
    }

    /// `fuse_invalidate_attr`: nothing is believed, and an answer under way may say so again.
    pub(crate) fn distrust(node: &Node) {
        node.until.set(0);
    }

    /// `fuse_reverse_inval_inode`.
    ///
    /// # Errors
    /// ENOENT: it is not known.
    pub(crate) fn invalidate(&mut self, nodeid: u64) -> io::Result<()> {
        let node = self.nodes.get(&nodeid).ok_or(io::ErrorKind::NotFound)?;
        self.version += 1;
        node.version.set(self.version);
        Cache::distrust(node);
        Cache::forget_acl(node);
        Ok(())
    }

    /// `FUSE_NOTIFY_INC_EPOCH`.
    pub(crate) fn inc_epoch(&mut self) {
        self.epoch += 1;
    }

    /// A name of the inode has gone: what was asked for before says nothing any more.
    pub(crate) fn unlinked(&mut self, node: &Node) {
        self.version += 1;
        node.version.set(self.version);
        let mut attr = node.attr.borrow_mut();
        attr.nlink = attr.nlink.saturating_sub(1);
    }

    /// The inode of an answer, counted once more.
    ///
    /// # Panics
    /// The handler gave one number to two files.
    pub(crate) fn take(&mut self, out: &abi::EntryOut, asked: Asked, now: Instant) -> Rc<Node> {
        let fresh = || {
            Rc::new(Node {
                id: out.nodeid,
                generation: out.generation,
                lock: Arc::default(),
                looks: Cell::new(0),
                attr: RefCell::new(out.attr),
                until: Cell::new(0),
                version: Cell::new(0),
                has_acl: Cell::new(false),
                page: Arc::default(),
                kept: RefCell::default(),
            })
        };
        let node = self.nodes.entry(out.nodeid).or_insert_with(fresh).clone();
        assert_eq!(node.generation, out.generation, "a node id names another file");
        assert_eq!(Cache::attr(&node).ino, out.attr.ino, "a node id names another file");
        node.looks.set(node.looks.get() + 1);
        Cache::forget_acl(&node);
        self.learn(&node, (out.attr, (out.attr_valid, out.attr_valid_nsec)), asked, now);
        node
    }

    pub(crate) fn name(&self, dir: &Node, name: &[u8]) -> Option<Rc<Dentry>> {
        self.names.get(&(dir.id, name.to_vec())).cloned()
    }

    pub(crate) fn is_fresh(&self, dentry: &Dentry, now: Instant) -> bool {
        dentry.until.get() >= self.ticks(now)
    }

    /// `fuse_invalidate_entry_cache`: an answer that is under way may give it time again.
    pub(crate) fn expire(dentry: &Dentry) {
        dentry.until.set(0);
    }

    /// Whether all names were made old since it was looked up.
    pub(crate) fn is_of_old(&self, dentry: &Dentry) -> bool {
        dentry.epoch < self.epoch
    }

    /// The name was told again and stands for the same.
    pub(crate) fn renew(&self, dentry: &Dentry, out: &abi::EntryOut, now: Instant) {
        dentry.until.set(self.deadline(now, (out.entry_valid, out.entry_valid_nsec)));
    }

    fn put(&mut self, dir: &Rc<Node>, name: &[u8], node: &Rc<Node>, (until, epoch): (u64, u64)) {
        let (node, until) = (node.clone(), Cell::new(until));
        let dentry = Dentry { node, until, epoch, _dir: dir.clone() };
        self.names.insert((dir.id, name.to_vec()), Rc::new(dentry));
    }

    pub(crate) fn tell(
        &mut self,
        (dir, name): (&Rc<Node>, &[u8]),
        node: &Rc<Node>,
        out: &abi::EntryOut,
        asked: Asked,
        now: Instant,
    ) {
        let until = self.deadline(now, (out.entry_valid, out.entry_valid_nsec));
        self.put(dir, name, node, (until, asked.epoch));
    }

    /// `d_drop`, where the name still stands for this.
    pub(crate) fn drop_name(&mut self, dir: &Node, name: &[u8], dentry: &Rc<Dentry>) {
        let key = (dir.id, name.to_vec());
        if self.names.get(&key).is_some_and(|there| Rc::ptr_eq(there, dentry)) {
            self.names.remove(&key);
        }
    }

    pub(crate) fn take_name(&mut self, dir: &Node, name: &[u8]) -> Option<Rc<Dentry>> {
        self.names.remove(&(dir.id, name.to_vec()))
    }

    /// `d_move` and, in an exchange, the other way too.
    pub(crate) fn rename(
        &mut self,
        from: (&Rc<Node>, &[u8]),
        to: (&Rc<Node>, &[u8]),
        exchange: bool,
    ) {
        let (old, new) = (self.take_name(from.0, from.1), self.take_name(to.0, to.1));
        if let Some(old) = old {
            self.put(to.0, to.1, &old.node, (old.until.get(), old.epoch));
        }
        if let Some(new) = new.filter(|_| exchange) {
            self.put(from.0, from.1, &new.node, (new.until.get(), new.epoch));
        }
    }

    /// Drops some pages that nothing has locked.
    pub(crate) fn drop_pages(&self, mut chosen: impl FnMut() -> bool) {
        for node in self.nodes.values().filter(|_| chosen()) {
            node.kept.borrow_mut().drop_pages();
            if let Ok(mut page) = node.page.try_lock() {
                *page = None;
            }
        }
    }

    /// Drops some names that no call uses.
    pub(crate) fn drop_names(&mut self, mut chosen: impl FnMut() -> bool) -> usize {
        let before = self.names.len();
        self.names.retain(|_, dentry| Rc::strong_count(dentry) > 1 || !chosen());
        before - self.names.len()
    }

    /// Inodes that nothing uses any more, with the references that the handler is to forget.
    pub(crate) fn evict(&mut self) -> Vec<(u64, u64)> {
        let mut evicted = Vec::new();
        self.nodes.retain(|id, node| {
            let stays = *id == abi::ROOT_ID || Rc::strong_count(node) > 1;
            if !stays {
                self.evictions += u64::from(self.counts_evictions);
                evicted.push((*id, node.looks.get()));
            }
            stays
        });
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn told(nodeid: u64, size: u64, valid_ms: u64) -> abi::EntryOut {
        let valid = u32::try_from(valid_ms * MS).expect("less than a second");
        abi::EntryOut {
            nodeid,
            attr_valid_nsec: valid,
            entry_valid_nsec: valid,
            attr: abi::Attr { size, ..Default::default() },
            ..Default::default()
        }
    }

    #[test]
    fn validity_is_rounded_up_to_ticks_twice() {
        let mut cache = Cache::new(Span::millis(10));
        let asked = cache.asked().to_change();
        let node = cache.take(&told(7, 1, 11), asked, Instant(25 * MS));
        assert!(cache.is_believed(&node, Instant(25 * MS)));
        assert!(cache.is_believed(&node, Instant(50 * MS - 1)), "24 ms in place of 11");
        assert!(!cache.is_believed(&node, Instant(50 * MS)));
        let node = cache.take(&told(7, 1, 0), asked, Instant(25 * MS));
        assert!(!cache.is_believed(&node, Instant(25 * MS)));
    }

    #[test]
    fn an_answer_to_an_older_question_changes_nothing_but_the_first() {
        let (mut cache, now) = (Cache::new(Span::millis(4)), Instant(100 * MS));
        let old = cache.asked();
        let node = cache.take(&told(7, 1, 20), cache.asked(), now);
        let asked = cache.asked();
        cache.learn(&node, (told(7, 3, 20).attr, (0, 0)), asked.to_change(), now);
        cache.take(&told(7, 2, 20), asked, now);
        assert_eq!(Cache::attr(&node).size, 3);
        let first = cache.take(&told(8, 2, 20), old, now);
        assert!(cache.is_believed(&first, now), "nothing guards an inode's first answer");
        cache.evictions += 1;
        let late = cache.take(&told(9, 2, 20), old, now);
        assert!(!cache.is_believed(&late, now), "but that of one that may have been dropped");
    }

    #[test]
    fn an_access_list_goes_with_each_entry_that_is_told_and_with_an_invalidation() {
        let (mut cache, now) = (Cache::new(Span::millis(4)), Instant(0));
        let asked = cache.asked();
        let node = cache.take(&told(7, 1, 20), asked, now);
        assert!(!Cache::has_acl(&node));
        Cache::keep_acl(&node);
        cache.learn(&node, (told(7, 2, 20).attr, (1, 0)), asked.to_change(), now);
        assert!(Cache::has_acl(&node));
        cache.take(&told(7, 1, 20), asked, now);
        assert!(!Cache::has_acl(&node));
        Cache::keep_acl(&node);
        cache.invalidate(7).expect("it is known");
        assert!(!Cache::has_acl(&node));
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten_with_its_count() {
        let (mut cache, now) = (Cache::new(Span::millis(4)), Instant(0));
        let root = cache.root();
        let asked = cache.asked();
        let node = cache.take(&told(7, 1, 20), asked, now);
        cache.tell((&root, b"name"), &node, &told(7, 1, 20), asked, now);
        cache.take(&told(7, 1, 20), asked, now);
        assert_eq!(cache.drop_names(|| true), 1);
        assert_eq!(cache.evict(), []);
        drop(node);
        assert_eq!(cache.evict(), [(7, 2)]);
    }
}
