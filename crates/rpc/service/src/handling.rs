//! The steps after a handler. Its answer is kept and sent, its slot is given back, and a request
//! whose data did not arrive is tried again.
//!
//! An answer is remembered only here, just before it is sent. Every request that may change
//! something has its answer remembered on its tag, refusals too, so that a resend gets the same
//! answer. A replay's refusal is remembered apart, until the end of recovery: the tag has the first
//! answer, which a resend is given.
//! Until the answer is remembered, the request counts as executing, so a duplicate starts nothing.
//! A target stores the answer of a change with the change ([`crate::Exports::record`]). That record
//! is read only at the target's next start.

use std::rc::Rc;

use types::{CptIndex, Errno, Instant, Span, Timespec, Xid};
use wire::{Frame, FrameKind, Opcode, Reply, ReplyFlags};

use crate::in_flight::InFlight;
use crate::node::Node;
use crate::partition::Partition;
use crate::peer::Peer;
use crate::served::Served;
use crate::services::Service;
use crate::stats::{Past, spare};
use crate::{Direction, Session};

impl Node {
    pub(crate) fn complete(self: &Rc<Self>, done: Done, mut reply: Reply) {
        let Done { session, flight, service, .. } = &done;
        // it was not handled, and comes again: nothing of this is remembered
        let put_off = reply.has(ReplyFlags::BUSY);
        let counter = if put_off { &service.refused } else { &service.served };
        counter.set(counter.get() + 1);
        done.count(self.clock.get());
        if flight.is_abandoned() && reply.header.transno == 0 {
            self.retry(done);
            return;
        }
        let first = flight.first.take();
        // Two refusals lose nothing: of an open that is repeated for its resend, because its answer
        // never arrived, and of a durable open, because its file went after its close.
        if done.replays
            && first.is_none()
            && done.transno > done.served.exports.last_committed().0
            && let Some(status) = reply.errno()
        {
            done.log_refusal(status);
        }
        if done.replays
            && let Some(status) = reply.errno()
        {
            let exports = &done.served.exports;
            let remembered = !exports.is_recovering()
                || exports.recovery.borrow_mut().handle_refusal(session.client, done.xid, status);
            // what it says of the first time cannot have been: nothing else it says is listened to
            if status == Errno::EPROTO || !remembered {
                exports.evict(session.id);
            }
        }
        if let Some(first) = first.filter(|_| reply.errno().is_none()) {
            reply = *first;
        }
        session.fill(&mut reply);
        reply.header.xid = done.xid.0;
        if done.modifies && !put_off && (!done.replays || reply.header.transno != 0) {
            session.export.borrow_mut().remember(done.tag, &reply);
        }
        if !put_off {
            reply.header.service_estimate_ms = self.measure(&done, &reply);
        }
        let peer = Rc::clone(&*flight.peer());
        if !session.ended.get() {
            if let Some(data) = flight.take_pushed() {
                let _ = peer.tx.send(Frame::new(FrameKind::BulkData, flight.bulk_id(), data));
            }
            peer.reply(&reply);
        }
        self.finish(&done);
    }

    /// Counts what was handled; answers the estimate for the reply, milliseconds.
    fn measure(&self, done: &Done, reply: &Reply) -> u32 {
        let (now, config) = (self.clock.get(), self.terms.at.get());
        let Done { service, flight, .. } = done;
        let mut stats = service.stats.borrow_mut();
        stats.handled(done.opcode, now - done.started);
        if reply.errno().is_none() {
            match &flight.class.io {
                Some(io) if io.direction == Direction::Read => stats.read(flight.given()),
                Some(io) => stats.written(io.bytes),
                None => {}
            }
        }
        drop(stats);
        if service.history.borrow().is_on() {
            self.remember_past(done, Some(reply));
        }
        let mut estimate = done.partition.estimate.borrow_mut();
        // who waited for somebody else's lock says nothing about this service
        if !done.again && !flight.is_parked() {
            estimate.measure(now - flight.arrived, now, &config);
        }
        u32::try_from(estimate.current(now, &config).as_millis()).unwrap_or(u32::MAX)
    }

    fn remember_past(&self, done: &Done, reply: Option<&Reply>) {
        let (now, wall) = (self.clock.get(), self.env.wall());
        let arrived = before(wall, now - done.flight.arrived);
        done.service.history.borrow_mut().push(Past {
            target: done.served.target.id(),
            nid: done.flight.peer().nid,
            xid: done.xid.0,
            length: done.length,
            opcode: done.opcode,
            status: reply.and_then(Reply::errno),
            dropped: reply.is_none(),
            arrived,
            took: now - done.flight.arrived,
            spare: spare(done.flight.deadline.get(), now),
        });
    }

