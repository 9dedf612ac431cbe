//! Whose rank it is: the groups that have requests, by round and number.
//!
//! ```text
//! this, next   lists through the groups of a round and of the one after it, in order
//! strays       a tree of all others
//! ```
//! Most groups come behind all others of their round, because they are new or because their last
//! batch has just ended. They are appended in O(1). A group that comes back to a seat between
//! others, is late, or has to pay for rounds is a stray, in O(log strays).
//!
//! Invariants
//! - A group stands here exactly while it has a batch, and stands here once, with the rank of its
//!   first batch.
//! - Turns grow along a list; those of `this` are in round `base`, those of `next` in the one after
//!   it. `next` is empty when `this` is.
//! - `first` is the lowest rank of all.

use std::collections::BTreeMap;

use queues::{NIL, Slab};

use crate::batches::Rank;
use crate::rounds::Group;

/// Bytes of `strays` for an entry, with the nodes of the tree two thirds full.
const STRAY_BYTES: usize = 36;

/// Groups in a row, linked through `prev` and `next` of each.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl Row {
    pub(crate) const EMPTY: Row = Row { head: NIL, tail: NIL };

    pub(crate) fn push(&mut self, groups: &mut Slab<Group>, at: u32) {
        let tail = std::mem::replace(&mut self.tail, at);
        let group = groups.get_mut(at);
        (group.prev, group.next) = (tail, NIL);
        match tail {
            NIL => self.head = at,
            _ => groups.get_mut(tail).next = at,
        }
    }

    pub(crate) fn unlink(&mut self, groups: &mut Slab<Group>, at: u32) {
        let group = groups.get(at);
        let (prev, next) = (group.prev, group.next);
        match prev {
            NIL => self.head = next,
            _ => groups.get_mut(prev).next = next,
        }
        match next {
            NIL => self.tail = prev,
            _ => groups.get_mut(next).prev = prev,
        }
    }
}

/// The batch that is served next.
#[derive(Clone, Copy)]
pub(crate) struct First {
    pub(crate) rank: Rank,
    pub(crate) batch: u32,
    group: u32,
}

impl First {
    fn of(groups: &Slab<Group>, group: u32) -> First {
        let Group { rank, first: batch, .. } = groups.get(group);
        First { rank: *rank, batch: *batch, group }
    }
}

/// See the head of the file.
pub(crate) struct Order {
    first: Option<First>,
    base: u64,
    this: Row,
    next: Row,
    strays: BTreeMap<Rank, u32>,
}

impl Default for Order {
    fn default() -> Order {
        Order { first: None, base: 0, this: Row::EMPTY, next: Row::EMPTY, strays: BTreeMap::new() }
    }
}

impl Order {
    pub(crate) fn bytes(&self) -> usize {
        self.strays.len() * STRAY_BYTES
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<First> {
        self.first
    }

    /// Group `at` has a first batch, and its rank, from now on.
    pub(crate) fn insert(&mut self, groups: &mut Slab<Group>, at: u32) {
        let first = First::of(groups, at);
        let (round, _) = first.rank;
        if self.this.tail == NIL {
            assert!(self.next.tail == NIL, "a round has groups before the next one has");
            self.base = round;
        }
        let list = match round.wrapping_sub(self.base) {
            0 => Some(&mut self.this),
            1 => Some(&mut self.next),
            _ => None,
        };
        let list = list.filter(|list| list.tail == NIL || groups.get(list.tail).rank < first.rank);
        groups.get_mut(at).stray = list.is_none();
        match list {
            Some(list) => list.push(groups, at),
            None => {
                let before = self.strays.insert(first.rank, at);
                assert!(before.is_none(), "groups have numbers of their own");
            }
        }
        if self.first.is_none_or(|before| first.rank < before.rank) {
            self.first = Some(first);
        }
    }

    /// The first batch of group `at` has ended, or the group goes away; whether that was the one to
    /// be served next.
    pub(crate) fn remove(&mut self, groups: &mut Slab<Group>, at: u32) -> bool {
        let &Group { rank, stray, .. } = groups.get(at);
        if stray {
            let removed = self.strays.remove(&rank);
            assert!(removed == Some(at), "a group that is in no list is a stray");
        } else if rank.0 == self.base {
            self.this.unlink(groups, at);
            if self.this.tail == NIL {
                self.this = std::mem::replace(&mut self.next, Row::EMPTY);
                self.base += 1;
            }
        } else {
            self.next.unlink(groups, at);
        }
        let front = self.first.is_some_and(|first| first.group == at);
        if front {
            self.first = self.lowest(groups);
        }
        front
    }

    /// The first batch, looked up.
    fn lowest(&self, groups: &Slab<Group>) -> Option<First> {
        let listed = (self.this.head != NIL).then(|| First::of(groups, self.this.head));
        match (listed, self.strays.first_key_value()) {
            (Some(listed), Some((rank, _))) if listed.rank < *rank => Some(listed),
            (_, Some((_, at))) => Some(First::of(groups, *at)),
            (listed, None) => listed,
        }
    }

    /// The groups that are served after the first one, as far as the lists tell.
    pub(crate) fn following(&self, groups: &Slab<Group>) -> impl Iterator<Item = u32> {
        let first = self.first.map(|first| first.group);
        let behind = move |at: &u32| Some(self.behind(groups, *at)).filter(|behind| *behind != NIL);
        std::iter::successors(first, behind).skip(1)
    }

    fn behind(&self, groups: &Slab<Group>, at: u32) -> u32 {
        let group = groups.get(at);
        match (group.stray, group.next) {
            (true, _) => self.this.head,
            (false, NIL) if at == self.this.tail => self.next.head,
            (false, next) => next,
        }
    }
}
