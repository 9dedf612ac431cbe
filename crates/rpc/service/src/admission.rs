//! Decides whether a request is executed, answered again, held for recovery or ignored.

use std::rc::Rc;

use ptlrpc::{Admission, Cancelled, Repeated, Replay};
use types::{Errno, Instant, Transno, Xid};
use wire::body::{CancelRep, CancelReq, cancel};
use wire::{Opcode, Reply, ReplyFlags, Request, RequestFlags, encode_body};

use crate::in_flight::InFlight;
use crate::node::{Node, Nonsense};
use crate::peer::Peer;
use crate::scheduled::Work;
use crate::served::Served;
use crate::{Class, Exports, Session, limits};

impl Node {
    pub(crate) fn admit(
        self: &Rc<Self>,
        served: Rc<Served>,
        peer: &Rc<Peer>,
        session: Rc<Session>,
        request: Box<Request>,
    ) -> Result<(), Nonsense> {
        let recovering = served.exports.is_recovering();
        match request.opcode() {
            Opcode::Disconnect => {
                self.env.spawn(
                    "service.disconnect",
                    Rc::clone(self).disconnect(served, Rc::clone(peer), session, request.header),
                );
                return Ok(());
            }
            Opcode::Ping => {
                self.answer(peer, &session, Reply::ok(&request.header, Vec::new()));
                return Ok(());
            }
            Opcode::ReplayDone if !recovering => {
                session.replays_after.set(None);
                self.answer(peer, &session, Reply::ok(&request.header, Vec::new()));
                return Ok(());
            }
            Opcode::ReplayDone => return self.hold(served, peer, session, request),
            _ => {}
        }
        ptlrpc::check_past(&request.header, request.opcode(), served.exports.instance())?;
        let replays = request.has(RequestFlags::REPLAY) && request.header.transno != 0;
        if replays && recovering {
            return self.hold(served, peer, session, request);
        }
        if replays {
            self.answer(peer, &session, replayed(&request, None));
            return Ok(());
        }
        // a replay without a place in history states again what changes no records
        let restates = request.has(RequestFlags::REPLAY);
        if restates && !recovering {
            // of a recovery that is over: whoever stated it has been answered, or is evicted
            self.answer(peer, &session, Reply::error(&request.header, Errno::EPROTO));
            return Ok(());
        }
        let passes = restates || (session.is_server && request.opcode().passes_recovery());
        if recovering && !passes {
            let mut reply = Reply::error(&request.header, Errno::EAGAIN);
            reply.header.flags = ReplyFlags::RECOVERING;
            self.answer(peer, &session, reply);
            return Ok(());
        }
        if request.opcode() == Opcode::Cancel {
            return self.cancel(peer, &session, &request);
        }
        let admission = session.export.borrow_mut().admit(&request.header);
        match admission {
            Admission::Execute => {
                let mut class = served.target.class(&request);
                class.high_priority |= served.target.is_awaited(&session, &request);
                let service = self.service(class.service);
                let needs_no_room = recovering || class.service.is_unhindered();
                if needs_no_room {
                    self.check_passing(&session, &request)?;
                    if self.is_crowded_for(peer, &session, &request) {
                        self.put_off(peer, &session, &service, &request);
                        return Ok(());
                    }
                } else if self.is_busy_for(peer, &session, &service, &request) {
                    return Ok(());
                }
                let unhindered = recovering || class.service.passes_policies();
                let work = self.begin(served, peer, session, request, class, needs_no_room)?;
                if unhindered { self.dispatch_now(work) } else { self.dispatch(work, &service) }
            }
            Admission::Executing => {
                planted::reached("service: a request came again while it was executed");
                renew(peer, &session, request);
            }
            Admission::Answered(mut reply) => {
                let old = reply.header.transno >> 32 < served.exports.instance().0;
                let opens = request.has(RequestFlags::OPEN)
                    && reply.errno().is_none()
                    && reply.header.transno != 0;
                if old && opens && session.export.borrow_mut().reopen(request.xid()) {
                    planted::reached("service: an open was repeated for its resend");
                    return self.reopen(served, peer, session, request, reply);
                }
                planted::reached(match old {
                    true => "service: a change was resent after a restart",
                    false => "service: a change was resent",
                });
                session.fill(&mut reply);
                peer.reply(&reply);
            }
            Admission::Stale => planted::reached("service: a stale request was dropped"),
            Admission::BadTag => return Err(Nonsense::Tag(request.header.tag)),
        }
        Ok(())
    }

    /// A change whose caller is gone is dropped if it has not begun, whatever policy holds it; when
    /// it arrives only now, it is stale. Of one that has begun the own answer comes first.
    fn cancel(
        self: &Rc<Self>,
        peer: &Rc<Peer>,
        session: &Rc<Session>,
        request: &Request,
    ) -> Result<(), Nonsense> {
        let CancelReq { xid, tag, .. } = request.body();
        let wanted =
            |work: &Work| work.request.header.xid == xid && !work.request.has(RequestFlags::REPLAY);
        self.drop_waiting(session, Xid(xid), wanted);
        let cancelled = session.export.borrow_mut().cancel(Xid(xid), tag);
        let outcome = match cancelled {
            Cancelled::Dropped | Cancelled::Stale => cancel::DROPPED,
            Cancelled::Executing => cancel::EXECUTED,
            Cancelled::Answered(mut reply) => {
                session.fill(&mut reply);
                peer.reply(&reply);
                cancel::EXECUTED
            }
            Cancelled::BadTag => return Err(Nonsense::Tag(tag)),
        };
        let body = CancelRep { outcome, reserved: 0 };
        self.answer(peer, session, Reply::ok(&request.header, vec![encode_body(&body)]));
        Ok(())
    }

