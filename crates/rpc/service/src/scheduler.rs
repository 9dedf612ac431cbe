//! Through a partition: queued in an NRS head, taken when a slot is free, handed to the target.
//!
//! No borrow lives across a handler. A handler that is ready at once is answered in the turn of the link's reader;
//! only one that has to wait becomes a task.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use env::{Arrival, Portal, PortalRotor};
use types::CptIndex;
use wire::RequestFlags;

use crate::handling::Done;
use crate::incoming::Peer;
use crate::node::{Node, Work};
use crate::partition::Partition;
use crate::{Incoming, ServiceSpec, limits};

impl Node {
    fn partition(&self, cpt: CptIndex, spec: &'static ServiceSpec) -> Rc<Partition> {
        let mut partitions = self.partitions[cpt.0 as usize].borrow_mut();
        if let Some(partition) = partitions.iter().find(|partition| partition.spec.name == spec.name) {
            return Rc::clone(partition);
        }
        let partition = Rc::new(Partition::new(spec));
        partitions.push(Rc::clone(&partition));
        partition
    }

    /// The portal rotor's choice. Nothing comes through a router: there are none.
    fn choose_cpt(&self, service: &'static ServiceSpec, peer: &Peer) -> CptIndex {
        let mut portals = self.portals.borrow_mut();
        let fresh = || Portal::new(self.service_cpts(service), self.config.cpts.count());
        let portal = portals.entry(service.name).or_insert_with(fresh);
        portal.choose(self.portal_rotor.get(), &Arrival { link_cpt: peer.cpt, source: peer.nid, is_routed: false })
    }

    /// Whether a CPT to which the next request of `peer` may go has a full queue: its own, where requests stay with their
    /// link, else any.
    pub(crate) fn is_full_for(&self, peer: &Peer) -> bool {
        let is_full = |queued: &Cell<usize>| queued.get() >= limits::QUEUED_MAX;
        if self.portal_rotor.get() != PortalRotor::On && self.config.service_cpts.is_empty() {
            return is_full(&self.queued[peer.cpt.0 as usize]) || is_full(&self.queued[0]); // 0: services without affinity
        }
        self.queued.iter().any(is_full)
    }

    pub(crate) fn dispatch(self: &Rc<Self>, work: Work) {
        let class = work.entry.target.class(&work.request);
        let cpt = self.choose_cpt(class.service, &work.transport.peer.borrow());
        let partition = self.partition(cpt, class.service);
        let queued = &self.queued[cpt.0 as usize];
        queued.set(queued.get() + 1);
        partition.enqueue(work, class.high_priority);
        self.run(&partition, cpt);
    }

    /// Starts requests while slots are free.
    pub(crate) fn run(self: &Rc<Self>, partition: &Rc<Partition>, cpt: CptIndex) {
        if partition.running.replace(true) {
            return; // the loop below goes on
        }
        while let Some((work, hp)) = partition.take() {
            let queued = &self.queued[cpt.0 as usize];
            queued.set(queued.get() - 1);
            if queued.get() + 1 == limits::QUEUED_MAX {
                self.drained.notify_waiters();
            }
            *work.transport.slot.borrow_mut() = Some((Rc::clone(partition), hp));
            self.start(work, partition, cpt);
        }
        partition.running.set(false);
    }

    fn start(self: &Rc<Self>, work: Work, partition: &Rc<Partition>, cpt: CptIndex) {
        let Work { entry, request, session, transport } = work;
        let done = Done {
            entry,
            session: Rc::clone(&session),
            transport: Rc::clone(&transport),
            partition: Rc::clone(partition),
            xid: request.xid(),
            tag: request.header.tag,
            modifies: request.has(RequestFlags::MODIFIES),
            replays: request.has(RequestFlags::REPLAY) && request.header.transno != 0,
        };
        let late = self.clock.get() > transport.deadline.get();
        if (late && !done.replays) || session.ended.get() || done.entry.gone.get() {
            partition.dropped.set(partition.dropped.get() + 1);
            self.finish(&done);
            return;
        }
        let mut handler = Rc::clone(&done.entry.target).handle(Incoming { request, session, transport });
        match handler.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => self.complete(done, reply),
            Poll::Pending => {
                let node = Rc::clone(self);
                self.env.spawn("service.handler", async move {
                    let mut parked = done.transport.parked.get();
                    let reply = std::future::poll_fn(|cx| {
                        let polled = handler.as_mut().poll(cx);
                        if !std::mem::replace(&mut parked, done.transport.parked.get()) && parked {
                            node.clock.set(node.env.now());
                            node.run(&done.partition, cpt); // its slot is somebody else's now
                        }
                        polled
                    })
                    .await;
                    drop(handler);
                    let partition = Rc::clone(&done.partition);
                    node.clock.set(node.env.now());
                    node.complete(done, reply);
                    node.run(&partition, cpt);
                });
            }
        }
    }
}
