//! The classes of one instance: found by key in constant time, the idle ones reclaimed oldest first.
//!
//! Invariants
//! - A class is in the index exactly once.
//! - It is in the list of the idle exactly when its queue is empty.
//! - At most `idle_max` are idle; beyond that the oldest go until three quarters of that are left.

use types::Instant;

use super::bucket::Ticket;
use super::buckets::BucketRef;
use super::fields::Key;
use crate::{HeapHandle, List};

pub(crate) const NONE: u32 = u32::MAX;

/// One class: its requests and its share of a bucket.
pub(crate) struct Class {
    pub(crate) key: Key,
    pub(crate) queue: List,
    pub(crate) rule: u32,
    pub(crate) rule_uid: u64,
    pub(crate) generation: u64,
    pub(crate) bucket: BucketRef,
    /// While requests wait.
    pub(crate) turn: Option<(Ticket, HeapHandle)>,
    pub(crate) counters: ClassCounters,
    hash: u64,
    prev: u32,
    next: u32,
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
    slots: Vec<Option<Class>>,
    free: Vec<u32>,
    index: Vec<u32>, // open addressing, a power of two, at most half full
    oldest: u32,
    newest: u32,
    idle: usize,
}

/// Places of an index at least.
const INDEX_MIN: usize = 64;

impl Classes {
    pub(crate) fn new(seed: u64) -> Classes {
        Classes { seed, slots: Vec::new(), free: Vec::new(), index: vec![NONE; INDEX_MIN], oldest: NONE, newest: NONE, idle: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> &Class {
        self.slots[at as usize].as_ref().expect("a class that is named exists")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> &mut Class {
        self.slots[at as usize].as_mut().expect("a class that is named exists")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Class)> {
        let number = |(at, slot): (usize, &'_ Option<Class>)| slot.is_some().then_some(at as u32);
        self.slots.iter().enumerate().filter_map(number).map(|at| (at, self.get(at)))
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<u32> {
        let hash = key.hash(self.seed);
        let mask = self.index.len() - 1;
        let mut place = hash as usize & mask;
        while self.index[place] != NONE {
            let class = self.get(self.index[place]);
            if class.hash == hash && class.key == *key {
                return Some(self.index[place]);
            }
            place = (place + 1) & mask;
        }
        None
    }

    /// Adds a class that is not there, idle.
    pub(crate) fn insert(&mut self, key: Key, rule: u32, bucket: BucketRef) -> u32 {
        if (self.len() + 1) * 2 > self.index.len() {
            self.resize(self.index.len() * 2);
        }
        let hash = key.hash(self.seed);
        let class = Class {
            key,
            queue: List::default(),
            rule,
            rule_uid: 0,
            generation: 0,
            bucket,
            turn: None,
            counters: ClassCounters::default(),
            hash,
            prev: NONE,
            next: NONE,
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 classes")
        });
        self.slots[at as usize] = Some(class);
        self.enter(hash, at);
        self.push_idle(at);
        at
    }

    fn enter(&mut self, hash: u64, at: u32) {
        let mask = self.index.len() - 1;
        let mut place = hash as usize & mask;
        while self.index[place] != NONE {
            place = (place + 1) & mask;
        }
        self.index[place] = at;
    }

    fn resize(&mut self, places: usize) {
        self.index = vec![NONE; places.max(INDEX_MIN)];
        let all: Vec<(u64, u32)> = self.iter().map(|(at, class)| (class.hash, at)).collect();
        all.into_iter().for_each(|(hash, at)| self.enter(hash, at));
    }

    /// The class has requests now.
    #[inline]
    pub(crate) fn unlink_idle(&mut self, at: u32) {
        let class = self.get_mut(at);
        let (prev, next) = (class.prev, class.next);
        match prev {
            NONE => self.oldest = next,
            prev => self.get_mut(prev).next = next,
        }
        match next {
            NONE => self.newest = prev,
            next => self.get_mut(next).prev = prev,
        }
        self.idle -= 1;
    }

    /// The class has none any more.
    #[inline]
    pub(crate) fn push_idle(&mut self, at: u32) {
        let newest = std::mem::replace(&mut self.newest, at);
        let class = self.get_mut(at);
        (class.prev, class.next) = (newest, NONE);
        match newest {
            NONE => self.oldest = at,
            newest => self.get_mut(newest).next = at,
        }
        self.idle += 1;
    }

    /// Removes the class that has been idle longest.
    pub(crate) fn pop_oldest(&mut self) -> Option<Class> {
        let at = self.oldest;
        if at == NONE {
            return None;
        }
        self.unlink_idle(at);
        self.leave(at);
        self.free.push(at);
        self.slots[at as usize].take()
    }

    /// Takes a class out of the index and closes the gap in the run of places behind it.
    fn leave(&mut self, at: u32) {
        let mask = self.index.len() - 1;
        let mut gap = self.get(at).hash as usize & mask;
        while self.index[gap] != at {
            gap = (gap + 1) & mask;
        }
        let mut place = gap;
        loop {
            place = (place + 1) & mask;
            let there = self.index[place];
            if there == NONE {
                break;
            }
            let home = self.get(there).hash as usize & mask;
            // may move to the gap if its home is not behind the gap
            if (place.wrapping_sub(home) & mask) >= (place.wrapping_sub(gap) & mask) {
                self.index[gap] = there;
                gap = place;
            }
        }
        self.index[gap] = NONE;
    }
}
