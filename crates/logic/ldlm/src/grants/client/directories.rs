//! Sets of names, and the changes of names that are under way.

use queues::FixedMap;
use types::Fid;

use crate::grants::limits::{DIR_NAMES_MAX, NAMES_MAX};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hashed {
    /// Two names may have it: it never leaves.
    pub(super) is_shared: bool,
    /// It stands for a name.
    pub(super) is_there: bool,
}

/// Changes under way of names with one hash.
#[derive(Clone, Copy, Default)]
pub(super) struct Changing {
    pub(super) count: u32,
    /// Two were under way together: their replies may come in the other order. Or it began before
    /// the set was complete: a page may have been read before it, after it, or after a later
    /// change.
    pub(super) is_crossed: bool,
}

/// A reading of a directory, which makes the set complete that it began with, and no later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing(pub(super) u64);

pub(super) struct Names {
    pub(super) listing: Listing,
    pub(super) hashes: FixedMap<u64, Hashed>,
    pub(super) is_complete: bool,
}

/// Sets of names of one client.
#[derive(Default)]
pub(super) struct Directories {
    pub(super) sets: FixedMap<Fid, Names>,
    total: usize,
    pub(super) listings: u64,
    pub(super) changing: FixedMap<(Fid, u64), Changing>,
}

impl Directories {
    pub(super) fn forget(&mut self, directory: Fid) {
        if let Some(names) = self.sets.remove(&directory) {
            self.total -= names.hashes.len();
        }
    }

    pub(super) fn clear(&mut self) {
        (self.sets, self.total) = (FixedMap::default(), 0);
    }

    /// No change is under way any more.
    pub(super) fn end_all(&mut self) {
        self.changing.clear();
    }

    pub(super) fn with(&mut self, directory: Fid, hash: u64, change: impl FnOnce(&mut Hashed)) {
        let Some(names) = self.sets.get_mut(&directory) else { return };
        let before = names.hashes.len();
        let hashed = names.hashes.entry(hash).or_default();
        change(hashed);
        let is_idle = !hashed.is_there && !hashed.is_shared;
        if is_idle {
            names.hashes.remove(&hash);
        }
        self.total = self.total + names.hashes.len() - before;
        if names.hashes.len() > DIR_NAMES_MAX || self.total > NAMES_MAX {
            self.forget(directory);
        }
    }
}
