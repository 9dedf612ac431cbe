//! A server node: its links, its services' partitions, and the path of a request through them.
//!
//! No borrow lives across a handler. A handler that is ready at once is answered in the turn of the link's reader;
//! only one that has to wait becomes a task.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use env::{CptTable, Env, Link, Listener, Task};
use ptlrpc::{Admission, Replay};
use tokio::sync::{Notify, Semaphore};
use types::{CptIndex, Errno, Instant, TargetId, Transno, Xid};
use wire::{Frame, FrameKind, Opcode, Reply, ReplyFlags, Request, RequestFlags};

use crate::incoming::{Peer, Semaphores, Transport};
use crate::partition::{Partition, Policies};
use crate::{Exports, Incoming, ServiceSpec, ServiceStats, Session, Target, limits};

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// CPU partitions.
    pub cpts: CptTable,
    /// Data up to this size rides in a reply.
    pub inline_bytes: u32,
    /// Pulled bytes held at once, per CPT.
    pub bulk_bytes_max: u64,
}

impl NodeConfig {
    /// Over these partitions, everything else as usual.
    #[must_use]
    pub fn new(cpts: CptTable) -> NodeConfig {
        NodeConfig { cpts, inline_bytes: wire::INLINE_BYTES_DEFAULT, bulk_bytes_max: 64 << 20 }
    }
}

/// A server node.
pub struct Node {
    pub(crate) env: Env,
    pub(crate) config: NodeConfig,
    targets: RefCell<BTreeMap<u32, Rc<Entry>>>,
    /// By CPT; services appear with their first request.
    partitions: Vec<RefCell<Vec<Rc<Partition>>>>,
    budget: Rc<Semaphores>,
    queued: Vec<Cell<usize>>,
    drained: Notify,
    peers: RefCell<Vec<Rc<Peer>>>,
    /// Accepted so far.
    links: Cell<u64>,
    tasks: RefCell<Vec<Task>>,
    pub(crate) stopped: Cell<bool>,
    /// Time at the beginning of this turn: requests of one batch share it.
    clock: Cell<Instant>,
}

/// A target as a node holds it.
pub(crate) struct Entry {
    pub(crate) target: Rc<dyn Target>,
    pub(crate) exports: Rc<Exports>,
    pub(crate) gone: Cell<bool>,
}

/// A request on its way.
pub(crate) struct Work {
    pub(crate) entry: Rc<Entry>,
    pub(crate) request: Box<Request>,
    pub(crate) session: Rc<Session>,
    pub(crate) transport: Rc<Transport>,
}

/// What a peer sent that no correct peer sends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Nonsense {
    #[error(transparent)]
    Message(#[from] wire::MessageError),
    #[error("tag {0} is out of range")]
    Tag(u32),
    #[error("a session has {0} requests under way")]
    TooMany(usize),
}

impl Node {
    /// Without targets.
    pub fn new(env: &Env, config: NodeConfig) -> Rc<Node> {
        let cpts = config.cpts.count().get() as usize;
        let units = u32::try_from(config.bulk_bytes_max / limits::BULK_UNIT as u64).unwrap_or(u32::MAX).max(1);
        let per_cpt = (0..cpts).map(|_| Arc::new(Semaphore::new(units as usize))).collect();
        Rc::new(Node {
            env: env.clone(),
            config,
            targets: RefCell::default(),
            partitions: (0..cpts).map(|_| RefCell::default()).collect(),
            budget: Rc::new(Semaphores { per_cpt, units }),
            queued: (0..cpts).map(|_| Cell::new(0)).collect(),
            drained: Notify::new(),
            peers: RefCell::default(),
            links: Cell::new(0),
            tasks: RefCell::default(),
            stopped: Cell::new(false),
            clock: Cell::new(env.now()),
        })
    }

    /// Serves `target` too; a former one of the same id is replaced.
    pub fn add_target(self: &Rc<Self>, target: Rc<dyn Target>) {
        let entry = Rc::new(Entry { exports: target.exports(), target, gone: Cell::new(false) });
        let id = entry.target.id().to_u32();
        let task = self.env.spawn("service.housekeeping", Rc::clone(self).keep_house(Rc::clone(&entry)));
        self.tasks.borrow_mut().push(task);
        if let Some(old) = self.targets.borrow_mut().insert(id, entry) {
            old.gone.set(true);
        }
    }

