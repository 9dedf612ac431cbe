//! Hashes of names.

use std::hash::{DefaultHasher, Hasher};

/// What the set of a directory's names keeps of one: two names with the same hash are asked for.
pub(super) fn hash_of(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}
