//! After a restart, the MDT does not know the grants of the instance before until clients restate
//! them.
//!
//! A change waits until every known client has restated or its lease is over, counted from the
//! start. A lease cannot have been renewed later, because there was no instance to reply. Of a
//! client that was silent before, less of the lease is left.
//!
//! The instance before may have made a list of the files of which a client held something. It has
//! given that client nothing since that is called back, so only changes of these files wait for it.

use std::collections::BTreeSet;

use types::{Fid, Instant, Span};

use super::Mdt;
use super::holder::Holder;
use crate::grants::limits::{SESSION_GRANTS_MAX, TIMED, VECTOR_MAX};
use crate::grants::{Bits, HolderId, Number, Stated, with_skew};

/// The peer sent what no correct client sends; the session is to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerMisbehaved;

impl Mdt {
    /// A client of the instance before, which may hold anything. That instance had not heard of it
    /// for `silent` at least, so this much of its lease is over. To be said before any change.
    pub fn expect(&mut self, session: HolderId, silent: Span, now: Instant) {
        let left = Span(with_skew(self.config.lease).0.saturating_sub(silent.0));
        let mut holder = Holder::new(session, now + left);
        holder.is_unstated = true;
        self.timed.inherit(now + with_skew(TIMED));
        let at = self.admit(holder);
        self.unstated.insert(at);
        self.set_timer(at);
    }

    /// The list that the instance before has made of such a client. To be said after
    /// [`Mdt::expect`], and with [`Mdt::set_listed`] as long as the store has the list.
    ///
    /// # Panics
    /// If it is known what the session holds.
    pub fn claims(&mut self, session: HolderId, files: BTreeSet<Fid>) {
        let Some((_, holder)) = self.holder_mut(session) else { return };
        assert!(holder.is_unstated, "what it holds is not known");
        holder.claims = Some(files);
    }

    /// The files of which a session holds something, for a list. None if that is not known, if they
    /// are more than `most`, or if there is a list.
    #[must_use]
    pub fn files_of(&self, session: HolderId, most: usize) -> Option<Vec<Fid>> {
        let holder = self.holder(session)?;
        if holder.is_unstated || holder.is_listed || holder.listed.count as usize > most {
            return None;
        }
        Some(self.store.places(&holder.listed).map(|place| self.store.get(place).fid).collect())
    }

    /// From now on there is such a list of the session, or there is none any more.
    pub fn set_listed(&mut self, session: HolderId, is_listed: bool) {
        if let Some((_, holder)) = self.holder_mut(session) {
            holder.is_listed = is_listed;
        }
    }

