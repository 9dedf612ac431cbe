//! Lists of ids in blocks: an entry costs four bytes, one that leaves touches nothing but its block's first line.
//!
//! ```text
//! ring -> last block <-> first block <-> ...      block  [ which of its 60 are there | neighbours | ids ]
//! ```
//! Links through the things listed would cost two cache lines of neighbours each time one comes or leaves.
//!
//! Invariants
//! - Entries stand in the order in which they were appended.
//! - A block that is not the only one of its ring has an entry.

use crate::slab::{NIL, Slab, Vacant};

/// With 60 ids a block is four cache lines.
const BLOCK_IDS: u32 = 60;

/// Places of one block in the numbers that name entries.
const STRIDE: u32 = 64;

/// No entry of a ring has this number or one above.
pub(crate) const PLACES_END: u32 = u32::MAX - STRIDE + 1;

#[repr(C, align(64))]
pub(crate) struct Block {
    there: u64,
    prev: u32,
    next: u32,
    ids: [u32; BLOCK_IDS as usize],
}

const _: () = assert!(size_of::<Block>() == 256 && BLOCK_IDS < STRIDE);

impl Vacant for Block {
    fn vacant() -> Block {
        Block { there: 0, prev: NIL, next: NIL, ids: [NIL; BLOCK_IDS as usize] }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// A list: its last block, which is before the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring(u32);

impl Ring {
    pub(crate) const EMPTY: Ring = Ring(NIL);

    /// Appends; answers the number by which the entry is removed.
    #[inline]
    pub(crate) fn push(&mut self, blocks: &mut Slab<Block>, id: u32) -> u32 {
        if self.0 != NIL {
            let block = blocks.get_mut(self.0);
            let at = u64::BITS - block.there.leading_zeros();
            if at < BLOCK_IDS {
                block.ids[at as usize] = id;
                block.there |= 1 << at;
                return self.0 * STRIDE + at;
            }
        }
        self.push_block(blocks, id)
    }

    fn push_block(&mut self, blocks: &mut Slab<Block>, id: u32) -> u32 {
        let place = blocks.insert(Block::vacant());
        assert!(place < PLACES_END / STRIDE, "blocks have numbers of 26 bits");
        let (prev, next) = if self.0 == NIL { (place, place) } else { (self.0, blocks.get(self.0).next) };
        blocks.get_mut(prev).next = place;
        blocks.get_mut(next).prev = place;
        let block = blocks.get_mut(place);
        (block.prev, block.next, block.there, block.ids[0]) = (prev, next, 1, id);
        self.0 = place;
        place * STRIDE
    }

    /// Takes out an entry.
    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Slab<Block>, at: u32) {
        let place = at / STRIDE;
        let block = blocks.get_mut(place);
        block.there &= !(1 << (at % STRIDE));
        if block.there == 0 && block.next != place {
            self.unlink(blocks, place);
        }
    }

    fn unlink(&mut self, blocks: &mut Slab<Block>, place: u32) {
        let Block { prev, next, .. } = blocks.remove(place);
        blocks.get_mut(prev).next = next;
        blocks.get_mut(next).prev = prev;
        if self.0 == place {
            self.0 = prev;
        }
    }

    /// Its first entry.
    #[inline]
    pub(crate) fn first(self, blocks: &Slab<Block>) -> Option<u32> {
        if self.0 == NIL {
            return None;
        }
        let first = blocks.get(blocks.get(self.0).next);
        first.ids.get(first.there.trailing_zeros() as usize).copied()
    }

    /// Its entries, first to last.
    pub(crate) fn iter(self, blocks: &Slab<Block>) -> impl Iterator<Item = u32> {
        let first = if self.0 == NIL { NIL } else { blocks.get(self.0).next };
        let mut block = first;
        let mut there = if first == NIL { 0 } else { blocks.get(first).there };
        std::iter::from_fn(move || {
            if there == 0 {
                block = if block == NIL { NIL } else { blocks.get(block).next };
                if block == first {
                    block = NIL;
                }
                there = if block == NIL { 0 } else { blocks.get(block).there };
            }
            if there == 0 {
                return None;
            }
            let at = there.trailing_zeros() as usize;
            there &= there - 1;
            Some(blocks.get(block).ids[at])
        })
    }

    /// Whether it has no block either.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == NIL
    }

    /// Whether it has no entry.
    #[inline]
    pub(crate) fn is_empty(self, blocks: &Slab<Block>) -> bool {
        self.0 == NIL || blocks.get(self.0).there == 0
    }

    /// Gives back the last block of a list that is empty.
    pub(crate) fn free(&mut self, blocks: &mut Slab<Block>) {
        if self.0 != NIL {
            let block = blocks.remove(self.0);
            assert!(block.there == 0 && block.next == self.0, "what is freed is empty");
            self.0 = NIL;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::chance::Chance;

    /// Two rings in one slab, each against an ordered map.
    #[test]
    fn entries_keep_their_order_whatever_leaves() {
        let (mut blocks, mut chance) = (Slab::default(), Chance::new(5));
        let mut lists = [(Ring::EMPTY, BTreeMap::new()), (Ring::EMPTY, BTreeMap::new())];
        for step in 0..200_000_u32 {
            let (ring, map) = &mut lists[chance.below(2) as usize];
            let growing = step % 40_000 < 20_000;
            if chance.below(10) < if growing { 7 } else { 3 } {
                map.insert(step, ring.push(&mut blocks, step));
            } else {
                let from = if chance.below(2) == 0 { 0 } else { chance.below(u64::from(step) + 1) as u32 };
                if let Some((id, at)) = map.range(from..).next().map(|(id, at)| (*id, *at)) {
                    map.remove(&id);
                    ring.remove(&mut blocks, at);
                }
            }
            assert_eq!(ring.first(&blocks), map.keys().next().copied(), "{step}");
            assert_eq!(ring.is_empty(&blocks), map.is_empty(), "{step}");
            if step % 1_000 == 0 {
                assert!(ring.iter(&blocks).eq(map.keys().copied()), "{step}");
            }
        }
        for (ring, map) in &mut lists {
            map.values().for_each(|at| ring.remove(&mut blocks, *at));
            assert!(ring.is_empty(&blocks) && ring.iter(&blocks).next().is_none());
            ring.free(&mut blocks);
        }
        assert_eq!(blocks.len(), 0);
    }
}
