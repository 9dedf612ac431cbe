//! Opening a session, and losing it.
//!
//! - A broken session is opened again at once, idle or not, because a restarted target must not
//!   wait for a ping to see this client. Only failed attempts have pauses between them.
//! - Unanswered requests of a broken session are sent again with their first xid and tag, flagged
//!   RESENT, unless they were taken back.
//! - An eviction drops everything that the session had. Changes without an answer end as
//!   [`Event::Lost`]. Answered changes that were not durable end as [`Event::Undone`] once the
//!   target has restarted: until then it has them and may commit them. A target that evicts while
//!   it recovers does not have those that were not repeated.

use bytes::Bytes;
use types::{Instance, Instant, Span, Transno, Xid};
use wire::body::{ConnectRep, ConnectReq, connect};
use wire::{Opcode, Reply, ReplyFlags, Request, encode_body};

use super::{Event, Import, Kind, Phase, State, Undone, millis};
use crate::{PeerMisbehaved, limits};

impl<B: Default, W> Import<B, W> {
    /// A Connect to send, if one is due, to the target with this identity (zero: not known).
    pub fn poll_connect(&mut self, now: Instant, uuid: u128) -> Option<Request> {
        let idle = matches!(self.state, State::New | State::Disconn);
        if !self.wanted || !idle || now < self.connect_at {
            return None;
        }
        let (from, to) = self.kept.range();
        let body = ConnectReq {
            client_low: self.config.client.0 as u64,
            client_high: (self.config.client.0 >> 64) as u64,
            tags: self.tags_max,
            resume: u32::from(self.session != 0 && !self.renounced),
            session: if self.renounced { 0 } else { self.session },
            instance: self.instance.0,
            replay_from: from.0,
            replay_to: to.0,
            is_server: u32::from(self.config.is_server),
            reserved: 0,
            uuid_low: uuid as u64,
            uuid_high: (uuid >> 64) as u64,
        };
        let mut request = Request::new(
            Opcode::Connect,
            vec![encode_body(&body), Bytes::copy_from_slice(self.config.name.as_bytes())],
        );
        request.header.xid = self.xids.draw().0;
        request.header.target = self.target.to_u32();
        let patience = self.connect_patience();
        request.header.deadline_ms = millis(patience);
        self.enter(State::Connecting, now);
        (self.connect_sent, self.connect_deadline) = (now, now + patience);
        Some(request)
    }

    /// A target that was started again waits for who was silent before as long as a few attempts
    /// take; a Connect that came to nobody must not use up that time.
    fn connect_patience(&self) -> Span {
        let resumes = self.session != 0 && !self.renounced;
        if resumes { self.config.attempt.min(limits::RESUME_ATTEMPT) } else { self.config.attempt }
    }

    /// The attempt to connect came to nothing.
    pub fn handle_connect_failed(&mut self, now: Instant) {
        if self.state == State::Connecting {
            self.state = State::Disconn; // `since` stays: one outage
            self.connect_at = now + self.backoff;
            self.backoff = Span((self.backoff.0 * 2).min(self.config.reconnect_max.0));
        }
    }

    /// The answer to Connect. Status other than zero ("wait, recovering" among them) is a failed
    /// attempt.
    pub fn handle_connected(&mut self, reply: &Reply, now: Instant) -> Result<(), PeerMisbehaved> {
        if self.state != State::Connecting {
            return Ok(());
        }
        if reply.errno().is_some() {
            self.handle_connect_failed(now);
            return Ok(());
        }
        let rep: ConnectRep = reply.body();
        if let Err(error) = self.check_connected(&rep) {
            self.handle_connect_failed(now);
            return Err(error);
        }
        if self.renounced && matches!(rep.outcome, connect::RESUMED | connect::RECOVER) {
            self.handle_connect_failed(now); // this Connect was sent before
            return Ok(());
        }
        let renounced = std::mem::take(&mut self.renounced);
        self.backoff = self.config.reconnect_min;
        self.active_at = now;
        let before = std::mem::replace(&mut self.instance, Instance(rep.instance));
        let restarted = before != self.instance;
        (self.session, self.epoch) = (rep.session, rep.epoch);
        self.store = rep.store;
        self.lease = Span::secs(u64::from(rep.lease_secs));
        // when that Connect was sent
        let resumes = matches!(rep.outcome, connect::RESUMED | connect::RECOVER);
        self.lapses += u64::from(!resumes);
        self.note_floor(reply.header.floor);
        if !resumes || !reply.has(ReplyFlags::UNLEASED) {
            self.renew_lease(self.connect_sent, now);
        }
        match rep.outcome {
            connect::RECOVER => {
                self.undo_stranded(restarted);
                self.note_durable(Transno(rep.last_committed));
                self.note_committed(Transno(rep.last_committed));
                self.unrepeated |= restarted;
                self.replay = self.kept.places().into();
                self.replay_index = 0;
                self.restated = false;
                self.enter(State::Replay, now);
                self.advance_recovery();
            }
            connect::RESUMED => {
                self.note_committed(Transno(rep.last_committed));
                self.enter_full(now);
            }
            _ => {
                let committed = Transno(rep.last_committed);
                let restarted = restarted || self.unrepeated;
                if renounced || rep.outcome == connect::EVICTED {
                    // of a later run it says nothing: others may have replayed past what is missing
                    if !restarted {
                        self.note_committed(committed);
                    }
                    if !renounced {
                        self.drop_session();
                    }
                    self.undo_stranded(restarted);
                }
                self.committed = committed;
                self.negotiate(&rep);
                self.enter_full(now);
            }
        }
        Ok(())
    }

