//! Which batches belong to which round: a FIFO per round, the rounds in pages of 16.
//!
//! ```text
//! front   the page of the round being served, kept even when it is empty
//! later   number of the page -> its place, for pages that have a batch
//! ```
//! A client with millions of queued requests has batches in as many rounds. Unused rounds cost
//! nothing, so that a number far ahead is harmless.
//!
//! Invariants
//! - Nothing is in a page before `front`.
//! - A page in `later` has a batch.
//! - `first` is the first batch of the earliest round that has one. Only batches that return to the
//!   round being served are put before it. They come before all others there, in the order in which
//!   they returned.

use std::collections::BTreeMap;

use queues::{Blocks, NIL, PLACES_END, Ring, Slab, Vacant};

use crate::Id;

const ROUNDS: u64 = 16;

/// Requests that a batch keeps in itself: a default quantum of CRR-N. What is beyond stands in
/// blocks.
pub(crate) const INLINE: u32 = 8;

/// One turn of one group: its requests of one round. A cache line: a request that comes or leaves
/// touches this one and no neighbour's.
#[repr(C, align(64))]
pub(crate) struct Batch {
    ids: [u32; INLINE as usize],
    pub(crate) round: u64,
    pub(crate) group: u32,
    seq_low: u32,
    prev: u32,
    next: u32,
    more: Ring,
    there: u8, // bit per id of `ids` that waits
}

const _: () =
    assert!(size_of::<Batch>() == 64 && INLINE <= u8::BITS && PLACES_END <= u32::MAX - INLINE);

impl Batch {
    pub(crate) fn new(group: u32, round: u64, seq: u64) -> Batch {
        Batch { group, round, seq_low: seq as u32, ..Batch::vacant() }
    }

    /// Its number, which is at most `latest` and less than 2^32 numbers before it.
    pub(crate) fn seq(&self, latest: u64) -> u64 {
        latest - u64::from((latest as u32).wrapping_sub(self.seq_low))
    }

    /// Whether it has no request: its group holds them.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        self.there == 0 && self.more.is_none()
    }

    /// Takes out the first of its requests that stand in itself, if another one does.
    #[inline]
    pub(crate) fn pop_but_last(&mut self) -> Option<Id> {
        let left = self.there & self.there.wrapping_sub(1);
        if left == 0 {
            return None;
        }
        let id = self.ids[self.there.trailing_zeros() as usize];
        self.there = left;
        Some(Id(id))
    }

    /// Its requests that stand in itself, first to last.
    #[inline]
    pub(crate) fn inline(&self) -> impl Iterator<Item = Id> + use<> {
        Inline { ids: self.ids, there: self.there }
    }
}

/// Requests that stand in a batch itself.
#[derive(Clone, Copy)]
struct Inline {
    ids: [u32; INLINE as usize],
    there: u8,
}

impl Iterator for Inline {
    type Item = Id;

    #[inline]
    fn next(&mut self) -> Option<Id> {
        let id = *self.ids.get(self.there.trailing_zeros() as usize)?;
        self.there &= self.there - 1;
        Some(Id(id))
    }
}

impl Vacant for Batch {
    fn vacant() -> Batch {
        let ids = [NIL; INLINE as usize];
        Batch {
            ids,
            round: 0,
            group: NIL,
            seq_low: 0,
            prev: NIL,
            next: NIL,
            more: Ring::EMPTY,
            there: 0,
        }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// A batch and the place of a request in it, as that request's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) batch: u32,
    at: u32, // PLACES_END and above: in the batch itself
}

impl Standing {
    /// Number `at` of those in the batch itself.
    pub(crate) fn inline(batch: u32, at: u8) -> Standing {
        Standing { batch, at: PLACES_END + u32::from(at) }
    }

    pub(crate) fn tag(self) -> u64 {
        u64::from(self.batch) << 32 | u64::from(self.at)
    }

    pub(crate) fn of_tag(tag: u64) -> Standing {
        Standing { batch: (tag >> 32) as u32, at: tag as u32 }
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
    first: u32, // batch
    front: Page,
    later: BTreeMap<u64, u32>,
    pages: Slab<Page>,
    hint: (u64, u32), // the later page used last
    returned: u32,    // the last batch that returned to the round being served
    pub(crate) batches: Slab<Batch>,
    blocks: Blocks,
}

const HINT_NONE: (u64, u32) = (u64::MAX, NIL);

impl Default for Calendar {
    fn default() -> Calendar {
        Calendar {
            first: NIL,
            front: Page::new(0),
            later: BTreeMap::new(),
            pages: Slab::default(),
            hint: HINT_NONE,
            returned: NIL,
            batches: Slab::default(),
            blocks: Blocks::default(),
        }
    }
}

impl Calendar {
    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes() + self.batches.bytes() + self.blocks.bytes()
    }

    /// The page of a round, made if it is not there.
    #[inline]
    fn page(&mut self, round: u64) -> &mut Page {
        let number = round / ROUNDS;
        assert!(number >= self.front.number, "no batch is behind the round being served");
        if number == self.front.number {
            return &mut self.front;
        }
        if self.hint.0 != number {
            let pages = &mut self.pages;
            let place =
                *self.later.entry(number).or_insert_with(|| pages.insert(Page::new(number)));
            self.hint = (number, place);
        }
        self.pages.get_mut(self.hint.1)
    }

