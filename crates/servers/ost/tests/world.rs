//! A client and an OST on simulated machines: the promises of an answer, through kills and power
//! cuts.

#[path = "world/forged.rs"]
mod forged;
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
use osd::mem::{MemDisk, MemDiskConfig, MemMeta, MemObjects};
use osd::{MetaStore, Table};
use ost::{Bugs, Ost, OstConfig};
use params::ParamTree;
use service::{Node, NodeConfig, Target, spec};
use types::{ClientId, Errno, Fid, NidAddr, Span, TargetId};
use wire::body::{
    BatchFlags, Claim, ConnectRep, ConnectReq, IoFlags, ObjectRange, OstAttr, OstBatchReq,
    OstFallocateReq, OstFenceReq, OstIoReq, OstListRep, OstListReq, OstListed, OstPunchReq,
    OstRaiseReq, OstSeekRep, OstSeekReq, PunchFlags, StatfsRep, SyncRep, fallocate,
};
use wire::{Opcode, Reply, Request, RequestFlags, decode_body, encode_body};
use zerocopy::{FromBytes, IntoBytes};

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
        let (ost, node) = self.sim.block_on(&self.server, async move {
            let meta = Rc::new(MemMeta::open(&env, &disk));
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
        let config = EndpointConfig {
            import: endpoint::ImportConfig {
                client: ClientId(client),
                name: format!("client{client}"),
                is_server,
                ..Default::default()
            },
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::new(&self.client.env(), config, Rc::new(At(self.at())));
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
        self.ost.borrow().as_ref().map_or_else(String::new, |ost| ost.exports().recovery_status())
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

#[test]
fn what_is_written_is_read_glimpsed_and_counted() {
    let world = World::plain();
    let remote = world.remote(1);
    let large = pattern(300_000, 3);
    assert_eq!(world.attr(&remote, write(100, b"small", PLAIN)).expect("writes").size, 105);
    let attr = world.attr(&remote, write(1 << 20, &large, PLAIN)).expect("writes");
    assert_eq!((attr.exists, attr.size, attr.mtime), (1, (1 << 20) + 300_000, 1_000 + (1 << 20)));
    let (attr, data) = world.read(&remote, 1 << 20, 1 << 20, IoFlags::MUST_EXIST).expect("reads");
    assert!(attr.length == 300_000 && data[..] == large[..]);
    let (_, hole) = world.read(&remote, 98, 8, PLAIN).expect("reads");
    assert_eq!(&hole[..], b"\0\0small\0");

    let attr = world.attr(&remote, punch(103, false)).expect("cuts");
    assert_eq!((attr.exists, attr.size), (1, 103));
    let answer = world
        .call(&remote, batch(Opcode::OstGlimpse, &[range(OBJECT, 0, 1), range(OBJECT, 1, 1)]))
        .expect("glimpses");
    let attrs: Vec<OstAttr> = answer
        .reply
        .buf(1)
        .chunks_exact(size_of::<OstAttr>())
        .map(|piece| OstAttr::read_from_bytes(piece).expect("its size"))
        .collect();
    assert_eq!(
        attrs.iter().map(|attr| (attr.exists, attr.size)).collect::<Vec<_>>(),
        [(0, 0), (1, 103)]
    );

    let answer = world
        .call(&remote, Call::new(Opcode::OstStatfs, vec![encode_body(&[0u8; 8])]))
        .expect("statfs");
    let statfs: StatfsRep = decode_body(&answer.reply.buf(0));
    assert!(
        statfs.blocks_free > 0 && statfs.blocks_free <= statfs.blocks && statfs.state.is_empty()
    );
}

#[test]
fn a_missing_object_is_empty_unless_it_must_be_there() {
    let world = World::plain();
    let remote = world.remote(1);
    let (attr, data) = world.read(&remote, 0, 4_096, PLAIN).expect("reads");
    assert_eq!((attr.exists, attr.length, data.len()), (0, 0, 0));
    assert_eq!(world.attr(&remote, punch(0, true)).expect("nothing to cut").exists, 0);
    assert_eq!(world.attr(&remote, punch(10, false)).expect("nothing to cut").exists, 0);
    assert_eq!(world.disk.objects(), []);
    assert_eq!(world.attr(&remote, punch(10, true)).expect("makes").size, 10);
}

#[test]
fn senseless_requests_are_refused() {
    let world = World::plain();
    let remote = world.mdt();
    let errno = |call| world.call(&remote, call).map(|_| ()).map_err(|error| error.errno());
    assert_eq!(errno(write(u64::MAX - 2, b"xyz", PLAIN)), Err(Errno::EFBIG));
    assert_eq!(errno(write(0, b"", PLAIN)), Err(Errno::EINVAL));
    assert_eq!(errno(batch(Opcode::OstDestroy, &[])), Err(Errno::EINVAL));
    assert_eq!(errno(batch(Opcode::OstDestroy, &[range(OBJECT, 1, u32::MAX)])), Err(Errno::EINVAL));
    assert_eq!(errno(batch(Opcode::OstDestroy, &[range(OBJECT, 0, u32::MAX)])), Err(Errno::E2BIG));
    let mut odd = batch(Opcode::OstGlimpse, &[]);
    odd.bufs[1] = Bytes::from_static(b"seven b");
    assert_eq!(errno(odd), Err(Errno::EPROTO));
    let mut cut = write(0, b"xyz", PLAIN);
    cut.bufs[1] = Bytes::from_static(b"xy");
    assert_eq!(errno(cut), Err(Errno::EPROTO));
}

#[test]
fn replay_brings_acknowledged_writes_over_a_power_cut() {
    for seed in 0..20 {
        let world = World::new(seed, MemDiskConfig::default(), Bugs::default());
        let remote = world.remote(1);
        let mut expected = vec![0; 400_000];
        for round in 0..12u8 {
            let data = pattern(1 + usize::from(round) * 9_000, round);
            let offset = usize::from(round) * 17_000;
            world.attr(&remote, write(offset as u64, &data, PLAIN)).expect("writes");
            expected[offset..offset + data.len()].copy_from_slice(&data);
            if round % 4 == 3 {
                world.power_cut(seed ^ u64::from(round));
                world.start();
            }
            if round == 6 {
                world.sim.run_for(Span::secs(2));
            }
        }
        let (attr, data) = world.read(&remote, 0, 400_000, IoFlags::MUST_EXIST).expect("reads");
        assert!(data[..] == expected[..attr.size as usize], "seed {seed}");
    }
}

#[test]
fn synced_writes_outlive_a_power_cut_without_their_client() {
    for (seed, by_sync_call) in (0..10).flat_map(|seed| [(seed, false), (seed, true)]) {
        let world = World::new(seed, MemDiskConfig::default(), Bugs::default());
        let remote = world.remote(1);
        let data = pattern(200_000, 5);
        world.attr(&remote, write(0, &data, IoFlags::SYNC.when(!by_sync_call))).expect("writes");
        if by_sync_call {
            let answer = world.call(&remote, batch(Opcode::OstSync, &[])).expect("syncs");
            let body: SyncRep = decode_body(&answer.reply.buf(0));
            assert!(body.last_committed > 0);
        }
        world.client.kill();
        world.power_cut(seed);
        world.start();
        let (_, read) =
            world.read(&world.remote(2), 0, 200_000, IoFlags::MUST_EXIST).expect("reads");
        assert!(read[..] == data[..], "seed {seed}");
    }
}

#[test]
fn records_ahead_of_data_are_found_out() {
    let bugs = Bugs::plant("ost.commit_records_before_data");
    let disk = MemDiskConfig { commit_min: Span::millis(5), ..MemDiskConfig::default() };
    let lost = (0..40).filter(|seed| {
        let world = World::new(*seed, disk, bugs);
        let remote = world.remote(1);
        let data = pattern(200_000, 5);
        world.attr(&remote, write(0, &data, PLAIN)).expect("writes");
        let committed = || remote.last_committed().0 > 0;
        let sync = remote.clone();
        world
            .client
            .env()
            .spawn("sync", async move { drop(sync.call(batch(Opcode::OstSync, &[])).await) });
        let records = || world.disk.records(Table::Replies).len();
        world.sim.run_until(Span::secs(1), || committed() || records() > 0);
        world.power_cut(*seed);
        world.start();
        let (_, read) = world.read(&remote, 0, 200_000, PLAIN).expect("reads");
        read[..] != data[..]
    });
    assert!(lost.count() > 0, "the switch breaks something");
}

#[test]
fn a_destroyed_object_stays_destroyed() {
    let world = World::plain();
    let (old, mdt) = (world.remote(1), world.mdt());
    world.attr(&old, write(0, b"data", PLAIN)).expect("writes");
    world.call(&mdt, batch(Opcode::OstDestroy, &[range(OBJECT, 0, 4)])).expect("destroys");
    world.call(&mdt, batch(Opcode::OstDestroy, &[range(OBJECT, 0, 4)])).expect("again");
    for _ in 0..2 {
        let late = world.attr(&old, write(0, b"late", PLAIN)).map_err(|error| error.errno());
        assert_eq!(late.map(|attr| attr.size), Err(Errno::ESTALE));
        assert_eq!(
            world.attr(&old, punch(5, true)).map_err(|error| error.errno()).map(|attr| attr.size),
            Err(Errno::ESTALE)
        );
        assert_eq!(world.disk.objects(), []);
        world.sim.run_for(Span::secs(2));
        world.power_cut(3);
        world.start();
    }
    let other = world.remote(3);
    let read = world.read(&other, 0, 10, PLAIN).map(drop).map_err(|error| error.errno());
    assert_eq!(read, Err(Errno::ESTALE), "no layout names it");
}

#[test]
fn without_tombstones_a_late_write_brings_an_object_back() {
    let world = World::new(7, MemDiskConfig::default(), Bugs::plant("ost.skip_tombstones"));
    let remote = world.remote(1);
    world.call(&world.mdt(), batch(Opcode::OstDestroy, &[range(OBJECT, 1, 1)])).expect("destroys");
    world.attr(&remote, write(0, b"late", PLAIN)).expect("the bug");
    assert_eq!(world.disk.objects(), [OBJECT]);
}

#[test]
fn a_write_and_its_destroy_are_replayed_in_order() {
    for seed in 0..10 {
        let world = World::new(seed, MemDiskConfig::default(), Bugs::default());
        let (writer, mdt) = (world.remote(1), world.mdt());
        world.attr(&writer, write(0, b"data", PLAIN)).expect("writes");
        world.call(&mdt, batch(Opcode::OstDestroy, &[range(OBJECT, 1, 1)])).expect("destroys");
        world.power_cut(seed);
        world.start();
        let call = Call::new(Opcode::OstStatfs, vec![Bytes::new()]);
        world.call(&writer, call.clone()).expect("recovered");
        world.call(&mdt, call).expect("recovered");
        assert_eq!(world.disk.objects(), [], "seed {seed}");
    }
}

#[test]
fn room_holes_and_zeros_survive_what_dies() {
    const BLOCK: u64 = 4_096;
    const PUNCH: u32 = fallocate::PUNCH_HOLE | fallocate::KEEP_SIZE;
    for seed in 0..10 {
        let world = World::new(seed, MemDiskConfig::default(), Bugs::default());
        let remote = world.remote(1);
        let gone = world.attr(&remote, fallocate_call(PUNCH, 0, BLOCK)).expect("nothing to punch");
        assert_eq!(gone.exists, 0);
        let grown = world
            .attr(&remote, fallocate_call(fallocate::ALLOCATE, 0, 3 * BLOCK))
            .expect("allocates");
        assert_eq!((grown.exists, grown.size, grown.blocks), (1, 3 * BLOCK, 24));
        let mut expected = pattern(3 * BLOCK as usize, 5);
        world.attr(&remote, write(0, &expected, PLAIN)).expect("writes");
        let punched = world.attr(&remote, fallocate_call(PUNCH, BLOCK, BLOCK)).expect("punches");
        assert_eq!((punched.size, punched.blocks), (3 * BLOCK, 16));
        world
            .attr(&remote, fallocate_call(fallocate::ZERO_RANGE, 3 * BLOCK - 10, 20))
            .expect("zeroes");
        expected.resize(3 * BLOCK as usize + 10, 0);
        expected[BLOCK as usize..2 * BLOCK as usize].fill(0);
        expected[3 * BLOCK as usize - 10..].fill(0);
        if seed % 2 == 0 {
            world.power_cut(seed)
        } else {
            world.kill()
        }
        world.start();
        let (_, data) = world.read(&remote, 0, 1 << 16, PLAIN).expect("recovered");
        assert!(data[..] == expected, "seed {seed}");
        let found = |offset, what| {
            let rep: OstSeekRep =
                decode_body(&world.call(&remote, seek(offset, what)).expect("seeks").reply.buf(0));
            rep.offset
        };
        let places = [found(0, 1), found(BLOCK, 0), found(2 * BLOCK, 1), found(4 * BLOCK, 0)];
        assert_eq!(places, [BLOCK, 2 * BLOCK, 3 * BLOCK + 10, u64::MAX], "seed {seed}");
    }
}

#[test]
fn ranges_that_make_no_sense_are_refused() {
    let world = World::plain();
    let remote = world.remote(1);
    let refused = |call| world.attr(&remote, call).expect_err("refused");
    assert_eq!(
        refused(fallocate_call(fallocate::PUNCH_HOLE, 0, 1)),
        CallError::Errno(Errno::EOPNOTSUPP)
    );
    assert_eq!(refused(fallocate_call(0, 0, 0)), CallError::Errno(Errno::EINVAL));
    assert_eq!(refused(fallocate_call(0, u64::MAX, 2)), CallError::Errno(Errno::EFBIG));
    assert_eq!(
        world.call(&remote, seek(0, 2)).expect_err("refused"),
        CallError::Errno(Errno::EINVAL)
    );
    assert_eq!(world.disk.objects(), []);
}

#[test]
fn a_failed_sync_ends_the_instance_and_loses_nothing() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"before", PLAIN)).expect("writes");
    let ost = world.ost.borrow().clone().expect("runs");
    world.disk.fail_next_sync();
    let failed = world.sim.block_on_for(&world.server, Span::secs(10), ost.failed());
    assert!(failed.is_some_and(|reason| reason.contains("sync")));
    let (asker, answered) = (remote.clone(), Rc::new(RefCell::new(false)));
    let told = answered.clone();
    world.client.env().spawn("late", async move {
        asker.call(write(6, b"+late", PLAIN)).await.expect("the next instance answers");
        *told.borrow_mut() = true;
    });
    world.sim.run_for(Span::secs(5));
    assert!(!*answered.borrow(), "a failed instance answers nobody");
    drop(ost);
    world.power_cut(11);
    world.start();
    world.sim.run_until(Span::secs(60), || *answered.borrow());
    assert_eq!(&world.read(&remote, 0, 100, PLAIN).expect("reads").1[..], b"before+late");
}

