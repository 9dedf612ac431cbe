//! How the MDT gives grants, and how it takes back grants that clients give back unasked.

use types::{Fid, Instant};

use super::{Mdt, Mode};
use crate::grants::limits::SESSION_GRANTS_MAX;
use crate::grants::{Ack, Bits, Given, HolderId, Kind, Number, Stated};

impl Mdt {
    /// Gives what an answer tells of a file, as far as it may be cached. It joins what the session
    /// has of the file.
    pub fn give(&mut self, session: HolderId, fid: Fid, bits: Bits, now: Instant) -> Given {
        let nothing = Given { bits: Bits::empty(), number: Number(0), kind: Kind::Timed };
        let Some(at) = self.sessions.get(&session).copied() else { return nothing };
        let bits = bits - self.taken(fid) - self.contention.bits(fid, now) - self.dying(at, fid);
        if bits.is_empty() || self.config.mode == Mode::None {
            return nothing;
        }
        let number = self.next_number();
        let Some(place) = self.room_for(at, fid, now) else {
            self.timed.give(session, fid, bits, now);
            return Given { bits, number, kind: Kind::Timed };
        };
        let grant = self.store.get_mut(place);
        grant.bits |= bits;
        grant.number = number;
        Given { bits, number, kind: Kind::Recall }
    }

    /// The place of a grant of `fid`, if the holder may have one that is called back.
    fn room_for(&mut self, at: u32, fid: Fid, now: Instant) -> Option<u32> {
        let holder = self.holder_at(at)?;
        let fit = holder.has_callbacks
            && holder.renews()
            && holder.slow_until <= now
            && holder.until > now
            && self.config.mode == Mode::Recall;
        if !fit {
            return None;
        }
        let has_room = holder.listed.count < SESSION_GRANTS_MAX
            && self.store.len() < self.config.grants_max as usize;
        let (mut own, mut holders) = (None, 0);
        self.store.each_of(fid, |place, grant| {
            holders += 1;
            if grant.holder == at {
                own = Some(place);
            }
        });
        if own.is_some() || !has_room || holders >= self.config.holders_max {
            return own;
        }
        Some(self.insert(at, fid))
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
        let number = self.next_number();
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
