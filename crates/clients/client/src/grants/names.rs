//! Which file a name stands for, where that is called back.
//!
//! Invariant: a name is believed only as long as nobody else took any name away from its file, nor
//! this client did, without a break since the answer that told it.

use ldlm::grants::{Belief, Bits, Number};
use queues::FixedMap;
use types::{Fid, Instant};
use wire::Attr;

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
    /// An answer said so, and grants it until it is called back.
    pub(super) fn stands_for(&mut self, (dir, name): (Fid, &[u8]), fid: Fid) {
        if self.names.0.len() >= self.lru.size as usize {
            self.names.0.clear();
        }
        let since = self.cache.named_since(fid);
        self.names.0.insert((dir, name.into()), (fid, since));
    }

    /// Attributes of the file that a name stands for, and until when both hold.
    pub(super) fn named(
        &mut self,
        (dir, name): (Fid, &[u8]),
        now: Instant,
    ) -> Option<(Attr, Lease)> {
        let (fid, since) = *self.names.0.get(&(dir, name.into()))?;
        if self.cache.named_since(fid) != since {
            self.names.0.remove(&(dir, name.into()));
            return None;
        }
        let name = match self.cache.belief(fid, Bits::LOOKUP, now) {
            Belief::No => return None,
            Belief::Dying => now,
            Belief::Until(until) => until,
        };
        let (attr, attrs) = self.attributes(fid, now)?;
        Some((attr, Lease { attrs, name }))
    }
}