    /// An open whose answer, given by an earlier instance, never arrived: no replay has brought its
    /// handle back. It is executed as a replay would be, and answered as it was first.
    fn reopen(
        self: &Rc<Self>,
        served: Rc<Served>,
        peer: &Rc<Peer>,
        session: Rc<Session>,
        mut request: Box<Request>,
        first: Reply,
    ) -> Result<(), Nonsense> {
        let header = &mut request.header;
        header.flags = (header.flags | RequestFlags::REPLAY) & !RequestFlags::RESENT;
        header.transno = first.header.transno;
        header.replay_bufs = first.bufs.len() as u8;
        request.bufs.extend(first.bufs.iter().cloned());
        let class = served.target.class(&request);
        let work = self.begin(served, peer, session, request, class, false)?;
        work.flight.first.set(Some(Box::new(first)));
        let service = self.service(work.flight.class.service);
        self.dispatch(work, &service);
        Ok(())
    }

    fn begin(
        &self,
        served: Rc<Served>,
        peer: &Rc<Peer>,
        session: Rc<Session>,
        request: Box<Request>,
        class: Class,
        needs_no_room: bool,
    ) -> Result<Work, Nonsense> {
        let flight = InFlight::new(&self.terms, self.clock.get(), peer, &request, class);
        {
            let mut export = session.export.borrow_mut();
            if export.executing() >= limits::EXECUTING_MAX {
                return Err(Nonsense::TooMany(export.executing()));
            }
            export.begin(request.xid(), Rc::clone(&flight));
        }
        self.occupy(&session, &flight, &request, needs_no_room);
        let cpt = peer.cpt;
        Ok(Work { served, request, session, flight, cpt, is_settled: false })
    }

    /// Replays and ReplayDone wait for their turn in recovery.
    fn hold(
        self: &Rc<Self>,
        served: Rc<Served>,
        peer: &Rc<Peer>,
        session: Rc<Session>,
        request: Box<Request>,
    ) -> Result<(), Nonsense> {
        let tag = request.header.tag;
        if request.has(RequestFlags::MODIFIES) && (tag == 0 || tag > limits::TAGS_MAX) {
            return Err(Nonsense::Tag(tag));
        }
        self.check_passing(&session, &request)?;
        if session.export.borrow_mut().executing_mut(request.xid()).is_some() {
            let transno = Transno(request.header.transno);
            served.exports.recovery.borrow_mut().handle_offered_again(
                session.client,
                request.header.replay_index,
                transno,
            );
            renew(peer, &session, request);
            self.pump_recovery(&served.exports);
            return Ok(());
        }
        if self.is_crowded_for(peer, &session, &request) {
            return Err(Nonsense::Crowded(session.memory.passing()));
        }
        let exports = Rc::clone(&served.exports);
        let class = served.target.class(&request);
        let work = self.begin(served, peer, session, request, class, true)?;
        work.flight.hold();
        let now = self.env.now();
        let client = work.session.client;
        if work.request.opcode() == Opcode::ReplayDone {
            work.session.replays_after.set(None);
            exports.recovery.borrow_mut().handle_done(client, work, now);
        } else {
            let replay = Replay {
                client,
                index: work.request.header.replay_index,
                transno: Transno(work.request.header.transno),
                xid: work.request.xid(),
                open: work.request.has(RequestFlags::OPEN),
                item: work,
            };
            let repeated = exports.recovery.borrow_mut().handle_replay(replay, now);
            if let Some(Repeated { item: work, refusal }) = repeated {
                let _held_no_slot = work.flight.end();
                work.session.export.borrow_mut().finished(work.request.xid());
                self.answer(peer, &work.session, replayed(&work.request, refusal));
            }
        }
        self.pump_recovery(&exports);
        Ok(())
    }

    /// Executes what recovery allows, one at a time and past every policy: all clients wait for it.
    pub(crate) fn pump_recovery(self: &Rc<Self>, exports: &Rc<Exports>) {
        if exports.pumping.replace(true) {
            return; // the loop below goes on
        }
        loop {
            let work = exports.recovery.borrow_mut().poll_execute(self.env.now());
            let Some(work) = work else { break };
            work.flight.let_go();
            self.dispatch_now(work);
        }
        exports.pumping.set(false);
        if exports.recovery.borrow().is_complete() {
            exports.wake.notify_one();
        }
    }
}

fn renew(peer: &Rc<Peer>, session: &Session, request: Box<Request>) {
    if let Some(flight) = session.export.borrow_mut().executing_mut(request.xid()) {
        flight.renew(peer, request);
        session.look_at.set(Instant::default());
    }
}

/// The answer to a replay that was executed before, whose client has the real one, or refused.
fn replayed(request: &Request, refusal: Option<Errno>) -> Reply {
    if let Some(errno) = refusal {
        return Reply::error(&request.header, errno);
    }
    let mut reply = Reply::ok(&request.header, Vec::new());
    reply.header.transno = request.header.transno;
    reply
}
