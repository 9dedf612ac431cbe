//! Short leases: for how long a client, and the kernel behind it, may believe what it was just told
//! (decision 0005).
//!
//! A lease on a file covers its attributes, one on a directory also its entries. It ends by time
//! alone, so there is nobody to call back: another client's change waits until it is over (Gray and
//! Cheriton, "Leases", 1989). What two clients were after at once is not leased for a while, so
//! that only the first change of many waits.
//!
//! Invariants
//! - A client counts from when it asked, the MDT from when it answered: the client's end is never
//!   later than the MDT's.
//! - Nothing changes what somebody else holds a lease on, except for what that client cannot see
//!   (access times, the size of a file that it does not believe to know).
//! - A new instance knows no leases, so it changes nothing until those of the instance before it
//!   are over.

use std::collections::VecDeque;

use queues::FixedMap;
use types::{ClientId, Fid, Instant, Span};

/// Length of a lease. Long enough for the few requests of one system call and the next ones on the
/// same path, short enough that nobody notices a change that waits.
pub(crate) const LEASE: Span = Span::millis(50);

/// What two clients were after is not leased for so long.
const CONTENDED: Span = Span::secs(30);

/// How long a file is not leased of which its changer's kernel goes on using its own copy: until
/// that kernel has certainly taken up the answer, and with it all answers from before the change.
pub(crate) const SETTLING: Span = Span::secs(1);

/// Files and directories that are remembered as contended; beyond, all of them are forgotten
/// together.
const CONTENDED_MAX: usize = 65_536;

#[derive(Clone, Copy, Debug)]
struct Held {
    /// `None`: several clients.
    client: Option<ClientId>,
    until: Instant,
}

/// Leases of one instance.
pub(crate) struct Leases {
    enabled: bool,
    held: FixedMap<Fid, Held>,
    /// In the order in which they end.
    ends: VecDeque<(Instant, Fid)>,
    contended: FixedMap<Fid, Instant>,
    /// Leases of the instance before may last until then.
    inherited_until: Instant,
}

impl Leases {
    /// Without leases of its own; `inherited_until` where clients may hold some of the instance
    /// before.
    pub(crate) fn new(inherited_until: Instant) -> Leases {
        Leases {
            enabled: true,
            held: FixedMap::default(),
            ends: VecDeque::new(),
            contended: FixedMap::default(),
            inherited_until,
        }
    }

