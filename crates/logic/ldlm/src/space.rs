//! Locks that applications hold across calls: BSD `flock`, POSIX `fcntl` ranges, and the file's own
//! lock.
//!
//! A lock belongs to an [`Owner`]; an owner never conflicts with itself. POSIX ranges of one owner
//! split, join and change mode; `flock` and the file's own lock are the same with one range. Locks
//! of different kinds never conflict.
//!
//! A request that may wait is queued under its [`WaitId`]. The requester may [`LockSpace::leave`]
//! for a while and ask again with the same id: its place is kept, and nothing is granted to it
//! meanwhile. It may [ask to be called](LockSpace::leave_to_be_called): [`LockSpace::take_turns`]
//! returns it once when the lock is free for it. Deadlocks among POSIX locks are found when a
//! request starts to wait: it is refused with EDEADLK.

use std::collections::{BTreeMap, BTreeSet};

use types::{Extent, Fid};

use crate::Mode;
use crate::book::Book;
use crate::held::Held;
use crate::ranges::Ranges;
use crate::request::{Conflict, Kind, LockRequest, Owner, WaitId};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    Granted,
    /// It stands in line.
    Waiting,
    /// It does not wait and cannot be had (`EAGAIN`).
    Refused,
    /// To wait would be a deadlock (`EDEADLK`).
    Deadlock,
    /// A bound of the lock space is reached (`ENOLCK`).
    Full,
}

struct Waiter {
    request: LockRequest,
    presence: Presence,
}

/// Whether a request awaits the answer. Without that nothing is granted, but the place is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Here,
    Away,
    /// Away, and to be called when its turn comes.
    Called,
}

#[derive(Default)]
struct Resource {
    held: Held,
    line: Vec<Waiter>, // first come first
}

impl Resource {
    /// Granted ranges of others in the way of `request`.
    fn conflicts<'a>(&'a self, request: &'a LockRequest) -> impl Iterator<Item = Conflict> + 'a {
        self.held.conflicts(request)
    }

    /// Waiters before place `place` that want what `request` wants.
    fn ahead<'a>(
        &'a self,
        request: &'a LockRequest,
        place: usize,
    ) -> impl Iterator<Item = &'a LockRequest> + 'a {
        self.line[..place].iter().map(|waiter| &waiter.request).filter(|other| {
            other.owner != request.owner
                && other.extent.overlaps(request.extent)
                && !other.mode.admits(request.mode)
        })
    }
}

type ResourceId = (Fid, Kind);

/// All locks of this kind on one target.
#[derive(Default)]
pub struct LockSpace {
    resources: BTreeMap<ResourceId, Resource>,
    waits: BTreeMap<WaitId, ResourceId>,
    waits_of: BTreeMap<(Kind, Owner), BTreeSet<WaitId>>,
    /// Each session with each resource of which it holds something: its end does not walk what
    /// others hold.
    holds: BTreeSet<(u64, ResourceId)>,
    book: Book,
    /// Waits that are to be called.
    turns: Vec<LockRequest>,
}

impl LockSpace {
    #[must_use]
    pub fn new() -> LockSpace {
        LockSpace::default()
    }

    /// Asks for a lock; with `wait` it stands in line if it must. A request whose wait id is in
    /// line already takes that place up again. The second value: others that are granted by this (a
    /// downgrade frees).
    pub fn enqueue(&mut self, request: LockRequest, wait: bool) -> (Enqueued, Vec<WaitId>) {
        let wait_id = request.wait_id();
        if self.waits.contains_key(&wait_id) {
            return self.resume(wait_id);
        }
        if self.book.is_full(request.owner.session) {
            return (Enqueued::Full, Vec::new());
        }
        let id = (request.resource, request.kind);
        let place = self.resources.get(&id).map_or(0, |resource| resource.line.len());
        if self.is_free(id, &request, place) {
            self.hold(id, &request);
            return (Enqueued::Granted, self.settle(id));
        }
        let mut granted = Vec::new();
        if request.kind == Kind::Flock {
            granted = self.unlock(request.resource, request.kind, request.owner, Extent::ALL);
        }
        if !wait {
            return (Enqueued::Refused, granted);
        }
        if request.kind == Kind::Posix && self.would_deadlock(id, &request) {
            return (Enqueued::Deadlock, granted);
        }
        let waiter = Waiter { request, presence: Presence::Here };
        self.resources.entry(id).or_default().line.push(waiter);
        self.waits.insert(wait_id, id);
        self.book.waits(wait_id.session);
        self.waits_of.entry((request.kind, request.owner)).or_default().insert(wait_id);
        // The new wait may close a circle through somebody's place in a line, who then may be
        // passed.
        if self.reaches(request.kind, request.owner, request.owner) {
            granted.extend(self.settle_all());
        }
        let own = granted.iter().position(|other| *other == wait_id);
        match own {
            Some(own) => {
                granted.remove(own);
                (Enqueued::Granted, granted)
            }
            None => (Enqueued::Waiting, granted),
        }
    }

