//! A request on its way through a target, and the wires behind it.
//!
//! A request may be resent while it executes: the newest attempt's link and bulk id are the ones
//! that count.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use env::{Env, LinkTx};
use ptlrpc::AtConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::{Ascending, CptIndex, Creds, Errno, Instant, Nid, Span};
use wire::{BULK_BYTES_MAX, Frame, FrameKind, Reply, ReplyFlags, Request, RequestFlags};

use crate::work::Place;
use crate::{Class, Session, limits};

/// The other end of a link.
pub(crate) struct Peer {
    pub(crate) nid: Nid,
    /// Links are numbered from 1 as they are accepted.
    pub(crate) serial: u64,
    pub(crate) tx: LinkTx,
    pub(crate) cpt: CptIndex,
    /// Bulk ids being pulled: a peer that offers one twice at once is no peer of ours.
    pulling: RefCell<Ascending<u64, ()>>,
}

impl Peer {
    pub(crate) fn new(nid: Nid, serial: u64, tx: LinkTx, cpt: CptIndex) -> Rc<Peer> {
        Rc::new(Peer { nid, serial, tx, cpt, pulling: RefCell::default() })
    }

    /// Queues a reply; a link that is down is noticed by its reader.
    pub(crate) fn reply(&self, reply: &Reply) {
        let _ = self.tx.send_message(reply);
    }
}

/// Everything about an executing request but the request.
pub(crate) struct Transport {
    pub(crate) env: Env,
    pub(crate) peer: RefCell<Rc<Peer>>,
    pub(crate) bulk_id: Cell<u64>,
    pub(crate) pushed: RefCell<Option<Bytes>>,
    /// Bytes of data that go back with the reply, inline or pushed.
    pub(crate) given: Cell<u64>,
    pub(crate) class: Class,
    /// Where in its partition it is.
    pub(crate) place: RefCell<Place>,
    /// Where the first byte of its range lies on the disk, if that was asked for.
    pub(crate) physical: Cell<Option<u64>>,
    pub(crate) parked: Cell<bool>,
    pub(crate) held: Cell<bool>,
    pub(crate) arrived: Instant,
    pub(crate) deadline: Cell<Instant>,
    /// No policy holds it beyond this.
    pub(crate) leave_by: Instant,
    pub(crate) patience: Cell<Span>,
    /// Its data could not be had: nothing was done, nothing is answered, the resend does it.
    pub(crate) abandoned: Cell<bool>,
    /// The resend that came meanwhile.
    pub(crate) newer: RefCell<Option<Box<Request>>>,
    /// The answer of an earlier instance, to be given again once the handle is back.
    pub(crate) first: RefCell<Option<Box<Reply>>>,
    pub(crate) terms: Rc<Terms>,
    permit: RefCell<Option<OwnedSemaphorePermit>>,
    pub(crate) inline_bytes: u32,
}

/// What all requests of a node share: the account of pulled bytes, one per CPT, and the settings of
/// time.
pub(crate) struct Terms {
    pub(crate) per_cpt: Vec<std::sync::Arc<Semaphore>>,
    pub(crate) units: u32,
    pub(crate) at: Cell<AtConfig>,
}

impl Transport {
    pub(crate) fn new(
        env: &Env,
        now: Instant,
        peer: &Rc<Peer>,
        request: &Request,
        class: Class,
        terms: &Rc<Terms>,
        inline_bytes: u32,
    ) -> Rc<Transport> {
        let patience = Span::millis(u64::from(request.header.deadline_ms.max(1)));
        let at = terms.at.get();
        Rc::new(Transport {
            env: env.clone(),
            peer: RefCell::new(Rc::clone(peer)),
            bulk_id: Cell::new(request.header.bulk_id),
            pushed: RefCell::new(None),
            given: Cell::new(0),
            class,
            place: RefCell::default(),
            physical: Cell::new(None),
            parked: Cell::new(false),
            held: Cell::new(false),
            arrived: now,
            deadline: Cell::new(now + patience),
            leave_by: now + if at.max == Span::ZERO { patience } else { at.hold_max() },
            patience: Cell::new(patience),
            abandoned: Cell::new(false),
            newer: RefCell::new(None),
            first: RefCell::new(None),
            terms: Rc::clone(terms),
            permit: RefCell::new(None),
            inline_bytes,
        })
    }

    /// A resend came while this executes: answer there.
    pub(crate) fn renew(&self, peer: &Rc<Peer>, request: Box<Request>) {
        *self.peer.borrow_mut() = Rc::clone(peer);
        self.bulk_id.set(request.header.bulk_id);
        // whoever asks again counts anew, though it was told to wait longer before
        self.deadline.set(self.env.now() + self.patience.get());
        *self.newer.borrow_mut() = Some(request);
    }

