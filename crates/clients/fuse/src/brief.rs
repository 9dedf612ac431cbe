//! Names that the kernel may keep for a moment only, or for no time. It looks a name up before
//! it removes or replaces it, so it may still do that. A table of fixed size, where a new name
//! takes the place of an older one.

use std::hash::{DefaultHasher, Hash, Hasher};

use types::Instant;

use crate::limits::BRIEF_NAMES;

/// A name by its hash, the node that it stood for, and since when.
#[derive(Clone, Copy, Default)]
struct Place {
    hash: u64,
    nodeid: u64,
    at: Instant,
}

pub(crate) struct Brief(Vec<Place>);

impl Default for Brief {
    fn default() -> Brief {
        Brief(vec![Place::default(); BRIEF_NAMES])
    }
}

fn hash_of(parent: u64, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, name).hash(&mut hasher);
    hasher.finish()
}

fn index_of(hash: u64) -> usize {
    (hash % BRIEF_NAMES as u64) as usize
}

impl Brief {
    pub(crate) fn told(&mut self, (parent, name): (u64, &[u8]), nodeid: u64, at: Instant) {
        let hash = hash_of(parent, name);
        self.0[index_of(hash)] = Place { hash, nodeid, at };
    }

    /// The node of a name, and since when.
    pub(crate) fn get(&self, parent: u64, name: &[u8]) -> Option<(u64, Instant)> {
        let hash = hash_of(parent, name);
        let place = self.0[index_of(hash)];
        (place.nodeid != 0 && place.hash == hash).then_some((place.nodeid, place.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_names_are_there_and_a_node_is_that_of_the_last_answer() {
        let mut brief = Brief::default();
        assert_eq!(brief.get(1, b"a"), None);
        brief.told((1, b"a"), 7, Instant(1));
        brief.told((1, b"a"), 8, Instant(2));
        assert_eq!(brief.get(1, b"a"), Some((8, Instant(2))));
        assert_eq!((brief.get(2, b"a"), brief.get(1, b"b")), (None, None));
        for number in 0..10_000_u32 {
            brief.told((2, &number.to_le_bytes()), 9, Instant(3));
        }
        assert_eq!(brief.get(2, &9_999_u32.to_le_bytes()), Some((9, Instant(3))));
        let left = (0..10_000_u32).filter(|number| brief.get(2, &number.to_le_bytes()).is_some());
        assert!(left.count() <= BRIEF_NAMES);
    }
}