    /// The granted lock that stands in the way of `request` (F_GETLK).
    #[must_use]
    pub fn test(&self, request: &LockRequest) -> Option<Conflict> {
        self.resources.get(&(request.resource, request.kind))?.conflicts(request).next()
    }

    /// The sessions for which `request` waits or would wait: those that hold what it wants, and
    /// those before it in line.
    #[must_use]
    pub fn sessions_in_the_way(&self, request: &LockRequest) -> BTreeSet<u64> {
        let Some(resource) = self.resources.get(&(request.resource, request.kind)) else {
            return BTreeSet::new();
        };
        let own =
            resource.line.iter().position(|waiter| waiter.request.wait_id() == request.wait_id());
        let ahead = resource
            .ahead(request, own.unwrap_or(resource.line.len()))
            .map(|other| other.owner.session);
        resource.conflicts(request).map(|conflict| conflict.owner.session).chain(ahead).collect()
    }

    /// Whether another session waits for a lock of this kind on a file of which the session holds
    /// one.
    #[must_use]
    pub fn is_awaited(&self, session: u64, file: Fid, kind: Kind) -> bool {
        let Some(resource) = self.resources.get(&(file, kind)) else { return false };
        let is_other = |waiter: &Waiter| {
            waiter.presence != Presence::Away && waiter.request.owner.session != session
        };
        resource.held.has_of(session) && resource.line.iter().any(is_other)
    }

    /// Whether another session than this one holds a lock of this kind on a file.
    #[must_use]
    pub fn is_held_by_another(&self, session: u64, file: Fid, kind: Kind) -> bool {
        let resource = self.resources.get(&(file, kind));
        resource.is_some_and(|resource| resource.held.has_of_another(session))
    }

    /// Other sessions that hold a lock in the way of `request`, which is in line. Only those for
    /// which no earlier one waits.
    #[must_use]
    pub fn held_up_first_by(&self, request: &LockRequest) -> BTreeSet<u64> {
        let Some(resource) = self.resources.get(&(request.resource, request.kind)) else {
            return BTreeSet::new();
        };
        let is_first = |holder: &u64| {
            let line = resource.line.iter().map(|waiter| waiter.request.owner.session);
            line.filter(|session| session != holder).take(2).count() == 1
        };
        let holders = resource.conflicts(request).map(|conflict| conflict.owner.session);
        holders.filter(|holder| *holder != request.owner.session).filter(is_first).collect()
    }

    /// Whether giving `extent` back would leave two ranges of one, and its session has all that it
    /// may have (`ENOLCK`).
    #[must_use]
    pub fn splits_beyond(&self, request: &LockRequest) -> bool {
        let held = self.resources.get(&(request.resource, request.kind));
        let ranges = held.and_then(|resource| resource.held.of(request.owner));
        self.book.is_full_of_locks(request.owner.session, 1)
            && ranges.is_some_and(|ranges| ranges.is_split_by(request.extent))
    }

    /// Gives `extent` back. Returns who is granted by this.
    pub fn unlock(
        &mut self,
        resource: Fid,
        kind: Kind,
        owner: Owner,
        extent: Extent,
    ) -> Vec<WaitId> {
        let id = (resource, kind);
        let Some(resource) = self.resources.get_mut(&id) else { return Vec::new() };
        let (before, after) = resource.held.change(owner, |ranges| ranges.clear(extent));
        self.note(id, owner.session, before, after);
        self.settle(id)
    }

    /// Nobody awaits the answer of this wait for now; its place is kept.
    pub fn leave(&mut self, wait: WaitId) {
        let here = self.waiter(wait).filter(|waiter| waiter.presence == Presence::Here);
        if let Some(waiter) = here {
            waiter.presence = Presence::Away;
        }
    }

    /// The same, and [`LockSpace::take_turns`] returns it when its turn has come.
    pub fn leave_to_be_called(&mut self, wait: WaitId) {
        if let Some(waiter) = self.waiter(wait) {
            waiter.presence = Presence::Called;
        }
    }

    /// Whether there are turns to take.
    #[must_use]
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Waits that are granted as soon as they are asked for again. Each is returned once. A later
    /// request does not pass it, because it keeps its place.
    pub fn take_turns(&mut self) -> Vec<LockRequest> {
        std::mem::take(&mut self.turns)
    }

    /// Whether the wait stands in line and nobody awaits its answer.
    #[must_use]
    pub fn is_absent(&self, wait: WaitId) -> bool {
        let Some(resource) = self.waits.get(&wait).and_then(|id| self.resources.get(id)) else {
            return false;
        };
        let is_away = |waiter: &Waiter| waiter.presence != Presence::Here;
        resource.line.iter().any(|waiter| waiter.request.wait_id() == wait && is_away(waiter))
    }

