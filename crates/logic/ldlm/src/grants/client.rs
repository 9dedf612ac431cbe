//! The cache of one client under the grants of one MDT.
//!
//! Order of calls:
//! - A request: [`Cache::ask`] when it is sent for the first time. After its reply:
//!   [`Cache::heard`] with the reply's head, [`Cache::take`] for each file in the reply,
//!   [`Cache::finish`]. The caller keeps the values for the bits that `take` returns.
//! - A change: [`Cache::begin`] before it is sent, and [`Cache::end`] after its reply was taken, or
//!   [`Cache::end_elsewhere`] if another MDT has replied. A change whose caller is gone ends when
//!   its reply comes, or with the session.
//! - A system call: [`Cache::belief`] returns whether the cache answers it, and how long the kernel
//!   may keep the answer. A caller that gives the kernel such an answer reports it with
//!   [`Cache::told`].
//! - A recall: [`Cache::recall`] when it comes. The caller sends the notification that
//!   [`Cache::poll_notify`] returns to the kernel, and calls [`Cache::notified`]; then
//!   [`Cache::poll_acks`] returns the acknowledgement.
//!
//! Invariants
//! - The cache answers nothing that another client may have changed: the MDT counts a grant as held
//!   for as long as this side uses it.
//! - An answer that came late sets no value back.
//! - Values that this client is changing are not answered until the reply is taken.
//! - Until the acknowledgement of a recall leaves, the dying grant answers, but without validity.

mod directories;
mod dying;
mod ends;
mod entry;
mod lists;
mod lru;
mod names;
mod question;
mod recall;
mod recover;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use queues::{FixedMap, Index, NIL, Slab};
use types::{Fid, Instant, Span, Transno};

use super::limits::{GHOSTS_MAX, LEASE, LRU_MAX_AGE, LRU_SIZE, TIMED};
use super::{Ack, Bits, Bugs, ChangeId, Head, Kind, Number, Told, Want};
use directories::Directories;
use dying::Dying;
use entry::Entry;
use lists::Lists;

pub use directories::Listing;
pub use names::Name;
pub use question::Question;
pub use recall::Notify;

/// Settings of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Grants that are kept (Lustre: `lru_size`).
    pub lru_size: u32,
    /// Age of an unused grant that is given back (Lustre: `lru_max_age`).
    pub lru_max_age: Span,
    /// Of the session.
    pub lease: Span,
    /// Planted bugs.
    pub bugs: Bugs,
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig {
            lru_size: LRU_SIZE,
            lru_max_age: LRU_MAX_AGE,
            lease: LEASE,
            bugs: Bugs::default(),
        }
    }
}

/// Whether the cache answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// Ask the MDT.
    No,
    /// It answers, and the kernel may keep that for no time.
    Dying,
    /// It answers, and the kernel may keep that until then.
    Until(Instant),
}

/// See the head of the file.
pub struct Cache {
    config: CacheConfig,
    slab: Slab<Entry>,
    index: Index,
    lists: Lists,
    /// When the lease ends by this clock.
    lease_until: Instant,
    floor: Number,
    /// Answers with numbers up to this one are of a session or an instance that is over.
    arrivals_after: Number,
    is_recovering: bool,
    /// When each was sent.
    questions: BTreeMap<Question, Instant>,
    next_question: u64,
    changing: FixedMap<Fid, Vec<(ChangeId, Bits)>>,
    dying: BTreeMap<Fid, Dying>,
    /// When the kernel is to be told of each, or forced.
    due: BTreeSet<(Instant, Fid)>,
    acks: Vec<Ack>,
    /// Entries without bits, which stay while an older question may still tell of them.
    ghosts: VecDeque<(Question, Fid)>,
    /// Of questions up to this one nothing is taken.
    deaf: Question,
    directories: Directories,
    /// How often data of a file could be kept anew.
    keepings: u32,
    distrusted: FixedMap<Fid, Instant>,
}

impl Cache {
    /// Of a session that has just begun; `after` is the number that it began with.
    #[must_use]
    pub fn new(config: CacheConfig, after: Number) -> Cache {
        Cache {
            config,
            slab: Slab::default(),
            index: Index::default(),
            lists: Lists::default(),
            lease_until: Instant::default(),
            floor: Number(0),
            arrivals_after: after,
            is_recovering: false,
            questions: BTreeMap::new(),
            next_question: 0,
            changing: FixedMap::default(),
            dying: BTreeMap::new(),
            due: BTreeSet::new(),
            acks: Vec::new(),
            ghosts: VecDeque::new(),
            deaf: Question(0),
            directories: Directories::default(),
            keepings: 0,
            distrusted: FixedMap::default(),
        }
    }

