//! Lists of ids in blocks: an entry costs little more than four bytes, and an entry that leaves
//! touches only its block's bits.
//!
//! ```text
//! ring -> last block <-> first block <-> ...      block  [ which of its 64 are there | neighbours ]   [ ids ]
//! ```
//! Links through the listed things would cost two cache lines of neighbours for each entry that
//! comes or leaves. The ids are kept apart from the bits. So entries that leave in a different
//! order than they came touch one line of bits per block.
//!
//! Invariants
//! - Entries are in the order in which they were appended.
//! - A block that is not the only one of its ring has an entry.

use crate::slab::{Beside, NIL, Slab, Vacant};

/// Ids of a block: a bit for each in a word.
const BLOCK_IDS: u32 = u64::BITS;

/// No entry of a ring has this number or one above.
pub const PLACES_END: u32 = u32::MAX - BLOCK_IDS + 1;

struct Block {
    there: u64,
    prev: u32,
    next: u32,
}

impl Vacant for Block {
    fn vacant() -> Block {
        Block { there: 0, prev: NIL, next: NIL }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// The blocks of some lists.
#[derive(Default)]
pub struct Blocks {
    blocks: Slab<Block>,
    ids: Beside<[u32; BLOCK_IDS as usize]>,
}

impl Blocks {
    /// Bytes of memory they have taken.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.bytes() + self.ids.bytes()
    }

    /// Whether they would give back memory if they were empty.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.blocks.is_large() || self.ids.is_large()
    }

    fn insert(&mut self) -> u32 {
        let place = self.blocks.insert(Block::vacant());
        assert!(place < PLACES_END / BLOCK_IDS, "blocks have numbers of 26 bits");
        self.ids.reach(place, [NIL; BLOCK_IDS as usize]);
        place
    }

    fn remove(&mut self, place: u32) -> Block {
        let block = self.blocks.remove(place);
        if self.blocks.is_empty() {
            self.ids.rest();
        }
        block
    }
}

/// A list: its last block, which is before the first.
#[derive(Clone, Copy, Debug)]
pub struct Ring(u32);

impl Ring {
    /// Without a block.
    pub const EMPTY: Ring = Ring(NIL);

    /// Appends; answers the number by which the entry is removed.
    #[inline]
    pub fn push(&mut self, blocks: &mut Blocks, id: u32) -> u32 {
        if self.0 != NIL {
            let block = blocks.blocks.get_mut(self.0);
            let at = u64::BITS - block.there.leading_zeros();
            if at < BLOCK_IDS {
                block.there |= 1 << at;
                blocks.ids.get_mut(self.0)[at as usize] = id;
                return self.0 * BLOCK_IDS + at;
            }
        }
        self.push_block(blocks, id)
    }

    fn push_block(&mut self, blocks: &mut Blocks, id: u32) -> u32 {
        let place = blocks.insert();
        blocks.ids.get_mut(place)[0] = id;
        let blocks = &mut blocks.blocks;
        let (prev, next) =
            if self.0 == NIL { (place, place) } else { (self.0, blocks.get(self.0).next) };
        blocks.get_mut(prev).next = place;
        blocks.get_mut(next).prev = place;
        let block = blocks.get_mut(place);
        (block.prev, block.next, block.there) = (prev, next, 1);
        self.0 = place;
        place * BLOCK_IDS
    }

    /// Takes out an entry.
    #[inline]
    pub fn remove(&mut self, blocks: &mut Blocks, at: u32) {
        let place = at / BLOCK_IDS;
        let block = blocks.blocks.get_mut(place);
        block.there &= !(1 << (at % BLOCK_IDS));
        if block.there == 0 && block.next != place {
            self.unlink(blocks, place);
        }
    }

    #[cold]
    fn unlink(&mut self, blocks: &mut Blocks, place: u32) {
        let Block { prev, next, .. } = blocks.remove(place);
        blocks.blocks.get_mut(prev).next = next;
        blocks.blocks.get_mut(next).prev = prev;
        if self.0 == place {
            self.0 = prev;
        }
    }

    /// Place and bits of its first block.
    #[inline]
    fn first_block(self, blocks: &Blocks) -> (u32, u64) {
        if self.0 == NIL {
            return (NIL, 0);
        }
        let first = blocks.blocks.get(self.0).next;
        (first, blocks.blocks.get(first).there)
    }

    /// The entry at the front; none of an empty ring.
    #[must_use]
    #[inline]
    pub fn first(self, blocks: &Blocks) -> Option<u32> {
        let (first, there) = self.first_block(blocks);
        if there == 0 { None } else { Some(blocks.ids.get(first)[there.trailing_zeros() as usize]) }
    }

    /// Takes out its first entry.
    #[inline]
    pub fn pop(&mut self, blocks: &mut Blocks) -> Option<u32> {
        let id = self.first(blocks)?;
        let (first, there) = self.first_block(blocks);
        self.remove(blocks, first * BLOCK_IDS + there.trailing_zeros());
        Some(id)
    }

    /// Its entries, first to last.
    #[inline]
    pub fn iter(self, blocks: &Blocks) -> impl Iterator<Item = u32> {
        let (first, mut there) = self.first_block(blocks);
        let mut block = first;
        std::iter::from_fn(move || {
            if there == 0 {
                block = if block == NIL { NIL } else { blocks.blocks.get(block).next };
                if block == first {
                    block = NIL;
                }
                there = if block == NIL { 0 } else { blocks.blocks.get(block).there };
            }
            if there == 0 {
                return None;
            }
            let at = there.trailing_zeros() as usize;
            there &= there - 1;
            Some(blocks.ids.get(block)[at])
        })
    }

    /// Whether it has no block either.
    #[must_use]
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == NIL
    }

    /// Whether it has no entry.
    #[must_use]
    #[inline]
    pub fn is_empty(self, blocks: &Blocks) -> bool {
        self.0 == NIL || blocks.blocks.get(self.0).there == 0
    }

    /// Gives back the last block of a list that is empty.
    pub fn free(&mut self, blocks: &mut Blocks) {
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
    use types::SplitMix64;

    /// Two rings in one slab, each against an ordered map.
    #[test]
    fn entries_keep_their_order_whatever_leaves() {
        let (mut blocks, mut chance) = (Blocks::default(), SplitMix64::new(5));
        let mut lists = [(Ring::EMPTY, BTreeMap::new()), (Ring::EMPTY, BTreeMap::new())];
        for step in 0..200_000_u32 {
            let (ring, map) = &mut lists[chance.below(2) as usize];
            let growing = step % 40_000 < 20_000;
            if chance.below(10) < if growing { 7 } else { 3 } {
                map.insert(step, ring.push(&mut blocks, step));
            } else {
                let from =
                    if chance.below(2) == 0 { 0 } else { chance.below(u64::from(step) + 1) as u32 };
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
        assert_eq!(blocks.blocks.len(), 0);
    }
}
