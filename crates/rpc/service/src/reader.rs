//! From a link to a session: decodes a peer's requests and finds their session. A peer without a
//! session gets an error reply, and so does an operation that this version does not know.

use std::rc::Rc;

use env::Link;
use types::{Errno, Transno};
use wire::{
    Frame, FrameKind, MessageError, Opcode, Reply, ReplyFlags, Request, RequestFlags, RequestHeader,
};

use crate::node::{Node, Nonsense};
use crate::peer::Peer;
use crate::served::Served;
use crate::{Session, connect, limits};

impl Node {
    pub(crate) async fn read(self: Rc<Self>, mut link: Link, serial: u64) {
        let cpt = link.peer.cpt_among(&self.config.link_cpts, self.config.cpts.count());
        let peer = Peer::new(link.peer, serial, link.tx.clone(), cpt, &self.answers);
        self.peers.borrow_mut().push(Rc::clone(&peer));
        'link: while let Some(frame) = link.rx.recv().await {
            self.clock.set(self.env.now());
            let mut next = Some(frame);
            let mut batch = 0;
            while let Some(frame) = next {
                if let Err(error) = self.arrive(&peer, frame) {
                    tracing::warn!(peer = %peer.nid, %error, "protocol error from a peer: its link is closed");
                    break 'link;
                }
                batch += 1;
                next = if batch < limits::BATCH_FRAMES_MAX { link.rx.try_recv() } else { None };
            }
            if self.stopped.get() {
                break;
            }
            self.wait_until_taken(&peer).await;
            if batch == limits::BATCH_FRAMES_MAX {
                // the replies leave, and their receiver works while the rest is handled
                env::yield_now().await;
            }
        }
        peer.tx.close();
        peer.takes_nothing();
        self.peers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &peer));
        let targets: Vec<_> = self.targets.borrow().values().cloned().collect();
        for served in targets {
            let left = served.exports.detach(&peer);
            self.drop_left(&peer, left).await;
        }
    }

    /// A peer that takes no replies is not read further. Neither is one that leaves some while all
    /// links together have too many.
    async fn wait_until_taken(&self, peer: &Peer) {
        if peer.takes_more() {
            return;
        }
        peer.tx.room().await;
        while peer.is_crowded(0) {
            self.env.sleep(limits::CROWDED_LOOK).await;
        }
    }

    fn arrive(self: &Rc<Self>, peer: &Rc<Peer>, frame: Frame) -> Result<(), Nonsense> {
        match frame.kind {
            FrameKind::Request => {}
            FrameKind::Reply => return self.called_back(peer, frame),
            // nothing else is for us, and nothing of it does harm
            _ => return Ok(()),
        }
        let request = match Request::take(frame.into_payload()) {
            Err(MessageError::Opcode(header)) => {
                self.refuse_unknown(peer, &header);
                return Ok(());
            }
            request => request?,
        };
        let Some(served) = self.served_for(peer, &request.header) else { return Ok(()) };
        if request.opcode() == Opcode::Connect {
            self.env.spawn(
                "service.connect",
                Rc::clone(self).connect(served, Rc::clone(peer), connect::slim(request)),
            );
            return Ok(());
        }
        match self.session_for(&served, peer, &request.header) {
            Some(session) => self.admit(served, peer, session, request),
            None => Ok(()),
        }
    }

    /// The target of a request. Without one the peer has its answer already, if there is any.
    fn served_for(&self, peer: &Peer, header: &RequestHeader) -> Option<Rc<Served>> {
        let Some(served) = self.targets.borrow().get(&header.target).cloned() else {
            peer.reply(&Reply::error(header, Errno::ENODEV));
            return None;
        };
        // where its storage failed, the client asks again until the next start
        (!served.gone.get()).then_some(served)
    }

    /// The session of a request. Without one the peer has its answer already, if there is any.
    fn session_for(
        &self,
        served: &Served,
        peer: &Rc<Peer>,
        header: &RequestHeader,
    ) -> Option<Rc<Session>> {
        let exports = &served.exports;
        let session = exports.session(header.session);
        let ours = header.instance == exports.instance().0;
        // somebody else's session is as unknown as one that never was
        let is_known = |session: &Rc<Session>| {
            ours && !session.ended.get() && !session.absent.get() && session.is_of(peer)
        };
        let Some(session) = session.filter(is_known) else {
            let mut reply = Reply::error(header, Errno::ENOTCONN);
            reply.header.flags = ReplyFlags::NO_SESSION;
            reply.header.instance = exports.instance().0;
            peer.reply(&reply);
            return None;
        };
        if header.epoch != session.epoch.get() {
            return None; // of an older connection: the client has moved on
        }
        session.heard.set(self.clock.get());
        if session.noted.get().is_silent {
            exports.wake.notify_one(); // its record is to say otherwise
        }
        Some(session)
    }

    /// An operation of a later version. Its refusal need not be remembered, because each resend
    /// gets the same.
    fn refuse_unknown(self: &Rc<Self>, peer: &Rc<Peer>, header: &RequestHeader) {
        let Some(served) = self.served_for(peer, header) else { return };
        let Some(session) = self.session_for(&served, peer, header) else { return };
        tracing::debug!(peer = %peer.nid, opcode = header.opcode, "an unknown operation is refused");
        let exports = &served.exports;
        if header.flags.contains(RequestFlags::REPLAY) && exports.is_recovering() {
            let (index, transno) = (header.replay_index, Transno(header.transno));
            exports.recovery.borrow_mut().handle_refused(session.client, index, transno);
        }
        self.answer(peer, &session, Reply::error(header, Errno::EOPNOTSUPP));
        self.pump_recovery(exports);
    }
}
