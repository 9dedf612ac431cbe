//! Counts of the locks that sessions hold and wait for.

use std::collections::BTreeMap;

use crate::limits::{
    HELD_BYTES_MAX, HELD_BYTES_OF_SESSION_MAX, OWNER_BYTES, RANGE_BYTES, WAITERS_MAX,
    WAITERS_OF_SESSION_MAX,
};

/// Of one session, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) ranges: usize,
    pub(crate) bytes: usize,
    pub(crate) waits: usize,
}

/// Sums; a session that has nothing has none.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) all: Sum,
    sessions: BTreeMap<u64, Sum>,
}

impl Book {
    /// An owner's ranges on one file were `before` and are `after`.
    pub(crate) fn held(&mut self, session: u64, before: usize, after: usize) {
        self.change(session, |sum| {
            sum.ranges = sum.ranges + after - before;
            sum.bytes = sum.bytes + bytes(after) - bytes(before);
        });
    }

    pub(crate) fn waits(&mut self, session: u64) {
        self.change(session, |sum| sum.waits += 1);
    }

    pub(crate) fn waits_no_more(&mut self, session: u64) {
        self.change(session, |sum| sum.waits -= 1);
    }

    /// Whether a session may have no more locks, or none may.
    pub(crate) fn is_full(&self, session: u64) -> bool {
        let own = self.of(session);
        self.is_full_of_locks(session, 1)
            || own.waits >= WAITERS_OF_SESSION_MAX
            || self.all.waits >= WAITERS_MAX
    }

    /// The same for locks alone, with bounds that are `times` as large.
    pub(crate) fn is_full_of_locks(&self, session: u64, times: usize) -> bool {
        self.of(session).bytes >= times * HELD_BYTES_OF_SESSION_MAX
            || self.all.bytes >= times * HELD_BYTES_MAX
    }

    pub(crate) fn of(&self, session: u64) -> Sum {
        self.sessions.get(&session).copied().unwrap_or_default()
    }

    fn change(&mut self, session: u64, change: impl Fn(&mut Sum)) {
        change(&mut self.all);
        let sum = self.sessions.entry(session).or_default();
        change(sum);
        if *sum == Sum::default() {
            self.sessions.remove(&session);
        }
    }
}

/// What an owner's ranges on one file take.
fn bytes(ranges: usize) -> usize {
    if ranges == 0 { 0 } else { OWNER_BYTES + ranges * RANGE_BYTES }
}