    /// Tells the client to wait longer.
    pub(crate) fn send_early(&self, request_xid: u64, opcode: u16, session: &Session) {
        let now = self.env.now();
        let mut reply = Reply::default();
        reply.header.version = wire::VERSION;
        (reply.header.xid, reply.header.opcode) = (request_xid, opcode);
        reply.header.flags = ReplyFlags::EARLY;
        let extra = self.terms.at.get().extra;
        reply.header.lease_ms = u32::try_from(extra.as_millis()).unwrap_or(u32::MAX);
        session.fill(&mut reply);
        self.deadline.set(self.deadline.get().max(now + extra));
        self.peer.borrow().reply(&reply);
    }

    fn peer_now(&self) -> Rc<Peer> {
        Rc::clone(&self.peer.borrow())
    }
}

/// A request to be executed: what a [`crate::Target`] handles.
pub struct Incoming {
    /// The request. Boxed, because it goes through queues and into futures.
    pub request: Box<Request>,
    /// Who asks.
    pub session: Rc<Session>,
    pub(crate) transport: Rc<Transport>,
}

impl Incoming {
    /// Whether it repeats a change of an earlier instance: the first reply is in
    /// [`Request::replay_buf`].
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.request.has(RequestFlags::REPLAY)
    }

    /// Whether it repeats an open whose other changes are durable.
    #[must_use]
    pub fn is_open_replay(&self) -> bool {
        self.is_replay() && self.request.has(RequestFlags::OPEN)
    }

    /// On whose behalf.
    #[must_use]
    pub fn creds(&self) -> Creds {
        self.request.creds()
    }

    /// Where it came from.
    #[must_use]
    pub fn peer(&self) -> Nid {
        self.transport.peer.borrow().nid
    }

    /// When it arrived.
    #[must_use]
    pub fn arrived(&self) -> Instant {
        self.transport.arrived
    }

    /// The data that comes with the request: buffer 1, or pulled where the header names a bulk.
    ///
    /// An error ends the operation before it changes anything; if the link broke, the answer is
    /// dropped and the resend starts over.
    pub async fn pull(&self) -> Result<Bytes, Errno> {
        let header = &self.request.header;
        if header.bulk_id == 0 {
            return Ok(self.request.buf(1));
        }
        if header.bulk_len > BULK_BYTES_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let len = header.bulk_len as usize;
        self.reserve(len).await?;
        let transport = &self.transport;
        let (peer, id) = (transport.peer_now(), transport.bulk_id.get());
        if peer.pulling.borrow_mut().insert(id, ()).is_some() {
            tracing::warn!(peer = %peer.nid, id, "a bulk is offered twice: the link is closed");
            peer.tx.close();
            return Err(self.abandon());
        }
        let ticket = peer.tx.expect_bulk(id, len);
        let sent = peer.tx.send(Frame::new(FrameKind::BulkPull, id, Bytes::new()));
        let patience = Span(transport.patience.get().0 / 2).min(limits::PULL_WAIT_MAX);
        let data = match sent {
            Ok(()) => transport.env.timeout(patience, ticket).await.flatten(),
            Err(_) => None,
        };
        peer.pulling.borrow_mut().remove(id);
        match data {
            Some(data) if data.len() == len => Ok(data),
            Some(_) => Err(Errno::EPROTO),
            None => Err(self.abandon()),
        }
    }

    async fn reserve(&self, len: usize) -> Result<(), Errno> {
        let budget = &self.transport.terms;
        let units = u32::try_from(len.div_ceil(limits::BULK_UNIT))
            .expect("a bulk is bounded")
            .min(budget.units);
        let cpt = self.transport.peer.borrow().cpt.0 as usize;
        let permit = std::sync::Arc::clone(&budget.per_cpt[cpt]).acquire_many_owned(units).await;
        *self.transport.permit.borrow_mut() = Some(permit.map_err(|_| Errno::ESHUTDOWN)?);
        Ok(())
    }

    fn abandon(&self) -> Errno {
        self.transport.abandoned.set(true);
        Errno::ECONNRESET
    }

    /// Gives data back with the reply: as buffer 1 where it is small or no bulk is named, else
    /// pushed.
    pub fn push(&self, reply: &mut Reply, data: Bytes) {
        self.transport.given.set(data.len() as u64);
        let small = data.len() <= self.transport.inline_bytes as usize;
        if self.transport.bulk_id.get() == 0 || small {
            assert!(!reply.bufs.is_empty(), "a reply has its body before its data");
            reply.bufs.insert(1, data);
        } else {
            self.push_bulk(reply, data);
        }
    }

    /// Gives data back in a bulk phase, however small, if the request names one.
    pub fn push_bulk(&self, reply: &mut Reply, data: Bytes) {
        if self.transport.bulk_id.get() == 0 {
            return self.push(reply, data);
        }
        self.transport.given.set(data.len() as u64);
        reply.header.flags |= ReplyFlags::BULK;
        *self.transport.pushed.borrow_mut() = Some(data);
    }

    /// This request now waits for somebody else's: its slot is free, the client knows that it takes
    /// long.
    pub fn park(&self) {
        if self.transport.parked.replace(true) {
            return;
        }
        self.transport.send_early(
            self.request.header.xid,
            self.request.header.opcode,
            &self.session,
        );
        if let Place::Slot(slot) = self.transport.place.take() {
            slot.release(self.transport.env.now());
        }
    }
}
