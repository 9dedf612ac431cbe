//! Timed grants: one end per file, and the holder. Also the files that are not granted for a while,
//! so that only the first change of many waits (Gray and Cheriton, "Leases", 1989).
//!
//! Invariants
//! - No client is called: a change waits for the end.
//! - The end is never earlier than any client's own count of the same grant.
//! - A new instance knows no grants, so changes wait until those of the instance before are over.

use std::collections::VecDeque;

use queues::FixedMap;
use types::{Fid, Instant, Span};

use super::limits::PAUSED_MAX;
use super::{Bits, Want, with_skew};

#[derive(Clone, Copy)]
struct Held<H> {
    holder: H,
    until: Instant,
    bits: Bits,
    /// Others hold it too.
    is_shared: bool,
}

/// Timed grants of one MDT. `H` names who holds them.
pub struct Timed<H> {
    /// How long a client may count a grant as valid, as the clock here sees it.
    span: Span,
    held: FixedMap<Fid, Held<H>>,
    /// In the order in which they end.
    ends: VecDeque<(Instant, Fid)>,
    /// Files that are not granted until then.
    paused: FixedMap<Fid, Instant>,
    /// Grants of the instance before may last until then.
    inherited_until: Instant,
}

impl<H: Copy + PartialEq> Timed<H> {
    /// Grants that clients count for `span` by their own clocks, which may be slower than the clock
    /// here. Clients may hold some of the instance before until `inherited_until`.
    #[must_use]
    pub fn new(span: Span, inherited_until: Instant) -> Timed<H> {
        Timed {
            span: with_skew(span),
            held: FixedMap::default(),
            ends: VecDeque::new(),
            paused: FixedMap::default(),
            inherited_until,
        }
    }

    /// Grants of the instance before may last until `until`.
    pub fn inherit(&mut self, until: Instant) {
        self.inherited_until = self.inherited_until.max(until);
    }

    /// Until when every change waits for grants of the instance before.
    #[must_use]
    pub fn inherited(&self, now: Instant) -> Option<Instant> {
        (self.inherited_until > now).then_some(self.inherited_until)
    }

    /// Gives `bits` of a file from `now` on.
    pub fn give(&mut self, holder: H, fid: Fid, bits: Bits, now: Instant) {
        self.expire(now);
        let until = now + self.span;
        let fresh = Held { holder, until, bits, is_shared: false };
        let held = self.held.entry(fid).or_insert(fresh);
        held.is_shared |= held.holder != holder;
        (held.until, held.bits) = (until, held.bits | bits);
        self.ends.push_back((until, fid));
        assert!(self.held.len() <= self.ends.len(), "every grant has an end");
    }

    /// Until when a change by `by` waits, if it has to.
    #[must_use]
    pub fn blocks(&self, want: Want, by: Option<H>, now: Instant) -> Option<Instant> {
        let held = self.held.get(&want.fid)?;
        let own = !held.is_shared && Some(held.holder) == by;
        (held.until > now && !own && held.bits.intersects(want.bits)).then_some(held.until)
    }

    /// A name moves: who believes it where it was goes on believing it where it is now.
    pub fn carry(&mut self, from: Fid, to: Fid, now: Instant) {
        let Some(held) = self.held.get(&from).copied().filter(|held| held.until > now) else {
            return;
        };
        assert!(held.until <= now + self.span, "no grant lasts longer");
        let there = self.held.entry(to).or_insert(held);
        there.is_shared |= held.is_shared || there.holder != held.holder;
        there.until = there.until.max(held.until);
        there.bits |= held.bits;
        self.ends.push_back((now + self.span, to)); // none lasts longer
    }

    /// Nothing of a file is to be granted until `end`.
    pub fn pause(&mut self, fid: Fid, end: Instant, now: Instant) {
        if self.paused.len() >= PAUSED_MAX {
            self.paused.retain(|_, until| *until > now);
        }
        if self.paused.len() >= PAUSED_MAX {
            self.paused.clear();
        }
        let until = self.paused.entry(fid).or_insert(end);
        *until = end.max(*until);
    }

    /// Whether [`Timed::pause`] stands against a grant.
    #[must_use]
    pub fn is_paused(&self, fid: Fid, now: Instant) -> bool {
        self.paused.get(&fid).is_some_and(|until| *until > now)
    }

