//! The classes of one instance: found by key in constant time, the idle ones reclaimed oldest
//! first.
//!
//! ```text
//! tags     [ hash | chain of the index | neighbours among the idle ]   24 bytes: searched entries stay in the cache
//! classes  [ key | turn, queue, bucket, rule | counters ]              a cache line each, and only of the class that is meant
//! ```
//! Both are slabs, and the index uses linear hashing: no class ever waits for a table to be copied.
//!
//! Invariants
//! - A class and its tag are at the same place.
//! - A class is in the index exactly once.
//! - It is in the list of the idle exactly when its queue is empty.
//! - At most `idle_max` classes are idle. Beyond that, the oldest go until three quarters of that
//!   number are left.

use queues::{Chained, HeapHandle, Index, NIL, Slab, Vacant};
use types::Instant;

use super::bucket::Ticket;
use super::buckets::BucketRef;
use super::fields::Key;
use crate::List;

/// One class: its requests and its share of a bucket.
#[repr(C, align(64))]
pub(crate) struct Class {
    pub(crate) key: Key,
    /// While requests wait. The handle is of the policy's heap, unless the class is stale.
    pub(crate) turn: Option<(Ticket, HeapHandle)>,
    pub(crate) queue: List,
    pub(crate) bucket: BucketRef,
    pub(crate) rule: u32,
    pub(crate) generation: u64,
    pub(crate) counters: ClassCounters,
    pub(crate) rule_uid: u64,
    is_there: bool,
    vacant: u32, // of a vacant place: the next one
}

/// Key, what a request needs, what statistics need: a cache line each.
const _: () = assert!(size_of::<Class>() == 192);

impl Vacant for Class {
    fn vacant() -> Class {
        Class {
            key: Key::default(),
            turn: None,
            queue: List::default(),
            bucket: BucketRef::NONE,
            rule: 0,
            generation: 0,
            counters: ClassCounters::default(),
            rule_uid: 0,
            is_there: false,
            vacant: NIL,
        }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.vacant
    }
}

struct Tag {
    hash: u64,
    chain: u32, // of a vacant place: the next one
    idle_prev: u32,
    idle_next: u32,
}

impl Vacant for Tag {
    fn vacant() -> Tag {
        Tag { hash: 0, chain: NIL, idle_prev: NIL, idle_next: NIL }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.chain
    }
}

impl Chained for Tag {
    fn key(&self) -> queues::Key {
        [self.hash, 0]
    }
    fn next(&self) -> u32 {
        self.chain
    }
    fn set_next(&mut self, place: u32) {
        self.chain = place;
    }
}

/// What `nrs_tbf_stats` shows of a class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassCounters {
    /// Left to be handled.
    pub(crate) dispatched: u64,
    /// Of those, how many had to wait for tokens.
    pub(crate) throttled: u64,
    /// Left otherwise: aborted, promoted, or overdue.
    pub(crate) removed: u64,
    /// Sum of waiting times, nanoseconds.
    pub(crate) wait_ns: u64,
    pub(crate) last_seen: Instant,
}

/// See the head of the file.
pub(crate) struct Classes {
    seed: u64,
    classes: Slab<Class>,
    tags: Slab<Tag>,
    index: Index,
    oldest: u32,
    newest: u32,
    idle: usize,
}

impl Classes {
    pub(crate) fn new(seed: u64) -> Classes {
        let (classes, tags, index) = (Slab::default(), Slab::default(), Index::default());
        Classes { seed, classes, tags, index, oldest: NIL, newest: NIL, idle: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.classes.len()
    }

    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> &Class {
        self.classes.get(at)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> &mut Class {
        self.classes.get_mut(at)
    }

    /// The generation of the rules that the class at a place is attached to, if a class is there.
    #[inline]
    pub(crate) fn generation(&self, at: u32) -> Option<u64> {
        let class = self.classes.find(at).filter(|class| class.is_there)?;
        Some(class.generation)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Class)> {
        self.classes.iter().filter(|(_, class)| class.is_there)
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<u32> {
        let hash = [key.hash(self.seed), 0];
        self.index.find_where(&self.tags, hash, |at| self.classes.get(at).key == *key)
    }

    /// Adds a class that is not there, idle and without a rule.
    pub(crate) fn insert(&mut self, key: Key) -> u32 {
        let at = self.tags.insert(Tag { hash: key.hash(self.seed), ..Tag::vacant() });
        let class = self.classes.insert(Class { key, is_there: true, ..Class::vacant() });
        assert!(at == class, "a class and its tag are at the same place");
        self.index.insert(&mut self.tags, at);
        self.push_idle(at);
        at
    }

    /// The class has requests now.
    #[inline]
    pub(crate) fn unlink_idle(&mut self, at: u32) {
        let Tag { idle_prev: prev, idle_next: next, .. } = *self.tags.get(at);
        match prev {
            NIL => self.oldest = next,
            prev => self.tags.get_mut(prev).idle_next = next,
        }
        match next {
            NIL => self.newest = prev,
            next => self.tags.get_mut(next).idle_prev = prev,
        }
        self.idle -= 1;
    }

    /// The class has none any more.
    #[inline]
    pub(crate) fn push_idle(&mut self, at: u32) {
        let newest = std::mem::replace(&mut self.newest, at);
        let tag = self.tags.get_mut(at);
        (tag.idle_prev, tag.idle_next) = (newest, NIL);
        match newest {
            NIL => self.oldest = at,
            newest => self.tags.get_mut(newest).idle_next = at,
        }
        self.idle += 1;
    }

    /// Removes the class that has been idle longest.
    pub(crate) fn pop_oldest(&mut self) -> Option<Class> {
        let at = self.oldest;
        if at == NIL {
            return None;
        }
        self.unlink_idle(at);
        self.index.remove(&mut self.tags, at);
        self.tags.remove(at);
        Some(self.classes.remove(at))
    }
}
