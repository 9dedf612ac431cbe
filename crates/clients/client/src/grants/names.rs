//! Cached names under grants that the MDT calls back: the file that each name leads to.
//!
//! Invariant: a cached name is valid only while no client has removed any name of its file since
//! the answer that reported it, without a break. This includes this client.

use ldlm::grants::{Belief, Bits, Name, Number};
use queues::FixedMap;
use types::{Fid, Instant};
use wire::Attr;
use wire::attr::AttrFlags;

use super::hash::hash_of;
use super::{Known, Lease};

/// A name in a directory.
type Key = (Fid, Box<[u8]>);

/// Beyond the grants that are kept, all of them are forgotten together.
#[derive(Default)]
pub(super) struct Names(FixedMap<Key, (Fid, Number)>);

impl Names {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Known {
    /// Whether a directory, all of whose names are known, has none like this.
    pub(super) fn has_no_name(&mut self, (dir, name): (Fid, &[u8]), now: Instant) -> bool {
        let is_absent = self.cache.name(dir, hash_of(name), now) == Name::Absent;
        self.hits += u64::from(is_absent);
        is_absent
    }

    /// An answer told attributes of a file, and `newer` was taken of it. If that is a directory or
    /// shard without names, no name is there until another client makes one. The size of a
    /// directory is that of its names. Those of a striped one are in its shards.
    pub(super) fn found_empty(&mut self, attr: &Attr, newer: Bits) {
        let holds_names = attr.is_dir() && !attr.flags.contains(AttrFlags::STRIPED);
        let is_empty = holds_names && (attr.size, attr.nlink) == (0, 2);
        if is_empty && newer.contains(Bits::UPDATE) && !self.cache.has_names(attr.fid()) {
            self.cache.begin_names(attr.fid(), true);
        }
    }

    /// An answer said so, and grants it until it is called back.
    pub(super) fn stands_for(&mut self, (dir, name): (Fid, &[u8]), fid: Fid) {
        if self.names.0.len() >= self.lru.size as usize {
            self.names.0.clear();
        }
        let since = self.cache.named_since(fid);
        self.names.0.insert((dir, name.into()), (fid, since));
    }

    /// Attributes of the file that a name stands for, and until when both hold.
    pub(super) fn named(&mut self, name: (Fid, &[u8]), now: Instant) -> Option<(Attr, Lease)> {
        let (fid, name) = self.file_of(name, now)?;
        let (attr, attrs) = self.attributes(fid, now)?;
        Some((attr, Lease { attrs, name, recalls: self.recalls.now() }))
    }

    /// The file that a name stands for, and until when.
    pub(super) fn file_of(
        &mut self,
        (dir, name): (Fid, &[u8]),
        now: Instant,
    ) -> Option<(Fid, Instant)> {
        let (fid, since) = *self.names.0.get(&(dir, name.into()))?;
        if self.cache.named_since(fid) != since {
            self.names.0.remove(&(dir, name.into()));
            return None;
        }
        match self.cache.belief(fid, Bits::LOOKUP, now) {
            Belief::No => None,
            Belief::Dying => Some((fid, now)),
            Belief::Until(until) => Some((fid, until)),
        }
    }
}
