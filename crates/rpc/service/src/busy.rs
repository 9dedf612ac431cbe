//! Requests for which there is no room: they are refused at once, and the client sends them again
//! later.
//!
//! Links are read whatever waits. So requests of one peer that are held back do not keep the server
//! from reading the pings, connections and requests of others.
//!
//! These need no room: pings, Connects, Cancels, replays and other requests of recovery, and
//! requests of services that nothing holds back (`ServiceSpec::is_unhindered`). Those of them that
//! stay in memory have bounds of their own, of a session and of all together. Beyond the second, a
//! session that holds more than a little gets the answer to ask again. If the request is a replay,
//! the link is closed instead, because a client takes any answer to a replay as final. It then
//! offers all its replays again.

use std::rc::Rc;

use types::Xid;
use wire::{Request, RequestFlags};

use crate::in_flight::{InFlight, Queued};
use crate::memory::{self, Held, Room};
use crate::node::{Node, Nonsense};
use crate::peer::Peer;
use crate::scheduled::Work;
use crate::services::Service;
use crate::{Session, ask_again, limits};

impl Node {
    /// Whether a request has no room; its client is told to ask again.
    pub(crate) fn is_busy_for(
        &self,
        peer: &Peer,
        session: &Session,
        service: &Service,
        request: &Request,
    ) -> bool {
        if self.has_room_for(session, service, request) {
            return false;
        }
        self.put_off(peer, session, service, request);
        true
    }

    /// Tells the client to ask again later.
    pub(crate) fn put_off(
        &self,
        peer: &Peer,
        session: &Session,
        service: &Service,
        request: &Request,
    ) {
        service.refused.set(service.refused.get() + 1);
        self.answer(peer, session, ask_again::reply(request, session, service.spec));
    }

    fn has_room_for(&self, session: &Session, service: &Service, request: &Request) -> bool {
        let held = Held::of(&self.memory, &session.memory, service.spec);
        let bytes = memory::cost(length(request));
        session.export.borrow().executing() < limits::EXECUTING_MAX
            && held.has_room(self.req_bytes_max.get(), bytes)
            && service.has_buffers(session.shared.target)
    }

    /// Whether what needs no room leaves none for `request`. A session that holds little always
    /// has room: so the change that a recovery waits for comes in, because its client has sent all
    /// changes before it, and they are executed.
    pub(crate) fn is_crowded_for(&self, peer: &Peer, session: &Session, request: &Request) -> bool {
        let (bytes, held) = (memory::cost(length(request)), session.memory.passing());
        let is_little = held == 0 || held + bytes <= limits::PASSING_BYTES_SESSION;
        !is_little && !self.passing.borrow().has_room(peer.nid, bytes)
    }

    /// What needs no room has a bound all the same, beside all that its session may hold.
    pub(crate) fn check_passing(
        &self,
        session: &Session,
        request: &Request,
    ) -> Result<(), Nonsense> {
        let bytes = session.memory.total() + memory::cost(length(request));
        let max = limits::PASSING_BYTES_MAX + self.req_bytes_max.get() / limits::PASSING_PART;
        if bytes > max { Err(Nonsense::TooLarge(bytes)) } else { Ok(()) }
    }

    /// Counts what a request occupies until it ends, and has housekeeping look in time.
    pub(crate) fn occupy(
        &self,
        session: &Session,
        flight: &InFlight,
        request: &Request,
        passes: bool,
    ) {
        let (service, bytes) = (flight.class.service, memory::cost(length(request)));
        let mut room = Room::take(&self.memory, &session.memory, service, bytes);
        if passes {
            room = room.passing(&self.passing, flight.peer().nid);
        }
        flight.keep_room(room);
        let due = flight.due(self.terms.at.get().early_margin);
        session.look_at.set(session.look_at.get().min(due));
    }

    /// Takes a waiting request out of its head, if `wanted` holds for it.
    pub(crate) fn drop_waiting(
        self: &Rc<Self>,
        session: &Session,
        xid: Xid,
        wanted: impl Fn(&Work) -> bool,
    ) {
        let place = session.export.borrow_mut().executing_mut(xid).and_then(|one| one.place());
        if let Some(place) = place {
            self.drop_at(&place, wanted);
        }
    }

    /// Takes those of a session's waiting requests out of their heads, and lets others have their
    /// turn meanwhile.
    pub(crate) async fn drop_queued(
        self: &Rc<Self>,
        session: &Session,
        wanted: impl Fn(&Work) -> bool,
    ) {
        let xids: Vec<Xid> =
            session.export.borrow_mut().all_executing_mut().map(|(xid, _)| xid).collect();
        for some in xids.chunks(limits::LOOKS_MAX) {
            some.iter().for_each(|xid| self.drop_waiting(session, *xid, &wanted));
            if some.len() == limits::LOOKS_MAX {
                env::yield_now().await;
                self.clock.set(self.env.now());
            }
        }
    }

    /// The link to `peer` is gone, and with it who would be answered: what it sent and still waits
    /// gives its place back. A client that lives sends it again. Replays keep their turn.
    pub(crate) async fn drop_left(self: &Rc<Self>, peer: &Rc<Peer>, sessions: Vec<Rc<Session>>) {
        let left = |work: &Work| {
            Rc::ptr_eq(&work.flight.peer(), peer) && !work.request.has(RequestFlags::REPLAY)
        };
        for session in sessions {
            self.drop_queued(&session, left).await;
        }
    }

    fn drop_at(self: &Rc<Self>, place: &Queued, wanted: impl Fn(&Work) -> bool) {
        let service = self.service(place.service);
        let partition = service.place(place.cpt, place.target);
        if partition.holds(place, wanted)
            && let Some(work) = self.unqueue(&partition, place)
        {
            service.dropped.set(service.dropped.get() + 1);
            service.count_done(place.cpt);
            let replays =
                work.request.has(RequestFlags::REPLAY) && work.request.header.transno != 0;
            self.end(&work.served, &work.session, &work.flight, work.request.xid(), replays);
            // a policy may let the next one leave sooner than the one that is gone
            self.run_later(&service, &partition);
        }
    }
}

fn length(request: &Request) -> usize {
    request.bufs.iter().map(bytes::Bytes::len).sum::<usize>() + request.groups.len() * 4
}
