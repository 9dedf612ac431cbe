//! A request's path through a partition: queued in an NRS head, taken when a slot is free, handed
//! to the target.
//!
//! No borrow is held across a handler. If a handler is ready at once, its answer goes out in the
//! turn of the link's reader. Only a handler that has to wait becomes a task.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use env::{Arrival, LocalFuture};
use types::{CptIndex, Instant};
use wire::{Reply, RequestFlags};

use crate::handling::Done;
use crate::in_flight::Queued;
use crate::node::Node;
use crate::partition::{Partition, Step};
use crate::peer::Peer;
use crate::scheduled::Work;
use crate::services::{HeadScope, Service};
use crate::stats::Started;
use crate::{Incoming, ServiceSpec, Target, limits};

impl Node {
    /// A service; made with its first request or parameter.
    pub(crate) fn service(&self, spec: &'static ServiceSpec) -> Rc<Service> {
        let mut services = self.services.borrow_mut();
        if let Some(service) = services.iter().find(|service| std::ptr::eq(service.spec, spec)) {
            return Rc::clone(service);
        }
        let (cpts, policies) = (self.service_cpts(spec), nrs::policies_of(&self.tbf));
        let service = Service::new(spec, &self.config.cpts, &cpts, policies, self.clock.get());
        services.push(Rc::clone(&service));
        service
    }

    /// The portal rotor's choice. Nothing comes through a router: there are none.
    fn choose_cpt(&self, service: &Service, peer: &Peer) -> CptIndex {
        let arrival = Arrival { link_cpt: peer.cpt, source: peer.nid, is_routed: false };
        service.portal.borrow_mut().choose(self.portal_rotor.get(), &arrival)
    }

    pub(crate) fn dispatch(self: &Rc<Self>, mut work: Work, service: &Rc<Service>) {
        let high_priority = work.flight.class.high_priority;
        work.cpt = self.choose_cpt(service, &work.flight.peer());
        self.see_heads(service, work.served.target.id());
        if service.wants_places.get()
            && let Some((object, range)) = work.read_range()
        {
            let (node, target) = (Rc::clone(self), Rc::clone(&work.served.target));
            let service = Rc::clone(service);
            self.env.spawn("service.locate", async move {
                work.flight.physical.set(target.locate(object, range).await);
                node.clock.set(node.env.now());
                node.enqueue(&service, work, high_priority);
            });
            return;
        }
        self.enqueue(service, work, high_priority);
    }

    /// Starts what recovery lets go: it passes no head and waits for no slot. Replays come one at a
    /// time, and a restated lock is taken at once.
    pub(crate) fn dispatch_now(self: &Rc<Self>, mut work: Work) {
        let service = self.service(work.flight.class.service);
        work.cpt = self.choose_cpt(&service, &work.flight.peer());
        let partition = service.place(work.cpt, work.served.target.id());
        let outermost = !partition.running.replace(true);
        self.start(partition.pass_all(work), &service, &partition);
        if outermost {
            partition.running.set(false);
            self.run(&service, &partition); // what was queued meanwhile
        }
    }

    fn enqueue(self: &Rc<Self>, service: &Rc<Service>, work: Work, high_priority: bool) {
        let partition = service.place(work.cpt, work.served.target.id());
        match partition.pass(work, high_priority, self.clock.get()) {
            Ok(work) => {
                // what comes meanwhile is queued, not handled in the midst of this
                partition.running.set(true);
                self.start(work, service, &partition);
                partition.running.set(false);
                if partition.heads.borrow().queued() == 0 {
                    return;
                }
            }
            Err(work) => partition.enqueue(work, high_priority, self.clock.get()),
        }
        self.run(service, &partition);
    }

    /// Starts requests while slots are free. Where the partitions share their heads, the others
    /// help.
    pub(crate) fn run(self: &Rc<Self>, service: &Rc<Service>, partition: &Rc<Partition>) {
        self.run_one(service, partition);
        let shares = service.scope.get() != HeadScope::Cpt && partition.target.is_none();
        if shares && partition.heads.borrow().queued() > 0 {
            for other in service.partitions.iter().filter(|other| !Rc::ptr_eq(other, partition)) {
                self.run_one(service, other);
            }
        }
    }

    /// Something changed for all partitions.
    pub(crate) fn run_all(self: &Rc<Self>, service: &Rc<Service>) {
        self.clock.set(self.env.now());
        service.in_use().iter().for_each(|partition| self.run_one(service, partition));
    }

    fn run_one(self: &Rc<Self>, service: &Rc<Service>, partition: &Rc<Partition>) {
        if partition.running.replace(true) {
            return; // the loop below goes on
        }
        let mut started = 0;
        loop {
            if started == limits::STARTS_MAX {
                self.run_later(service, partition);
                break;
            }
            match partition.take(self.clock.get()) {
                Step::Start(work, line) => {
                    started += 1;
                    if let Some(line) = line {
                        let target_id = partition.target.map(|target| self.name_of(target));
                        let target_id = target_id.map(tracing::field::display);
                        tracing::info!(target: "nrs", service = service.spec.name, cpt = partition.cpt.0, target_id, "{line}");
                    }
                    self.start(work, service, partition);
                }
                Step::Wait(until) => {
                    self.wake_at(service, partition, until);
                    break;
                }
                Step::Rest => break,
            }
        }
        for broken in partition.disabled() {
            let (policy, arg, call, why, requests) =
                (broken.policy, broken.arg, broken.call, broken.why, broken.requests);
            tracing::error!(
                service = service.spec.name,
                policy,
                arg,
                call,
                why,
                requests,
                "an NRS policy failed: FIFO goes on"
            );
        }
        partition.running.set(false);
    }

