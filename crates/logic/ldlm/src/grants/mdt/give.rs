//! How the MDT gives grants, and how it takes back grants that clients give back unasked.

use types::{Fid, Instant};

use super::{Mdt, Mode};
use crate::grants::limits::SESSION_GRANTS_MAX;
use crate::grants::{Ack, Bits, Given, HolderId, Kind, Number, Stated};

/// What one answer is to give to a session. [`Mdt::offer`] decides each gift, and
/// [`Mdt::give_all`] gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gifts {
    to: HolderId,
    now: Instant,
    files: Vec<(Fid, Bits, Kind)>,
    /// How many grants they add to the table at most: a file that is offered again, and not at
    /// once, is counted again.
    fresh: u32,
}

impl Gifts {
    /// None yet, to this session at `now`.
    #[must_use]
    pub fn new(to: HolderId, now: Instant) -> Gifts {
        Gifts { to, now, files: Vec::new(), fresh: 0 }
    }

    /// Whether nothing was offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// How a grant that is called back fits into the table.
enum Fit {
    /// The session has a grant of the file.
    Own,
    /// As a new one.
    New,
    /// Not: there is none to have.
    None,
}

impl Mdt {
    /// Gives what an answer tells of a file, as far as it may be cached. It joins what the session
    /// has of the file.
    pub fn give(&mut self, session: HolderId, fid: Fid, bits: Bits, now: Instant) -> Given {
        let nothing = Given { bits: Bits::empty(), number: Number(0), kind: Kind::Timed };
        let Some(at) = self.sessions.get(&session).copied() else { return nothing };
        let bits = self.free(at, fid, bits, now);
        if bits.is_empty() {
            return nothing;
        }
        let kind = match self.fit(at, fid, 0, now) {
            Fit::Own | Fit::New => Kind::Recall,
            Fit::None => Kind::Timed,
        };
        let given = Given { bits, number: self.numbers.draw(), kind };
        self.put(at, fid, given, now);
        given
    }

    /// Adds `bits` of a file to what an answer is to give, all of them or nothing, and says how the
    /// grant will end. Changes nothing in the table.
    pub fn offer(&self, gifts: &mut Gifts, fid: Fid, bits: Bits) -> Option<Kind> {
        let at = self.sessions.get(&gifts.to).copied()?;
        if bits.is_empty() || self.free(at, fid, bits, gifts.now) != bits {
            return None;
        }
        let last = gifts.files.last();
        let is_more = last.is_some_and(|(of, _, kind)| *of == fid && *kind == Kind::Recall);
        let fit = if is_more { Fit::Own } else { self.fit(at, fid, gifts.fresh, gifts.now) };
        let kind = match fit {
            Fit::Own => Kind::Recall,
            Fit::New => {
                gifts.fresh += 1;
                Kind::Recall
            }
            Fit::None => Kind::Timed,
        };
        gifts.files.push((fid, bits, kind));
        Some(kind)
    }

    /// Gives what was offered, under the number that the answer carries.
    pub fn give_all(&mut self, gifts: &Gifts, number: Number) {
        let Some(at) = self.sessions.get(&gifts.to).copied() else { return };
        for (fid, bits, kind) in gifts.files.iter().copied() {
            self.put(at, fid, Given { bits, number, kind }, gifts.now);
        }
    }

    fn put(&mut self, at: u32, fid: Fid, given: Given, now: Instant) {
        let Given { bits, number, kind } = given;
        if kind == Kind::Timed {
            let session = self.known_at(at).session;
            self.timed.give(session, fid, bits, now);
            return;
        }
        let place = self.store.find(fid, at).unwrap_or_else(|| self.insert(at, fid));
        let grant = self.store.get_mut(place);
        grant.bits |= bits;
        grant.number = number;
    }

    /// Which of these bits of a file the holder may have.
    fn free(&self, at: u32, fid: Fid, bits: Bits, now: Instant) -> Bits {
        if self.config.mode == Mode::None {
            return Bits::empty();
        }
        bits - self.taken(fid) - self.contention.bits(fid, now) - self.dying(at, fid)
    }

    /// Whether the holder may have a grant of `fid` that is called back. `fresh`: how many it gets
    /// besides.
    fn fit(&self, at: u32, fid: Fid, fresh: u32, now: Instant) -> Fit {
        let Some(holder) = self.holder_at(at) else { return Fit::None };
        let may_be_called = holder.has_callbacks
            && holder.renews()
            && !holder.is_listed
            && holder.slow_until <= now
            && holder.until > now
            && self.config.mode == Mode::Recall;
        if !may_be_called {
            return Fit::None;
        }
        let has_room = holder.listed.count + fresh < SESSION_GRANTS_MAX
            && self.store.len() + (fresh as usize) < self.config.grants_max as usize;
        let (mut is_own, mut holders) = (false, 0);
        self.store.each_of(fid, |_, grant| {
            holders += 1;
            is_own |= grant.holder == at;
        });
        if is_own {
            return Fit::Own;
        }
        let fits = has_room && holders < self.config.holders_max;
        if fits { Fit::New } else { Fit::None }
    }