    /// Appends `batch` to the FIFO of its round.
    pub(crate) fn push(&mut self, batch: Batch) -> u32 {
        let round = batch.round;
        let place = self.batches.insert(batch);
        if self.first == NIL {
            self.first = place;
        }
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

    /// Puts `batch` into the round being served, which has others, behind those that have returned
    /// to it and before all others.
    pub(crate) fn push_returned(&mut self, batch: Batch) -> u32 {
        let round = batch.round;
        let place = self.batches.insert(batch);
        let before = std::mem::replace(&mut self.returned, place);
        let behind = match before {
            NIL => NIL,
            _ => std::mem::replace(&mut self.batches.get_mut(before).next, place),
        };
        let page = self.page(round);
        page.used |= 1 << (round % ROUNDS);
        let (first, last) = &mut page.rounds[(round % ROUNDS) as usize];
        let behind = if before == NIL { std::mem::replace(first, place) } else { behind };
        if behind == NIL {
            *last = place;
        } else {
            self.batches.get_mut(behind).prev = place;
        }
        if before == NIL {
            self.first = place;
        }
        let batch = self.batches.get_mut(place);
        (batch.prev, batch.next) = (before, behind);
        place
    }

    /// Appends a request to a batch.
    #[inline]
    pub(crate) fn append(&mut self, place: u32, Id(id): Id) -> Standing {
        let batch = self.batches.get_mut(place);
        let at = u8::BITS - batch.there.leading_zeros();
        if at < INLINE && batch.more.is_none() {
            batch.ids[at as usize] = id;
            batch.there |= 1 << at;
            return Standing { batch: place, at: PLACES_END + at };
        }
        Standing { batch: place, at: batch.more.push(&mut self.blocks, id) }
    }

    /// Puts its first `count` requests into a batch that has none.
    pub(crate) fn fill(&mut self, place: u32, ids: &[u32; INLINE as usize], count: u8) {
        let batch = self.batches.get_mut(place);
        debug_assert!(batch.is_bare(), "a batch is filled once"); // it is in no cache: only written
        batch.ids = *ids;
        batch.there = ((1_u16 << count) - 1) as u8;
    }

    /// Takes a request out of its batch; whether that is empty now. An empty one is to be removed.
    #[inline]
    pub(crate) fn take(&mut self, Standing { batch, at }: Standing) -> bool {
        let batch = self.batches.get_mut(batch);
        if at >= PLACES_END {
            batch.there &= !(1 << (at - PLACES_END));
        } else {
            batch.more.remove(&mut self.blocks, at);
        }
        batch.there == 0 && batch.more.is_empty(&self.blocks)
    }

    /// Takes the first request out of a batch; whether that is empty now. An empty one is to be
    /// removed.
    #[inline]
    pub(crate) fn pop(&mut self, place: u32) -> Option<(Id, bool)> {
        let batch = self.batches.get_mut(place);
        let id = match batch.there {
            0 => batch.more.pop(&mut self.blocks)?,
            there => {
                batch.there &= there - 1;
                batch.ids[there.trailing_zeros() as usize]
            }
        };
        Some((Id(id), batch.there == 0 && batch.more.is_empty(&self.blocks)))
    }

    /// The requests of a batch, first to last.
    pub(crate) fn ids(&self, place: u32) -> impl Iterator<Item = Id> {
        let batch = self.batches.get(place);
        batch.inline().chain(batch.more.iter(&self.blocks).map(Id))
    }

    /// Removes a batch, which is empty.
    pub(crate) fn remove(&mut self, place: u32) {
        let (round, prev, next, mut more) =
            self.batches.vacate(place, |batch| (batch.round, batch.prev, batch.next, batch.more));
        more.free(&mut self.blocks);
        if self.returned == place {
            self.returned = prev; // what stands before it has returned too
        }
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
            let page = self.later.remove(&number).expect("a later page is listed");
            self.pages.remove(page);
            self.hint = HINT_NONE;
        }
        if self.first == place {
            self.first = if next == NIL { self.earliest() } else { next };
        }
    }

    /// The batch that is served after `place`, one of the page being served, as far as that page
    /// tells.
    pub(crate) fn following(&self, place: u32) -> Option<u32> {
        let batch = self.batches.get(place);
        let next = batch.next;
        if next != NIL {
            return Some(next);
        }
        let later = self.front.used & !(u16::MAX >> (ROUNDS - 1 - batch.round % ROUNDS));
        self.front.rounds.get(later.trailing_zeros() as usize).map(|round| round.0)
    }

    /// The first batch of the earliest round that has one.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NIL).then_some(self.first)
    }

    /// The same, looked up.
    fn earliest(&self) -> u32 {
        let page = match self.front.used {
            0 => self.later.first_key_value().map(|(_, place)| self.pages.get(*place)),
            _ => Some(&self.front),
        };
        page.map_or(NIL, |page| page.rounds[page.used.trailing_zeros() as usize].0)
    }

    /// Nothing will stand before `round` again: the earliest one with a batch, or any when there is
    /// none.
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
