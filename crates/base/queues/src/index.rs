//! Finds a place of a slab by its key. The hash table grows by one bucket at a time (linear
//! hashing, Litwin 1980), so that no insertion ever rehashes the table. The chains run through the
//! values of the slab.
//!
//! The order of the buckets is never visible, because callers only look keys up and never walk the
//! table.

use crate::limits::BUCKETS_CHUNK;
use crate::slab::{NIL, Slab, Vacant};

/// Buckets of an empty index; a power of two.
const BUCKETS_MIN: usize = 64;

/// Buckets for each thing in it, so that few chains are longer than one: looking past another thing
/// is a cache line more.
const BUCKETS_EACH: usize = 2;

/// Buckets that an insertion may add.
const SPLITS_MAX: usize = BUCKETS_EACH;

/// A key: two words hold a NID, an export, a FID or an index.
pub type Key = [u64; 2];

/// A value that an index can hold: it has a key, and room for a link.
pub trait Chained: Vacant {
    /// Its key; does not change while the value is in the index.
    fn key(&self) -> Key;
    /// The link.
    fn next(&self) -> u32;
    /// Changes the link.
    fn set_next(&mut self, place: u32);
}

/// See the head of the file.
pub struct Index {
    buckets: Vec<Vec<u32>>, // chunks of BUCKETS_CHUNK
    count: usize,           // buckets: low .. 2 * low
    low: usize,
    len: usize,
    seed: u64,
}

impl Default for Index {
    fn default() -> Index {
        Index::seeded(0)
    }
}

const _: () = assert!(BUCKETS_MIN.is_power_of_two() && BUCKETS_MIN <= BUCKETS_CHUNK);

/// Mixes all bits of a key: each word is multiplied by a number that depends on the seed, and the
/// halves of the product are laid one upon the other (Wang Yi's wyhash).
#[inline]
fn hash(seed: u64, [first, second]: Key) -> usize {
    let factor = u128::from(0x9e37_79b9_7f4a_7c15_u64 ^ seed.rotate_left(31) | 1);
    let fold = |word: u64| {
        let product = u128::from(word) * factor;
        product as u64 ^ (product >> 64) as u64
    };
    fold(fold(first ^ seed) ^ second) as usize
}

impl Index {
    /// An empty one. If peers choose the keys, they must not know the seed: else they choose keys
    /// of one bucket, and each search walks them all.
    #[must_use]
    pub fn seeded(seed: u64) -> Index {
        let mut first = Vec::with_capacity(BUCKETS_CHUNK);
        first.resize(BUCKETS_MIN, NIL);
        Index { buckets: vec![first], count: BUCKETS_MIN, low: BUCKETS_MIN, len: 0, seed }
    }

    #[inline]
    fn bucket_of(&self, key: Key) -> usize {
        let hash = hash(self.seed, key);
        let bucket = hash & (2 * self.low - 1);
        if bucket < self.count { bucket } else { hash & (self.low - 1) }
    }

    #[inline]
    fn bucket(&mut self, at: usize) -> &mut u32 {
        &mut self.buckets[at / BUCKETS_CHUNK][at % BUCKETS_CHUNK]
    }

    /// The place with this key.
    #[must_use]
    #[inline]
    pub fn find<T: Chained>(&self, slab: &Slab<T>, key: Key) -> Option<u32> {
        self.find_where(slab, key, |_| true)
    }

    /// Of the places with this key, the one that `is_it` accepts: keys may be hashes themselves.
    #[inline]
    pub fn find_where<T: Chained>(
        &self,
        slab: &Slab<T>,
        key: Key,
        is_it: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let bucket = self.bucket_of(key);
        let mut place = self.buckets[bucket / BUCKETS_CHUNK][bucket % BUCKETS_CHUNK];
        while place != NIL {
            let item = slab.get(place);
            if item.key() == key && is_it(place) {
                return Some(place);
            }
            place = item.next();
        }
        None
    }

    /// Adds what is at `place`, which is not in the index.
    pub fn insert<T: Chained>(&mut self, slab: &mut Slab<T>, place: u32) {
        let bucket = self.bucket_of(slab.get(place).key());
        let first = std::mem::replace(self.bucket(bucket), place);
        slab.get_mut(place).set_next(first);
        self.len += 1;
        for _ in 0..SPLITS_MAX {
            if self.len * BUCKETS_EACH > self.count {
                self.split(slab);
            }
        }
    }

