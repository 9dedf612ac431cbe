//! Which batches stand in which round: a FIFO per round, the rounds in pages of 16.
//!
//! ```text
//! front   the page of the round being served, kept even when it is empty
//! later   number of the page -> its place, for pages that have a batch
//! ```
//! A client with millions of queued requests has batches in as many rounds; rounds that nobody uses cost nothing, so
//! that a number far ahead is harmless.
//!
//! Invariants
//! - Nothing stands in a page before `front`.
//! - A page in `later` has a batch.

use std::collections::BTreeMap;

use crate::queue::List;
use crate::slab::{NIL, Slab, Vacant};

const ROUNDS: u64 = 16;

/// One turn of one group: its requests of one round.
pub(crate) struct Batch {
    pub(crate) list: List,
    pub(crate) group: u32,
    pub(crate) round: u64,
    pub(crate) seq: u64,
    prev: u32,
    next: u32,
}

impl Batch {
    pub(crate) fn new(group: u32, round: u64, seq: u64) -> Batch {
        Batch { group, round, seq, ..Batch::vacant() }
    }
}

impl Vacant for Batch {
    fn vacant() -> Batch {
        Batch { list: List::default(), group: NIL, round: 0, seq: 0, prev: NIL, next: NIL }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.next
    }
}

#[derive(Clone, Copy)]
struct Page {
    number: u64,
    used: u16,                             // bit per round that has a batch
    rounds: [(u32, u32); ROUNDS as usize], // first and last batch
}

impl Page {
    fn new(number: u64) -> Page {
        Page { number, used: 0, rounds: [(NIL, NIL); ROUNDS as usize] }
    }
}

impl Vacant for Page {
    fn vacant() -> Page {
        Page::new(u64::MAX)
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.rounds[0].0
    }
}

pub(crate) struct Calendar {
    front: Page,
    later: BTreeMap<u64, u32>,
    pages: Slab<Page>,
    hint: (u64, u32), // the later page used last
    pub(crate) batches: Slab<Batch>,
}

const HINT_NONE: (u64, u32) = (u64::MAX, NIL);

impl Default for Calendar {
    fn default() -> Calendar {
        Calendar {
            front: Page::new(0),
            later: BTreeMap::new(),
            pages: Slab::default(),
            hint: HINT_NONE,
            batches: Slab::default(),
        }
    }
}

impl Calendar {
    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes() + self.batches.bytes()
    }

    /// The page of a round, made if it is not there.
    fn page(&mut self, round: u64) -> &mut Page {
        let number = round / ROUNDS;
        assert!(number >= self.front.number, "no batch is behind the round being served");
        if number == self.front.number {
            return &mut self.front;
        }
        if self.hint.0 != number {
            let pages = &mut self.pages;
            let place = *self.later.entry(number).or_insert_with(|| pages.insert(Page::new(number)));
            self.hint = (number, place);
        }
        self.pages.get_mut(self.hint.1)
    }

    /// Appends `batch` to the FIFO of its round.
    pub(crate) fn push(&mut self, batch: Batch) -> u32 {
        let round = batch.round;
        let place = self.batches.insert(batch);
        let page = self.page(round);
        let (first, last) = &mut page.rounds[(round % ROUNDS) as usize];
        let before = std::mem::replace(last, place);
        if before == NIL {
            *first = place;
            page.used |= 1 << (round % ROUNDS);
        } else {
            self.batches.get_mut(before).next = place;
            self.batches.get_mut(place).prev = before;
        }
        place
    }

    /// Takes out a batch.
    pub(crate) fn remove(&mut self, place: u32) {
        let Batch { round, prev, next, .. } = self.batches.remove(place);
        let page = self.page(round);
        let number = page.number;
        let (first, last) = &mut page.rounds[(round % ROUNDS) as usize];
        if prev == NIL {
            *first = next;
        }
        if next == NIL {
            *last = prev;
        }
        if prev == NIL && next == NIL {
            page.used &= !(1 << (round % ROUNDS));
        }
        let unused = page.used == 0 && number != self.front.number;
        if prev != NIL {
            self.batches.get_mut(prev).next = next;
        }
        if next != NIL {
            self.batches.get_mut(next).prev = prev;
        }
        if unused {
            let place = self.later.remove(&number).expect("a later page is listed");
            self.pages.remove(place);
            self.hint = HINT_NONE;
        }
    }

    /// The first batch of the earliest round that has one.
    pub(crate) fn first(&self) -> Option<u32> {
        let page = match self.front.used {
            0 => self.pages.get(*self.later.first_key_value()?.1),
            _ => &self.front,
        };
        Some(page.rounds[page.used.trailing_zeros() as usize].0)
    }

    /// Nothing will stand before `round` again: the earliest one with a batch, or any when there is none.
    pub(crate) fn serve(&mut self, round: u64) {
        let number = round / ROUNDS;
        if number == self.front.number {
            return;
        }
        assert!(number > self.front.number && self.front.used == 0, "rounds are served in order");
        self.front = match self.later.remove(&number) {
            Some(place) => self.pages.remove(place),
            None => Page::new(number),
        };
        self.hint = HINT_NONE;
    }
}
