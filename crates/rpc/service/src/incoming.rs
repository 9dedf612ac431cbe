//! A request as its target's handler receives it: the request, its data, and a slot that the
//! handler may give back early.

use std::rc::Rc;

use bytes::Bytes;
use ptlrpc::limits::AWAITED_BYTES_MAX;
use types::{Creds, Errno, Nid, Span, Xid};
use wire::{BULK_BYTES_MAX, Frame, FrameKind, Reply, ReplyFlags, Request, RequestFlags};

use crate::in_flight::InFlight;
use crate::peer::is_small;
use crate::{Session, ask_again, limits};

/// A request to be executed: what a [`crate::Target`] handles.
pub struct Incoming {
    /// The request. Boxed, because it goes through queues and into futures.
    pub request: Box<Request>,
    pub session: Rc<Session>,
    pub(crate) flight: Rc<InFlight>,
    /// From its arrival to its start.
    pub(crate) waited: Span,
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

    /// Key of its answer in `Table::Replies`: client id 16 bytes, tag 4 bytes, big-endian.
    #[must_use]
    pub fn reply_key(&self) -> Vec<u8> {
        let client = self.session.client.0.to_be_bytes();
        [&client[..], &self.request.header.tag.to_be_bytes()].concat()
    }

    /// The answer to this change, if another target has brought it since the change began
    /// ([`crate::Exports::restore`]). It must not be executed again then.
    #[must_use]
    pub fn restored(&self) -> Option<Reply> {
        let header = &self.request.header;
        if self.is_replay() || !self.request.has(RequestFlags::MODIFIES) {
            return None;
        }
        self.session.export.borrow().answer(header.tag, Xid(header.xid)).cloned()
    }

    /// Refuses what peers of its role may not ask for.
    pub fn check_role(&self) -> Result<(), Errno> {
        let least = self.request.opcode().least_role();
        if self.session.role() >= least { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// On whose behalf.
    #[must_use]
    pub fn creds(&self) -> Creds {
        self.request.creds()
    }

    /// Where it came from.
    #[must_use]
    pub fn peer(&self) -> Nid {
        self.flight.peer().nid
    }

    /// Its time in the queue, as statistics of its service count it.
    #[must_use]
    pub fn waited(&self) -> Span {
        self.waited
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
        let flight = &self.flight;
        let cpt = flight.peer().cpt;
        flight.keep_share(flight.terms.reserve(cpt, self.session.client, len).await);
        // the newest attempt's: a resend may have come during the wait
        let (peer, id) = (Rc::clone(&*flight.peer()), flight.bulk_id());
        let Some(pull) = peer.begin_pull(id) else {
            tracing::warn!(peer = %peer.nid, id, "a bulk is offered twice: the link is closed");
            peer.tx.close();
            return Err(self.abandon());
        };
        let ticket = peer.tx.expect_bulk(id, len);
        let sent = peer.tx.send(Frame::new(FrameKind::BulkPull, id, Bytes::new()));
        let patience = Span(flight.patience.0 / 2).min(limits::PULL_WAIT_MAX);
        let data = match sent {
            Ok(()) => flight.terms.env.timeout(patience, ticket).await.flatten(),
            Err(_) => None,
        };
        drop(pull);
        match data {
            Some(data) if data.len() == len => Ok(data),
            Some(_) => Err(Errno::EPROTO),
            None => {
                // what else it offered would not come either, and others wait for its share
                peer.tx.close();
                Err(self.abandon())
            }
        }
    }

    fn abandon(&self) -> Errno {
        self.flight.abandon();
        Errno::ECONNRESET
    }

    /// Whether its peer takes answers: if so, one of `bytes` may be put together now.
    pub(crate) fn may_be_answered(&self, bytes: u64) -> bool {
        if is_small(bytes) {
            return self.flight.peer().takes_more();
        }
        let answering = self.flight.peer().begin_answer(bytes);
        let begins = answering.is_some();
        answering.into_iter().for_each(|answering| self.flight.keep_answering(answering));
        begins
    }

    /// Waits until its peer takes what was put together for it before. Meanwhile this has no slot,
    /// and nothing is locked for it.
    ///
    /// The answer instead ends the operation before it begins: the link is gone, and a resend
    /// starts over; or the answers of all links leave no room, and the client shall ask again.
    pub(crate) async fn room_to_answer(&self, bytes: u64) -> Result<(), Box<Reply>> {
        loop {
            // the newest attempt's: a resend may have come during the wait
            let peer = Rc::clone(&*self.flight.peer());
            if self.may_be_answered(bytes) {
                return Ok(());
            }
            if !peer.tx.is_open() {
                return Err(Box::new(Reply::error(&self.request.header, self.abandon())));
            }
            if peer.is_crowded(bytes) {
                let service = self.flight.class.service;
                return Err(Box::new(ask_again::reply(&self.request, &self.session, service)));
            }
            self.step_aside();
            peer.wait_to_answer(bytes).await;
        }
    }

    /// Gives data back with the reply: as buffer 1 where it is small or no bulk is named, else
    /// pushed.
    pub fn push(&self, reply: &mut Reply, data: Bytes) {
        let small = data.len() <= self.flight.terms.inline_bytes as usize;
        if self.flight.bulk_id() == 0 || small {
            self.flight.give(data.len(), None);
            assert!(!reply.bufs.is_empty(), "a reply has its body before its data");
            reply.bufs.insert(1, data);
        } else {
            self.push_bulk(reply, data);
        }
    }

    /// Gives data back in a bulk phase, however small, if the request names one.
    pub fn push_bulk(&self, reply: &mut Reply, data: Bytes) {
        if self.flight.bulk_id() == 0 {
            return self.push(reply, data);
        }
        reply.header.flags |= ReplyFlags::BULK;
        self.flight.give(data.len(), Some(data));
    }

    /// This request now waits for another one: its slot is free, and the client is told that it
    /// takes long.
    pub fn park(&self) {
        if self.step_aside() {
            let header = &self.request.header;
            self.session.send_early(&self.flight, header.xid, header.opcode);
        }
    }

    /// Tells the client for which other clients this request waits, by their names.
    pub fn say_awaited(&self, names: &str) {
        let names: String = names.chars().take(AWAITED_BYTES_MAX).collect();
        let (header, bufs) = (&self.request.header, vec![Bytes::from(names)]);
        self.session.send_early_with(&self.flight, header.xid, header.opcode, bufs);
    }

    /// This request now waits for another one, mostly for a moment: its slot is free, and the
    /// client is told to wait once it takes long. Whether it still had its slot.
    pub fn step_aside(&self) -> bool {
        let Some(slot) = self.flight.park() else { return false };
        slot.release(self.flight.terms.env.now());
        true
    }
}