    /// A recovery begins, or goes on. While it goes on, changes become durable that follow one
    /// which it has lost. An older copy of the target's store lacks changes that were durable.
    fn note_durable(&mut self, at_target: Transno) {
        let known = self.durable_before.unwrap_or(self.committed);
        self.durable_before = Some(known.min(at_target));
    }

    fn check_connected(&self, rep: &ConnectRep) -> Result<(), PeerMisbehaved> {
        if rep.instance < self.instance.0 {
            return Err(PeerMisbehaved::StaleInstance { got: rep.instance, seen: self.instance.0 });
        }
        if rep.session == 0 {
            return Err(PeerMisbehaved::Connect("it names no session"));
        }
        if rep.tags == 0 || rep.rpcs_in_flight == 0 {
            return Err(PeerMisbehaved::Connect("it allows no request"));
        }
        let resumes = matches!(rep.outcome, connect::RESUMED | connect::RECOVER);
        if resumes && rep.session != self.session {
            return Err(PeerMisbehaved::Connect("it resumes another session"));
        }
        if rep.outcome == connect::NEW && self.session != 0 && !self.renounced {
            return Err(PeerMisbehaved::Connect("it starts a session where one was to be resumed"));
        }
        Ok(())
    }

    fn negotiate(&mut self, rep: &ConnectRep) {
        self.tags_max = self.config.tags.clamp(1, rep.tags.min(limits::TAGS_MAX));
        self.rpcs_max =
            self.config.rpcs_in_flight.clamp(1, rep.rpcs_in_flight.min(limits::TAGS_MAX));
        self.tags_free = (1..=self.tags_max).rev().collect();
    }

    /// Evicted: what was acknowledged and is not durable cannot be repeated, what is unanswered and
    /// modifying has no knowable outcome. An urgent change was acknowledged by this client, which
    /// had the right to that until now: sent later it would undo what others did since.
    fn drop_session(&mut self) {
        planted::reached("import: a client learned that it was evicted");
        self.kept.strand();
        self.events.push_back(Event::Evicted);
        let lost: Vec<Xid> = self
            .out
            .iter()
            .filter(|(_, out)| out.modifies() && (out.phase != Phase::Queued || out.urgent))
            .map(|(xid, _)| xid)
            .collect();
        for xid in lost {
            let out = self.out.remove(xid).expect("taken from the map just now");
            self.events.extend(out.waiter.map(Event::Lost));
        }
        for queue in [&mut self.resend, &mut self.queue_passing, &mut self.queue_giving_up] {
            queue.retain(|xid| self.out.contains(*xid));
        }
    }

    /// A target that restarted does not have what its former run did not make durable.
    fn undo_stranded(&mut self, restarted: bool) {
        let changes = if restarted { self.kept.take_stranded() } else { Vec::new() };
        if !changes.is_empty() {
            self.events.push_back(Event::Undone { changes, why: Undone::Evicted });
        }
    }

    /// Gives `session` up with everything in it, as an eviction does, and begins another one:
    /// somebody else found out that it is over, and the target may not know. Says whether it was
    /// the present one.
    pub fn renounce(&mut self, session: u64, now: Instant) -> bool {
        if session != self.session || self.renounced {
            return false;
        }
        self.renounced = true;
        if self.state.is_connected() {
            self.handle_disconnect(now);
        }
        self.drop_session();
        true
    }

    /// The link is gone, or the session is not known: everything unanswered will be sent again.
    pub fn handle_disconnect(&mut self, now: Instant) {
        if !self.state.is_connected() {
            self.handle_connect_failed(now);
            return;
        }
        self.enter(State::Disconn, now);
        self.connect_at = now;
        (self.in_flight, self.giving_up) = (0, 0);
        self.estimates.clear();
        self.replay.clear();
        self.replay_sent.clear();
        self.queue_control.clear();
        (self.ping, self.done_xid, self.restated) = (None, None, false);
        let own: Vec<Xid> =
            self.out.iter().filter(|(_, out)| out.kind != Kind::User).map(|(xid, _)| xid).collect();
        for xid in own {
            let out = self.out.remove(xid).expect("taken from the map just now");
            // the next recovery asks for them again
            self.events.extend(out.waiter.map(Event::Lost));
        }
        let restates = self.take_restates();
        self.events.extend(restates.into_iter().map(Event::Lost));
        self.resend.clear();
        self.queue_passing.clear();
        self.queue_giving_up.clear();
        for (xid, out) in self.out.iter_mut() {
            if !matches!(out.phase, Phase::Queued | Phase::Withdrawn) {
                out.mark_resent();
            }
            match out.phase {
                Phase::Queued | Phase::Resend if out.passes() => self.queue_passing.push_back(xid),
                Phase::Queued | Phase::Resend if out.is_urgent() => {
                    self.queue_giving_up.push_back(xid);
                }
                Phase::Resend => self.resend.push_back(xid),
                _ => {}
            }
        }
        self.withdraw_again();
    }
}
