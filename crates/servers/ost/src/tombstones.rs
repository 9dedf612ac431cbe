//! Tombstones: objects that were destroyed while there are clients that may not know it.
//!
//! They are kept in memory and in `Table::Tombstones` alike. A tombstone may go when every session
//! that existed at its time is gone. Beyond [`TOMBSTONES_MAX`] the oldest go in any case.

use std::collections::BTreeMap;

use types::Fid;

use crate::limits::{TOMBSTONES_MAX, TOMBSTONES_SWEPT_AT_ONCE};

/// Pure: the caller keeps the table in step.
#[derive(Default)]
pub(crate) struct Tombstones {
    by_object: BTreeMap<Fid, u64>,
    by_number: BTreeMap<u64, Fid>,
    sessions: BTreeMap<u64, u64>, // when each began, as a number of destroys
    next: u64,
}

impl Tombstones {
    /// As found at boot. Sessions that are known then are older than everything. `None` where two
    /// have one number, or one has the last number that there is.
    pub(crate) fn load(
        stones: impl IntoIterator<Item = (Fid, u64)>,
        sessions: impl IntoIterator<Item = u64>,
    ) -> Option<Tombstones> {
        let mut loaded = Tombstones { next: 1, ..Tombstones::default() };
        for (object, number) in stones {
            loaded.next = loaded.next.max(number.checked_add(1)?);
            let twice = [
                loaded.by_object.insert(object, number).is_some(),
                loaded.by_number.insert(number, object).is_some(),
            ];
            if twice != [false; 2] {
                return None;
            }
        }
        loaded.sessions = sessions.into_iter().map(|session| (session, 0)).collect();
        Some(loaded)
    }

    pub(crate) fn holds(&self, object: Fid) -> bool {
        self.by_object.contains_key(&object)
    }

    /// Number for the record of a destroy now.
    pub(crate) fn add(&mut self, object: Fid) -> u64 {
        let number = self.next;
        self.next += 1;
        if let Some(older) = self.by_object.insert(object, number) {
            self.by_number.remove(&older);
        }
        self.by_number.insert(number, object);
        assert_eq!(self.by_object.len(), self.by_number.len(), "a tombstone has one number");
        number
    }

    pub(crate) fn session_began(&mut self, session: u64) {
        let next = self.next;
        self.sessions.entry(session).or_insert(next);
    }

    pub(crate) fn session_ended(&mut self, session: u64) {
        self.sessions.remove(&session);
    }

    /// The oldest that may go, a batch at most.
    pub(crate) fn expired(&self) -> Vec<Fid> {
        let oldest = self.sessions.values().min().copied().unwrap_or(u64::MAX);
        let over = self.by_number.len().saturating_sub(TOMBSTONES_MAX);
        let stones = self.by_number.iter().enumerate();
        let gone = stones.take_while(|(place, (number, _))| *place < over || **number < oldest);
        gone.take(TOMBSTONES_SWEPT_AT_ONCE).map(|(_, (_, object))| *object).collect()
    }

    pub(crate) fn remove(&mut self, object: Fid) {
        if let Some(number) = self.by_object.remove(&object) {
            self.by_number.remove(&number);
        }
        assert_eq!(self.by_object.len(), self.by_number.len(), "a tombstone has one number");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_goes_with_the_last_session_that_is_older() {
        let mut stones = Tombstones::load([(Fid::new(1, 1), 5)], [70]).expect("one");
        stones.session_began(71);
        assert_eq!(stones.add(Fid::new(1, 2)), 6);
        stones.session_began(72);
        assert_eq!(stones.expired(), []);
        stones.session_ended(70);
        assert_eq!(stones.expired(), [Fid::new(1, 1)], "72 and 71 began later");
        stones.remove(Fid::new(1, 1));
        assert!(stones.holds(Fid::new(1, 2)) && !stones.holds(Fid::new(1, 1)));
        stones.session_ended(71);
        assert_eq!(stones.expired(), [Fid::new(1, 2)]);
    }

    #[test]
    fn damaged_numbers_are_refused() {
        let (one, other) = (Fid::new(1, 1), Fid::new(1, 2));
        assert!(Tombstones::load([(one, 5), (other, 6)], []).is_some());
        for stones in [[(one, 5), (other, 5)], [(one, 5), (one, 6)], [(one, 5), (other, u64::MAX)]]
        {
            assert!(Tombstones::load(stones, []).is_none(), "{stones:?}");
        }
    }

    #[test]
    fn a_second_destroy_renews_and_too_many_go_in_order() {
        let mut stones = Tombstones::load([], [1]).expect("none");
        for oid in 0..=TOMBSTONES_MAX as u32 {
            stones.add(Fid::new(1, oid));
        }
        assert_eq!(stones.expired(), [Fid::new(1, 0)]);
        stones.add(Fid::new(1, 0));
        assert_eq!(stones.expired(), [Fid::new(1, 1)]);
    }
}
