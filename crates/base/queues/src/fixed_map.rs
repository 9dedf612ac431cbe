//! A hash map whose hasher has no random key, so that two equal runs give the same order.
//!
//! It is for tables that are searched by key many times per operation. Peers must not be able to
//! choose the keys at will: examples are ids that we gave out, and records on their way to disk.
//! The map has no defence against chosen collisions. No caller may rely on the order.

use rustc_hash::FxBuildHasher;

/// A hash map with a fixed hasher: a few cycles for a FID.
#[expect(
    clippy::disallowed_types,
    reason = "the hasher is fixed, so the order is the same in every run"
)]
pub type FixedMap<K, V> = std::collections::HashMap<K, V, FxBuildHasher>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;
    use types::Fid;

    #[test]
    fn ids_in_a_row_spread_over_a_table() {
        let hash = |oid| FxBuildHasher.hash_one(Fid::new(0x400, oid));
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
