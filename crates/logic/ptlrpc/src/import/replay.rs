//! History repeated to a restarted target, then locks, then the word that all is said.
//!
//! - Changes are replayed in transno order, numbered from 1 on each connection, and before locks
//!   are re-stated.
//! - `ReplayDone` goes out when every replay and every re-stated lock is answered.

use types::{Instant, Xid};
use wire::{Opcode, RequestFlags};

use super::{Event, Import, Kind, Out, Phase, State, Submit, Transmit, millis};
use crate::Keep;

impl<B: Default, W> Import<B, W> {
    /// Re-states one lock during REPLAY_LOCKS.
    pub fn restate(&mut self, submit: Submit<B, W>) -> Xid {
        let mut request = submit.request;
        request.header.flags |= RequestFlags::REPLAY;
        request.header.flags &= !RequestFlags::MODIFIES;
        self.enqueue(Box::new(Out {
            request,
            bulk: submit.bulk,
            waiter: Some(submit.waiter),
            keep: Keep::No,
            kind: Kind::Restate,
            phase: Phase::Queued,
        }))
    }

    /// All locks were given to [`Import::restate`].
    pub fn restated(&mut self) {
        self.restated = true;
        self.advance_recovery();
    }

    /// REPLAY → REPLAY_LOCKS → REPLAY_WAIT, as far as it goes.
    pub(super) fn advance_recovery(&mut self) {
        if self.state == State::Replay && self.replay.is_empty() && self.replay_sent.is_empty() {
            self.state = State::ReplayLocks;
            self.events.push_back(Event::AskRestate);
        }
        let restating = self.restated && !self.out.values().any(|out| out.kind == Kind::Restate);
        if self.state == State::ReplayLocks && restating {
            self.state = State::ReplayWait;
            self.done_xid = Some(self.enqueue_control(Opcode::ReplayDone));
        }
    }

    pub(super) fn transmit_replay(&mut self, now: Instant) -> Option<Transmit<'_, B>> {
        if self.replay_sent.len() >= self.rpcs_max as usize {
            return None;
        }
        let acked = self.out.first_key().map_or(0, |xid| xid.0);
        let place = loop {
            // a commit during recovery may have pruned some
            let place = self.replay.pop_front()?;
            if self.kept.get_mut(place).is_some() {
                break place;
            }
        };
        self.replay_sent.insert(place.1, (place, now + self.config.attempt));
        self.active_at = now;
        let durable = place.0 <= self.committed;
        self.replay_index += 1;
        let index = self.replay_index;
        let (session, epoch, instance) = (self.session, self.epoch, self.instance);
        let kept = self.kept.get_mut(place).expect("looked up just now");
        let header = &mut kept.request.header;
        if durable {
            header.flags |= RequestFlags::OPEN;
        }
        header.replay_index = index;
        header.acked_xid = acked;
        header.session = session;
        header.epoch = epoch;
        header.instance = instance.0;
        header.deadline_ms = millis(self.config.attempt);
        Some(Transmit { request: &mut kept.request, bulk: &mut kept.bulk })
    }
}