    /// Whether all clients of the instance before have restated, or are gone.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        self.unstated.is_empty()
    }

    /// The number up to which a client of the instance before takes no answers any more.
    #[must_use]
    pub fn number(&self) -> Number {
        self.numbers.last()
    }

    /// A client that an earlier instance has expelled: others may have changed what it still uses
    /// by its own clock. Nothing that it states counts, and each reply to it says so. To be said
    /// after [`Mdt::expect`].
    pub fn void(&mut self, session: HolderId, now: Instant) {
        let floor = self.numbers.draw();
        let Some((at, holder)) = self.holder_mut(session) else { return };
        assert!(holder.listed.count == 0, "nothing was restated yet");
        holder.floor = floor;
        self.is_stated(at, now);
    }

    /// What of this the session goes on holding.
    #[must_use]
    pub fn goes_on(&self, session: HolderId, stated: &Stated) -> Bits {
        self.bits_of(session, stated.fid) & stated.bits
    }

    /// What a client of the instance before holds, a vector of it. Repeating it changes nothing.
    /// What contradicts the grants of others is left out, and so is what finds no room;
    /// [`Mdt::goes_on`] returns what was taken.
    ///
    /// # Errors
    /// If no correct client would send it: numbers of this instance, a file twice, no bits, or more
    /// than a session may hold.
    pub fn restate(
        &mut self,
        session: HolderId,
        stated: &[Stated],
        now: Instant,
    ) -> Result<(), PeerMisbehaved> {
        self.check_stated(session, stated)?;
        self.restate_checked(session, stated, now);
        Ok(())
    }

    /// The same of a part of a vector that [`Mdt::check_stated`] has just looked at.
    pub fn restate_checked(&mut self, session: HolderId, stated: &[Stated], now: Instant) {
        let Some((at, holder)) = self.holder_mut(session) else { return };
        if !holder.is_unstated || holder.is_fencing {
            return; // late, or its lease was over: the floor in the reply says so
        }
        if self.has_lapsed(at, now) {
            self.expel(at, now);
            return;
        }
        stated.iter().for_each(|grant| self.take_stated(at, grant));
    }

    /// Whether a correct client may send this vector.
    ///
    /// # Errors
    /// As [`Mdt::restate`].
    pub fn check_stated(&self, session: HolderId, stated: &[Stated]) -> Result<(), PeerMisbehaved> {
        let Some(at) = self.sessions.get(&session).copied() else { return Ok(()) };
        let holder = self.holder_at(at).expect("a session has a holder");
        if !holder.is_unstated || holder.is_fencing {
            return Ok(());
        }
        // those that were kept for replayed opens are counted too, and had no bound
        let room = SESSION_GRANTS_MAX.saturating_sub(holder.listed.count) as usize;
        let is_fresh = |stated: &&Stated| self.store.find(stated.fid, at).is_none();
        let has_room = stated.len() <= room || stated.iter().filter(is_fresh).count() <= room;
        let last = self.numbers.last().0;
        let first = Number(last >> super::super::EPOCH_SHIFT << super::super::EPOCH_SHIFT);
        let is_old = |stated: &Stated| stated.number < first && !stated.bits.is_empty();
        let is_bounded = stated.len() <= VECTOR_MAX;
        if !is_bounded || !has_room || !stated.iter().all(is_old) || has_doubles(stated) {
            return Err(PeerMisbehaved);
        }
        Ok(())
    }

    fn take_stated(&mut self, at: u32, stated: &Stated) {
        let claims = self.holder_at(at).and_then(|holder| holder.claims.as_ref());
        if claims.is_some_and(|claims| !claims.contains(&stated.fid)) {
            return; // changes of this file have not waited for it
        }
        let bits = stated.bits - self.contradicted(at, stated);
        let place = self.store.find(stated.fid, at);
        let has_room = place.is_some() || self.store.len() < self.config.grants_max as usize;
        if bits.is_empty() || !has_room {
            return;
        }
        let place = place.unwrap_or_else(|| self.insert(at, stated.fid));
        let held = self.store.get_mut(place);
        held.bits |= bits;
        held.number = held.number.max(stated.number);
    }

    /// What cannot be true of a statement: data that one client writes, no other keeps.
    fn contradicted(&self, at: u32, stated: &Stated) -> Bits {
        let mut others = Bits::empty();
        if stated.bits.intersects(Bits::CACHE | Bits::WRITE) {
            self.store.each_of(stated.fid, |_, grant| {
                others |= if grant.holder == at { Bits::empty() } else { grant.bits };
            });
        }
        let mut refused = Bits::empty();
        if others.contains(Bits::WRITE) {
            refused |= Bits::CACHE | Bits::WRITE;
        }
        if others.contains(Bits::CACHE) {
            refused |= Bits::WRITE;
        }
        refused
    }

    /// The session has restated all it holds.
    pub fn restated(&mut self, session: HolderId, now: Instant) {
        if let Some(at) = self.sessions.get(&session).copied()
            && self.known_at(at).is_unstated
            && !self.known_at(at).is_fencing
            && !self.has_lapsed(at, now)
        {
            // what its kernel was told a moment ago ends by time
            self.timed.inherit(now + with_skew(TIMED));
            self.is_stated(at, now);
        }
    }
}

/// Whether a vector names a file twice. Clients state their grants by rising FIDs.
fn has_doubles(stated: &[Stated]) -> bool {
    if stated.is_sorted_by(|one, next| one.fid < next.fid) {
        return false;
    }
    let mut fids: Vec<_> = stated.iter().map(|stated| stated.fid).collect();
    fids.sort_unstable();
    fids.windows(2).any(|pair| pair[0] == pair[1])
}
