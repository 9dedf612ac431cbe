//! A toy target of counters over a toy store with a running and a committed image, and a world in
//! which to run it.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod raw;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Bulk, Call, Endpoint, EndpointConfig, Resolve};
use env::{CptTable, Env, LocalFuture};
use env_sim::{NodeHandle, Sim};
use service::{
    Class, ClientRecord, Direction, Exports, ExportsConfig, Incoming, Node, NodeConfig, ObjectIo,
    Session, Target, spec,
};
use types::{ClientId, Errno, Extent, Fid, Instance, NidAddr, Span, TargetId, Transno};
use wire::{Opcode, Reply, Request};

pub(crate) const TARGET: TargetId = TargetId { kind: types::TargetKind::Mdt, index: 0 };

#[derive(Clone, Default)]
pub(crate) struct Image {
    pub(crate) counters: BTreeMap<u64, u64>,
    pub(crate) data: BTreeMap<u64, Bytes>,
    pub(crate) replies: BTreeMap<Vec<u8>, Vec<u8>>,
    clients: BTreeMap<Vec<u8>, Vec<u8>>,
    last: Transno,
    epoch: u64,
}

/// What survives a restart: the committed image. The running one does not.
#[derive(Default)]
pub(crate) struct Disk(pub(crate) RefCell<Image>);

impl Image {
    pub(crate) fn clients(&self) -> Vec<ClientRecord> {
        self.clients.iter().filter_map(|(key, value)| ClientRecord::decode(key, value)).collect()
    }
}

impl Disk {
    pub(crate) fn clients(&self) -> Vec<ClientRecord> {
        self.0.borrow().clients()
    }
}

/// A change of this key takes 40 s.
pub(crate) const STUCK: u64 = 1_000_000;

/// A change of this key is refused before it has a place in history.
pub(crate) const REFUSED: u64 = 2_000_000;

/// A change of this key has its record made twice, because the store asks for a commit in between.
pub(crate) const TWICE: u64 = 3_000_000;

/// A change of this key is refused by the store after its record was made.
pub(crate) const FULL: u64 = 4_000_000;

/// A read of this key takes as long as a disk.
pub(crate) const ON_DISK: u64 = 5_000_000;

/// A question about this key waits until the client has given it up.
pub(crate) const RECALLED: u64 = 6_000_000;

pub(crate) struct Toy {
    env: Env,
    disk: Rc<Disk>,
    pub(crate) running: RefCell<Image>,
    pub(crate) exports: Rc<Exports>,
    pub(crate) executed: Cell<u64>,
    pub(crate) reads: Cell<u64>,
    pub(crate) parked: Rc<tokio::sync::Notify>,
    pub(crate) given_up: Cell<bool>,
    gave_up: tokio::sync::Notify,
    /// Changes of these keys are waited for.
    pub(crate) awaited: RefCell<BTreeSet<u64>>,
    pub(crate) evicted: Cell<u64>,
    /// How often sessions ended, however many at once.
    pub(crate) ends: Cell<u64>,
    /// The store takes nothing that is noted of clients.
    pub(crate) is_full: Cell<bool>,
    sweep: Span,
    end: Span,
    note: Span,
}

pub(crate) struct Rules {
    pub(crate) target: TargetId,
    pub(crate) commit_every: Span,
    pub(crate) window: Span,
    pub(crate) lease: Span,
    pub(crate) silence_max: Span,
    /// What the end of recovery takes.
    pub(crate) sweep: Span,
    /// What the end of sessions takes.
    pub(crate) end: Span,
    /// What it takes to note which clients are silent.
    pub(crate) note: Span,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            target: TARGET,
            commit_every: Span::millis(200),
            window: Span::secs(30),
            lease: Span::secs(150),
            silence_max: Span::secs(150),
            sweep: Span::ZERO,
            end: Span::ZERO,
            note: Span::ZERO,
        }
    }
}

impl Toy {
    pub(crate) fn start(env: &Env, disk: &Rc<Disk>, rules: &Rules) -> Rc<Toy> {
        disk.0.borrow_mut().epoch += 1;
        let image = disk.0.borrow().clone();
        let config = ExportsConfig {
            target: rules.target,
            instance: Instance(image.epoch),
            known: disk.clients(),
            replies: image.replies.clone().into_iter().collect(),
            last_committed: image.last,
            recovery_window: rules.window,
            recovery_window_max: Span::secs(120),
            abort_recovery: false,
            has_more_to_recover: false,
            lease: rules.lease,
            silence_max: rules.silence_max,
        };
        let toy = Rc::new(Toy {
            env: env.clone(),
            disk: Rc::clone(disk),
            running: RefCell::new(image),
            exports: Exports::new(env, config),
            executed: Cell::new(0),
            reads: Cell::new(0),
            parked: Rc::default(),
            given_up: Cell::default(),
            gave_up: tokio::sync::Notify::new(),
            awaited: RefCell::default(),
            evicted: Cell::new(0),
            ends: Cell::new(0),
            is_full: Cell::new(false),
            sweep: rules.sweep,
            end: rules.end,
            note: rules.note,
        });
        let (commits, every) = (Rc::clone(&toy), rules.commit_every);
        env.spawn("toy.commit", async move {
            loop {
                commits.env.sleep(every).await;
                commits.commit();
            }
        });
        toy
    }

