//! A client and an OST on simulated machines: the promises of an answer, through kills and power
//! cuts.

#[path = "world/bounds.rs"]
mod bounds;
#[path = "world/crashes.rs"]
mod crashes;
#[path = "world/data.rs"]
mod data;
#[path = "world/destroys.rs"]
mod destroys;
#[path = "world/ended.rs"]
mod ended;
#[path = "world/fences.rs"]
mod fences;
#[path = "world/forged.rs"]
mod forged;
#[path = "world/halted.rs"]
mod halted;
#[path = "world/owners.rs"]
mod owners;
#[path = "world/versions.rs"]
mod versions;

// the fuzzer instruments all programs of a package: each links what instrumented code calls
use bolero as _;

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Answer, Bulk, Call, CallError, Endpoint, EndpointConfig, Remote, Resolve};
use env::{CptTable, Env, Link};
use env_sim::{NodeHandle, Sim, SimConfig};
use halted::Halting;
use osd::Table;
use osd::mem::{MemDisk, MemDiskConfig, MemMeta, MemObjects};
use ost::{Bugs, Ost, OstConfig};
use params::ParamTree;
use service::{Node, NodeConfig, Target, spec};
use types::{ClientId, Errno, Fid, NidAddr, Span, TargetId};
use wire::body::{
    BatchFlags, Claim, ConnectRep, ConnectReq, IoFlags, ObjectRange, OstAttr, OstBatchReq,
    OstFallocateReq, OstFenceReq, OstIoReq, OstListRep, OstListReq, OstListed, OstPunchReq,
    OstRaiseReq, OstReserveRep, OstReserveReq, OstSeekRep, OstSeekReq, PunchFlags, StatfsRep,
    StatfsState, SyncRep, fallocate,
};
use wire::{Opcode, Reply, Request, RequestFlags, decode_body, encode_body};
use zerocopy::IntoBytes;

const OBJECT: Fid = Fid { seq: 0x2_0000_0500, oid: 9, ver: 1 };
const PLAIN: IoFlags = IoFlags::empty();
const PARENT: Fid = Fid { seq: 0x2_0000_0401, oid: 7, ver: 0 };
const CLAIM: Claim = Claim { session: 1 << 32, store: 77, capability: [0; 2] };

struct World {
    sim: Sim,
    server: NodeHandle,
    client: NodeHandle,
    disk: MemDisk,
    bugs: Bugs,
    interval: Span,
    /// For how long its records put off the next change of [`OBJECT`].
    halt: Rc<Cell<Option<Span>>>,
    ost: RefCell<Option<Rc<Ost>>>,
    node: RefCell<Option<Rc<Node>>>,
    endpoints: RefCell<Vec<Rc<Endpoint>>>,
}

/// A node with one CPU partition.
fn node(env: &Env) -> Rc<Node> {
    let cpts = CptTable::new(NonZeroU32::MIN, NonZeroU32::MIN, 1, true).expect("one");
    Node::new(env, NodeConfig::new(cpts))
}

struct At(NidAddr);

impl Resolve for At {
    fn addrs(&self, _target: TargetId) -> Vec<NidAddr> {
        vec![self.0]
    }
}

impl World {
    fn new(seed: u64, disk: MemDiskConfig, bugs: Bugs) -> World {
        let config = SimConfig { polls_max: 300_000, ..SimConfig::default() };
        World::on(Sim::new(seed, config), disk, bugs)
    }

    fn on(sim: Sim, disk: MemDiskConfig, bugs: Bugs) -> World {
        let server = sim.node("oss", "10.0.0.1@tcp".parse().expect("a NID"));
        let client = sim.node("client", "10.0.0.2@tcp".parse().expect("a NID"));
        let disk = MemDisk::new(disk);
        let world = World {
            sim,
            server,
            client,
            disk,
            bugs,
            interval: Span::secs(1),
            halt: Rc::default(),
            ost: RefCell::default(),
            node: RefCell::default(),
            endpoints: RefCell::default(),
        };
        world.start();
        world
    }

    fn plain() -> World {
        World::new(7, MemDiskConfig::default(), Bugs::default())
    }

    fn at(&self) -> NidAddr {
        NidAddr { nid: self.server.nid(), port: 988 }
    }

    fn start(&self) {
        let (env, disk, at) = (self.server.env(), self.disk.clone(), self.at());
        let mut config = OstConfig::new("testfs".parse().expect("a name"), 2);
        (config.bugs, config.commit_interval) = (self.bugs, self.interval);
        let halt = self.halt.clone();
        let (ost, node) = self.sim.block_on(&self.server, async move {
            let meta = Rc::new(Halting::new(&env, MemMeta::open(&env, &disk), &halt));
            let objects = Rc::new(MemObjects::open(&env, &disk));
            let ost = Ost::start(&env, config, meta, objects).await.expect("boots");
            let node = node(&env);
            node.add_target(ost.clone());
            node.serve(env.listen(at).await.expect("free"));
            std::mem::forget(Rc::clone(&node)); // lives as long as the machine
            (ost, node)
        });
        *self.node.borrow_mut() = Some(node);
        *self.ost.borrow_mut() = Some(ost);
    }

    fn kill(&self) {
        (*self.ost.borrow_mut(), *self.node.borrow_mut()) = (None, None);
        self.server.kill_as(false);
    }

    fn power_cut(&self, seed: u64) {
        (*self.ost.borrow_mut(), *self.node.borrow_mut()) = (None, None);
        self.server.kill_as(true);
        self.disk.power_cut(seed);
    }

