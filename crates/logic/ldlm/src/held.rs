//! Granted ranges of one resource, by owner.
//!
//! Readers that share a file are not walked. `writers` are the owners with an exclusive range, and
//! no other owner is in the way of a reader. A request for an exclusive range that finds no writer
//! in its way walks the other owners, up to the first conflict.

use std::collections::{BTreeMap, BTreeSet};

use crate::Mode;
use crate::ranges::Ranges;
use crate::request::{Conflict, LockRequest, Owner};

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Held {
    /// None of them is empty.
    owners: BTreeMap<Owner, Ranges>,
    writers: BTreeSet<Owner>,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(crate) fn of(&self, owner: Owner) -> Option<&Ranges> {
        self.owners.get(&owner)
    }

    /// Changes what an owner holds; how many ranges that was, and is.
    pub(crate) fn change(
        &mut self,
        owner: Owner,
        change: impl FnOnce(&mut Ranges),
    ) -> (usize, usize) {
        let ranges = self.owners.entry(owner).or_default();
        let before = ranges.len();
        change(ranges);
        let after = ranges.len();
        if ranges.has_exclusive() {
            self.writers.insert(owner);
        } else {
            self.writers.remove(&owner);
        }
        if after == 0 {
            self.owners.remove(&owner);
        }
        (before, after)
    }

    /// Whether a session holds something.
    pub(crate) fn has_of(&self, session: u64) -> bool {
        self.owners.range(Held::all_of(session)).next().is_some()
    }

    /// Whether another session than this one holds something.
    pub(crate) fn has_of_another(&self, session: u64) -> bool {
        let mut owners = self.owners.keys(); // in the order of their sessions
        let ends = [owners.next(), owners.next_back()];
        ends.into_iter().flatten().any(|owner| owner.session != session)
    }

    /// Takes what a session holds.
    pub(crate) fn take_of(&mut self, session: u64) -> Vec<Ranges> {
        let gone: Vec<Owner> =
            self.owners.range(Held::all_of(session)).map(|(owner, _)| *owner).collect();
        gone.iter().for_each(|owner| {
            self.writers.remove(owner);
        });
        gone.iter().filter_map(|owner| self.owners.remove(owner)).collect()
    }

    fn all_of(session: u64) -> std::ops::RangeInclusive<Owner> {
        Owner { session, id: 0 }..=Owner { session, id: u64::MAX }
    }

    /// Ranges of others in the way of `request`, writers' first.
    pub(crate) fn conflicts<'a>(
        &'a self,
        request: &'a LockRequest,
    ) -> impl Iterator<Item = Conflict> + 'a {
        let wants_all = request.mode == Mode::Exclusive;
        let writers = self.writers.iter().filter_map(|owner| self.owners.get_key_value(owner));
        let readers = wants_all.then(|| self.owners.iter()).into_iter().flatten();
        let readers = readers.filter(|(owner, _)| !self.writers.contains(owner));
        let others = writers.chain(readers).filter(|(owner, _)| **owner != request.owner);
        others.filter_map(|(owner, ranges)| {
            let (extent, mode, pid) = ranges.conflict(request.extent, request.mode)?;
            Some(Conflict { owner: *owner, extent, mode, pid })
        })
    }
}

#[cfg(test)]
mod tests {
    use types::{Extent, Fid};

    use super::*;
    use crate::request::Kind;

    fn request(owner: u64, mode: Mode, at: u64) -> LockRequest {
        LockRequest {
            resource: Fid::new(1, 1),
            kind: Kind::Posix,
            owner: Owner { session: owner / 2, id: owner },
            extent: Extent::new(at, at + 1).expect("not empty"),
            mode,
            pid: 1,
            cookie: 0,
        }
    }

    /// What is found is what a walk over all finds.
    #[test]
    fn writers_are_known_through_all_changes() {
        const OWNERS: u64 = 6;
        let mut chance = types::SplitMix64::new(5);
        let mut held = Held::default();
        for step in 0..20_000 {
            let mode = if chance.below(3) == 0 { Mode::Exclusive } else { Mode::Shared };
            let asked = request(chance.below(OWNERS), mode, chance.below(8));
            match chance.below(4) {
                0 if step % 50 == 0 => drop(held.take_of(asked.owner.session)),
                0 => {
                    held.change(asked.owner, |ranges| ranges.clear(asked.extent));
                }
                1 => {
                    held.change(asked.owner, |ranges| ranges.set(asked.extent, mode, 1));
                }
                _ => {}
            }
            let all = held.owners.iter().filter(|(owner, _)| **owner != asked.owner);
            let in_the_way: BTreeSet<Owner> = all
                .filter(|(_, ranges)| ranges.conflict(asked.extent, mode).is_some())
                .map(|(owner, _)| *owner)
                .collect();
            let found: Vec<Owner> = held.conflicts(&asked).map(|conflict| conflict.owner).collect();
            assert_eq!(found.len(), in_the_way.len());
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), in_the_way);
            assert!(held.owners.values().all(|ranges| ranges.len() > 0));
        }
    }
}