    /// Whether leases are given at all.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Gives leases from now on, or none any more; those that were given last their time.
    pub(crate) fn enable(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// How many leases are held at `now`.
    pub(crate) fn count(&mut self, now: Instant) -> usize {
        self.expire(now);
        self.held.len()
    }

    /// Leases that are held, or were until lately.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// How long a lease on `fid` would be from `now` on; [`Span::ZERO`]: there is none to have.
    pub(crate) fn offer(&self, fid: Fid, now: Instant) -> Span {
        if !self.enabled || now < self.inherited_until || self.is_contended(fid, now) {
            return Span::ZERO;
        }
        LEASE
    }

    /// Gives `client` the lease on `fid` that it was offered at `now`.
    pub(crate) fn grant(&mut self, fid: Fid, client: ClientId, now: Instant) {
        assert!(now >= self.inherited_until, "no lease while those of another instance last");
        self.expire(now);
        let until = now + LEASE;
        let held = self.held.entry(fid).or_insert(Held { client: Some(client), until });
        if held.client != Some(client) {
            held.client = None;
        }
        held.until = until;
        self.ends.push_back((until, fid));
        assert!(self.held.len() <= self.ends.len(), "every lease has an end");
    }

    /// Until when a change of `fid` by `client` has to wait, if it has to.
    pub(crate) fn blocks(&self, fid: Fid, client: ClientId, now: Instant) -> Option<Instant> {
        let held = self.held.get(&fid)?;
        (held.until > now && held.client != Some(client)).then_some(held.until)
    }

    /// A name moves: whoever believes it where it was goes on believing it where it is now.
    pub(crate) fn carry(&mut self, from: Fid, to: Fid, now: Instant) {
        let Some(held) = self.held.get(&from).copied().filter(|held| held.until > now) else {
            return;
        };
        let there = self.held.entry(to).or_insert(held);
        if there.client != held.client {
            there.client = None;
        }
        assert!(held.until <= now + LEASE, "no lease lasts longer");
        there.until = there.until.max(held.until);
        self.ends.push_back((now + LEASE, to)); // none lasts longer
    }

    /// Until when every change waits for leases of the instance before.
    pub(crate) fn inherited(&self, now: Instant) -> Option<Instant> {
        (self.inherited_until > now).then_some(self.inherited_until)
    }

    /// Two clients are after `fid`.
    pub(crate) fn contend(&mut self, fid: Fid, now: Instant) {
        self.pause(fid, now + CONTENDED, now);
    }

    /// The kernel of the client that changed `fid` judges by itself for a moment.
    pub(crate) fn settle(&mut self, fid: Fid, now: Instant) {
        self.pause(fid, now + SETTLING, now);
    }

    /// No leases on `fid` until `end`.
    fn pause(&mut self, fid: Fid, end: Instant, now: Instant) {
        if self.contended.len() >= CONTENDED_MAX {
            self.contended.retain(|_, until| *until > now);
        }
        if self.contended.len() >= CONTENDED_MAX {
            self.contended.clear();
        }
        let until = self.contended.entry(fid).or_insert(end);
        *until = end.max(*until);
    }

    /// Whether two clients were after `fid` lately, or its changer's kernel settles.
    pub(crate) fn is_contended(&self, fid: Fid, now: Instant) -> bool {
        self.contended.get(&fid).is_some_and(|until| *until > now)
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

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const X: Fid = Fid::ROOT;

    fn at(ms: u64) -> Instant {
        Instant::default() + Span::millis(ms)
    }

    fn leases() -> Leases {
        Leases::new(Instant::default())
    }

    /// Offers and grants.
    fn ask(leases: &mut Leases, fid: Fid, client: ClientId, now: Instant) -> Span {
        let span = leases.offer(fid, now);
        if span > Span::ZERO {
            leases.grant(fid, client, now);
        }
        span
    }

    #[test]
    fn only_changes_by_others_wait_for_a_lease() {
        let mut leases = leases();
        assert_eq!(ask(&mut leases, X, A, at(10)), LEASE);
        assert_eq!(leases.blocks(X, B, at(20)), Some(at(60)));
        assert_eq!(leases.blocks(X, A, at(20)), None);
        assert_eq!(leases.blocks(X, B, at(60)), None);
    }

    #[test]
    fn what_several_hold_nobody_changes() {
        let mut leases = leases();
        ask(&mut leases, X, A, at(0));
        ask(&mut leases, X, B, at(30));
        assert_eq!(leases.blocks(X, A, at(40)), Some(at(80)));
        assert_eq!(
            leases.blocks(X, B, at(40)),
            Some(at(80)),
            "the other's may be the one that lasts"
        );
    }

    #[test]
    fn a_lease_that_is_renewed_outlives_its_first_end() {
        let mut leases = leases();
        ask(&mut leases, X, A, at(0));
        ask(&mut leases, X, A, at(40));
        ask(&mut leases, Fid::from(wire::body::WireFid::default()), A, at(55));
        assert_eq!(leases.blocks(X, B, at(60)), Some(at(90)));
        assert_eq!(leases.len(), 2);
        assert_eq!(leases.count(at(200)), 0, "what is over is not held");
        assert_eq!((leases.len(), leases.ends.len()), (0, 0));
    }

    #[test]
    fn what_is_contended_is_not_leased_for_a_while() {
        let mut leases = leases();
        leases.contend(X, at(0));
        assert_eq!(ask(&mut leases, X, A, at(10)), Span::ZERO);
        assert_eq!(leases.blocks(X, B, at(11)), None);
        assert_eq!(ask(&mut leases, X, A, at(30_001)), LEASE);
    }

    #[test]
    fn what_settles_is_not_leased_for_a_moment_and_stays_contended() {
        let mut leases = leases();
        leases.settle(X, at(0));
        assert_eq!(ask(&mut leases, X, A, at(999)), Span::ZERO);
        assert_eq!(ask(&mut leases, X, A, at(1_000)), LEASE);
        leases.contend(X, at(1_000));
        leases.settle(X, at(1_001));
        assert_eq!(ask(&mut leases, X, A, at(30_999)), Span::ZERO, "two clients were after it");
        assert_eq!(ask(&mut leases, X, A, at(31_000)), LEASE);
    }

    #[test]
    fn a_new_instance_waits_for_old_leases_to_end() {
        let mut leases = Leases::new(at(50));
        assert_eq!(leases.inherited(at(10)), Some(at(50)));
        assert_eq!(ask(&mut leases, X, A, at(10)), Span::ZERO);
        assert_eq!(leases.inherited(at(50)), None);
        assert_eq!(ask(&mut leases, X, A, at(50)), LEASE);
    }

    #[test]
    fn a_lease_goes_along_with_a_name_that_moves() {
        let mut leases = leases();
        let other = Fid { oid: 9, ..X };
        ask(&mut leases, X, A, at(0));
        leases.contend(other, at(0));
        leases.carry(X, other, at(20));
        assert_eq!(leases.blocks(other, B, at(30)), Some(at(50)), "though it is contended");
        assert_eq!(leases.blocks(other, A, at(30)), None);
        leases.carry(X, other, at(50));
        leases.expire(at(70));
        assert_eq!((leases.len(), leases.ends.len()), (0, 0));
    }

    #[test]
    fn switched_off_it_gives_none_and_honours_those_that_are_out() {
        let mut leases = leases();
        ask(&mut leases, X, A, at(0));
        leases.enable(false);
        assert_eq!(ask(&mut leases, X, A, at(1)), Span::ZERO);
        assert_eq!(leases.blocks(X, B, at(2)), Some(at(50)));
    }
}