#[test]
fn a_full_ost_says_so_and_destroys_work() {
    let disk = MemDiskConfig { object_bytes: 4 << 20, ..MemDiskConfig::default() };
    let world = World::new(7, disk, Bugs::default());
    let remote = world.remote(1);
    let mut filled = 0;
    let errno = loop {
        match world.attr(&remote, write(filled, &pattern(256 << 10, 1), PLAIN)) {
            Ok(attr) => filled = attr.size,
            Err(error) => break error.errno(),
        }
    };
    assert_eq!(errno, Errno::ENOSPC);
    assert!(filled >= 2 << 20, "{filled}");
    world.call(&world.mdt(), batch(Opcode::OstDestroy, &[range(OBJECT, 1, 1)])).expect("destroys");
    let body = OstIoReq {
        object: OBJECT.stripe(2).into(),
        length: 4,
        claim: CLAIM,
        ..OstIoReq::default()
    };
    let mut again =
        Call::new(Opcode::OstWrite, vec![encode_body(&body), Bytes::from_static(b"room")]);
    again.modifies = true;
    world.attr(&remote, again).expect("there is room again");
}

#[test]
fn full_records_refuse_writes_and_take_destroys() {
    let disk = MemDiskConfig {
        record_bytes: 64 << 10,
        record_reserve_bytes: 16 << 10,
        ..MemDiskConfig::default()
    };
    let world = World::new(7, disk, Bugs::default());
    let remote = world.remote(1);
    let one = |oid| {
        let body = OstIoReq {
            object: Fid { oid, ..OBJECT }.into(),
            length: 4,
            claim: CLAIM,
            ..OstIoReq::default()
        };
        let mut call =
            Call::new(Opcode::OstWrite, vec![encode_body(&body), Bytes::from_static(b"data")]);
        call.modifies = true;
        call
    };
    let mut oid = 1;
    while world.attr(&remote, one(oid)).is_ok() {
        oid += 1;
        assert!(oid < 10_000, "records are bounded");
    }
    assert_eq!(
        world.attr(&remote, one(oid)).map_err(|error| error.errno()).err(),
        Some(Errno::ENOSPC)
    );
    let mdt = world.mdt();
    for gone in 1..oid / 2 {
        world
            .call(&mdt, batch(Opcode::OstDestroy, &[range(Fid { oid: gone, ..OBJECT }, 1, 1)]))
            .expect("destroys");
    }
}

