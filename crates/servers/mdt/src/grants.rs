//! The grants that the engine gives: the names and attributes that clients may cache.
//!
//! - **timed** (decision 0005): attributes and names together, for 50 ms. Another client's change
//!   waits until that time is over. After two clients wanted the same file at once, it is not
//!   granted for a while, so only the first of many changes waits.
//! - **recall** (decision 0014): until the MDT calls the grant back. The table is
//!   [`ldlm::grants::Mdt`], and `recalls.rs` runs it. The table itself decides when it gives timed
//!   grants instead.
//!
//! Whichever kind is given now, a change waits for all grants that were given.
//!
//! Invariants
//! - A client counts from when it asked, the MDT from when it answered. So the client's end is
//!   never later than the MDT's.
//! - No change affects something that another client holds a grant on, except for values that this
//!   client cannot see. These are access times, and the size of a file if the client does not treat
//!   that size as known.

use std::collections::BTreeMap;

use ldlm::grants::{
    Begun, Bits, Bugs as GrantBugs, ChangeId, Gifts, HolderId, Kind, Mdt, MdtConfig, Mode, TIMED,
    Timed, Want,
};
use types::{ClientId, Fid, Instant, Span};

/// What two clients were after is not granted for this long.
const CONTENDED: Span = Span::secs(30);

/// A file is not granted for this long while its changer's kernel goes on using its own copy: until
/// that kernel has certainly taken up the answer, and with it all answers from before the change.
pub(crate) const SETTLING: Span = Span::secs(1);

/// What attributes tell.
pub(crate) const ATTRS: Bits =
    Bits::UPDATE.union(Bits::LAYOUT).union(Bits::PERM).union(Bits::XATTR);

/// Every timed grant covers attributes and names alike.
const COVERED: Bits = ATTRS.union(Bits::LOOKUP);

/// What an answer grants of a file, or of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gift {
    /// Nothing.
    #[default]
    None,
    /// For so long.
    Timed(Span),
    /// Until it is called back.
    Called,
}

impl Gift {
    pub(crate) fn is_some(self) -> bool {
        self != Gift::None
    }

    /// As it travels.
    pub(crate) fn to_ms(self) -> u32 {
        match self {
            Gift::None => 0,
            Gift::Timed(span) => span.as_millis() as u32,
            Gift::Called => wire::body::CALLED_BACK,
        }
    }
}

/// Grants of one instance.
pub(crate) struct Grants {
    mode: Mode,
    /// That grants are called back is durable.
    is_recorded: bool,
    timed: Timed<ClientId>,
    /// Pauses that count for grants that are called back too.
    settling: Timed<ClientId>,
    /// Files that operations of several MDTs are about to change, and how many.
    held: BTreeMap<Fid, usize>,
    pub(crate) called: Mdt,
}

impl Grants {
    /// Without grants of its own; `inherited_until` where clients may hold timed ones of the
    /// instance before. `lease`: of sessions.
    pub(crate) fn new(
        inherited_until: Instant,
        (lease, bugs): (Span, GrantBugs),
        epoch: u32,
        now: Instant,
    ) -> Grants {
        let config = MdtConfig { lease, bugs, records_expulsions: true, ..MdtConfig::default() };
        Grants {
            mode: Mode::Timed,
            is_recorded: false,
            timed: Timed::new(TIMED, inherited_until),
            settling: Timed::new(TIMED, inherited_until),
            held: BTreeMap::new(),
            called: Mdt::new(config, epoch, now),
        }
    }

    /// Which kind is given.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Gives this kind from now on; what was given lasts.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// The store says that clients may hold what is called back.
    pub(crate) fn recorded(&mut self, is_recorded: bool) {
        self.is_recorded = is_recorded;
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// Whether grants are called back from now on.
    pub(crate) fn calls_back(&self) -> bool {
        self.mode == Mode::Recall && self.is_recorded
    }

    /// How many files are granted at `now` by time.
    pub(crate) fn count(&mut self, now: Instant) -> usize {
        self.timed.count(now)
    }

    /// Files that are granted by time, or were until lately.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.timed.len()
    }

    /// How long a timed grant of `fid` would be from `now` on; [`Span::ZERO`]: there is none to
    /// have.
    pub(crate) fn offer(&self, fid: Fid, now: Instant) -> Span {
        let none = self.mode == Mode::None
            || self.inherited(now).is_some()
            || self.held.contains_key(&fid);
        if none || self.is_contended(fid, now) { Span::ZERO } else { TIMED }
    }

