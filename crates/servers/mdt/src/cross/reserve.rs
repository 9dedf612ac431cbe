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
}

impl Reserved {
    /// Whether nothing is reserved.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
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

    /// Whether an operation changes a name of `dir`.
    pub(crate) fn has_names_of(&self, dir: Fid) -> bool {
        let all = ShareKey::Entry(dir, 0)..=ShareKey::Entry(dir, u64::MAX);
        self.keys.range(all).any(|(_, held)| held.by.is_some())
    }

    /// Reserves keys for an operation, all or none; says whether it did.
    pub(crate) fn reserve(&mut self, op: OpId, claims: &[Claim]) -> bool {
        if claims.iter().any(|(key, changes)| self.stands_against(Some(op), key, *changes)) {
            return false;
        }
        let keys = self.ops.entry(op).or_default();
        for (key, changes) in claims {
            let held = self.keys.entry(*key).or_default();
            if *changes {
                held.by = Some(op);
            } else {
                held.seen_by.insert(op);
            }
            keys.push(*key);
        }
        true
    }

    /// An operation has ended; says whether it had reserved anything.
    pub(crate) fn release(&mut self, op: OpId) -> bool {
        let Some(keys) = self.ops.remove(&op) else { return false };
        for key in keys {
            let Some(held) = self.keys.get_mut(&key) else { continue };
            held.seen_by.remove(&op);
            held.by = held.by.filter(|holder| *holder != op);
            if held.by.is_none() && held.seen_by.is_empty() {
                self.keys.remove(&key);
            }
        }
        true
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
    fn names_that_an_operation_changes_are_found_by_their_directory() {
        let (mut reserved, dir) = (Reserved::default(), Fid::new(9, 1));
        assert!(reserved.reserve(op(1), &[(ShareKey::Entry(dir, 7), true)]));
        assert!(reserved.reserve(op(2), &[(ShareKey::Entry(Fid::new(9, 2), 7), false)]));
        assert!(reserved.has_names_of(dir) && !reserved.has_names_of(Fid::new(9, 2)));
        reserved.release(op(1));
        assert!(!reserved.has_names_of(dir));
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
    }
}