#[test]
fn a_stopped_ost_starts_clean_and_a_killed_one_too() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"kept", PLAIN)).expect("writes");
    let ost = world.ost.borrow().clone().expect("runs");
    let stopping = ost.clone();
    world.sim.block_on(&world.server, async move { stopping.stop().await }).expect("stops");
    assert_eq!(world.disk.unsynced_objects(), 0);
    let first = ost.exports().instance();
    drop(ost);
    world.kill();
    world.start();
    let second = world.ost.borrow().as_ref().expect("runs").exports().instance();
    assert_eq!(second.0, first.0 + 1);
    world.kill();
    world.start();
    assert_eq!(&world.read(&remote, 0, 10, IoFlags::MUST_EXIST).expect("reads").1[..], b"kept");
}

/// The call with another claim in its body.
fn claiming(mut call: Call, claim: Claim) -> Call {
    let mut body = call.bufs[0].to_vec();
    let end = body.len();
    body[end - size_of::<Claim>()..].copy_from_slice(claim.as_bytes());
    call.bufs[0] = body.into();
    call
}

/// One where errors may be logged.
fn told_off() -> World {
    let config = SimConfig { fail_on_error: false, ..SimConfig::default() };
    World::on(Sim::new(7, config), MemDiskConfig::default(), Bugs::default())
}

