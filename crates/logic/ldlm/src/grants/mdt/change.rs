//! Changes: which grants are in their way, how these are called back, and what the changes wait
//! for.
//!
//! A change waits only at the MDT. It holds nothing that another change waits for, so changes
//! cannot wait for each other in a circle here.

use std::collections::BTreeSet;

use types::{Fid, Instant};

use super::parked::Parked;
use super::{Mdt, Output, Timer};
use crate::grants::limits::{VECTOR_MAX, WANTS_MAX};
use crate::grants::{Bits, ChangeId, HolderId, Recall, Want};

/// Whether a change may be executed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// In this very step.
    Go,
    /// Once [`Output::Ready`] names it.
    Parked,
}

/// What is in the way of a change.
#[derive(Default)]
struct Way {
    /// Places of grants, with what is wanted of each.
    grants: Vec<(u32, Bits)>,
    /// Timed grants end.
    until: Option<Instant>,
    /// Clients of the instance before have not restated.
    is_unstated: bool,
}

impl Way {
    fn is_free(&self) -> bool {
        self.grants.is_empty() && self.until.is_none() && !self.is_unstated
    }
}

impl Mdt {
    /// A change by a session, or by the MDT itself, of `wants`. See the head of `mdt.rs`.
    ///
    /// # Panics
    /// If there are more than [`WANTS_MAX`] wants.
    pub fn begin(
        &mut self,
        change: ChangeId,
        by: Option<HolderId>,
        wants: &[Want],
        now: Instant,
    ) -> Begun {
        assert!(wants.len() <= WANTS_MAX, "a change is about few files");
        let mut way = self.way(by, wants, now);
        if self.expel_lapsed(&way, now) {
            way = self.way(by, wants, now);
        }
        if way.is_free() {
            return Begun::Go;
        }
        let is_new = !self.changes.contains_key(&change);
        self.park(change, by, wants);
        for want in wants.iter().filter(|_| is_new) {
            self.note_conflict(*want, &way, now);
        }
        self.recall(&way, now);
        if let Some(until) = way.until {
            self.timers.insert(until, Timer::Change(change));
        }
        Begun::Parked
    }