    /// Whether the wait stands in line.
    #[must_use]
    pub fn is_waiting(&self, wait: WaitId) -> bool {
        self.waits.contains_key(&wait)
    }

    /// Ends a wait. Returns who is granted by this.
    pub fn cancel(&mut self, wait: WaitId) -> Vec<WaitId> {
        let Some(id) = self.waits.get(&wait).copied() else { return Vec::new() };
        let resource = self.resources.get_mut(&id).expect("a wait's resource exists");
        let place = resource
            .line
            .iter()
            .position(|waiter| waiter.request.wait_id() == wait)
            .expect("a known wait stands in line");
        let gone = resource.line.remove(place);
        self.forget_wait(&gone.request);
        self.settle(id)
    }

    /// Resources of which a session holds something.
    #[must_use]
    pub fn resources_of(&self, session: u64) -> Vec<Fid> {
        self.held_by(session).map(|(fid, _)| fid).collect()
    }

    /// Ends all waits of a session. Returns who is granted by this.
    pub fn end_waits(&mut self, session: u64) -> Vec<WaitId> {
        let own = self.waits.range(WaitId::all_of(session));
        let gone: Vec<WaitId> = own.map(|(wait, _)| *wait).collect();
        gone.into_iter().flat_map(|wait| self.cancel(wait)).collect()
    }

    /// Everything of a session goes. Returns who is granted by this.
    pub fn drop_session(&mut self, session: u64) -> Vec<WaitId> {
        let mut granted = self.end_waits(session);
        let ids: Vec<ResourceId> = self.held_by(session).collect();
        granted.extend(ids.into_iter().flat_map(|id| self.drop_held(id, session)));
        granted
    }

    /// What a session holds of one file goes. Returns who is granted by this.
    pub fn drop_file(&mut self, session: u64, file: Fid) -> Vec<WaitId> {
        Kind::ALL.into_iter().flat_map(|kind| self.drop_held((file, kind), session)).collect()
    }

    fn drop_held(&mut self, id: ResourceId, session: u64) -> Vec<WaitId> {
        let Some(resource) = self.resources.get_mut(&id) else { return Vec::new() };
        let gone = resource.held.take_of(session);
        gone.iter().for_each(|ranges| self.book.held(session, ranges.len(), 0));
        self.holds.remove(&(session, id));
        if gone.is_empty() { Vec::new() } else { self.settle(id) }
    }

    /// A lock that its holder states anew after a restart: held without a question. Says whether
    /// there is room for it.
    #[must_use]
    pub fn restate(&mut self, request: LockRequest) -> bool {
        let has_room = !self.book.is_full_of_locks(request.owner.session, 2);
        if has_room {
            self.hold((request.resource, request.kind), &request);
        }
        has_room
    }

    /// Ranges held in all.
    #[must_use]
    pub fn held_ranges(&self) -> usize {
        self.book.all.ranges
    }