    /// Whose a grant is, where one has it alone.
    #[must_use]
    pub fn holder(&self, fid: Fid) -> Option<H> {
        self.held.get(&fid).filter(|held| !held.is_shared).map(|held| held.holder)
    }

    /// How many files have a grant at `now`.
    pub fn count(&mut self, now: Instant) -> usize {
        self.expire(now);
        self.held.len()
    }

    /// Files that have a grant, or had one until lately.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
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
    use crate::grants::TIMED;

    const A: u128 = 1;
    const B: u128 = 2;
    const X: Fid = Fid::ROOT;

    fn at(ms: u64) -> Instant {
        Instant::default() + Span::millis(ms)
    }

    fn timed() -> Timed<u128> {
        Timed::new(TIMED, Instant::default())
    }

    fn blocks(timed: &Timed<u128>, by: u128, bits: Bits, ms: u64) -> Option<Instant> {
        timed.blocks(Want { fid: X, bits }, Some(by), at(ms))
    }

    #[test]
    fn only_changes_of_the_same_bits_by_others_wait_for_the_end() {
        let mut timed = timed();
        timed.give(A, X, Bits::PERM, at(10));
        assert_eq!(blocks(&timed, B, Bits::PERM, 20), Some(at(65)));
        assert_eq!(blocks(&timed, B, Bits::UPDATE, 20), None);
        assert_eq!((blocks(&timed, A, Bits::PERM, 20), timed.holder(X)), (None, Some(A)));
        assert_eq!(blocks(&timed, B, Bits::PERM, 65), None);
    }

    #[test]
    fn what_several_hold_waits_for_the_last_end() {
        let mut timed = timed();
        timed.give(A, X, Bits::PERM, at(0));
        timed.give(B, X, Bits::UPDATE, at(30));
        for client in [A, B] {
            assert_eq!(blocks(&timed, client, Bits::PERM, 60), Some(at(85)));
        }
        timed.give(A, Fid::ZERO, Bits::PERM, at(85));
        assert_eq!((timed.len(), timed.ends.len(), timed.holder(X)), (1, 1, None));
    }

    #[test]
    fn a_grant_that_is_renewed_outlives_its_first_end() {
        let mut timed = timed();
        [0, 40].iter().for_each(|ms| timed.give(A, X, Bits::PERM, at(*ms)));
        timed.give(A, Fid::ZERO, Bits::PERM, at(55));
        assert_eq!((blocks(&timed, B, Bits::PERM, 60), timed.len()), (Some(at(95)), 2));
        assert_eq!((timed.count(at(200)), timed.ends.len()), (0, 0), "what is over is not held");
    }

    #[test]
    fn a_pause_ends_and_no_shorter_one_ends_it() {
        let mut timed = timed();
        timed.pause(X, at(30_000), at(0));
        timed.pause(X, at(1_000), at(0));
        assert!(timed.is_paused(X, at(29_999)) && !timed.is_paused(X, at(30_000)));
        assert!(!timed.is_paused(Fid::ZERO, at(1)));
    }

    #[test]
    fn pauses_are_bounded() {
        let mut timed = timed();
        for oid in 0..=PAUSED_MAX as u32 {
            timed.pause(Fid { oid, ..X }, at(10), at(0));
        }
        assert!(timed.paused.len() <= PAUSED_MAX);
    }

    #[test]
    fn a_new_instance_waits_for_old_grants_to_end() {
        let mut timed: Timed<u128> = Timed::new(TIMED, at(50));
        timed.inherit(at(40));
        assert_eq!((timed.inherited(at(10)), timed.inherited(at(50))), (Some(at(50)), None));
    }

    #[test]
    fn a_grant_goes_along_with_a_name_that_moves() {
        let mut timed = timed();
        let other = Fid { oid: 9, ..X };
        timed.give(A, X, Bits::PERM, at(0));
        timed.carry(X, other, at(20));
        let want = Want { fid: other, bits: Bits::PERM };
        assert_eq!(timed.blocks(want, Some(B), at(30)), Some(at(55)));
        assert_eq!(timed.blocks(want, Some(A), at(30)), None);
        timed.carry(X, other, at(55));
        assert_eq!((timed.count(at(75)), timed.ends.len()), (0, 0));
    }
}
