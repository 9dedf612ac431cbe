//! Deadlines and pings.
//!
//! - An attempt that is not answered in time breaks the session; the request itself lives on.
//! - An idle session is pinged. Pings come sooner while changes are not known to be durable, and at
//!   least four times in the lease that the target reported. Only for the lease does a second ping
//!   follow one that is not answered.

use types::{Instant, Span};
use wire::Opcode;

use super::{Import, Kind, Phase, State};
use crate::limits;

impl<B: Default, W> Import<B, W> {
    /// Time has passed. True: an attempt timed out, the session is disconnected, and the link is
    /// not to be trusted.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.state == State::Connecting && now >= self.connect_deadline {
            self.handle_connect_failed(now);
            return true;
        }
        if !self.state.is_connected() {
            return false;
        }
        if self.attempt_deadline().is_some_and(|deadline| now >= deadline) {
            self.handle_disconnect(now);
            return true;
        }
        self.release_later(now);
        if self.state == State::Full && now >= self.ping_at() {
            self.ping = Some(self.enqueue_control(Opcode::Ping));
        }
        false
    }

    fn release_later(&mut self, now: Instant) {
        for (xid, out) in self.out.iter_mut() {
            if matches!(out.phase, Phase::Later(at) if now >= at) {
                out.mark_resent();
                let queue = match out {
                    _ if out.kind != Kind::User => &mut self.queue_control,
                    _ if out.passes() => &mut self.queue_passing,
                    _ if out.is_urgent() => &mut self.queue_giving_up,
                    _ => &mut self.resend,
                };
                queue.push_back(xid);
            }
        }
        self.resend.make_contiguous().sort_unstable();
    }

    /// When [`Import::handle_timeout`] or [`Import::poll_connect`] want to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::New | State::Disconn => self.wanted.then_some(self.connect_at),
            State::Connecting => Some(self.connect_deadline),
            State::Full => self
                .attempt_deadline()
                .into_iter()
                .chain(self.later())
                .chain([self.ping_at()])
                .min(),
            State::Replay | State::ReplayLocks | State::ReplayWait => {
                self.attempt_deadline().into_iter().chain(self.later()).min()
            }
        }
    }

    fn attempt_deadline(&self) -> Option<Instant> {
        let sent = self.out.values().filter_map(|out| match out.phase {
            Phase::Sent { deadline, .. } => Some(deadline),
            _ => None,
        });
        sent.chain(self.replay_sent.values().map(|(_, deadline)| *deadline)).min()
    }

    fn later(&self) -> Option<Instant> {
        self.out
            .values()
            .filter_map(|out| if let Phase::Later(at) = out.phase { Some(at) } else { None })
            .min()
    }

    fn ping_at(&self) -> Instant {
        let heartbeat = self.lease.0 / limits::HEARTBEATS_IN_LEASE;
        if self.ping.is_some() {
            return match heartbeat {
                0 => Instant(u64::MAX),
                // one that was lost must not cost the lease
                every => self.active_at + Span(every),
            };
        }
        let idle =
            if self.kept.is_dirty() { self.config.ping_dirty } else { self.config.ping_every };
        let every = if heartbeat == 0 { idle } else { idle.min(Span(heartbeat)) };
        self.active_at + every
    }
}
