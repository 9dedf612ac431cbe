//! What a target needs done apart from requests: recovery's clock and end, evictions, leases, early
//! replies.

use std::rc::Rc;

use types::{Instant, Span};
use wire::{Reply, RequestFlags};

use crate::node::{Entry, Node};
use crate::work::{Place, Queued, Work};
use crate::{Exports, Session, limits};

impl Node {
    pub(crate) async fn keep_house(self: Rc<Self>, entry: Rc<Entry>) {
        let exports = Rc::clone(&entry.exports);
        while !self.stopped.get() && !entry.gone.get() {
            self.clock.set(self.env.now());
            self.mind_recovery(&entry).await;
            self.mind_evictions(&entry).await;
            self.mind_sessions(&exports);
            let tick = self.env.now() + limits::TICK;
            let due = exports.recovery.borrow().poll_timeout();
            let until = due.map_or(tick, |due| due.min(tick)).max(self.env.now() + Span::millis(1));
            self.env.timeout_at(until, exports.wake.notified()).await;
        }
    }

    async fn mind_recovery(self: &Rc<Self>, entry: &Rc<Entry>) {
        let exports = &entry.exports;
        if exports.open.get() {
            return;
        }
        exports.recovery.borrow_mut().handle_timeout(self.env.now());
        loop {
            let missing = exports.recovery.borrow_mut().poll_evict();
            let Some(client) = missing else { break };
            if let Some(session) =
                exports.sessions().into_iter().find(|session| session.client == client)
            {
                self.end_session(entry, &session, true).await;
            }
        }
        self.pump_recovery(exports);
        let finished = exports.recovery.borrow_mut().poll_finished();
        if let Some(waiting) = finished {
            Rc::clone(&entry.target).recovery_done().await;
            exports.open.set(true);
            exports.evict_absent();
            tracing::info!(target_id = %exports.target, "recovery is complete");
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
        let peer = Rc::clone(&work.transport.peer.borrow());
        self.answer(&peer, &work.session, Reply::ok(&work.request.header, Vec::new()));
    }

    async fn mind_evictions(self: &Rc<Self>, entry: &Rc<Entry>) {
        loop {
            let next = entry.exports.evictions.borrow_mut().pop_first();
            let Some(id) = next else { return };
            if let Some(session) = entry.exports.session(id) {
                self.end_session(entry, &session, true).await;
            }
        }
    }

    fn mind_sessions(self: &Rc<Self>, exports: &Exports) {
        let now = self.env.now();
        for session in exports.sessions() {
            self.send_early(&session, now);
            self.drop_overdue(&session, now);
            let silent = now - session.heard.get() > exports.lease;
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
            let slow = export.all_executing_mut().filter(|(_, transport)| {
                let waits_for_others = transport.parked.get() || transport.held.get();
                let patient = waits_for_others || now - transport.arrived < at.max;
                let half = Span(transport.patience.get().0 / 2);
                patient && now + half.min(at.early_margin) >= transport.deadline.get()
            });
            slow.map(|(xid, transport)| (xid.0, Rc::clone(transport))).collect()
        };
        for (xid, transport) in due {
            if transport.peer.borrow().tx.is_open() {
                transport.send_early(xid, 0, session);
            }
        }
    }

    /// What still waits in a head when its client has given it up is taken out: it would only be
    /// dropped there, and its place is another's. A replay keeps its turn.
    fn drop_overdue(self: &Rc<Self>, session: &Session, now: Instant) {
        let overdue = |work: &Work| {
            now > work.transport.deadline.get() && !work.request.has(RequestFlags::REPLAY)
        };
        self.drop_queued(session, overdue);
    }

    /// Takes those of a session's waiting requests out of their heads.
    pub(crate) fn drop_queued(self: &Rc<Self>, session: &Session, wanted: impl Fn(&Work) -> bool) {
        for place in waiting(session) {
            if place.holds(&wanted)
                && let Some(work) = self.unqueue(&place)
            {
                let service = self.service(place.partition.spec);
                service.dropped.set(service.dropped.get() + 1);
                place.partition.done.set(place.partition.done.get() + 1);
                let replays =
                    work.request.has(RequestFlags::REPLAY) && work.request.header.transno != 0;
                self.end(&work.entry, &work.session, &work.transport, work.request.xid(), replays);
            }
        }
    }
}

/// Where a session's requests wait, in the order of their xids.
pub(crate) fn waiting(session: &Session) -> Vec<Queued> {
    let mut export = session.export.borrow_mut();
    let places =
        export.all_executing_mut().filter_map(|(_, transport)| match &*transport.place.borrow() {
            Place::Queued(queued) => Some(queued.clone()),
            Place::Nowhere | Place::Slot(_) => None,
        });
    places.collect()
}
