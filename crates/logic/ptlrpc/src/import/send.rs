//! The choice of the next request to send.
//!
//! - Resends go in xid order before anything new. New requests go in the order of their xids,
//!   except that changes wait for tags and others pass them.
//! - A request that was sent keeps its tag until it is answered.
//! - Requests that a recovering target takes
//!   ([`Opcode::passes_recovery`](wire::Opcode::passes_recovery)) go before all of those, and do
//!   not wait for replay. They have no tag.
//! - Requests that give something up ([`Opcode::gives_up`](wire::Opcode::gives_up)) have places and
//!   tags of their own: [`limits::GIVING_UP_MAX`] of them are out when all others wait for them.
//!   More of them go among the others.

use types::{Instant, Xid};

use crate::adaptive::patience;

use super::{Counted, Import, Kind, Phase, State, Transmit, millis};
use crate::limits;

impl<B: Default, W> Import<B, W> {
    /// The next request to send; ask until there is none.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_, B>> {
        match self.state {
            State::New | State::Connecting | State::Disconn => None,
            State::Replay => match self.next_passing() {
                Some(xid) => Some(self.transmit(xid, now)),
                None => self.transmit_replay(now),
            },
            State::ReplayLocks | State::ReplayWait => {
                self.enqueue_restate();
                let xid = self.queue_control.pop_front().or_else(|| self.next_passing())?;
                Some(self.transmit(xid, now))
            }
            State::Full => {
                let xid = self.next_full()?;
                Some(self.transmit(xid, now))
            }
        }
    }

    fn next_full(&mut self) -> Option<Xid> {
        if let Some(xid) = self.queue_control.pop_front().or_else(|| self.next_cancel()) {
            return Some(xid);
        }
        if let Some(xid) = self.next_giving_up() {
            return Some(xid);
        }
        if self.in_flight >= self.rpcs_max {
            return None;
        }
        if let Some(xid) = self.next_passing() {
            return Some(xid);
        }
        if let Some(xid) = self.resend.pop_front() {
            return Some(xid);
        }
        let modifying =
            self.queue_modifying.front().filter(|_| self.tags_free.len() > self.tags_kept());
        match (self.queue.front(), modifying) {
            (Some(plain), Some(modifying)) if plain < modifying => self.queue.pop_front(),
            (Some(_), None) => self.queue.pop_front(),
            (_, Some(_)) => self.queue_modifying.pop_front(),
            (None, None) => None,
        }
    }

    fn next_giving_up(&mut self) -> Option<Xid> {
        let xid = *self.queue_giving_up.front()?;
        let has_place = self.giving_up < limits::GIVING_UP_MAX || self.in_flight < self.rpcs_max;
        let out = self.out.get(xid).expect("a queued xid has its request");
        let has_tag = !out.modifies() || out.request.header.tag != 0 || !self.tags_free.is_empty();
        if has_place && has_tag { self.queue_giving_up.pop_front() } else { None }
    }

    /// Tags that only unlocks take: as many as there are beyond the requests in flight.
    fn tags_kept(&self) -> usize {
        self.tags_max.saturating_sub(self.rpcs_max) as usize
    }

    fn next_passing(&mut self) -> Option<Xid> {
        if self.in_flight < self.rpcs_max { self.queue_passing.pop_front() } else { None }
    }

    fn transmit(&mut self, xid: Xid, now: Instant) -> Transmit<'_, B> {
        let acked = self.out.first_key().expect("the request itself is unanswered");
        let out = self.out.get_mut(xid).expect("a queued xid has its request");
        let place = match out.kind {
            Kind::User if out.is_urgent() && self.giving_up < limits::GIVING_UP_MAX => {
                Counted::GivesUp
            }
            Kind::User => Counted::Window,
            Kind::Restate | Kind::Control | Kind::Cancel(_) => Counted::Free,
        };
        if out.modifies() && out.request.header.tag == 0 {
            out.request.header.tag =
                self.tags_free.pop().expect("asked before the request was chosen");
        }
        let estimate = self.estimates.get(&out.request.header.opcode).copied().unwrap_or_default();
        let patience = patience(estimate, self.config.attempt);
        out.phase = Phase::Sent { at: now, deadline: now + patience, place };
        self.in_flight += u32::from(place == Counted::Window);
        self.giving_up += u32::from(place == Counted::GivesUp);
        self.active_at = now;
        let header = &mut out.request.header;
        header.acked_xid = acked.0;
        header.session = self.session;
        header.epoch = self.epoch;
        header.instance = self.instance.0;
        header.target = self.target.to_u32();
        header.deadline_ms = millis(patience);
        Transmit { request: &mut out.request, bulk: &mut out.bulk }
    }
}
