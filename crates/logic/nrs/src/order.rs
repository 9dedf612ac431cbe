//! The order of the groups that have requests, by round and number.
//!
//! ```text
//! ahead        a group that has come before all others
//! this, next   lists through the groups of a round and of the one after it, in order
//! strays       a tree of all others
//! ```
//! Most groups come behind all others of their round, because they are new or because their last
//! batch has just ended. They are appended in O(1). A group that comes back to a seat in the past
//! is `ahead`: it is in no list and is served next, without a look at others. A group that comes
//! back to a seat between others or has to pay for rounds is a stray. It costs O(log strays).
//!
//! Invariants
//! - A group is here exactly while it has a batch. It is here once, with the rank of its first
//!   batch.
//! - Turns grow along a list; those of `this` are in round `base`, those of `next` in the one after
//!   it. `next` is empty when `this` is.
//! - `first` is the lowest rank of lists and strays. `ahead`, if there is one, is lower.

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

    #[inline]
    pub(crate) fn push(&mut self, groups: &mut Slab<Group>, at: u32) {
        let tail = std::mem::replace(&mut self.tail, at);
        let group = groups.get_mut(at);
        (group.prev, group.next) = (tail, NIL);
        match tail {
            NIL => self.head = at,
            _ => groups.get_mut(tail).next = at,
        }
    }

    #[inline]
    fn push_front(&mut self, groups: &mut Slab<Group>, at: u32) {
        let head = std::mem::replace(&mut self.head, at);
        let group = groups.get_mut(at);
        (group.prev, group.next) = (NIL, head);
        match head {
            NIL => self.tail = at,
            _ => groups.get_mut(head).prev = at,
        }
    }

    #[inline]
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
    #[inline]
    fn of(groups: &Slab<Group>, group: u32) -> First {
        let Group { rank, first: batch, .. } = groups.get(group);
        First { rank: *rank, batch: *batch, group }
    }
}

/// See the head of the file.
pub(crate) struct Order {
    ahead: Option<First>,
    first: Option<First>,
    base: u64,
    this: Row,
    next: Row,
    strays: BTreeMap<Rank, u32>,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            ahead: None,
            first: None,
            base: 0,
            this: Row::EMPTY,
            next: Row::EMPTY,
            strays: BTreeMap::new(),
        }
    }
}

impl Order {
    pub(crate) fn bytes(&self) -> usize {
        self.strays.len() * STRAY_BYTES
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<First> {
        self.ahead.or(self.first)
    }

    /// Whether the one that is served next has come before all others.
    #[inline]
    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Group `at` has a first batch, and its rank, from now on.
    #[inline]
    pub(crate) fn insert(&mut self, groups: &mut Slab<Group>, at: u32) {
        let new = First::of(groups, at);
        if self.first().is_none_or(|first| first.rank < new.rank) {
            return self.place(groups, new);
        }
        if let Some(before) = self.ahead.replace(new) {
            self.place(groups, before);
        }
    }

    /// Puts a group that is not ahead into a list or among the strays.
    fn place(&mut self, groups: &mut Slab<Group>, new: First) {
        let First { rank, group: at, .. } = new;
        if self.this.tail == NIL {
            assert!(self.next.tail == NIL, "a round has groups before the next one has");
            self.base = rank.0;
        }
        let list = match rank.0.wrapping_sub(self.base) {
            0 => Some(&mut self.this),
            1 => Some(&mut self.next),
            _ => None,
        };
        groups.get_mut(at).stray = false;
        match list {
            Some(list) if list.tail == NIL || groups.get(list.tail).rank < rank => {
                list.push(groups, at);
            }
            Some(list) if rank < groups.get(list.head).rank => list.push_front(groups, at),
            _ => self.stray(groups, new),
        }
        if self.first.is_none_or(|before| rank < before.rank) {
            self.first = Some(new);
        }
    }

    fn stray(&mut self, groups: &mut Slab<Group>, First { rank, group, .. }: First) {
        groups.get_mut(group).stray = true;
        let before = self.strays.insert(rank, group);
        assert!(before.is_none(), "groups have numbers of their own");
    }

    /// The first batch of group `at` has ended, or the group goes away; whether that was the one to
    /// be served next.
    #[inline]
    pub(crate) fn remove(&mut self, groups: &mut Slab<Group>, at: u32) -> bool {
        match self.ahead {
            Some(ahead) if ahead.group == at => {
                self.ahead = None;
                true
            }
            ahead => self.displace(groups, at) && ahead.is_none(),
        }
    }

    /// Takes a group out of its list or of the strays; whether it was the first of them.
    fn displace(&mut self, groups: &mut Slab<Group>, at: u32) -> bool {
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

    /// The first batch of lists and strays, looked up.
    fn lowest(&self, groups: &Slab<Group>) -> Option<First> {
        let listed = (self.this.head != NIL).then(|| First::of(groups, self.this.head));
        match (listed, self.strays.first_key_value()) {
            (Some(listed), Some((rank, _))) if listed.rank < *rank => Some(listed),
            (_, Some((_, at))) => Some(First::of(groups, *at)),
            (listed, None) => listed,
        }
    }

    /// The groups that are served after the first one, as far as the lists tell.
    #[inline]
    pub(crate) fn following(&self, groups: &Slab<Group>) -> impl Iterator<Item = u32> {
        let first = self.first.map(|first| first.group);
        let behind = move |at: &u32| Some(self.behind(groups, *at)).filter(|behind| *behind != NIL);
        std::iter::successors(first, behind).skip(usize::from(self.ahead.is_none()))
    }

    #[inline]
    fn behind(&self, groups: &Slab<Group>, at: u32) -> u32 {
        let group = groups.get(at);
        match (group.stray, group.next) {
            (true, _) => self.this.head,
            (false, NIL) if at == self.this.tail => self.next.head,
            (false, next) => next,
        }
    }
}
