//! Timed grants: one end per file, and whose they are.
//!
//! Invariants
//! - Nobody is called: a change waits for the end.
//! - The end is never earlier than any client's own count of the same grant.

use std::collections::VecDeque;

use queues::FixedMap;
use types::{Fid, Instant};

use super::{Bits, Session, TIMED, Want, with_skew};

#[derive(Clone, Copy)]
struct Held {
    /// `None`: several sessions.
    session: Option<Session>,
    bits: Bits,
    until: Instant,
}

/// Timed grants of one MDT.
#[derive(Default)]
pub(super) struct Timed {
    held: FixedMap<Fid, Held>,
    /// In the order in which they end.
    ends: VecDeque<(Instant, Fid)>,
}

impl Timed {
    pub(super) fn give(&mut self, session: Session, fid: Fid, bits: Bits, now: Instant) {
        self.expire(now);
        let until = with_skew(now, TIMED);
        let held = self.held.entry(fid).or_insert(Held { session: Some(session), bits, until });
        if held.session != Some(session) {
            held.session = None;
        }
        (held.until, held.bits) = (until, held.bits | bits);
        self.ends.push_back((until, fid));
    }

    /// Until when a change by `by` waits, if it has to.
    pub(super) fn blocks(&self, want: Want, by: Option<Session>, now: Instant) -> Option<Instant> {
        let held = self.held.get(&want.fid)?;
        let own = held.session.is_some() && held.session == by;
        (held.until > now && !own && held.bits.intersects(want.bits)).then_some(held.until)
    }

    /// Whose a timed grant is: nobody's in particular where several have one.
    pub(super) fn holder(&self, fid: Fid) -> Option<Session> {
        self.held.get(&fid)?.session
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    fn expire(&mut self, now: Instant) {
        while let Some((until, fid)) = self.ends.front().copied().filter(|(until, _)| *until <= now)
        {
            self.ends.pop_front();
            if self.held.get(&fid).is_some_and(|held| held.until <= until) {
                self.held.remove(&fid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Span;

    const A: Session = Session(1);
    const B: Session = Session(2);
    const X: Fid = Fid::ROOT;

    fn at(ms: u64) -> Instant {
        Instant(0) + Span::millis(ms)
    }

    fn blocks(timed: &Timed, by: Session, bits: Bits, ms: u64) -> Option<Instant> {
        timed.blocks(Want { fid: X, bits }, Some(by), at(ms))
    }

    #[test]
    fn only_changes_of_the_same_bits_by_others_wait_for_the_end() {
        let mut timed = Timed::default();
        timed.give(A, X, Bits::PERM, at(10));
        assert_eq!(blocks(&timed, B, Bits::PERM, 20), Some(at(65)), "with the skew of clocks");
        assert_eq!(blocks(&timed, B, Bits::UPDATE, 20), None);
        assert_eq!((blocks(&timed, A, Bits::PERM, 20), timed.holder(X)), (None, Some(A)));
        assert_eq!(blocks(&timed, B, Bits::PERM, 65), None);
    }

    #[test]
    fn what_several_hold_waits_for_the_last_end() {
        let mut timed = Timed::default();
        timed.give(A, X, Bits::PERM, at(0));
        timed.give(B, X, Bits::UPDATE, at(30));
        for client in [A, B] {
            assert_eq!(blocks(&timed, client, Bits::PERM, 60), Some(at(85)));
        }
        timed.give(A, Fid::ZERO, Bits::PERM, at(85));
        assert_eq!((timed.len(), timed.ends.len(), timed.holder(X)), (1, 1, None));
    }
}