    /// Goes on with the partition once others have had their turn.
    pub(crate) fn run_later(self: &Rc<Self>, service: &Rc<Service>, partition: &Rc<Partition>) {
        if partition.runs_later.replace(true) {
            return;
        }
        let (node, service, of) =
            (Rc::downgrade(self), Rc::downgrade(service), Rc::downgrade(partition));
        self.env.spawn("service.more", async move {
            env::yield_now().await;
            if let (Some(node), Some(service), Some(partition)) =
                (node.upgrade(), service.upgrade(), of.upgrade())
            {
                partition.runs_later.set(false);
                if !node.stopped.get() {
                    node.clock.set(node.env.now());
                    node.run(&service, &partition);
                }
            }
        });
    }

    /// Asks the partition again at `until`; one timer each, the earliest.
    fn wake_at(self: &Rc<Self>, service: &Rc<Service>, partition: &Rc<Partition>, until: Instant) {
        let mut timer = partition.timer.borrow_mut();
        match &*timer {
            Some((at, _)) if *at <= until => return,
            Some((_, later)) => later.abort(),
            None => {}
        }
        let (node, service, of) =
            (Rc::downgrade(self), Rc::downgrade(service), Rc::downgrade(partition));
        let sleep = self.env.sleep_until(until);
        let task = self.env.spawn("service.throttled", async move {
            sleep.await;
            if let (Some(node), Some(service), Some(partition)) =
                (node.upgrade(), service.upgrade(), of.upgrade())
            {
                partition.timer.borrow_mut().take();
                if !node.stopped.get() {
                    node.clock.set(node.env.now());
                    node.run(&service, &partition);
                }
            }
        });
        *timer = Some((until, task));
    }

    /// Takes a request that still waits out of its head; none if it has left.
    pub(crate) fn unqueue(&self, partition: &Partition, place: &Queued) -> Option<Work> {
        let heads = Rc::clone(&partition.heads.borrow());
        let now = self.clock.get();
        let work =
            heads.change(place.hp, |head| head.remove(place.handle, now, nrs::Removal::Gone))?;
        work.flight.unqueue();
        Some(work)
    }

    fn start(self: &Rc<Self>, work: Work, service: &Rc<Service>, partition: &Rc<Partition>) {
        let Work { served, request, session, flight, cpt, .. } = work;
        let done = Done {
            served,
            session: Rc::clone(&session),
            flight: Rc::clone(&flight),
            service: Rc::clone(service),
            partition: Rc::clone(partition),
            cpt,
            xid: request.xid(),
            tag: request.header.tag,
            opcode: request.opcode(),
            length: request.bufs.iter().map(bytes::Bytes::len).sum(),
            started: self.clock.get(),
            modifies: request.has(RequestFlags::MODIFIES),
            replays: request.has(RequestFlags::REPLAY) && request.header.transno != 0,
            transno: request.header.transno,
            again: request.has(RequestFlags::RESENT) || request.has(RequestFlags::REPLAY),
        };
        let late = self.clock.get() > flight.deadline.get();
        if (late && !done.replays) || session.ended.get() || done.served.gone.get() {
            self.drop_unhandled(&done);
            return;
        }
        let waited = done.started - flight.arrived;
        service.stats.borrow_mut().started(&Started {
            waited,
            queued: partition.heads.borrow().queued() as u64,
            active: u64::from(partition.slots.active()),
            patience: flight.patience,
            buffers_free: self.req_bytes_max.get().saturating_sub(self.memory.total())
                / limits::REQUEST_BYTES,
        });
        let incoming = Incoming { request, session, flight, waited };
        let target = Rc::clone(&done.served.target);
        let mut handler =
            if done.waits_for_its_peer() && !incoming.may_be_answered(done.flight.class.answer()) {
                Box::pin(answer_once_taken(target, incoming)) as LocalFuture<'static, Reply>
            } else {
                target.handle(incoming)
            };
        match handler.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => {
                self.clock.set(self.env.now());
                self.complete(done, reply);
            }
            Poll::Pending => {
                self.env.spawn("service.handler", Rc::clone(self).see_through(done, handler));
            }
        }
    }

    async fn see_through(self: Rc<Self>, done: Done, mut handler: LocalFuture<'static, Reply>) {
        let mut parked = done.flight.is_parked();
        let served = Rc::clone(&done.served);
        let mut ended = std::pin::pin!(served.ended());
        let reply = std::future::poll_fn(|cx| {
            if ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            let polled = handler.as_mut().poll(cx);
            if !std::mem::replace(&mut parked, done.flight.is_parked()) && parked {
                self.clock.set(self.env.now());
                self.run(&done.service, &done.partition); // its slot is somebody else's now
            }
            polled.map(Some)
        })
        .await;
        drop(handler);
        let (service, partition) = (Rc::clone(&done.service), Rc::clone(&done.partition));
        self.clock.set(self.env.now());
        match reply {
            Some(reply) => self.complete(done, reply),
            None => self.drop_unhandled(&done),
        }
        self.run(&service, &partition);
    }
}

/// Handles a request once its peer takes what was answered before, if it is not to come again.
async fn answer_once_taken(target: Rc<dyn Target>, incoming: Incoming) -> Reply {
    match incoming.room_to_answer(incoming.flight.class.answer()).await {
        Ok(()) => target.handle(incoming).await,
        Err(instead) => *instead,
    }
}