    /// Gives `client` the timed grant of `fid` that it was offered at `now`.
    pub(crate) fn give(&mut self, fid: Fid, client: ClientId, now: Instant) {
        assert!(self.inherited(now).is_none(), "no grant while those of another instance last");
        self.timed.give(client, fid, COVERED, now);
    }

    /// Adds `bits` of a file to what an answer is to give until they are called back, all of them
    /// or nothing.
    pub(crate) fn offer_called(
        &self,
        gifts: &mut Gifts,
        fid: Fid,
        bits: Bits,
        now: Instant,
    ) -> Gift {
        let is_held = self.held.contains_key(&fid);
        if is_held || self.settling.is_paused(fid, now) || self.inherited(now).is_some() {
            return Gift::None;
        }
        match self.called.offer(gifts, fid, bits) {
            None => Gift::None,
            Some(Kind::Recall) => Gift::Called,
            Some(Kind::Timed) => Gift::Timed(TIMED),
        }
    }

    /// Until when a change of `fid` by `client` has to wait for timed grants, if it has to.
    pub(crate) fn blocks(&self, fid: Fid, client: ClientId, now: Instant) -> Option<Instant> {
        self.timed.blocks(Want { fid, bits: COVERED }, Some(client), now)
    }

    /// The same of a change that another MDT asks for: no client is exempt.
    pub(crate) fn blocks_all(&self, fid: Fid, now: Instant) -> Option<Instant> {
        self.timed.blocks(Want { fid, bits: COVERED }, None, now)
    }

    /// Whether a change that another MDT asks for may go on: no client holds what it wants.
    pub(crate) fn begin_for_all(
        &mut self,
        change: ChangeId,
        wants: impl FnOnce() -> Vec<Want>,
        heard: &dyn Fn(HolderId) -> Option<Instant>,
        now: Instant,
    ) -> bool {
        self.begun(change, None, wants, heard, now)
    }

    /// Whether a change by `session` may be executed in this step. `heard` says when a session was
    /// heard of last. What it `wants` is looked up only where grants are out that are called back.
    pub(crate) fn begin(
        &mut self,
        change: ChangeId,
        session: u64,
        wants: impl FnOnce() -> Vec<Want>,
        heard: &dyn Fn(HolderId) -> Option<Instant>,
        now: Instant,
    ) -> bool {
        self.begun(change, Some(HolderId(session)), wants, heard, now)
    }

    fn begun(
        &mut self,
        change: ChangeId,
        by: Option<HolderId>,
        wants: impl FnOnce() -> Vec<Want>,
        heard: &dyn Fn(HolderId) -> Option<Instant>,
        now: Instant,
    ) -> bool {
        if self.called.is_idle(now) {
            return true;
        }
        let wants = wants();
        for holder in self.called.in_the_way(by, &wants, now) {
            self.heard_of(holder, heard(holder));
        }
        let begun = self.called.begin(change, by, &wants, now);
        if begun == Begun::Go {
            self.called.end(change);
        }
        begun == Begun::Go
    }

    /// A session was heard of: its lease counts from then, unless it leaves recalls without an
    /// answer.
    pub(crate) fn heard_of(&mut self, session: HolderId, heard: Option<Instant>) {
        if let Some(heard) = heard {
            self.called.answered(session, heard);
        }
    }

    /// Nothing is granted of a file until [`Grants::let_go`].
    pub(crate) fn hold(&mut self, fid: Fid) {
        *self.held.entry(fid).or_default() += 1;
    }

    /// An operation that held a file has ended.
    pub(crate) fn let_go(&mut self, fid: Fid) {
        let Some(count) = self.held.get_mut(&fid) else { return };
        assert!(*count > 0, "a file in the table is held");
        *count -= 1;
        if *count == 0 {
            self.held.remove(&fid);
        }
    }

    /// A name moves from one directory to another, and timed grants on it with it.
    pub(crate) fn carry(&mut self, from: Fid, to: Fid, now: Instant) {
        self.timed.carry(from, to, now);
    }

    /// Until when every change waits for timed grants of the instance before.
    pub(crate) fn inherited(&self, now: Instant) -> Option<Instant> {
        self.timed.inherited(now)
    }