    pub(crate) fn commit(&self) {
        let upto = self.exports.last_assigned();
        *self.disk.0.borrow_mut() = self.running.borrow().clone();
        self.exports.committed(upto);
    }

    fn change(&self, incoming: &Incoming, change: impl FnOnce(&mut Image) -> u64) -> Reply {
        self.executed.set(self.executed.get() + 1);
        let header = &incoming.request.header;
        let draft = || {
            let transno = self.exports.next_transno(incoming);
            let mut reply = Reply::ok(header, vec![Bytes::from_static(b"not made")]);
            self.exports.record(incoming, transno, &mut reply)
        };
        match key(&incoming.request) {
            REFUSED => return Reply::error(header, Errno::EPERM),
            FULL => {
                let _not_stored = draft();
                return Reply::error(header, Errno::ENOSPC);
            }
            TWICE => drop(draft()),
            _ => {}
        }
        let transno = self.exports.next_transno(incoming);
        let mut image = self.running.borrow_mut();
        let value = change(&mut image);
        if let Some(first) = incoming.request.replay_buf(0).filter(|_| incoming.is_replay()) {
            assert_eq!(
                first[..],
                value.to_le_bytes(),
                "a replay leads to what its first reply said"
            );
        }
        let mut reply =
            Reply::ok(&incoming.request.header, vec![Bytes::copy_from_slice(&value.to_le_bytes())]);
        let (key, record) = self.exports.record(incoming, transno, &mut reply);
        image.replies.insert(key, record);
        image.last = image.last.max(transno);
        self.exports.applied(transno);
        reply
    }
}

pub(crate) fn key(request: &Request) -> u64 {
    request.body::<u64>()
}

impl Target for Toy {
    fn id(&self) -> TargetId {
        self.exports.target
    }

    fn exports(&self) -> Rc<Exports> {
        Rc::clone(&self.exports)
    }

    fn class(&self, request: &Request) -> Class {
        let direction = match request.opcode() {
            Opcode::OstRead => Some(Direction::Read),
            Opcode::OstWrite => Some(Direction::Write),
            _ => None,
        };
        let io = direction.map(|direction| {
            let object = Fid { seq: key(request), oid: 1, ver: 0 };
            let bytes = u64::from(request.header.bulk_len).max(request.buf(1).len() as u64);
            ObjectIo { direction, object, range: Extent::new(0, bytes), bytes }
        });
        let service = match request.opcode() {
            Opcode::MdtUnlock | Opcode::MdtAck => &spec::LDLM_CANCELD,
            Opcode::MgsConfig => &spec::MGS,
            _ => &spec::MDT,
        };
        Class { service, high_priority: false, io, answer_bytes: 0 }
    }

    fn is_awaited(&self, _session: &Session, request: &Request) -> bool {
        self.awaited.borrow().contains(&key(request))
    }

    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        Box::pin(async move {
            let header = incoming.request.header;
            let key = key(&incoming.request);
            match incoming.request.opcode() {
                Opcode::MdtSetattr => {
                    if key % 3 == 1 {
                        self.env.sleep(Span::micros(700)).await; // some take their time
                    }
                    if key == STUCK {
                        self.env.sleep(Span::secs(40)).await;
                    }
                    self.change(&incoming, |image| {
                        let counter = image.counters.entry(key).or_default();
                        *counter += 1;
                        *counter
                    })
                }
                Opcode::OstWrite => match incoming.pull().await {
                    Ok(data) => self.change(&incoming, |image| {
                        image.data.insert(key, data);
                        key
                    }),
                    Err(errno) => Reply::error(&header, errno),
                },
                Opcode::OstRead => {
                    self.reads.set(self.reads.get() + 1);
                    if key == ON_DISK {
                        self.env.sleep(Span::millis(5)).await;
                    }
                    let data = self.running.borrow().data.get(&key).cloned().unwrap_or_default();
                    let mut reply = Reply::ok(&header, vec![Bytes::new()]);
                    incoming.push(&mut reply, data);
                    reply
                }
                Opcode::MdtLock if incoming.is_replay() => Reply::ok(&header, Vec::new()),
                Opcode::MdtLock => {
                    incoming.park();
                    self.parked.notified().await;
                    Reply::ok(&header, Vec::new())
                }
                Opcode::MdtUnlock => {
                    self.parked.notify_waiters();
                    Reply::ok(&header, Vec::new())
                }
                Opcode::MdtGetattr if key == RECALLED => {
                    while !self.given_up.get() {
                        self.gave_up.notified().await;
                    }
                    Reply::ok(&header, Vec::new())
                }
                Opcode::MdtAck => {
                    self.given_up.set(true);
                    self.gave_up.notify_waiters();
                    Reply::ok(&header, Vec::new())
                }
                Opcode::MdtSync => {
                    self.commit();
                    Reply::ok(&header, Vec::new())
                }
                _ => Reply::error(&header, Errno::EOPNOTSUPP),
            }
        })
    }

    fn remember_client(
        self: Rc<Self>,
        record: ClientRecord,
    ) -> LocalFuture<'static, Result<(), Errno>> {
        Box::pin(async move {
            self.env.sleep(Span::millis(1)).await;
            self.running.borrow_mut().clients.insert(record.key(), record.encode());
            self.disk.0.borrow_mut().clients.insert(record.key(), record.encode());
            Ok(())
        })
    }

    fn note_clients(
        self: Rc<Self>,
        records: Vec<ClientRecord>,
        commits: bool,
    ) -> LocalFuture<'static, bool> {
        Box::pin(async move {
            if !commits {
                self.env.sleep(self.note).await;
            }
            if self.is_full.get() {
                return false;
            }
            let records = records.iter().map(|record| (record.key(), record.encode()));
            self.running.borrow_mut().clients.extend(records);
            if commits {
                self.commit();
            }
            true
        })
    }

    fn sessions_ended(
        self: Rc<Self>,
        sessions: Vec<Rc<Session>>,
        evicted: bool,
    ) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            self.ends.set(self.ends.get() + 1);
            self.env.sleep(self.end).await;
            for session in sessions {
                self.evicted.set(self.evicted.get() + u64::from(evicted));
                let key = session.client.0.to_be_bytes().to_vec();
                for image in [&mut *self.running.borrow_mut(), &mut *self.disk.0.borrow_mut()] {
                    image.clients.remove(&key);
                    image.replies.retain(|reply, _| !reply.starts_with(&key));
                }
            }
        })
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async move { self.env.sleep(self.sweep).await })
    }
}