#[test]
fn an_object_of_another_store_is_neither_shown_nor_changed() {
    let world = told_off();
    let remote = world.mdt();
    world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
    let refused = |call| world.call(&remote, call).map(drop).map_err(|error| error.errno());
    let glimpse = |store| {
        let mut call = batch(Opcode::OstGlimpse, &[range(OBJECT, OBJECT.ver, 1)]);
        call.bufs[0] = encode_body(&OstBatchReq { count: 1, store, ..OstBatchReq::default() });
        let attrs = world.call(&remote, call).expect("answered").reply.buf(1);
        decode_body::<OstAttr>(&attrs).exists
    };
    let other = Claim { store: 78, ..CLAIM };
    for restarts in [false, true] {
        if restarts {
            world.sim.run_for(Span::secs(3));
            world.kill();
            world.start();
        }
        let read = OstIoReq { object: OBJECT.into(), length: 4, ..OstIoReq::default() };
        let read = Call::new(Opcode::OstRead, vec![encode_body(&read)]);
        let calls =
            [write(0, b"late", PLAIN), punch(0, false), fallocate_call(0, 0, 9), seek(0, 0), read];
        for call in calls {
            let opcode = call.opcode;
            assert_eq!(refused(claiming(call, other)), Err(Errno::EIO), "{opcode:?}");
        }
        assert_eq!((glimpse(CLAIM.store), glimpse(other.store)), (1, 0));
        let mut destroy = batch(Opcode::OstDestroy, &[range(OBJECT, OBJECT.ver, 1)]);
        let body = OstBatchReq { count: 1, store: other.store, ..OstBatchReq::default() };
        destroy.bufs[0] = encode_body(&body);
        refused(destroy).expect("passed over");
        assert_eq!(&world.read(&remote, 0, 10, PLAIN).expect("its own").1[..], b"data");
    }
}