    /// Two clients are after `fid`.
    pub(crate) fn contend(&mut self, fid: Fid, now: Instant) {
        self.timed.pause(fid, now + CONTENDED, now);
    }

    /// The kernel of the client that changed `fid` judges by itself for a moment.
    pub(crate) fn settle(&mut self, fid: Fid, now: Instant) {
        self.settling.pause(fid, now + SETTLING, now);
    }

    /// Whether two clients were after `fid` lately, or its changer's kernel settles.
    pub(crate) fn is_contended(&self, fid: Fid, now: Instant) -> bool {
        self.timed.is_paused(fid, now) || self.settling.is_paused(fid, now)
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

    fn fresh(inherited_until: Instant) -> Grants {
        let lease = Span::secs(10);
        Grants::new(inherited_until, (lease, GrantBugs::default()), 1, Instant::default())
    }

    fn grants() -> Grants {
        fresh(Instant::default())
    }

    /// Offers and gives.
    fn ask(grants: &mut Grants, fid: Fid, client: ClientId, now: Instant) -> Span {
        let span = grants.offer(fid, now);
        if span > Span::ZERO {
            grants.give(fid, client, now);
        }
        span
    }

    #[test]
    fn only_changes_by_others_wait() {
        let mut grants = grants();
        assert_eq!(ask(&mut grants, X, A, at(10)), TIMED);
        assert_eq!(grants.blocks(X, B, at(20)), Some(at(65)));
        assert_eq!(grants.blocks(X, A, at(20)), None);
        assert_eq!(grants.blocks(X, B, at(65)), None);
    }

    #[test]
    fn what_several_hold_no_client_changes() {
        let mut grants = grants();
        ask(&mut grants, X, A, at(0));
        ask(&mut grants, X, B, at(30));
        assert_eq!(grants.blocks(X, A, at(40)), Some(at(85)));
        let last = grants.blocks(X, B, at(40));
        assert_eq!(last, Some(at(85)), "the other's may be the one that lasts");
    }

    #[test]
    fn what_is_contended_is_not_granted_for_a_while() {
        let mut grants = grants();
        grants.contend(X, at(0));
        assert_eq!(ask(&mut grants, X, A, at(10)), Span::ZERO);
        assert_eq!(grants.blocks(X, B, at(11)), None);
        assert_eq!(ask(&mut grants, X, A, at(30_001)), TIMED);
    }

    #[test]
    fn what_settles_is_not_granted_for_a_moment_and_stays_contended() {
        let mut grants = grants();
        grants.settle(X, at(0));
        assert_eq!(ask(&mut grants, X, A, at(999)), Span::ZERO);
        assert_eq!(ask(&mut grants, X, A, at(1_000)), TIMED);
        grants.contend(X, at(1_000));
        grants.settle(X, at(1_001));
        assert_eq!(ask(&mut grants, X, A, at(30_999)), Span::ZERO, "two clients were after it");
        assert_eq!(ask(&mut grants, X, A, at(31_000)), TIMED);
    }

    #[test]
    fn a_new_instance_waits_for_old_grants_to_end() {
        let mut grants = fresh(at(50));
        assert_eq!(grants.inherited(at(10)), Some(at(50)));
        assert_eq!(ask(&mut grants, X, A, at(10)), Span::ZERO);
        assert_eq!(grants.inherited(at(50)), None);
        assert_eq!(ask(&mut grants, X, A, at(50)), TIMED);
    }

    #[test]
    fn a_grant_goes_along_with_a_name_that_moves() {
        let mut grants = grants();
        let other = Fid { oid: 9, ..X };
        ask(&mut grants, X, A, at(0));
        grants.contend(other, at(0));
        grants.carry(X, other, at(20));
        assert_eq!(grants.blocks(other, B, at(30)), Some(at(55)), "though it is contended");
        assert_eq!((grants.blocks(other, A, at(30)), grants.count(at(75))), (None, 0));
    }

    #[test]
    fn switched_off_it_gives_none_and_honours_those_that_are_out() {
        let mut grants = grants();
        ask(&mut grants, X, A, at(0));
        grants.set_mode(Mode::None);
        assert_eq!(ask(&mut grants, X, A, at(1)), Span::ZERO);
        assert_eq!(grants.blocks(X, B, at(2)), Some(at(55)));
    }
}