    pub(super) fn insert(&mut self, at: u32, fid: Fid) -> u32 {
        let holder = self.holders[at as usize].as_mut().expect("a place in use has a holder");
        self.store.insert(fid, at, &mut holder.listed)
    }

    /// What the holder is asked to give up of a file. Its acknowledgement, which may be under way,
    /// would end what was given anew.
    fn dying(&self, at: u32, fid: Fid) -> Bits {
        if self.config.bugs.dying_given_again() {
            return Bits::empty();
        }
        self.store.find(fid, at).map_or(Bits::empty(), |place| self.store.get(place).dying)
    }

    /// What parked changes want of a file.
    fn taken(&self, fid: Fid) -> Bits {
        if self.takings.is_empty() || self.config.bugs.grant_during_takeover() {
            return Bits::empty();
        }
        self.takings.get(&fid).map_or(Bits::empty(), |taking| taking.bits)
    }

    /// A client gives up what was asked of it. Counts for the last recall of a grant only, because
    /// that one asked for everything that earlier ones did.
    pub fn ack(&mut self, session: HolderId, acks: &[Ack], now: Instant) {
        let Some(at) = self.sessions.get(&session).copied() else { return };
        for ack in acks {
            let Some(place) = self.store.find(ack.fid, at) else { continue };
            let Some(recalled) = self.known_at(at).recalled.get(&place).copied() else { continue };
            let counts = ack.number == recalled.number || self.config.bugs.old_ack_counts();
            if counts && !self.known_at(at).is_fencing {
                let dying = self.store.get(place).dying;
                self.take_back(place, dying, now);
            }
        }
        self.resume(at, now);
    }

    /// A client gives back what it has no use for. Counts where the client has seen the last gift.
    pub fn shed(&mut self, session: HolderId, shed: &[Stated], now: Instant) {
        let Some(at) = self.sessions.get(&session).copied() else { return };
        if self.known_at(at).is_fencing {
            return;
        }
        for stated in shed {
            let Some(place) = self.store.find(stated.fid, at) else { continue };
            let seen = self.store.get(place).number <= stated.number;
            if seen || self.config.bugs.old_shed_counts() {
                self.take_back(place, stated.bits, now);
            }
        }
        self.resume(at, now);
    }

    /// A session of the instance before may hold these bits of a file, as its replay shows.
    pub fn keep(&mut self, session: HolderId, fid: Fid, bits: Bits) {
        let Some(at) = self.sessions.get(&session).copied() else { return };
        let place = self.store.find(fid, at).unwrap_or_else(|| self.insert(at, fid));
        let number = self.numbers.draw();
        let grant = self.store.get_mut(place);
        grant.bits |= bits;
        grant.number = grant.number.max(number);
    }

    /// A session has ended by itself what these bits of a file were given for.
    pub fn drop_bits(&mut self, session: HolderId, fid: Fid, bits: Bits, now: Instant) {
        let Some(at) = self.sessions.get(&session).copied() else { return };
        if self.known_at(at).is_fencing {
            return;
        }
        if let Some(place) = self.store.find(fid, at) {
            self.take_back(place, bits, now);
            self.resume(at, now);
        }
    }

    /// Whether another session holds any of these bits of a file.
    #[must_use]
    pub fn is_held_by_another(&self, session: HolderId, fid: Fid, bits: Bits) -> bool {
        let own = self.sessions.get(&session).copied();
        let mut is_held = false;
        self.store.each_of(fid, |_, grant| {
            is_held |= grant.bits.intersects(bits) && own != Some(grant.holder);
        });
        is_held
    }

    /// Bits of a grant are free.
    fn take_back(&mut self, place: u32, bits: Bits, now: Instant) {
        let grant = self.store.get_mut(place);
        grant.bits -= bits;
        grant.dying -= bits;
        let (at, fid) = (grant.holder, grant.fid);
        if grant.dying.is_empty() {
            self.known_at(at).answered(place);
        }
        if self.store.get(place).bits.is_empty() {
            self.remove(place);
        }
        self.recheck_file(fid, now);
    }

    pub(super) fn remove(&mut self, place: u32) {
        let at = self.store.get(place).holder as usize;
        let holder = self.holders[at].as_mut().expect("a grant has a holder");
        self.store.remove(place, &mut holder.listed);
    }
}
