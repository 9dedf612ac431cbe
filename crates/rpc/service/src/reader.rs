//! From a link to a session: decodes a peer's requests and finds their session. A peer without a
//! session gets an error reply.

use std::rc::Rc;

use env::Link;
use types::Errno;
use wire::{Frame, FrameKind, Opcode, Reply, ReplyFlags, Request};

use crate::node::{Node, Nonsense};
use crate::peer::Peer;
use crate::{Session, limits};

impl Node {
    pub(crate) async fn read(self: Rc<Self>, mut link: Link, serial: u64) {
        let cpt = link.peer.cpt_among(&self.config.link_cpts, self.config.cpts.count());
        let peer = Peer::new(link.peer, serial, link.tx.clone(), cpt);
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
            if !peer.takes_more() {
                peer.tx.room().await; // a peer that takes no replies is not read further
            }
            if batch == limits::BATCH_FRAMES_MAX {
                // the replies leave, and their receiver works while the rest is handled
                env::yield_now().await;
            }
        }
        peer.tx.close();
        self.peers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &peer));
        let targets: Vec<_> = self.targets.borrow().values().cloned().collect();
        for served in targets {
            let left = served.exports.detach(&peer);
            self.drop_left(&peer, left).await;
        }
    }

    fn arrive(self: &Rc<Self>, peer: &Rc<Peer>, frame: Frame) -> Result<(), Nonsense> {
        match frame.kind {
            FrameKind::Request => {}
            FrameKind::Reply => return self.called_back(peer, frame),
            // nothing else is for us, and nothing of it does harm
            _ => return Ok(()),
        }
        let request = Request::take(frame.into_payload())?;
        let Some(served) = self.targets.borrow().get(&request.header.target).cloned() else {
            peer.reply(&Reply::error(&request.header, Errno::ENODEV));
            return Ok(());
        };
        if served.gone.get() {
            return Ok(()); // its storage failed: the client asks again until the next start
        }
        if request.opcode() == Opcode::Connect {
            self.env.spawn(
                "service.connect",
                Rc::clone(self).connect(served, Rc::clone(peer), *request),
            );
            return Ok(());
        }
        let exports = &served.exports;
        let session = exports.session(request.header.session);
        let ours = request.header.instance == exports.instance().0;
        // somebody else's session is as unknown as one that never was
        let is_known = |session: &Rc<Session>| {
            ours && !session.ended.get() && !session.absent.get() && session.is_of(peer)
        };
        let Some(session) = session.filter(is_known) else {
            let mut reply = Reply::error(&request.header, Errno::ENOTCONN);
            reply.header.flags = ReplyFlags::NO_SESSION;
            reply.header.instance = exports.instance().0;
            peer.reply(&reply);
            return Ok(());
        };
        if request.header.epoch != session.epoch.get() {
            return Ok(()); // of an older connection: the client has moved on
        }
        session.heard.set(self.clock.get());
        self.admit(served, peer, session, request)
    }
}