#[test]
fn a_client_that_names_no_mdt_is_refused() {
    let world = World::plain();
    let remote = world.remote(1);
    for claim in [Claim { store: 0, ..CLAIM }, Claim { session: 0, ..CLAIM }] {
        let answer = world.call(&remote, claiming(write(0, b"data", PLAIN), claim));
        assert_eq!(answer.map(drop).map_err(|error| error.errno()), Err(Errno::EPROTO));
    }
}

#[test]
fn an_object_of_version_1_belongs_to_the_first_that_changes_it() {
    let world = told_off();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
    world.sim.run_for(Span::secs(3));
    world.kill();
    let (env, disk) = (world.server.env(), world.disk.clone());
    world.sim.block_on(&world.server, async move {
        let meta = MemMeta::open(&env, &disk);
        let (_, record) = disk.records(Table::Objects).remove(0);
        let mut old = record[..32].to_vec();
        (old[1], old[2]) = (1, 32);
        let mut set = osd::WriteSet::new();
        set.put(Table::Objects, OBJECT.to_key(), old);
        meta.apply(&set).expect("room");
        meta.commit().await.expect("a good disk");
    });
    world.start();
    let other = Claim { store: 78, ..CLAIM };
    world.call(&remote, claiming(write(1, b"new", PLAIN), other)).expect("nobody's so far");
    let errno = world.attr(&remote, write(0, b"late", PLAIN)).map_err(|error| error.errno());
    assert_eq!(errno.err(), Some(Errno::EIO));
}

