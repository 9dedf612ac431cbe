//! A target's work apart from requests: recovery's clock and end, evictions, leases, early replies.
//!
//! It has two tasks. One ends expired things and waits for the target's commits. The other watches
//! the clocks of sessions and their requests, and waits for nothing.

use std::rc::Rc;

use types::{ClientId, Instant, Span};
use wire::{Reply, RequestFlags};

use crate::in_flight::Queued;
use crate::node::Node;
use crate::scheduled::Work;
use crate::served::Served;
use crate::session::Silence;
use crate::{Exports, Session, limits};

impl Node {
    pub(crate) async fn keep_house(self: Rc<Self>, served: Rc<Served>) {
        let exports = Rc::clone(&served.exports);
        while !self.stopped.get() && !served.gone.get() {
            self.clock.set(self.env.now());
            exports.look(self.clock.get());
            self.mind_recovery(&served).await;
            self.mind_evictions(&served).await;
            self.note_silence(&served).await;
            let tick = self.env.now() + limits::TICK;
            let due = exports.recovery.borrow().poll_timeout();
            let until = due.map_or(tick, |due| due.min(tick)).max(self.env.now() + Span::millis(1));
            self.env.timeout_at(until, exports.wake.notified()).await;
        }
    }

    pub(crate) async fn watch_sessions(self: Rc<Self>, served: Rc<Served>) {
        while !self.stopped.get() && !served.gone.get() {
            self.clock.set(self.env.now());
            self.mind_sessions(&served.exports).await;
            self.env.sleep(limits::TICK).await;
        }
    }

    /// What housekeeping has to be in time for has changed.
    pub(crate) fn look_at_all(&self) {
        for served in self.targets.borrow().values() {
            let sessions = served.exports.sessions();
            sessions.iter().for_each(|session| session.look_at.set(Instant::default()));
        }
    }

    async fn mind_recovery(self: &Rc<Self>, served: &Rc<Served>) {
        let exports = &served.exports;
        if exports.open.get() {
            return;
        }
        exports.recovery.borrow_mut().handle_timeout(self.env.now());
        exports.announce();
        let missing = || exports.recovery.borrow_mut().poll_evict();
        let missing: Vec<ClientId> = std::iter::from_fn(missing).collect();
        let sessions = missing.into_iter().filter_map(|client| exports.session_of(client));
        self.end_sessions(served, sessions.collect(), true).await;
        self.pump_recovery(exports);
        let finished = exports.recovery.borrow_mut().poll_finished();
        if let Some(waiting) = finished {
            Rc::clone(&served.target).recovery_done().await;
            exports.open.set(true);
            exports.recovery.borrow_mut().forget_answers();
            exports.evict_absent();
            exports.announce_end();
            // whoever came back while the target swept was told to recover, and is done too
            let late = exports.recovery.borrow_mut().take_done();
            for work in waiting.into_iter().chain(late) {
                self.release_done(work);
            }
        }
    }

    /// Answers a ReplayDone, on the newest connection it came through.
    fn release_done(&self, work: Work) {
        work.session.export.borrow_mut().finished(work.request.xid());
        let _held_no_slot = work.flight.end();
        let peer = Rc::clone(&*work.flight.peer());
        self.answer(&peer, &work.session, Reply::ok(&work.request.header, Vec::new()));
    }

    async fn mind_evictions(self: &Rc<Self>, served: &Rc<Served>) {
        loop {
            let due = served.exports.evictions.take();
            if due.is_empty() {
                return;
            }
            let sessions = due.into_iter().filter_map(|id| served.exports.session(id));
            self.end_sessions(served, sessions.collect(), true).await;
        }
    }

    /// Brings the records of clients up to date that went without a word, or came back.
    async fn note_silence(&self, served: &Served) {
        let Ok(_noting) = served.exports.noting.try_write() else { return }; // at the next round
        let (silent, back): (Vec<_>, Vec<_>) =
            served.exports.unnoted().into_iter().partition(|(_, silence)| silence.is_silent);
        let records = |of: &[(Rc<Session>, Silence)]| -> Vec<_> {
            of.iter().map(|(session, silence)| session.record(*silence)).collect()
        };
        if !silent.is_empty() {
            // from now on no reply renews what the record says is not renewed
            silent.iter().for_each(|(session, silence)| session.noted.set(*silence));
            Rc::clone(&served.target).note_clients(records(&silent), false).await;
        }
        if !back.is_empty() && Rc::clone(&served.target).note_clients(records(&back), true).await {
            back.iter().for_each(|(session, silence)| session.noted.set(*silence));
        }
    }

    /// Others have their turn in between: a node may hold a million requests.
    async fn mind_sessions(self: &Rc<Self>, exports: &Exports) {
        let mut looked = 0;
        for session in exports.sessions() {
            let now = self.env.now();
            if now >= session.look_at.get() {
                looked += self.mind_requests(&session, now).await;
            }
            let silent = exports.silence(&session, now) > exports.silence_max;
            if silent && exports.open.get() {
                exports.evict(session.id);
            }
            looked += 1;
            if looked >= limits::LOOKS_MAX {
                looked = 0;
                env::yield_now().await;
            }
        }
    }

    /// Early replies for what will not be ready in time. What still waits in a head when its client
    /// has given it up is taken out: it would only be dropped there, and its place is another's. A
    /// replay keeps its turn. Answers how many there were.
    async fn mind_requests(self: &Rc<Self>, session: &Session, now: Instant) -> usize {
        let looked = self.send_early(session, now);
        self.clock.set(now);
        let overdue = |work: &Work| {
            now > work.flight.deadline.get() && !work.request.has(RequestFlags::REPLAY)
        };
        if self.is_overdue(session, now) {
            self.drop_queued(session, overdue).await;
        }
        let margin = self.terms.at.get().early_margin;
        let mut export = session.export.borrow_mut();
        let next = export.all_executing_mut().map(|(_, flight)| flight.due(margin)).min();
        session.look_at.set(next.unwrap_or(Instant(u64::MAX)));
        looked
    }

    /// Early replies `at_early_margin` ahead, and no later than after half of the time that the
    /// attempt has: the next look is a second away, and replies get lost.
    fn send_early(&self, session: &Session, now: Instant) -> usize {
        let at = self.terms.at.get();
        let mut export = session.export.borrow_mut();
        let all = export.executing();
        let slow = export.all_executing_mut().filter(|(_, flight)| {
            let patient = flight.waits_for_others() || now - flight.arrived < at.max;
            patient && now >= flight.due(at.early_margin)
        });
        let due: Vec<_> = slow.map(|(xid, flight)| (xid.0, Rc::clone(flight))).collect();
        drop(export);
        for (xid, flight) in due {
            let is_open = flight.peer().tx.is_open();
            if is_open {
                session.send_early(&flight, xid, 0);
            }
        }
        all
    }

    fn is_overdue(&self, session: &Session, now: Instant) -> bool {
        let mut export = session.export.borrow_mut();
        export
            .all_executing_mut()
            .any(|(_, flight)| now > flight.deadline.get() && flight.place().is_some())
    }
}

/// Where a session's requests wait, in the order of their xids.
pub(crate) fn waiting(session: &Session) -> Vec<Queued> {
    let mut export = session.export.borrow_mut();
    export.all_executing_mut().filter_map(|(_, flight)| flight.place()).collect()
}