    /// Requests in line in all.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.waits.len()
    }

    /// Whether `owner` holds all of `extent` in at least `mode`.
    #[must_use]
    pub fn holds(&self, request: &LockRequest) -> bool {
        let held = self
            .resources
            .get(&(request.resource, request.kind))
            .and_then(|resource| resource.held.of(request.owner));
        let Some(ranges) = held else { return false };
        let mut at = request.extent.start();
        for (extent, mode, _) in ranges.iter() {
            let enough = mode == Mode::Exclusive || request.mode == Mode::Shared;
            if enough && extent.start() <= at && at < extent.end() {
                at = extent.end();
            }
        }
        at >= request.extent.end()
    }

    fn resume(&mut self, wait: WaitId) -> (Enqueued, Vec<WaitId>) {
        self.waiter(wait).expect("asked for a known wait").presence = Presence::Here;
        let mut granted = self.settle(self.waits[&wait]);
        match granted.iter().position(|other| *other == wait) {
            Some(own) => {
                granted.remove(own);
                (Enqueued::Granted, granted)
            }
            None => (Enqueued::Waiting, granted),
        }
    }

    fn waiter(&mut self, wait: WaitId) -> Option<&mut Waiter> {
        let resource = self.resources.get_mut(self.waits.get(&wait)?)?;
        resource.line.iter_mut().find(|waiter| waiter.request.wait_id() == wait)
    }

    fn forget_wait(&mut self, request: &LockRequest) {
        let wait = request.wait_id();
        self.waits.remove(&wait);
        self.book.waits_no_more(wait.session);
        let key = (request.kind, request.owner);
        if let Some(waits) = self.waits_of.get_mut(&key) {
            waits.remove(&wait);
            if waits.is_empty() {
                self.waits_of.remove(&key);
            }
        }
    }

    fn hold(&mut self, id: ResourceId, request: &LockRequest) {
        let held = &mut self.resources.entry(id).or_default().held;
        let set = |ranges: &mut Ranges| ranges.set(request.extent, request.mode, request.pid);
        let (before, after) = held.change(request.owner, set);
        self.note(id, request.owner.session, before, after);
    }

    /// An owner of `session` had so many ranges of a resource, and has so many now.
    fn note(&mut self, id: ResourceId, session: u64, before: usize, after: usize) {
        self.book.held(session, before, after);
        if before == 0 && after > 0 {
            self.holds.insert((session, id));
        }
        let still = |resource: &Resource| resource.held.has_of(session);
        if before > 0 && after == 0 && !self.resources.get(&id).is_some_and(still) {
            self.holds.remove(&(session, id));
        }
    }

    /// Resources of which a session holds something.
    fn held_by(&self, session: u64) -> impl Iterator<Item = ResourceId> {
        let first = (session, (Fid::default(), Kind::Flock)); // none is lower
        let own = self.holds.range(first..).take_while(move |(holder, _)| *holder == session);
        own.map(|(_, id)| *id)
    }

    /// Whether `request`, standing at `place`, may be granted.
    fn is_free(&self, id: ResourceId, request: &LockRequest, place: usize) -> bool {
        let Some(resource) = self.resources.get(&id) else { return true };
        resource.conflicts(request).next().is_none()
            && resource
                .ahead(request, place)
                .all(|other| self.reaches(request.kind, other.owner, request.owner))
    }

    /// Grants whoever can be granted on one resource, and forgets it when it is empty. Waits that
    /// are to be called get their turn.
    fn settle(&mut self, id: ResourceId) -> Vec<WaitId> {
        let mut granted = Vec::new();
        let mut place = 0;
        while let Some(waiter) =
            self.resources.get(&id).and_then(|resource| resource.line.get(place))
        {
            let (request, presence) = (waiter.request, waiter.presence);
            if presence == Presence::Away || !self.is_free(id, &request, place) {
                place += 1;
                continue;
            }
            if presence == Presence::Called {
                self.waiter(request.wait_id()).expect("found above").presence = Presence::Away;
                self.turns.push(request);
                place += 1;
                continue;
            }
            self.resources.get_mut(&id).expect("found above").line.remove(place);
            self.forget_wait(&request);
            self.hold(id, &request);
            granted.push(request.wait_id());
            place = 0; // the grant may have lowered what its owner held: look from the start
        }
        if self
            .resources
            .get(&id)
            .is_some_and(|resource| resource.held.is_empty() && resource.line.is_empty())
        {
            self.resources.remove(&id);
        }
        granted
    }

    fn settle_all(&mut self) -> Vec<WaitId> {
        let ids: BTreeSet<ResourceId> = self.waits.values().copied().collect();
        ids.into_iter().flat_map(|id| self.settle(id)).collect()
    }

    /// Whether somebody who holds what `request` wants waits, through holders only, for the
    /// requester.
    fn would_deadlock(&self, id: ResourceId, request: &LockRequest) -> bool {
        let Some(resource) = self.resources.get(&id) else { return false };
        let first = resource.conflicts(request).map(|conflict| conflict.owner).collect();
        self.walk(request.kind, first, request.owner, false)
    }

    /// Whether `from` waits for `to`, through holders and places in line.
    fn reaches(&self, kind: Kind, from: Owner, to: Owner) -> bool {
        let first = self.blockers(kind, from, true);
        self.walk(kind, first, to, true)
    }

    fn walk(&self, kind: Kind, mut next: Vec<Owner>, to: Owner, lines: bool) -> bool {
        let mut seen = BTreeSet::new();
        while let Some(owner) = next.pop() {
            if owner == to {
                return true;
            }
            if seen.insert(owner) {
                next.extend(self.blockers(kind, owner, lines));
            }
        }
        false
    }

    /// Owners for whom `owner` waits: holders, and with `lines` also those ahead of it.
    fn blockers(&self, kind: Kind, owner: Owner, lines: bool) -> Vec<Owner> {
        let mut out = Vec::new();
        for wait in self.waits_of.get(&(kind, owner)).into_iter().flatten() {
            let resource = self
                .waits
                .get(wait)
                .and_then(|id| self.resources.get(id))
                .expect("a wait's resource exists");
            let place = resource
                .line
                .iter()
                .position(|waiter| waiter.request.wait_id() == *wait)
                .expect("a known wait stands in line");
            let request = &resource.line[place].request;
            out.extend(resource.conflicts(request).map(|conflict| conflict.owner));
            if lines {
                out.extend(resource.ahead(request, place).map(|other| other.owner));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