fn sweep(ranges: &[ObjectRange]) -> Call {
    let body =
        OstBatchReq { count: ranges.len() as u32, flags: BatchFlags::OIDS, store: CLAIM.store };
    let mut call = batch(Opcode::OstDestroy, ranges);
    call.bufs[0] = encode_body(&body);
    call
}

#[test]
fn a_destroy_by_ids_takes_every_stripe_and_no_more() {
    let world = World::plain();
    let (remote, mdt) = (world.remote(1), world.mdt());
    let id = |oid, ver| Fid { seq: OBJECT.seq, oid, ver };
    for object in [id(3, 0), id(4, 0), id(4, 7), id(5, 1), id(6, 0), OBJECT] {
        let mut call = write(0, b"data", PLAIN);
        let body = OstIoReq {
            object: object.into(),
            parent: PARENT.into(),
            length: 4,
            claim: CLAIM,
            ..OstIoReq::default()
        };
        call.bufs[0] = encode_body(&body);
        world.call(&remote, call).expect("writes");
    }
    let ranges = [range(id(4, 0), 0, 2), range(id(8, 0), 0, 1_000)];
    for expected in [4, 0] {
        let answer = world.call(&mdt, sweep(&ranges)).expect("destroys");
        assert!(!answer.reply.transno().is_none(), "its commit can be waited for");
        assert_eq!(answer.reply.body::<OstBatchReq>().count, expected);
    }
    world.sim.run_for(Span::secs(3));
    let mut left = world.disk.objects();
    left.sort_unstable();
    assert_eq!(left, [id(3, 0), id(6, 0)]);
    assert_eq!(world.disk.records(Table::Objects).len(), 2);
    let late =
        world.call(&remote, write(0, b"late", PLAIN)).map(drop).map_err(|error| error.errno());
    assert_eq!(late, Err(Errno::ESTALE), "what was destroyed stays so");
}

