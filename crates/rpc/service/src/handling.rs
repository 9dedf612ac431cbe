//! What follows a handler: its answer is kept and sent, its slot given back, a request without its data tried again.

use std::rc::Rc;

use types::Xid;
use wire::{Frame, FrameKind, Reply};

use crate::Session;
use crate::incoming::{Peer, Transport};
use crate::node::{Entry, Node};
use crate::partition::Partition;

impl Node {
    pub(crate) fn complete(self: &Rc<Self>, done: Done, mut reply: Reply) {
        let Done { session, transport, partition, .. } = &done;
        partition.served.set(partition.served.get() + 1);
        if transport.abandoned.get() && reply.header.transno == 0 {
            self.retry(done);
            return;
        }
        let first = transport.first.borrow_mut().take();
        if let Some(first) = first.filter(|_| reply.errno().is_none()) {
            reply = first;
        }
        session.fill(&mut reply);
        reply.header.xid = done.xid.0;
        if done.modifies && !done.replays {
            let mut export = session.export.borrow_mut();
            if !export.remembers(done.tag, done.xid) {
                export.remember(done.tag, &reply);
            }
        }
        let peer = Rc::clone(&transport.peer.borrow());
        if !session.ended.get() {
            let pushed = transport.pushed.borrow_mut().take();
            if let Some(data) = pushed {
                let _ = peer.tx.send(Frame::new(FrameKind::BulkData, transport.bulk_id.get(), data));
            }
            peer.reply(&reply);
        }
        self.finish(&done);
    }

    /// Nothing was done because the data could not be had. A resend that came meanwhile takes over.
    fn retry(self: &Rc<Self>, done: Done) {
        let newer = done.transport.newer.borrow_mut().take();
        let peer = Rc::clone(&done.transport.peer.borrow());
        let (entry, session) = (Rc::clone(&done.entry), Rc::clone(&done.session));
        if done.replays {
            // it keeps its turn: the client either comes back with it or is evicted
            session.export.borrow_mut().finished(done.xid);
            release(&done);
            let exports = Rc::clone(&entry.exports);
            exports.recovery.borrow_mut().handle_abandoned(self.env.now());
            if let Some(request) = newer {
                let _ = self.admit(entry, &peer, session, request);
            } else {
                peer.tx.close();
                exports.detach(&peer); // now, not when its reader sees it: nobody may pass the gap meanwhile
            }
            self.pump_recovery(&exports);
            return;
        }
        self.finish(&done);
        if let Some(request) = newer
            && let Err(error) = self.admit(entry, &peer, session, request)
        {
            tracing::warn!(peer = %peer.nid, %error, "a peer sent nonsense: its link is closed");
            peer.tx.close();
        }
    }

    pub(crate) fn finish(self: &Rc<Self>, done: &Done) {
        done.session.export.borrow_mut().finished(done.xid);
        release(done);
        if done.replays && done.entry.exports.is_recovering() {
            done.entry.exports.recovery.borrow_mut().handle_executed(self.env.now());
            self.pump_recovery(&done.entry.exports);
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
    pub(crate) entry: Rc<Entry>,
    pub(crate) session: Rc<Session>,
    pub(crate) transport: Rc<Transport>,
    pub(crate) partition: Rc<Partition>,
    pub(crate) xid: Xid,
    pub(crate) tag: u32,
    pub(crate) modifies: bool,
    pub(crate) replays: bool,
}

fn release(done: &Done) {
    if let Some((partition, hp)) = done.transport.slot.borrow_mut().take() {
        partition.release(hp);
    }
}
