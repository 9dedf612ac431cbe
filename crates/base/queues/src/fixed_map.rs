//! A hash map whose hasher has no key of chance: the same run twice gives the same order.
//!
//! For tables that are asked by key many times an operation and hold what peers cannot choose at
//! will (ids that we gave out, records on their way to disk): there is no defence against chosen
//! collisions. Nobody may rely on the order.

use std::hash::{BuildHasherDefault, Hasher};

/// A hash map with a fixed hasher.
#[expect(
    clippy::disallowed_types,
    reason = "the hasher is fixed, so the order is the same in every run"
)]
pub type FixedMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FixedHasher>>;

/// Multiply and rotate, eight bytes at a time: a few cycles for a FID. The multiplier is that of
/// the golden ratio.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl FixedHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(MULTIPLIER);
    }
}

impl Hasher for FixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        // The table takes its place from the lower bits and a tag from the upper ones: both depend
        // on all of the key.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Fid;

    #[test]
    fn ids_in_a_row_spread_over_a_table() {
        let hash = |oid| {
            let mut hasher = FixedHasher::default();
            std::hash::Hash::hash(&Fid::new(0x400, oid), &mut hasher);
            hasher.finish()
        };
        let mut places: Vec<_> = (0..1_024).map(|oid| hash(oid) % 1_024).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 512, "{} of 1,024 places: worse than chance (647)", places.len());
        assert_eq!(hash(7), hash(7));
    }

    #[test]
    fn order_is_that_of_the_last_run() {
        let keys = || {
            (0..100_u32)
                .map(|key| (key, ()))
                .collect::<FixedMap<_, _>>()
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(), keys());
    }
}