#[test]
fn senseless_ranges_of_ids_are_refused() {
    let world = World::plain();
    let remote = world.mdt();
    let errno = |ranges: &[ObjectRange]| {
        world.call(&remote, sweep(ranges)).map(drop).map_err(|error| error.errno())
    };
    let id = |oid| Fid { seq: OBJECT.seq, oid, ver: 0 };
    assert_eq!(errno(&[]), Err(Errno::EINVAL));
    assert_eq!(errno(&[range(id(1), 0, 0)]), Err(Errno::EINVAL), "of nothing");
    assert_eq!(errno(&[range(id(1), 1, 1)]), Err(Errno::EINVAL), "of stripes");
    assert_eq!(errno(&[range(id(2), 0, u32::MAX)]), Err(Errno::EINVAL), "beyond the sequence");
    assert_eq!(
        errno(&[range(id(1), 0, 5), range(id(5), 0, 1)]),
        Err(Errno::EINVAL),
        "one in another"
    );
    assert_eq!(errno(&vec![range(id(1), 0, 1); 5_000]), Err(Errno::E2BIG));
}

#[test]
fn a_target_whose_storage_failed_stops_alone() {
    let sim = Sim::new(11, SimConfig { polls_max: 300_000, ..SimConfig::default() });
    let server = sim.node("oss", "10.0.0.1@tcp".parse().expect("a NID"));
    let client = sim.node("client", "10.0.0.2@tcp".parse().expect("a NID"));
    let at = NidAddr { nid: server.nid(), port: 988 };
    let disks = [MemDisk::new(MemDiskConfig::default()), MemDisk::new(MemDiskConfig::default())];
    let (env, opened) = (server.env(), disks.clone());
    sim.block_on(&server, async move {
        let node = node(&env);
        for (index, disk) in opened.iter().enumerate() {
            let config = OstConfig::new("testfs".parse().expect("a name"), index as u32);
            let meta = Rc::new(MemMeta::open(&env, disk));
            let objects = Rc::new(MemObjects::open(&env, disk));
            node.add_target(Ost::start(&env, config, meta, objects).await.expect("boots"));
        }
        node.serve(env.listen(at).await.expect("free"));
        std::mem::forget(node); // lives as long as the machine
    });
    let config = EndpointConfig {
        import: endpoint::ImportConfig { client: ClientId(1), ..Default::default() },
        ..EndpointConfig::default()
    };
    let endpoint = Endpoint::new(&client.env(), config, Rc::new(At(at)));
    let remotes = [0, 1].map(|index| endpoint.remote(TargetId::ost(index)));
    let ask = |index: usize, call: Call, patience: Span| {
        let remote = remotes[index].clone();
        sim.block_on_for(&client, patience, async move { remote.call(call).await })
    };
    for index in [0, 1] {
        assert!(
            ask(index, write(0, b"before", PLAIN), Span::secs(10)).is_some_and(|done| done.is_ok())
        );
    }
    disks[0].fail_next_sync();
    sim.run_for(Span::secs(3));
    // More requests than a service has slots: none of them is answered, and none keeps a slot.
    let waiting: Vec<_> = (0..600)
        .map(|number| {
            let (remote, answered) = (remotes[0].clone(), Rc::new(RefCell::new(false)));
            let told = answered.clone();
            client.env().spawn("waits", async move {
                let _answer = remote.call(write(number, b"x", PLAIN)).await;
                *told.borrow_mut() = true;
            });
            answered
        })
        .collect();
    sim.run_for(Span::secs(3));
    for round in 0..50 {
        let done = ask(1, write(round, b"after", PLAIN), Span::secs(10));
        assert!(done.is_some_and(|done| done.is_ok()), "the other target goes on");
    }
    assert!(waiting.iter().all(|answered| !*answered.borrow()), "a failed target is silent");
}