    /// Grants that are held (Lustre: `lock_count`).
    #[must_use]
    pub fn count(&self) -> usize {
        self.lists.len()
    }

    /// Of these, the ones that have not ended by time.
    #[must_use]
    pub fn held(&self, now: Instant) -> usize {
        let places = self.lists.places(&self.slab).into_iter();
        let lasts = |place: &u32| {
            let entry = self.slab.get(*place);
            entry.bits != entry.timed || !entry.lasting(now).is_empty()
        };
        places.filter(lasts).count()
    }

    /// Sets `lru_size` and `lru_max_age`.
    pub fn set_lru(&mut self, size: u32, max_age: Span) {
        (self.config.lru_size, self.config.lru_max_age) = (size, max_age);
    }

    /// Memory of the grants, bytes, without values and names.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slab.bytes() + self.slab.len() * 2 * size_of::<u32>()
    }

    /// What is held of a file until it is called back, whether the lease lasts or not.
    #[must_use]
    pub fn bits_of(&self, fid: Fid) -> Bits {
        self.find(fid).map_or(Bits::empty(), |place| {
            let entry = self.slab.get(place);
            entry.bits - entry.timed
        })
    }

    /// Whether the MDT calls these bits back before another client changes them. They are held
    /// until a recall, and none has come. Their value may be unknown.
    #[must_use]
    pub fn is_called_back(&self, fid: Fid, bits: Bits, now: Instant) -> bool {
        let lasts = !self.is_recovering && self.names_until() > now;
        let held = |place: u32| {
            let entry = self.slab.get(place);
            entry.bits - entry.timed - entry.dying
        };
        lasts && self.find(fid).is_some_and(|place| held(place).contains(bits))
    }

    /// When the lease ends.
    #[must_use]
    pub fn lease_until(&self) -> Instant {
        self.lease_until
    }

    /// A request is sent for the first time.
    pub fn ask(&mut self, now: Instant) -> Question {
        self.next_question += 1;
        let question = Question(self.next_question);
        self.questions.insert(question, now);
        question
    }

    /// A reply has come. True: all grants were void and are gone.
    pub fn heard(&mut self, question: Question, head: Head, now: Instant) -> bool {
        let Some(sent) = self.questions.get(&question).copied() else { return false };
        if head.renews {
            let from = if self.config.bugs.lease_from_reply() { now } else { sent };
            self.lease_until = self.lease_until.max(from + self.config.lease);
        }
        self.voided(head.floor)
    }

    /// Grants with numbers below `floor` are void. True: that is new, and all grants are gone. Call
    /// it before anything is taken from the reply that says so.
    pub fn voided(&mut self, floor: Number) -> bool {
        if floor <= self.floor {
            return false;
        }
        self.floor = floor;
        self.clear();
        true
    }

    /// Where the caller counts the lease itself, in place of [`Cache::heard`]: it ends then.
    pub fn leased(&mut self, lease: Span, until: Instant) {
        (self.config.lease, self.lease_until) = (lease, until);
    }

    /// The lease was over for a while: all that was held is void.
    pub fn lapsed(&mut self) {
        self.clear();
    }

    /// A reply tells of a file. The bits whose values are to be taken from it: the others are not
    /// granted any more, or a later answer was there before.
    pub fn take(&mut self, question: Question, told: Told, now: Instant) -> Bits {
        let Some(sent) = self.questions.get(&question).copied() else { return Bits::empty() };
        let Told { fid, given, as_of } = told;
        let is_void = given.number <= self.arrivals_after || given.number < self.floor;
        let lasts = if given.kind == Kind::Timed { TIMED } else { self.config.lease };
        let is_over = sent + lasts <= now;
        let is_deaf = question <= self.deaf || self.is_recovering;
        if given.bits.is_empty() || is_void || is_over || is_deaf {
            return Bits::empty();
        }
        let place = self.find(fid).unwrap_or_else(|| self.enter(fid, now));
        let entry = self.slab.get_mut(place);
        let was_given_up = given.number <= entry.dead && !self.config.bugs.dead_answer_counts();
        if was_given_up {
            return Bits::empty();
        }
        let newer = entry.newer(given.bits, as_of, self.config.bugs.as_of_ignored());
        let was_named = (entry.bits - entry.stale).contains(Bits::LOOKUP);
        if newer.contains(Bits::LOOKUP) && (!was_named || !entry.lasting_names(now)) {
            entry.named = given.number;
        }
        let was_cached = (entry.bits - entry.stale).contains(Bits::CACHE);
        if newer.contains(Bits::CACHE) && !was_cached {
            self.keepings = self.keepings.wrapping_add(1);
            entry.cached = self.keepings;
        }
        match given.kind {
            Kind::Recall => entry.join(given.bits, newer),
            Kind::Timed => entry.join_timed(newer, sent + TIMED, now),
        }
        entry.number = entry.number.max(given.number);
        entry.set(newer, as_of);
        entry.stale -= newer;
        self.list(place);
        newer
    }

    /// The request is over.
    pub fn finish(&mut self, question: Question) {
        self.questions.remove(&question);
        let oldest = self.questions.keys().find(|question| **question > self.deaf).copied();
        while let Some((born, fid)) = self.ghosts.front().copied() {
            if oldest.is_some_and(|oldest| oldest <= born) {
                break;
            }
            self.ghosts.pop_front();
            self.exorcise(fid, born);
        }
    }

    /// A change of this client's is about to be sent.
    pub fn begin(&mut self, change: ChangeId, wants: &[Want]) {
        for want in wants {
            self.changing.entry(want.fid).or_default().push((change, want.bits));
        }
    }

    /// A change was executed as of `as_of`, or refused ([`Transno::NONE`]). What its reply told was
    /// taken before; what it did not tell is not known any more.
    pub fn end(&mut self, change: ChangeId, wants: &[Want], as_of: Transno, now: Instant) {
        for want in wants {
            let Some(changing) = self.changing.get_mut(&want.fid) else { continue }; // of a session before
            changing.retain(|(other, _)| *other != change);
            if changing.is_empty() {
                self.changing.remove(&want.fid);
            }
            if as_of.is_none() {
                continue;
            }
            let place = self.find(want.fid).unwrap_or_else(|| self.enter(want.fid, now));
            let entry = self.slab.get_mut(place);
            let unknown = entry.older(want.bits, as_of);
            entry.set(unknown, as_of);
            entry.stale |= unknown & entry.bits;
            self.bury(place);
        }
    }

    /// A change was executed by another MDT and this one. The place in the history of this one is
    /// not told. So what it changed is not known, and of answers under way nothing is taken.
    pub fn end_elsewhere(&mut self, change: ChangeId, wants: &[Want]) {
        self.be_deaf();
        for want in wants {
            if let Some(changing) = self.changing.get_mut(&want.fid) {
                changing.retain(|(other, _)| *other != change);
                if changing.is_empty() {
                    self.changing.remove(&want.fid);
                }
            }
            // the session may be another one by now: the other MDT executes the change all the same
            if let Some(place) = self.find(want.fid) {
                let entry = self.slab.get_mut(place);
                entry.stale |= want.bits & entry.bits;
            }
        }
    }

    /// Of answers to the questions so far nothing is taken: they may be of an instance that is
    /// over.
    pub fn be_deaf(&mut self) {
        self.deaf = Question(self.next_question);
    }

    /// A change of this client's may have changed anything, or nobody knows whether it was
    /// executed. What is held until a recall is not known any more, what ends by time is gone, and
    /// of answers under way nothing is taken.
    pub fn doubt(&mut self) {
        self.be_deaf();
        self.directories.clear();
        for place in self.lists.places(&self.slab) {
            let entry = self.slab.get_mut(place);
            entry.stale |= entry.bits;
            let timed = entry.timed - entry.dying;
            entry.give_up(timed);
            self.bury(place);
        }
    }

    /// Whether the cache answers for these bits of a file.
    pub fn belief(&mut self, fid: Fid, bits: Bits, now: Instant) -> Belief {
        let Some(place) = self.find(fid) else { return Belief::No };
        let entry = self.slab.get(place);
        let own = self
            .changing
            .get(&fid)
            .is_some_and(|changing| changing.iter().any(|(_, changed)| changed.intersects(bits)));
        let awaited = own && !self.config.bugs.own_change_not_awaited();
        let known = (entry.bits - entry.stale).contains(bits) && !bits.is_empty();
        let until = self.end_of(entry, bits);
        if !known || awaited || self.is_recovering || until <= now {
            return Belief::No;
        }
        let is_dying = entry.dying.intersects(bits) && !self.config.bugs.dying_has_validity();
        let is_distrusted = self.distrusted.get(&fid).is_some_and(|until| *until > now);
        self.touch(place, now);
        if is_dying || is_distrusted { Belief::Dying } else { Belief::Until(until) }
    }

    /// Of the gift since which the names of a file are known to stand for it, without a break.
    #[must_use]
    pub fn named_since(&self, fid: Fid) -> Number {
        self.find(fid).map_or(Number(0), |place| self.slab.get(place).named)
    }

    /// Since when the data of a file may be kept without a break: another number after each break.
    /// They are counted here, because a grant has no room for the number of a gift.
    #[must_use]
    pub fn cached_since(&self, fid: Fid) -> u32 {
        self.find(fid).map_or(0, |place| self.slab.get(place).cached)
    }

    /// The kernel keeps nothing of a file later than this, whatever it was told before.
    pub fn told_last(&mut self, fid: Fid, until: Instant) {
        if let Some(place) = self.find(fid) {
            self.slab.get_mut(place).told_until = until;
        }
    }

    /// The kernel keeps an answer of the cache until then.
    pub fn told(&mut self, fid: Fid, until: Instant) {
        if let Some(place) = self.find(fid) {
            let entry = self.slab.get_mut(place);
            entry.told_until = entry.told_until.max(until);
        }
    }

    /// When belief in these bits ends.
    fn end_of(&self, entry: &Entry, bits: Bits) -> Instant {
        let lease = self.names_until();
        let called_back = !(bits - entry.timed).is_empty();
        match entry.timed_end(bits) {
            Some(end) if called_back => lease.min(end),
            Some(end) => end,
            None => lease,
        }
    }

    fn find(&self, fid: Fid) -> Option<u32> {
        self.index.find(&self.slab, entry::key(fid))
    }

    /// A place for a file that has none.
    fn enter(&mut self, fid: Fid, now: Instant) -> u32 {
        let place = self.slab.insert(Entry::new(fid, now));
        self.index.insert(&mut self.slab, place);
        place
    }

    /// Everything that is held is void. What is known of late answers stays.
    fn clear(&mut self) {
        for place in self.lists.places(&self.slab) {
            self.give_up_at(place, Bits::all());
        }
        self.forget_dying();
        self.directories.clear();
    }

    /// Bits of a file are not held any more, and no answer that is under way brings them back.
    fn give_up(&mut self, fid: Fid, bits: Bits) {
        if let Some(place) = self.find(fid) {
            self.give_up_at(place, bits);
        }
    }

    fn give_up_at(&mut self, place: u32, bits: Bits) {
        let entry = self.slab.get_mut(place);
        let fid = entry.fid;
        entry.give_up(bits);
        entry.dead = entry.dead.max(entry.number);
        if bits.contains(Bits::UPDATE) {
            self.directories.forget(fid);
        }
        self.bury(place);
    }

    /// An entry that holds nothing goes, or stays as a ghost while a question is under way.
    fn bury(&mut self, place: u32) {
        if !self.slab.get(place).bits.is_empty() {
            return;
        }
        self.unlist(place);
        let fid = self.slab.get(place).fid;
        let last = self.questions.keys().next_back().copied();
        self.slab.get_mut(place).ghost = last.unwrap_or_default();
        let Some(last) = last else {
            self.exorcise(fid, Question(0));
            return;
        };
        self.ghosts.push_back((last, fid));
        if self.ghosts.len() > GHOSTS_MAX {
            self.deaf = last;
            self.ghosts.drain(..).collect::<Vec<_>>().into_iter().for_each(|(born, fid)| {
                self.exorcise(fid, born);
            });
        }
    }

    /// No question is under way that was asked before this entry became empty.
    fn exorcise(&mut self, fid: Fid, born: Question) {
        let Some(place) = self.find(fid) else { return };
        let entry = self.slab.get(place);
        if entry.bits.is_empty() && entry.ghost <= born {
            assert!(entry.previous == NIL, "an empty entry is in no list");
            self.index.remove(&mut self.slab, place);
            self.slab.remove(place);
        }
    }
}

#[cfg(test)]
mod tests;