    /// Its deadline has passed or its client is gone: the client resends, or it does not.
    pub(crate) fn drop_unhandled(self: &Rc<Self>, done: &Done) {
        done.service.dropped.set(done.service.dropped.get() + 1);
        done.count(self.clock.get());
        if done.service.history.borrow().is_on() {
            self.remember_past(done, None);
        }
        self.finish(done);
    }

    /// Nothing was done because the data could not be had. A resend that came meanwhile takes over.
    fn retry(self: &Rc<Self>, done: Done) {
        planted::reached("service: a handler went without its data");
        let newer = done.flight.take_newer();
        let peer = Rc::clone(&*done.flight.peer());
        let (served, session) = (Rc::clone(&done.served), Rc::clone(&done.session));
        if done.replays {
            // it keeps its turn: the client either comes back with it or is evicted
            session.export.borrow_mut().finished(done.xid);
            self.release(&done.flight);
            let exports = Rc::clone(&served.exports);
            if exports.is_recovering() {
                exports.recovery.borrow_mut().handle_abandoned(self.env.now());
            }
            let goes_on =
                newer.is_some_and(|request| self.admit(served, &peer, session, request).is_ok());
            if !goes_on {
                peer.tx.close();
                // now, not when its reader sees it: nobody may pass the gap meanwhile
                let _nothing_of_theirs_is_queued = exports.detach(&peer);
            }
            self.pump_recovery(&exports);
            return;
        }
        self.finish(&done);
        if let Some(request) = newer
            && let Err(error) = self.admit(served, &peer, session, request)
        {
            tracing::warn!(peer = %peer.nid, %error, "protocol error from a peer: its link is closed");
            peer.tx.close();
        }
    }

    fn finish(self: &Rc<Self>, done: &Done) {
        self.end(&done.served, &done.session, &done.flight, done.xid, done.replays);
    }

    /// A request is over, answered or not.
    pub(crate) fn end(
        self: &Rc<Self>,
        served: &Rc<Served>,
        session: &Session,
        flight: &InFlight,
        xid: Xid,
        replays: bool,
    ) {
        session.export.borrow_mut().finished(xid);
        self.release(flight);
        if replays && served.exports.is_recovering() {
            served.exports.recovery.borrow_mut().handle_executed(self.env.now());
            self.pump_recovery(&served.exports);
        }
    }

    /// The request is over: gives back its slot, if it has one.
    pub(crate) fn release(&self, flight: &InFlight) {
        if let Some(slot) = flight.end() {
            slot.release(self.clock.get());
        }
    }

    /// Sends a reply that no handler made.
    pub(crate) fn answer(&self, peer: &Peer, session: &Session, mut reply: Reply) {
        session.fill(&mut reply);
        peer.reply(&reply);
    }
}

/// What is left of a request once its handler has it.
pub(crate) struct Done {
    pub(crate) served: Rc<Served>,
    pub(crate) session: Rc<Session>,
    pub(crate) flight: Rc<InFlight>,
    pub(crate) service: Rc<Service>,
    pub(crate) partition: Rc<Partition>,
    /// Where it is counted.
    pub(crate) cpt: CptIndex,
    pub(crate) xid: Xid,
    pub(crate) tag: u32,
    pub(crate) opcode: Opcode,
    /// Bytes of its buffers.
    pub(crate) length: usize,
    pub(crate) started: Instant,
    pub(crate) modifies: bool,
    pub(crate) replays: bool,
    /// The place in history that it had, of a replay.
    pub(crate) transno: u64,
    /// A resend or a replay: what it took says nothing about the service.
    pub(crate) again: bool,
}

impl Done {
    fn count(&self, now: Instant) {
        self.service.count_done(self.cpt);
        self.partition.moved(now);
    }

    /// Whether it is put off while its peer takes no answers. All wait for the end of a recovery,
    /// and for unlocks. An open that is repeated for its resend is not asked for again.
    pub(crate) fn waits_for_its_peer(&self) -> bool {
        let passes = self.flight.class.service.is_unhindered() || self.replays;
        !self.served.exports.is_recovering() && !passes
    }

    /// Its client was told once that this is done, and learns now that it is not.
    fn log_refusal(&self, status: Errno) {
        tracing::error!(
            target_id = %self.served.exports.name(),
            client = %self.session.client,
            name = ?self.session.name,
            xid = self.xid.0,
            transno = self.transno,
            opcode = self.opcode.name(),
            %status,
            "a replay is refused: acknowledged work is lost"
        );
    }
}

/// `wall`, `span` ago.
fn before(wall: Timespec, span: Span) -> Timespec {
    let ns = i128::from(wall.sec) * 1_000_000_000 + i128::from(wall.nsec) - i128::from(span.0);
    let sec = i64::try_from(ns.div_euclid(1_000_000_000)).unwrap_or(i64::MIN);
    Timespec::new(sec, u32::try_from(ns.rem_euclid(1_000_000_000)).expect("below a second"))
}
