//! What a target needs done apart from requests: recovery's clock and end, evictions, leases, early
//! replies.
//!
//! Two tasks: one ends what is over and waits for the target's commits, the other watches the
//! clocks of sessions and their requests and waits for nothing.

use std::rc::Rc;

use types::{ClientId, Instant, Span};
use wire::{Reply, RequestFlags};

use crate::in_flight::Queued;
use crate::node::Node;
use crate::served::Served;
use crate::work::Work;
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
            self.mind_sessions(&served.exports);
            self.env.sleep(limits::TICK).await;
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
        let unnoted = served.exports.unnoted();
        if unnoted.is_empty() {
            return;
        }
        let records = unnoted.iter().map(|(session, silent)| session.record(*silent)).collect();
        Rc::clone(&served.target).note_clients(records).await;
        for (session, silent) in unnoted {
            session.noted_silent.set(silent);
        }
    }

    fn mind_sessions(self: &Rc<Self>, exports: &Exports) {
        let now = self.env.now();
        for session in exports.sessions() {
            self.send_early(&session, now);
            self.drop_overdue(&session, now);
            let silent = exports.silence(&session, now) > exports.silence_max;
            if silent && exports.open.get() {
                exports.evict(session.id);
            }
        }
    }

    /// Early replies for what will not be ready in time, `at_early_margin` ahead, and no later than
    /// after half of the time that the attempt has: the next look is a second away, and replies get
    /// lost.
    fn send_early(&self, session: &Session, now: Instant) {
        let at = self.terms.at.get();
        let due: Vec<_> = {
            let mut export = session.export.borrow_mut();
            let slow = export.all_executing_mut().filter(|(_, flight)| {
                let patient = flight.waits_for_others() || now - flight.arrived < at.max;
                let half = Span(flight.patience.0 / 2);
                patient && now + half.min(at.early_margin) >= flight.deadline.get()
            });
            slow.map(|(xid, flight)| (xid.0, Rc::clone(flight))).collect()
        };
        for (xid, flight) in due {
            let is_open = flight.peer().tx.is_open();
            if is_open {
                session.send_early(&flight, xid, 0);
            }
        }
    }

    /// What still waits in a head when its client has given it up is taken out: it would only be
    /// dropped there, and its place is another's. A replay keeps its turn.
    fn drop_overdue(self: &Rc<Self>, session: &Session, now: Instant) {
        let overdue = |work: &Work| {
            now > work.flight.deadline.get() && !work.request.has(RequestFlags::REPLAY)
        };
        self.drop_queued(session, overdue);
    }

    /// Takes those of a session's waiting requests out of their heads.
    pub(crate) fn drop_queued(self: &Rc<Self>, session: &Session, wanted: impl Fn(&Work) -> bool) {
        for place in waiting(session) {
            let service = self.service(place.service);
            let partition = service.partition(place.cpt);
            if partition.holds(&place, &wanted)
                && let Some(work) = self.unqueue(partition, &place)
            {
                service.dropped.set(service.dropped.get() + 1);
                partition.done.set(partition.done.get() + 1);
                let replays =
                    work.request.has(RequestFlags::REPLAY) && work.request.header.transno != 0;
                self.end(&work.served, &work.session, &work.flight, work.request.xid(), replays);
            }
        }
    }
}

/// Where a session's requests wait, in the order of their xids.
pub(crate) fn waiting(session: &Session) -> Vec<Queued> {
    let mut export = session.export.borrow_mut();
    export.all_executing_mut().filter_map(|(_, flight)| flight.place()).collect()
}
