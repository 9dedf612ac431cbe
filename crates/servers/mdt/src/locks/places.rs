//! Places in line whose requests are gone. Each is kept for a while, so that its client can ask
//! again.
//!
//! Invariant: a wait has one place at most. So places take as much memory as waits, however often
//! clients ask.

use std::collections::BTreeMap;

use ldlm::WaitId;
use types::Instant;

/// Places that go before others have their turn.
pub(super) const GONE_AT_ONCE: usize = 64;

/// When a place goes, and its number among all that were kept.
type Due = (Instant, u64);

/// See the head of the file.
#[derive(Default)]
pub(super) struct Places {
    due: BTreeMap<WaitId, Due>,
    order: BTreeMap<Due, WaitId>,
    kept: u64,
    /// A task waits for the first one to go.
    has_sweeper: bool,
}

impl Places {
    /// The place of a wait goes at `until`, whatever was said of it before. Returns whether a task
    /// is to be started that sweeps them.
    pub(super) fn keep(&mut self, wait: WaitId, until: Instant) -> bool {
        self.take_up(wait);
        self.kept += 1;
        let due = (until, self.kept);
        self.due.insert(wait, due);
        self.order.insert(due, wait);
        !std::mem::replace(&mut self.has_sweeper, true)
    }

    /// The client has asked again, or does not wait any more.
    pub(super) fn take_up(&mut self, wait: WaitId) {
        if let Some(due) = self.due.remove(&wait) {
            self.order.remove(&due);
        }
    }

    /// Nothing is known of the waits of a session.
    pub(super) fn forget(&mut self, session: u64) {
        let own: Vec<WaitId> =
            self.due.range(WaitId::all_of(session)).map(|(wait, _)| *wait).collect();
        own.into_iter().for_each(|wait| self.take_up(wait));
    }

    /// For the sweeper: when the first one goes. If there is none, the sweeper ends.
    pub(super) fn first_due(&mut self) -> Option<Instant> {
        let first = self.order.first_key_value().map(|((until, _), _)| *until);
        self.has_sweeper = first.is_some();
        first
    }

    /// A wait whose place goes.
    pub(super) fn pop(&mut self, now: Instant) -> Option<WaitId> {
        let first = self.order.first_entry().filter(|first| first.key().0 <= now)?;
        let wait = first.remove();
        self.due.remove(&wait);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(session: u64, cookie: u64) -> WaitId {
        WaitId { session, cookie }
    }

    #[test]
    fn places_go_in_the_order_in_which_they_were_kept_last() {
        let (mut places, at) = (Places::default(), Instant);
        assert!(places.keep(wait(2, 1), at(10)));
        assert!(!places.keep(wait(1, 1), at(10)), "one task sweeps all");
        assert!(!places.keep(wait(1, 2), at(10)));
        places.keep(wait(3, 1), at(11));
        places.keep(wait(2, 1), at(12));
        assert_eq!((places.first_due(), places.pop(at(9))), (Some(at(10)), None));
        assert_eq!((places.pop(at(11)), places.pop(at(11))), (Some(wait(1, 1)), Some(wait(1, 2))));
        places.take_up(wait(3, 1));
        assert_eq!((places.first_due(), places.pop(at(11))), (Some(at(12)), None));
        assert_eq!((places.pop(at(12)), places.first_due()), (Some(wait(2, 1)), None));
        assert!(places.keep(wait(2, 1), at(20)), "that task has ended");
    }

    #[test]
    fn a_wait_has_one_place_and_a_session_that_ends_has_none() {
        let mut places = Places::default();
        for round in 0..1_000 {
            places.keep(wait(1, 7), Instant(round));
        }
        places.keep(wait(1, 8), Instant(5));
        places.keep(wait(2, 7), Instant(6));
        assert_eq!((places.due.len(), places.order.len()), (3, 3));
        places.forget(1);
        assert_eq!((places.due.len(), places.order.len()), (1, 1));
        assert_eq!(places.pop(Instant(u64::MAX)), Some(wait(2, 7)));
    }
}
