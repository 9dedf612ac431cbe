//! Keys that operations of several MDTs have reserved here: they stay as these operations saw them.
//!
//! Invariants
//! - A key that an operation changes is reserved by it alone.
//! - A key that an operation only decides on is changed by no other operation. Any number of
//!   operations may decide on it.

use std::collections::{BTreeMap, BTreeSet};

use types::Fid;
use wire::updates::OpId;

use crate::share::ShareKey;

/// A key, and whether the operation changes it.
pub(crate) type Claim = (ShareKey, bool);

#[derive(Debug, Default)]
struct Held {
    /// Changes it.
    by: Option<OpId>,
    /// Decide on it.
    seen_by: BTreeSet<OpId>,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    keys: BTreeMap<ShareKey, Held>,
    ops: BTreeMap<OpId, Vec<ShareKey>>,
    /// Operations of other MDTs that may be applied there by now.
    promised: BTreeSet<OpId>,
}

impl Reserved {
    /// Whether no operation has reserved a key or promised its part.
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Whether another operation than `by` stands against a change with these keys.
    pub(crate) fn hinders(
        &self,
        by: Option<OpId>,
        decides: &[ShareKey],
        changes: &[ShareKey],
    ) -> bool {
        if self.is_empty() {
            return false;
        }
        let decided = decides.iter().any(|key| self.stands_against(by, key, false));
        decided || changes.iter().any(|key| self.stands_against(by, key, true))
    }

    fn stands_against(&self, by: Option<OpId>, key: &ShareKey, changes: bool) -> bool {
        let Some(held) = self.keys.get(key) else { return false };
        let is_changed = held.by.is_some_and(|holder| Some(holder) != by);
        is_changed || (changes && held.seen_by.iter().any(|holder| Some(*holder) != by))
    }

    /// Reserves keys for an operation, all or none; says whether it did.
    pub(crate) fn reserve(&mut self, op: OpId, claims: &[Claim]) -> bool {
        if claims.iter().any(|(key, changes)| self.stands_against(Some(op), key, *changes)) {
            return false;
        }
        let keys = self.ops.entry(op).or_default();
        for (key, changes) in claims {
            let held = self.keys.entry(*key).or_default();
            assert!(held.by.is_none_or(|holder| holder == op), "another changes this key");
            if *changes {
                held.by = Some(op);
            } else {
                held.seen_by.insert(op);
            }
            keys.push(*key);
        }
        true
    }

    /// The keys of an operation of another MDT are told: from now on it may be applied there.
    pub(crate) fn promise(&mut self, op: OpId) {
        self.promised.insert(op);
    }

    /// Operations that may be applied elsewhere and will change one of these keys, or an entry of
    /// one of these directories.
    pub(crate) fn unfinished(
        &self,
        keys: impl Iterator<Item = ShareKey>,
        dirs: impl Iterator<Item = Fid>,
    ) -> BTreeSet<OpId> {
        if self.promised.is_empty() {
            return BTreeSet::new();
        }
        let of_keys = keys.filter_map(|key| self.keys.get(&key)?.by);
        let entries = |dir| ShareKey::Entry(dir, 0)..=ShareKey::Entry(dir, u64::MAX);
        let of_dirs = dirs.flat_map(|dir| self.keys.range(entries(dir)));
        let holders = of_keys.chain(of_dirs.filter_map(|(_, held)| held.by));
        holders.filter(|op| self.promised.contains(op)).collect()
    }

    /// An operation has ended; says whether it had reserved anything.
    pub(crate) fn release(&mut self, op: OpId) -> bool {
        self.promised.remove(&op);
        let Some(keys) = self.ops.remove(&op) else { return false };
        for key in keys {
            let Some(held) = self.keys.get_mut(&key) else { continue };
            held.seen_by.remove(&op);
            held.by = held.by.filter(|holder| *holder != op);
            if held.by.is_none() && held.seen_by.is_empty() {
                self.keys.remove(&key);
            }
        }
        assert!(self.keys.is_empty() || !self.ops.is_empty(), "an operation holds each key");
        true
    }

    /// Whether an operation has reserved its keys here.
    pub(crate) fn has(&self, op: OpId) -> bool {
        self.ops.contains_key(&op)
    }

    /// Operations that hold something.
    pub(crate) fn ops(&self) -> Vec<OpId> {
        self.ops.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(number: u64) -> OpId {
        OpId { mdt: 1, number }
    }

    fn key(number: u32) -> ShareKey {
        ShareKey::Inode(Fid::new(9, number))
    }

    #[test]
    fn a_key_is_changed_by_one_and_seen_by_many() {
        let mut reserved = Reserved::default();
        assert!(reserved.reserve(op(1), &[(key(1), true), (key(2), false)]));
        assert!(!reserved.reserve(op(2), &[(key(3), true), (key(1), false)]), "another changes it");
        assert!(!reserved.reserve(op(2), &[(key(2), true)]), "another decides on it");
        assert!(reserved.reserve(op(2), &[(key(2), false), (key(3), true)]));
        assert!(reserved.reserve(op(1), &[(key(1), true)]), "its own");
        assert!(reserved.hinders(None, &[key(1)], &[]) && !reserved.hinders(None, &[key(2)], &[]));
        assert!(reserved.hinders(Some(op(2)), &[], &[key(2)]), "the other one decides on it");
        assert!(!reserved.hinders(Some(op(1)), &[key(1)], &[key(1)]));
        assert!(reserved.release(op(1)) && !reserved.release(op(1)));
        assert!(!reserved.hinders(None, &[key(1), key(2)], &[key(1)]));
        assert_eq!(reserved.ops(), [op(2)]);
        assert!(reserved.release(op(2)) && reserved.is_empty());
        assert!(reserved.reserve(op(3), &[]) && !reserved.is_empty(), "it has a part all the same");
    }

    #[test]
    fn reads_wait_for_changes_that_are_promised() {
        let (dir, none) = (Fid::new(9, 7), || std::iter::empty());
        let entry = ShareKey::Entry(dir, 5);
        let mut reserved = Reserved::default();
        assert!(reserved.reserve(op(1), &[(entry, true), (key(1), false)]));
        let of_dir = |reserved: &Reserved| reserved.unfinished(none(), [dir].into_iter());
        assert!(of_dir(&reserved).is_empty(), "it cannot be applied yet");
        reserved.promise(op(1));
        assert_eq!(of_dir(&reserved), BTreeSet::from([op(1)]));
        let of = |key| reserved.unfinished([key].into_iter(), std::iter::empty());
        assert_eq!(of(entry), BTreeSet::from([op(1)]));
        assert!(of(key(1)).is_empty(), "it stays as it is");
        assert!(of(ShareKey::Entry(dir, 6)).is_empty());
        assert!(reserved.release(op(1)) && of_dir(&reserved).is_empty());
    }
}