    /// Takes out what is at `place`, which is in the index.
    pub fn remove<T: Chained>(&mut self, slab: &mut Slab<T>, place: u32) {
        let bucket = self.bucket_of(slab.get(place).key());
        let behind = slab.get(place).next();
        self.len -= 1;
        let mut at = *self.bucket(bucket);
        if at == place {
            *self.bucket(bucket) = behind;
            return;
        }
        while slab.get(at).next() != place {
            at = slab.get(at).next();
            assert!(at != NIL, "what is removed is in the index");
        }
        slab.get_mut(at).set_next(behind);
    }

    /// One more bucket, which gets its share of the one it splits.
    fn split<T: Chained>(&mut self, slab: &mut Slab<T>) {
        let old = self.count - self.low;
        if self.count.is_multiple_of(BUCKETS_CHUNK) {
            self.buckets.push(Vec::with_capacity(BUCKETS_CHUNK));
        }
        self.buckets[self.count / BUCKETS_CHUNK].push(NIL);
        self.count += 1;
        let mut place = std::mem::replace(self.bucket(old), NIL);
        while place != NIL {
            let behind = slab.get(place).next();
            let bucket = self.bucket_of(slab.get(place).key());
            let first = std::mem::replace(self.bucket(bucket), place);
            slab.get_mut(place).set_next(first);
            place = behind;
        }
        if self.count == 2 * self.low {
            self.low = self.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use types::SplitMix64;

    use super::*;

    struct Item(Key, u32);

    impl Vacant for Item {
        fn vacant() -> Item {
            Item([0, 0], NIL)
        }
        fn link(&mut self) -> &mut u32 {
            &mut self.1
        }
    }

    impl Chained for Item {
        fn key(&self) -> Key {
            self.0
        }
        fn next(&self) -> u32 {
            self.1
        }
        fn set_next(&mut self, place: u32) {
            self.1 = place;
        }
    }

    #[test]
    fn it_finds_what_an_ordered_map_finds() {
        let (mut slab, mut index, mut map) = (Slab::default(), Index::default(), BTreeMap::new());
        let mut chance = SplitMix64::new(1);
        for step in 0..200_000 {
            let key = [chance.below(30_000), chance.below(2)];
            assert_eq!(index.find(&slab, key), map.get(&key).copied(), "{step}");
            if let Some(place) = map.remove(&key) {
                index.remove(&mut slab, place);
                slab.remove(place);
            } else {
                let place = slab.insert(Item(key, NIL));
                index.insert(&mut slab, place);
                map.insert(key, place);
            }
        }
        assert!(map.len() > 20_000 && index.count > 20_000, "{} in {}", map.len(), index.count);
    }
    /// Entries of the longest chain.
    fn longest(index: &Index, slab: &Slab<Item>) -> usize {
        let chain = |first: &u32| {
            let next = |at: &u32| Some(slab.get(*at).next()).filter(|next| *next != NIL);
            std::iter::successors(Some(*first).filter(|first| *first != NIL), next).count()
        };
        index.buckets.iter().flatten().map(chain).max().unwrap_or_default()
    }

    #[test]
    fn keys_in_a_pattern_do_not_share_a_bucket() {
        const COUNT: u64 = 4_096;
        let patterns: [fn(u64) -> Key; 5] = [
            |n| [n, 0],
            |n| [0x2_0000_0400, n << 32],
            |n| [n << 40, 7],
            |n| [n, n],
            // equal sums, if the second word is multiplied by a fixed number
            |n| [n.wrapping_mul(0x94d0_49bb_1331_11eb).wrapping_neg(), n],
        ];
        for (number, pattern) in patterns.into_iter().enumerate() {
            for seed in [0, 1, 7, 0x0123_4567_89ab_cdef, u64::MAX] {
                let (mut slab, mut index) = (Slab::default(), Index::seeded(seed));
                for key in (0..COUNT).map(pattern) {
                    let place = slab.insert(Item(key, NIL));
                    index.insert(&mut slab, place);
                }
                let longest = longest(&index, &slab);
                assert!(longest <= 16, "{longest} in a chain, pattern {number}, seed {seed}");
            }
        }
    }
}