    fn remote(&self, client: u128) -> Rc<Remote> {
        self.remote_as(client, false)
    }

    /// As which only an MDT may come.
    fn mdt(&self) -> Rc<Remote> {
        self.remote_as(99, true)
    }

    fn remote_as(&self, client: u128, is_server: bool) -> Rc<Remote> {
        self.remote_at(&self.client, client, is_server)
    }

    /// From another machine.
    fn remote_at(&self, node: &NodeHandle, client: u128, is_server: bool) -> Rc<Remote> {
        let config = EndpointConfig {
            import: endpoint::ImportConfig {
                client: ClientId(client),
                name: format!("client{client}"),
                is_server,
                ..Default::default()
            },
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::new(&node.env(), config, Rc::new(At(self.at())));
        self.endpoints.borrow_mut().push(endpoint.clone());
        endpoint.remote(TargetId::ost(2))
    }

    fn call(&self, remote: &Rc<Remote>, call: Call) -> Result<Answer, CallError> {
        let remote = remote.clone();
        let (of, opcode) = (remote.clone(), call.opcode);
        let answer = self
            .sim
            .block_on_for(&self.client, Span::secs(300), async move { remote.call(call).await });
        answer.unwrap_or_else(|| {
            panic!(
                "{opcode:?} is not answered: {} {:?} {}",
                of.state(),
                of.waiting_on(),
                self.status()
            )
        })
    }

    fn status(&self) -> String {
        let ost = self.ost.borrow();
        ost.as_ref().map_or_else(String::new, |ost| ost.exports().recovery_status().to_string())
    }

    fn attr(&self, remote: &Rc<Remote>, call: Call) -> Result<OstAttr, CallError> {
        self.call(remote, call).map(|answer| decode_body(&answer.reply.buf(0)))
    }

    fn read(
        &self,
        remote: &Rc<Remote>,
        offset: u64,
        length: u32,
        flags: IoFlags,
    ) -> Result<(OstAttr, Bytes), CallError> {
        let body = OstIoReq {
            object: OBJECT.into(),
            parent: PARENT.into(),
            offset,
            length,
            flags,
            claim: CLAIM,
            ..OstIoReq::default()
        };
        let mut call = Call::new(Opcode::OstRead, vec![encode_body(&body)]);
        call.bulk = Bulk::Sink(length as usize);
        self.call(remote, call).map(|answer| {
            let attr: OstAttr = decode_body(&answer.reply.buf(0));
            let data = if answer.data.is_empty() { answer.reply.buf(1) } else { answer.data };
            (attr, data)
        })
    }
}

fn write(offset: u64, data: &[u8], flags: IoFlags) -> Call {
    let body = OstIoReq {
        object: OBJECT.into(),
        parent: PARENT.into(),
        offset,
        length: data.len() as u32,
        flags,
        mtime: 1_000 + offset as i64,
        claim: CLAIM,
        ..OstIoReq::default()
    };
    let mut call = Call::new(Opcode::OstWrite, vec![encode_body(&body)]);
    call.modifies = true;
    if data.len() > 16 << 10 {
        call.bulk = Bulk::Source(vec![Bytes::copy_from_slice(data)]);
    } else {
        call.bufs.push(Bytes::copy_from_slice(data));
    }
    call
}

fn punch(size: u64, create: bool) -> Call {
    let body = OstPunchReq {
        object: OBJECT.into(),
        parent: PARENT.into(),
        size,
        flags: PunchFlags::CREATE.when(create),
        claim: CLAIM,
        ..OstPunchReq::default()
    };
    let mut call = Call::new(Opcode::OstPunch, vec![encode_body(&body)]);
    call.modifies = true;
    call
}

fn fallocate_call(mode: u32, offset: u64, length: u64) -> Call {
    let body = OstFallocateReq {
        object: OBJECT.into(),
        parent: PARENT.into(),
        offset,
        length,
        mode,
        claim: CLAIM,
        ..OstFallocateReq::default()
    };
    let mut call = Call::new(Opcode::OstFallocate, vec![encode_body(&body)]);
    call.modifies = true;
    call
}

fn seek(offset: u64, what: u32) -> Call {
    Call::new(
        Opcode::OstSeek,
        vec![encode_body(&OstSeekReq {
            object: OBJECT.into(),
            offset,
            what,
            parent: PARENT.into(),
            claim: CLAIM,
            ..OstSeekReq::default()
        })],
    )
}

fn batch(opcode: Opcode, ranges: &[ObjectRange]) -> Call {
    let (count, store) = (ranges.len() as u32, CLAIM.store);
    let body = OstBatchReq { count, store, ..OstBatchReq::default() };
    let mut call =
        Call::new(opcode, vec![encode_body(&body), Bytes::copy_from_slice(ranges.as_bytes())]);
    call.modifies = opcode == Opcode::OstDestroy;
    call
}

fn range(base: Fid, first: u32, count: u32) -> ObjectRange {
    ObjectRange { base: base.stripe(0).into(), first, count }
}

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ salt).collect()
}

/// One where errors may be logged.
fn told_off() -> World {
    let config = SimConfig { fail_on_error: false, ..SimConfig::default() };
    World::on(Sim::new(7, config), MemDiskConfig::default(), Bugs::default())
}

fn sweep(ranges: &[ObjectRange]) -> Call {
    let body =
        OstBatchReq { count: ranges.len() as u32, flags: BatchFlags::OIDS, store: CLAIM.store };
    let mut call = batch(Opcode::OstDestroy, ranges);
    call.bufs[0] = encode_body(&body);
    call
}