#[test]
fn who_waits_for_an_object_keeps_no_slot_from_others() {
    let disk = MemDiskConfig { io_max: Span::secs(100), ..MemDiskConfig::default() };
    let world = World::new(7, disk, Bugs::default());
    let node = world.node.borrow().clone().expect("it was started");
    let params = ParamTree::new();
    node.register_params(&params, &[&spec::OST_IO]);
    params.set_now("ost.OSS.ost_io.threads_max", "4").expect("it is there");
    let remote = world.remote(1);
    let answered = Rc::new(Cell::new(0));
    for number in 0..21 {
        let (remote, answered) = (remote.clone(), answered.clone());
        let call = if number == 0 { punch(1 << 30, true) } else { write(0, b"waits", PLAIN) };
        world.client.env().spawn("call", async move {
            let _lasts = remote.call(call).await;
            answered.set(answered.get() + 1);
        });
    }
    world.sim.run_for(Span::millis(500));
    let stats = node.stats()["ost_io"];
    assert_eq!((answered.get(), stats.active, stats.queued), (0, 1, 0), "the punch alone has one");
}

#[test]
fn the_requests_of_a_sweep_need_one_listing() {
    let world = World::plain();
    let (remote, other) = (world.mdt(), world.remote_as(98, true));
    let id = |oid, ver| Fid { seq: OBJECT.seq, oid, ver };
    let make = |object: Fid| {
        let mut call = write(0, b"data", PLAIN);
        let object = object.into();
        let (parent, length, claim) = (PARENT.into(), 4, CLAIM);
        let body = OstIoReq { object, parent, length, claim, ..OstIoReq::default() };
        call.bufs[0] = encode_body(&body);
        world.call(&remote, call).expect("writes");
    };
    (1..=100).for_each(|oid| make(id(oid, 0)));
    let listings = || world.ost.borrow().as_ref().expect("it was started").listings();
    let destroyed = |remote: &Rc<Remote>, first: u32| {
        let gaps = [range(id(first, 0), 0, 1), range(id(first + 2, 0), 0, 1)];
        let answer = world.call(remote, sweep(&gaps)).expect("destroys");
        answer.reply.body::<OstBatchReq>().count
    };
    let all: u32 = (0..25).map(|at| destroyed(&remote, 1 + 4 * at)).sum();
    assert_eq!((all, listings()), (50, 1));
    make(id(101, 0));
    assert_eq!((destroyed(&other, 101), listings()), (1, 2), "another session has another sweep");
    assert_eq!((destroyed(&other, 1), listings()), (0, 3), "this one began before the listing");
}

fn list(from: Fid, count: u32) -> Call {
    let body = OstListReq { from: from.into(), count, reserved: 0 };
    Call::new(Opcode::OstList, vec![encode_body(&body)])
}

#[test]
fn servers_hear_of_all_objects_and_whose_they_are() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(5, b"data", PLAIN)).expect("writes");
    let server = world.mdt();
    let ask = |from| {
        let answer = world.call(&server, list(from, 9)).expect("lists").reply;
        let listed: Vec<OstListed> = answer
            .buf(1)
            .chunks_exact(size_of::<OstListed>())
            .map(|piece| OstListed::read_from_bytes(piece).expect("its size"))
            .collect();
        assert_eq!(answer.body::<OstListRep>().count as usize, listed.len());
        listed
    };
    let all = ask(Fid::ZERO);
    let (object, parent) = (OBJECT.into(), PARENT.into());
    assert_eq!(all, [OstListed { object, parent, store: CLAIM.store, size: 9 }]);
    assert_eq!(ask(OBJECT.stripe(OBJECT.ver + 1)), []);
    let none = world.call(&server, list(Fid::ZERO, 0)).map(drop).map_err(|error| error.errno());
    assert_eq!(none, Err(Errno::EINVAL));
}

#[test]
fn only_servers_destroy_objects_and_fence_clients() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
    let fence = OstFenceReq { store: CLAIM.store, client_low: 1, session: 9, ..Default::default() };
    let calls = [
        batch(Opcode::OstDestroy, &[range(OBJECT, 1, 1)]),
        sweep(&[range(Fid { oid: 1, ..OBJECT }, 0, 100)]),
        Call::new(Opcode::OstFence, vec![encode_body(&fence)]),
        list(Fid::ZERO, 9),
    ];
    for call in calls {
        let answer = world.call(&remote, call).map(drop).map_err(|error| error.errno());
        assert_eq!(answer, Err(Errno::EPERM));
    }
    assert_eq!(&world.read(&remote, 0, 10, PLAIN).expect("there").1[..], b"data");
}
