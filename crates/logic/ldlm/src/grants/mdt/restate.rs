//! After a restart, the MDT does not know the grants of the instance before until clients restate
//! them.
//!
//! A change waits until every known client has restated or its lease is over, counted from the
//! start. A lease cannot have been renewed later, because there was no instance to reply. Of a
//! client that was silent before, less of the lease is left.

use types::{Instant, Span};

use super::Mdt;
use super::holder::Holder;
use crate::grants::limits::{SESSION_GRANTS_MAX, TIMED, VECTOR_MAX};
use crate::grants::{HolderId, Number, Stated, with_skew};

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

    /// What a client of the instance before holds, a vector of it. Repeating it changes nothing.
    ///
    /// # Errors
    /// If no correct client would send it.
    pub fn restate(
        &mut self,
        session: HolderId,
        stated: &[Stated],
        now: Instant,
    ) -> Result<(), PeerMisbehaved> {
        let Some((at, holder)) = self.holder_mut(session) else { return Ok(()) };
        if !holder.is_unstated || holder.is_fencing {
            return Ok(()); // late, or its lease was over: the floor in the reply says so
        }
        // those that were kept for replayed opens are counted too, and had no bound
        let room = SESSION_GRANTS_MAX.saturating_sub(holder.listed.count) as usize;
        let is_fresh = |stated: &&Stated| self.store.find(stated.fid, at).is_none();
        let fresh = stated.iter().filter(is_fresh).count();
        let last = self.numbers.last().0;
        let first = Number(last >> super::super::EPOCH_SHIFT << super::super::EPOCH_SHIFT);
        let is_old = |stated: &Stated| stated.number < first && !stated.bits.is_empty();
        if stated.len() > VECTOR_MAX || fresh > room || !stated.iter().all(is_old) {
            return Err(PeerMisbehaved);
        }
        if self.has_lapsed(at, now) {
            self.expel(at, now);
            return Ok(());
        }
        for grant in stated {
            let place = self.store.find(grant.fid, at);
            let place = place.unwrap_or_else(|| self.insert(at, grant.fid));
            let held = self.store.get_mut(place);
            held.bits |= grant.bits;
            held.number = held.number.max(grant.number);
        }
        Ok(())
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