    /// No longer serves the target.
    pub fn remove_target(&self, id: TargetId) {
        if let Some(old) = self.targets.borrow_mut().remove(&id.to_u32()) {
            old.gone.set(true);
            old.exports.wake.notify_one();
        }
    }

    /// Accepts links from `listener` until the node stops.
    pub fn serve(self: &Rc<Self>, mut listener: Listener) -> Task {
        let node = Rc::clone(self);
        let task = self.env.spawn("service.accept", async move {
            while let Ok(link) = listener.accept().await {
                node.links.set(node.links.get() + 1);
                let reader = Rc::clone(&node).read(link, node.links.get());
                node.env.spawn("service.reader", reader);
            }
        });
        self.tasks.borrow_mut().push(task.clone());
        task
    }

    /// Stops serving: listeners and links are closed, what executes has no listener any more.
    pub async fn stop(&self) {
        self.stopped.set(true);
        for task in self.tasks.borrow_mut().drain(..) {
            task.abort();
        }
        for peer in self.peers.borrow_mut().drain(..) {
            peer.tx.close();
        }
        for (_, entry) in std::mem::take(&mut *self.targets.borrow_mut()) {
            entry.gone.set(true);
        }
        self.drained.notify_waiters();
    }

    /// Counters of each service, summed over the CPTs.
    pub fn stats(&self) -> BTreeMap<&'static str, ServiceStats> {
        let mut all: BTreeMap<&'static str, ServiceStats> = BTreeMap::new();
        for partition in self.partitions.iter().flat_map(|cpt| cpt.borrow().clone()) {
            let (sum, one) = (all.entry(partition.spec.name).or_default(), partition.stats());
            sum.queued += one.queued;
            sum.active += one.active;
            sum.served += one.served;
            sum.dropped += one.dropped;
        }
        all
    }

    /// `nrs_policies` of a service, per CPT: name, state and queued requests of each instance.
    pub fn nrs_policies(&self, service: &str) -> Vec<(CptIndex, Policies)> {
        let mut all = Vec::new();
        for (cpt, partitions) in self.partitions.iter().enumerate() {
            for partition in partitions.borrow().iter().filter(|partition| partition.spec.name == service) {
                all.push((CptIndex(cpt as u32), partition.policies()));
            }
        }
        all
    }

    // ---- links ------------------------------------------------------------------------------------------------

    async fn read(self: Rc<Self>, mut link: Link, serial: u64) {
        let cpt = link.peer.cpt(self.config.cpts.count());
        let peer = Peer::new(link.peer, serial, link.tx.clone(), cpt);
        self.peers.borrow_mut().push(Rc::clone(&peer));
        'link: while let Some(frame) = link.rx.recv().await {
            self.clock.set(self.env.now());
            let mut next = Some(frame);
            let mut batch = 0;
            while let Some(frame) = next {
                if let Err(error) = self.arrive(&peer, frame) {
                    tracing::warn!(peer = %peer.nid, %error, "a peer sent nonsense: its link is closed");
                    break 'link;
                }
                batch += 1;
                next = if batch < limits::BATCH_FRAMES_MAX { link.rx.try_recv() } else { None };
            }
            if self.stopped.get() {
                break;
            }
            self.backpressure(&peer).await;
        }
        peer.tx.close();
        self.peers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &peer));
        let entries: Vec<_> = self.targets.borrow().values().cloned().collect();
        for entry in entries {
            entry.exports.detach(&peer);
        }
    }

    /// Full queues, or a peer that takes no replies: nothing more is read from it.
    async fn backpressure(&self, peer: &Peer) {
        while self.queued[peer.cpt.0 as usize].get() >= limits::QUEUED_MAX && !self.stopped.get() {
            self.drained.notified().await;
        }
        peer.tx.room().await;
    }

    fn arrive(self: &Rc<Self>, peer: &Rc<Peer>, frame: Frame) -> Result<(), Nonsense> {
        if frame.kind != FrameKind::Request {
            return Ok(()); // nothing else is for us, and nothing of it does harm
        }
        let request = Box::new(Request::decode(&frame.into_payload())?);
        let Some(entry) = self.targets.borrow().get(&request.header.target).cloned() else {
            peer.reply(&Reply::error(&request.header, Errno::ENODEV));
            return Ok(());
        };
        if request.opcode() == Opcode::Connect {
            self.env.spawn("service.connect", Rc::clone(self).connect(entry, Rc::clone(peer), *request));
            return Ok(());
        }
        let exports = &entry.exports;
        let session = exports.session(request.header.session);
        let ours = request.header.instance == exports.instance().0;
        let Some(session) = session.filter(|session| ours && !session.ended.get() && !session.absent.get()) else {
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
        self.admit(entry, peer, session, request)
    }

    fn admit(
        self: &Rc<Self>,
        entry: Rc<Entry>,
        peer: &Rc<Peer>,
        session: Rc<Session>,
        request: Box<Request>,
    ) -> Result<(), Nonsense> {
        let recovering = entry.exports.is_recovering();
        match request.opcode() {
            Opcode::Disconnect => {
                self.env.spawn("service.disconnect", Rc::clone(self).disconnect(entry, Rc::clone(peer), session, *request));
                return Ok(());
            }
            Opcode::Ping => {
                self.answer(peer, &session, Reply::ok(&request.header, Vec::new()));
                return Ok(());
            }
            Opcode::ReplayDone if !recovering => {
                self.answer(peer, &session, Reply::ok(&request.header, Vec::new()));
                return Ok(());
            }
            Opcode::ReplayDone => return self.hold(entry, peer, session, request),
            _ => {}
        }
        let replays = request.has(RequestFlags::REPLAY) && request.header.transno != 0;
        if replays && recovering {
            return self.hold(entry, peer, session, request);
        }
        if replays {
            self.answer(peer, &session, replayed(&request));
            return Ok(());
        }
        if recovering && !request.has(RequestFlags::REPLAY) {
            let mut reply = Reply::error(&request.header, Errno::EAGAIN);
            reply.header.flags = ReplyFlags::RECOVERING;
            self.answer(peer, &session, reply);
            return Ok(());
        }
        let admission = session.export.borrow_mut().admit(&request.header);
        match admission {
            Admission::Execute => {
                let work = self.begin(entry, peer, session, request)?;
                self.dispatch(work);
            }
            Admission::Executing => renew(peer, &session, request),
            Admission::Answered(mut reply) => {
                let old = reply.header.transno >> 32 < entry.exports.instance().0;
                let opens = request.has(RequestFlags::OPEN) && reply.errno().is_none() && reply.header.transno != 0;
                if old && opens && session.export.borrow_mut().reopen(request.xid()) {
                    return self.reopen(entry, peer, session, request, reply);
                }
                session.fill(&mut reply);
                peer.reply(&reply);
            }
            Admission::Stale => {}
            Admission::BadTag => return Err(Nonsense::Tag(request.header.tag)),
        }
        Ok(())
    }

    /// An open whose answer, given by an earlier instance, never arrived: no replay has brought its handle back. It is
    /// executed as a replay would be, and answered as it was first.
    fn reopen(
        self: &Rc<Self>,
        entry: Rc<Entry>,
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
        let work = self.begin(entry, peer, session, request)?;
        *work.transport.first.borrow_mut() = Some(first);
        self.dispatch(work);
        Ok(())
    }

    fn begin(&self, entry: Rc<Entry>, peer: &Rc<Peer>, session: Rc<Session>, request: Box<Request>) -> Result<Work, Nonsense> {
        let transport = Transport::new(&self.env, self.clock.get(), peer, &request, &self.budget, self.config.inline_bytes);
        {
            let mut export = session.export.borrow_mut();
            if export.executing() >= limits::EXECUTING_MAX {
                return Err(Nonsense::TooMany(export.executing()));
            }
            export.begin(request.xid(), Rc::clone(&transport));
        }
        Ok(Work { entry, request, session, transport })
    }

    /// Replays and ReplayDone wait for their turn in recovery.
    fn hold(
        self: &Rc<Self>,
        entry: Rc<Entry>,
        peer: &Rc<Peer>,
        session: Rc<Session>,
        request: Box<Request>,
    ) -> Result<(), Nonsense> {
        let tag = request.header.tag;
        if request.has(RequestFlags::MODIFIES) && (tag == 0 || tag > limits::TAGS_MAX) {
            return Err(Nonsense::Tag(tag));
        }
        if session.export.borrow_mut().executing_mut(request.xid()).is_some() {
            let transno = Transno(request.header.transno);
            entry.exports.recovery.borrow_mut().handle_offered_again(session.client, request.header.replay_index, transno);
            renew(peer, &session, request);
            self.pump_recovery(&entry.exports);
            return Ok(());
        }
        let exports = Rc::clone(&entry.exports);
        let work = self.begin(entry, peer, session, request)?;
        work.transport.held.set(true);
        let now = self.env.now();
        let client = work.session.client;
        if work.request.opcode() == Opcode::ReplayDone {
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
            let known = exports.recovery.borrow_mut().handle_replay(replay, now);
            if let Some(work) = known {
                work.session.export.borrow_mut().finished(work.request.xid());
                self.answer(peer, &work.session, replayed(&work.request));
            }
        }
        self.pump_recovery(&exports);
        Ok(())
    }

    /// Executes what recovery allows, one at a time.
    pub(crate) fn pump_recovery(self: &Rc<Self>, exports: &Rc<Exports>) {
        if exports.pumping.replace(true) {
            return; // the loop below goes on
        }
        loop {
            let work = exports.recovery.borrow_mut().poll_execute();
            let Some(work) = work else { break };
            work.transport.held.set(false);
            self.dispatch(work);
        }
        exports.pumping.set(false);
        if exports.recovery.borrow().is_complete() {
            exports.wake.notify_one();
        }
    }

    // ---- the scheduler ----------------------------------------------------------------------------------------

    fn partition(&self, cpt: CptIndex, spec: &'static ServiceSpec) -> Rc<Partition> {
        let mut partitions = self.partitions[cpt.0 as usize].borrow_mut();
        if let Some(partition) = partitions.iter().find(|partition| partition.spec.name == spec.name) {
            return Rc::clone(partition);
        }
        let partition = Rc::new(Partition::new(spec));
        partitions.push(Rc::clone(&partition));
        partition
    }

    fn dispatch(self: &Rc<Self>, work: Work) {
        let cpt = work.transport.peer.borrow().cpt;
        let class = work.entry.target.class(&work.request);
        let partition = self.partition(cpt, class.service);
        let queued = &self.queued[cpt.0 as usize];
        queued.set(queued.get() + 1);
        partition.enqueue(work, class.high_priority);
        self.run(&partition, cpt);
    }

    /// Starts requests while slots are free.
    fn run(self: &Rc<Self>, partition: &Rc<Partition>, cpt: CptIndex) {
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

    fn complete(self: &Rc<Self>, done: Done, mut reply: Reply) {
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

    fn finish(self: &Rc<Self>, done: &Done) {
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
struct Done {
    entry: Rc<Entry>,
    session: Rc<Session>,
    transport: Rc<Transport>,
    partition: Rc<Partition>,
    xid: Xid,
    tag: u32,
    modifies: bool,
    replays: bool,
}

fn release(done: &Done) {
    if let Some((partition, hp)) = done.transport.slot.borrow_mut().take() {
        partition.release(hp);
    }
}

fn renew(peer: &Rc<Peer>, session: &Session, request: Box<Request>) {
    if let Some(transport) = session.export.borrow_mut().executing_mut(request.xid()) {
        transport.renew(peer, request);
    }
}

/// The answer to a replay that was executed before: its client has the real one.
fn replayed(request: &Request) -> Reply {
    let mut reply = Reply::ok(&request.header, Vec::new());
    reply.header.transno = request.header.transno;
    reply
}