    /// Sessions that hold what a change wants: whether their leases last has to be known when it
    /// begins.
    #[must_use]
    pub fn in_the_way(&self, by: Option<HolderId>, wants: &[Want], now: Instant) -> Vec<HolderId> {
        let way = self.way(by, wants, now);
        let holders = way.grants.iter().map(|(place, _)| self.store.get(*place).holder);
        let mut sessions: Vec<_> =
            holders.filter_map(|at| self.holder_at(at)).map(|holder| holder.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// A change is executed, or given up.
    pub fn end(&mut self, change: ChangeId) {
        let Some(parked) = self.changes.remove(&change) else { return };
        for want in parked.wants {
            let Some(taking) = self.takings.get_mut(&want.fid) else { continue };
            taking.changes.retain(|other| *other != change);
            if taking.changes.is_empty() {
                self.takings.remove(&want.fid);
                continue;
            }
            let others = taking.changes.iter().filter_map(|other| self.changes.get(other));
            let wants = others.flat_map(|other| &other.wants).filter(|other| other.fid == want.fid);
            taking.bits = wants.fold(Bits::empty(), |bits, other| bits | other.bits);
        }
    }

    /// Whether nothing can be in the way of any change: nothing is granted, nothing was that may
    /// last, and nobody waits.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        let is_granted = self.count() > 0 || !self.timed.is_empty();
        !is_granted
            && self.timed.inherited(now).is_none()
            && self.is_recovered()
            && self.changes.is_empty()
    }

    /// Changes that wait, in the order of their ids.
    pub fn waiting(&self) -> impl Iterator<Item = ChangeId> {
        self.changes.iter().filter(|(_, parked)| !parked.is_ready).map(|(change, _)| *change)
    }

    /// A change that waits: which session makes it (none: the MDT itself), and of which files.
    #[must_use]
    pub fn waiter(&self, change: ChangeId) -> Option<(Option<HolderId>, Vec<Fid>)> {
        let parked = self.changes.get(&change)?;
        let mut files: Vec<_> = parked.wants.iter().map(|want| want.fid).collect();
        files.sort_unstable();
        files.dedup();
        Some((parked.by, files))
    }

    /// For whom a change waits.
    #[must_use]
    pub fn waiting_on(&self, change: ChangeId, now: Instant) -> Vec<HolderId> {
        let Some(parked) = self.changes.get(&change) else { return Vec::new() };
        let way = self.way(parked.by, &parked.wants, now);
        let of_grants = way.grants.iter().map(|(place, _)| self.store.get(*place).holder);
        let own = parked.by.and_then(|session| self.sessions.get(&session).copied());
        let unstated = self.unstated_of(own, &parked.wants).filter(|_| way.is_unstated);
        let known = of_grants.chain(unstated).filter_map(|at| self.holder_at(at));
        let mut on: Vec<_> = known.map(|holder| holder.session).collect();
        let timed = parked.wants.iter().filter(|want| self.is_timed(**want, parked.by, now));
        on.extend(timed.filter_map(|want| self.timed.holder(want.fid)));
        on.sort_unstable();
        on.dedup();
        on
    }

    /// Whether parked changes want a file while recalls of this session are not acknowledged: the
    /// engine hurries what the session asks of that file. The recalls may be for other changes.
    #[must_use]
    pub fn is_hurried(&self, session: HolderId, fid: Fid) -> bool {
        !self.takings.is_empty()
            && self.takings.contains_key(&fid)
            && self.holder(session).is_some_and(|holder| !holder.recalled.is_empty())
    }

    fn is_timed(&self, want: Want, by: Option<HolderId>, now: Instant) -> bool {
        self.timed.blocks(want, by, now).is_some()
    }

    fn way(&self, by: Option<HolderId>, wants: &[Want], now: Instant) -> Way {
        let own = by.and_then(|session| self.sessions.get(&session).copied());
        let mut way = Way { is_unstated: self.waits_for_unstated(own, wants), ..Way::default() };
        way.until = self.timed.inherited(now);
        for want in wants {
            self.store.each_of(want.fid, |place, grant| {
                let is_own = own == Some(grant.holder) && !self.config.bugs.own_recall_not_exempt();
                if grant.bits.intersects(want.bits) && !is_own {
                    way.grants.push((place, grant.bits & want.bits));
                }
            });
            way.until = way.until.max(self.timed.blocks(*want, by, now));
        }
        if self.config.bugs.recall_skips_holder() && way.grants.len() > 1 {
            way.grants.pop();
        }
        way
    }

    /// Clients of the instance before that have not restated, and may hold something of this. A
    /// client that is back waits for the others, not for itself.
    fn unstated_of<'a>(
        &'a self,
        own: Option<u32>,
        wants: &'a [Want],
    ) -> impl Iterator<Item = u32> + 'a {
        self.unstated.iter().copied().filter(move |at| {
            let claims = self.holder_at(*at).and_then(|holder| holder.claims.as_ref());
            let is_claimed =
                |claims: &BTreeSet<Fid>| wants.iter().any(|want| claims.contains(&want.fid));
            Some(*at) != own && claims.is_none_or(is_claimed)
        })
    }

    fn waits_for_unstated(&self, own: Option<u32>, wants: &[Want]) -> bool {
        let is_one = self.unstated_of(own, wants).next().is_some();
        is_one && !self.config.bugs.restart_waits_for_nobody()
    }

    fn note_conflict(&mut self, want: Want, way: &Way, now: Instant) {
        let of_it = |(place, _): &(u32, Bits)| self.store.get(*place).fid == want.fid;
        if way.until.is_some() || way.grants.iter().any(of_it) {
            self.contention.note(want, now);
        }
    }

    fn park(&mut self, change: ChangeId, by: Option<HolderId>, wants: &[Want]) {
        let parked = self.changes.entry(change).or_insert_with(|| Parked {
            by,
            wants: Vec::new(),
            is_ready: false,
        });
        parked.is_ready = false;
        let new: Vec<_> = wants.iter().filter(|want| !parked.wants.contains(want)).collect();
        for want in new {
            parked.wants.push(*want);
            let taking = self.takings.entry(want.fid).or_default();
            taking.bits |= want.bits;
            if !taking.changes.contains(&change) {
                taking.changes.push(change);
            }
        }
    }

    /// Asks for what is not being asked for yet.
    fn recall(&mut self, way: &Way, now: Instant) {
        for (place, bits) in &way.grants {
            let grant = self.store.get(*place);
            let is_asked = grant.dying.contains(*bits);
            let at = grant.holder;
            if is_asked || self.known_at(at).is_fencing {
                continue;
            }
            let grant = self.store.get_mut(*place);
            grant.dying |= *bits;
            let flushes = grant.dying.contains(Bits::WRITE);
            let number = self.numbers.draw();
            self.ask_who_waits(at, now);
            let holder = self.known_at(at);
            if holder.outbox.is_empty() {
                self.sending.push_back(at);
            }
            self.known_at(at).recall(*place, number, flushes, now);
            self.known_at(at).sent = now;
            self.set_timer(at);
        }
    }

    /// The next vector for a holder.
    pub(super) fn recalls_for(&mut self, at: u32) -> Option<Output> {
        let holder = self.holders[at as usize].as_mut()?;
        let from = holder.outbox.len().saturating_sub(VECTOR_MAX);
        let places: Vec<u32> = holder.outbox.drain(from..).collect();
        let session = holder.session;
        let recalled = |place: u32| {
            let holder = self.holder_at(at).expect("it has recalls");
            let number = holder.recalled.get(&place).expect("it is under way").number;
            let grant = self.store.get(place);
            Recall { fid: grant.fid, bits: grant.dying, number }
        };
        let recalls: Vec<Recall> = places.into_iter().map(recalled).collect();
        (!recalls.is_empty()).then_some(Output::Recall { session, recalls })
    }

    pub(super) fn recheck_file(&mut self, fid: Fid, now: Instant) {
        let Some(taking) = self.takings.get(&fid) else { return };
        for change in taking.changes.clone() {
            self.recheck(change, now);
        }
    }

    pub(super) fn recheck_all(&mut self, now: Instant) {
        let changes: Vec<_> = self.changes.keys().copied().collect();
        changes.into_iter().for_each(|change| self.recheck(change, now));
    }

    /// Whether a change may go by now.
    pub(super) fn recheck(&mut self, change: ChangeId, now: Instant) {
        let Some(parked) = self.changes.get(&change).filter(|parked| !parked.is_ready) else {
            return;
        };
        let way = self.way(parked.by, &parked.wants, now);
        if way.is_free() {
            let parked = self.changes.get_mut(&change).expect("it waits");
            parked.is_ready = true;
            self.out.push_back(Output::Ready(change));
            return;
        }
        self.recall(&way, now); // grants that were restated since
        if let Some(until) = way.until {
            self.timers.insert(until, Timer::Change(change));
        }
    }

    /// Sessions in the way whose lease is over; whether there are any.
    fn expel_lapsed(&mut self, way: &Way, now: Instant) -> bool {
        let mut lapsed: Vec<u32> = Vec::new();
        for (place, _) in &way.grants {
            let at = self.store.get(*place).holder;
            if self.has_lapsed(at, now) && !lapsed.contains(&at) {
                lapsed.push(at);
            }
        }
        lapsed.iter().for_each(|at| self.expel(*at, now));
        !lapsed.is_empty()
    }
}
