//! The batches of all groups: the requests of each, and which one of its group is behind it.
//!
//! A client with millions of queued requests has batches in as many rounds. Unused rounds cost
//! nothing, so that a number far ahead is harmless.
//!
//! Invariants
//! - The batches of a group have growing rounds.
//! - Links before a group's first batch mean nothing, so that the end of one batch touches no other
//!   one.

use queues::{Blocks, NIL, PLACES_END, Ring, Slab, Vacant};

use crate::Id;

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
    prev: u32, // of its group
    pub(crate) next: u32,
    more: Ring,
    there: u8,                 // bit per id of `ids` that waits
    pub(crate) straight: bool, // `next` has the next round and the same number
}

const _: () =
    assert!(size_of::<Batch>() == 64 && INLINE <= u8::BITS && PLACES_END <= u32::MAX - INLINE);

impl Batch {
    #[inline]
    pub(crate) fn new(group: u32, (round, seq): Rank) -> Batch {
        Batch { group, round, seq_low: seq as u32, ..Batch::vacant() }
    }

    /// Its number, which is at most `latest`, its group's, and less than 2^32 numbers before it.
    #[inline]
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
            straight: false,
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

/// Round and number of a batch: those with lower ones are served before it.
pub(crate) type Rank = (u64, u64);

#[derive(Default)]
pub(crate) struct Batches {
    slab: Slab<Batch>,
    blocks: Blocks,
}

impl Batches {
    pub(crate) fn bytes(&self) -> usize {
        self.slab.bytes() + self.blocks.bytes()
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> &Batch {
        self.slab.get(place)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> &mut Batch {
        self.slab.get_mut(place)
    }

    /// Keeps `batch` behind `before`, the last one of its group, if that has one. It is `straight`
    /// behind it with the next round and the same number.
    #[inline]
    pub(crate) fn push(&mut self, before: u32, batch: Batch, straight: bool) -> u32 {
        let place = self.slab.insert(Batch { prev: before, ..batch });
        if before != NIL {
            let before = self.slab.get_mut(before);
            (before.next, before.straight) = (place, straight);
        }
        place
    }

    /// Appends a request to a batch.
    #[inline]
    pub(crate) fn append(&mut self, place: u32, Id(id): Id) -> Standing {
        let batch = self.slab.get_mut(place);
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
        let batch = self.slab.get_mut(place);
        debug_assert!(batch.is_bare(), "a batch is filled once"); // it is in no cache: only written
        batch.ids = *ids;
        batch.there = ((1_u16 << count) - 1) as u8;
    }

    /// Takes a request out of its batch; whether that is empty now. An empty one is to be removed.
    #[inline]
    pub(crate) fn take(&mut self, Standing { batch, at }: Standing) -> bool {
        let batch = self.slab.get_mut(batch);
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
        let batch = self.slab.get_mut(place);
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
        let batch = self.slab.get(place);
        batch.inline().chain(batch.more.iter(&self.blocks).map(Id))
    }

    /// Removes the first batch of its group, which is empty; the one behind it, and whether that is
    /// straight behind it.
    #[inline]
    pub(crate) fn remove_first(&mut self, place: u32) -> (u32, bool) {
        let (next, straight, mut more) =
            self.slab.vacate(place, |batch| (batch.next, batch.straight, batch.more));
        more.free(&mut self.blocks);
        (next, straight)
    }

    /// Removes another batch, which is empty; the one before it.
    pub(crate) fn remove_later(&mut self, place: u32) -> u32 {
        let (prev, next, mut more) =
            self.slab.vacate(place, |batch| (batch.prev, batch.next, batch.more));
        more.free(&mut self.blocks);
        let before = self.slab.get_mut(prev);
        (before.next, before.straight) = (next, false);
        if next != NIL {
            self.slab.get_mut(next).prev = prev;
        }
        prev
    }
}