/// One address, and the identity of the storage that is looked for there.
pub(crate) struct Fixed(pub(crate) NidAddr, pub(crate) u128);

impl Resolve for Fixed {
    fn addrs(&self, _target: TargetId) -> Vec<NidAddr> {
        vec![self.0]
    }

    fn uuid(&self, _target: TargetId) -> u128 {
        self.1
    }
}

pub(crate) fn addr(handle: &NodeHandle) -> NidAddr {
    NidAddr { nid: handle.nid(), port: 988 }
}

/// Starts the server on its node; again after a kill.
pub(crate) async fn serve(
    env: Env,
    at: NidAddr,
    disk: Rc<Disk>,
    rules: &Rules,
) -> (Rc<Node>, Rc<Toy>) {
    serve_with(env, at, disk, rules, |_| {}).await
}

/// The same, of a node with other settings.
pub(crate) async fn serve_with(
    env: Env,
    at: NidAddr,
    disk: Rc<Disk>,
    rules: &Rules,
    change: impl FnOnce(&mut NodeConfig),
) -> (Rc<Node>, Rc<Toy>) {
    let toy = Toy::start(&env, &disk, rules);
    let two = std::num::NonZeroU32::new(2).expect("two");
    let cpts = CptTable::new(two, std::num::NonZeroU32::MIN, 2, true).expect("virtual");
    let mut config = NodeConfig::new(cpts);
    change(&mut config);
    let node = Node::new(&env, config);
    node.add_target(Rc::clone(&toy) as Rc<dyn Target>);
    let listener = env.listen(at).await.expect("the address is free");
    node.serve(listener);
    (node, toy)
}

pub(crate) fn client(env: &Env, id: u128, at: NidAddr) -> Rc<Endpoint> {
    endpoint(env, id, at, false)
}

pub(crate) fn endpoint(env: &Env, id: u128, at: NidAddr, is_server: bool) -> Rc<Endpoint> {
    endpoint_to(env, id, Fixed(at, 0), is_server)
}

pub(crate) fn endpoint_to(env: &Env, id: u128, to: Fixed, is_server: bool) -> Rc<Endpoint> {
    let config = EndpointConfig {
        import: endpoint::ImportConfig {
            client: ClientId(id),
            name: format!("client{id}"),
            is_server,
            attempt: Span::secs(3),
            ..Default::default()
        },
        inline_bytes: 1_024,
        ..EndpointConfig::default()
    };
    Endpoint::new(env, config, Rc::new(to))
}

pub(crate) fn call(opcode: Opcode, key: u64) -> Call {
    Call::new(opcode, vec![Bytes::copy_from_slice(&key.to_le_bytes())]).repeatable()
}

pub(crate) fn increment(key: u64) -> Call {
    Call { modifies: true, ..call(Opcode::MdtSetattr, key) }
}

pub(crate) fn node(sim: &Sim, name: &str, last: u8) -> NodeHandle {
    sim.node(name, types::Nid::tcp(std::net::Ipv4Addr::new(10, 0, 0, last)))
}

pub(crate) fn write(key: u64, data: &Bytes) -> Call {
    Call {
        modifies: true,
        bulk: Bulk::Source(vec![data.slice(..1), data.slice(1..)]),
        ..call(Opcode::OstWrite, key)
    }
}

pub(crate) fn read(key: u64) -> Call {
    Call { bulk: Bulk::Sink(1 << 20), ..call(Opcode::OstRead, key) }
}
