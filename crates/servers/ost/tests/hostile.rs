//! Fuzz target: an OST on hostile bodies, over the store in memory.
//!
//! The input is a program of requests. Bodies are partly valid, because random bytes would only
//! reach the first check of each handler. Every request is answered. Afterwards the records and the
//! objects agree.
//!
//! Bound of the generator: requests come through an endpoint of ours, so no request is a replay
//! that the OST never answered. None is sent as a change that its operation cannot be, because its
//! link would end.

use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Bulk, Call, Endpoint, EndpointConfig, Remote, Resolve};
use env::CptTable;
use env_sim::{NodeHandle, Sim, SimConfig};
use osd::Table;
use osd::mem::{MemDisk, MemDiskConfig, MemMeta, MemObjects};
use ost::{Ost, OstConfig};
use service::{Node, NodeConfig};
use types::{ClientId, Fid, NidAddr, Span, TargetId, TargetKind};
use wire::body::{
    BatchFlags, Claim, IoFlags, ObjectRange, OstBatchReq, OstFallocateReq, OstFenceReq, OstIoReq,
    OstPunchReq, OstRaiseReq, OstReserveReq, OstSeekReq, PunchFlags, ReserveFlags, fallocate,
};
use wire::{Opcode, encode_body};
use zerocopy::IntoBytes;

/// Bytes of a program, about 10 a request.
const PROGRAM_BYTES_MAX: usize = 300;
const PROGRAMS: usize = 5_000;
const TIME: std::time::Duration = std::time::Duration::from_secs(3);

const OPCODES: [Opcode; 16] = [
    Opcode::OstWrite,
    Opcode::OstWrite,
    Opcode::OstRead,
    Opcode::OstPunch,
    Opcode::OstFallocate,
    Opcode::OstSeek,
    Opcode::OstList,
    Opcode::OstGlimpse,
    Opcode::OstDestroy,
    Opcode::OstStatfs,
    Opcode::OstSync,
    Opcode::MdtCreate,
    Opcode::MgsConfig,
    Opcode::OstFence,
    Opcode::OstRaise,
    Opcode::OstReserve,
];
/// Where an object's record has the lowest layout version.
const LAYOUT_VERSION: std::ops::Range<usize> = 40..44;
const MODES: [u32; 6] = [
    fallocate::ALLOCATE,
    fallocate::KEEP_SIZE,
    fallocate::PUNCH_HOLE | fallocate::KEEP_SIZE,
    fallocate::ZERO_RANGE,
    fallocate::PUNCH_HOLE,
    u32::MAX,
];
const EDGES: [u64; 8] = [0, 1, 4_096, 65_536, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];
const OBJECTS: [Fid; 6] = [
    Fid { seq: 0x2_0000_0500, oid: 9, ver: 0 },
    Fid { seq: 0x2_0000_0500, oid: 9, ver: 1 },
    Fid { seq: 0x2_0000_0500, oid: 10, ver: 0 },
    Fid { seq: 0x2_0000_0501, oid: u32::MAX, ver: u32::MAX },
    Fid { seq: u64::MAX, oid: 0, ver: 0 },
    Fid::ZERO,
];

/// Choices, one byte each; zero where there are no more.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn is_done(&self) -> bool {
        self.0.len() == 0
    }

    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Mostly a small number of blocks and bytes, else an edge.
    fn word(&mut self) -> u64 {
        let choice = self.byte();
        if choice < 224 { u64::from(choice) * 997 } else { self.of(&EDGES) }
    }

    fn call(&mut self) -> Call {
        let opcode = self.of(&OPCODES);
        let object = self.of(&OBJECTS).into();
        let parent = Fid { seq: 0x2_0000_0401, oid: 7, ver: 0 }.into();
        let claim = Claim { session: 1 << 32, store: 77, capability: [0; 2] };
        let mut data = Vec::new();
        let body = match opcode {
            Opcode::OstWrite | Opcode::OstRead => {
                let (offset, length) = (self.word(), self.word() as u32);
                let flags = IoFlags::from_bits_retain(u32::from(self.byte()));
                data = vec![
                    7;
                    if opcode == Opcode::OstWrite { length.min(5_000) } else { 0 } as usize
                ];
                let body =
                    OstIoReq { object, parent, offset, length, flags, claim, ..Default::default() };
                encode_body(&body)
            }
            Opcode::OstPunch => {
                let size = self.word();
                let flags = PunchFlags::from_bits_retain(u32::from(self.byte()));
                encode_body(&OstPunchReq {
                    object,
                    parent,
                    size,
                    flags,
                    claim,
                    ..Default::default()
                })
            }
            Opcode::OstFallocate => {
                let (offset, length, mode) = (self.word(), self.word(), self.of(&MODES));
                let body = OstFallocateReq {
                    object,
                    parent,
                    offset,
                    length,
                    mode,
                    claim,
                    ..Default::default()
                };
                encode_body(&body)
            }
            Opcode::OstSeek => {
                let (offset, what) = (self.word(), u32::from(self.byte()));
                encode_body(&OstSeekReq {
                    object,
                    parent,
                    offset,
                    what,
                    claim,
                    ..Default::default()
                })
            }
            Opcode::OstFence => {
                // this client's own number is 1
                let (client_low, session) = (u64::from(self.byte() % 3), self.word());
                let (store, client_high, instance) = (77, 0, u64::from(self.byte() % 3));
                encode_body(&OstFenceReq { store, client_low, client_high, session, instance })
            }
            Opcode::OstReserve => {
                let all = [ReserveFlags::empty(), ReserveFlags::RESTATE, ReserveFlags::RELEASE];
                let flags = all[usize::from(self.byte()) % all.len()];
                let number = u32::from(self.byte());
                encode_body(&OstReserveReq { total: self.word(), flags, number })
            }
            Opcode::OstRaise => {
                let (first, count) = (self.word() as u32, u32::from(self.byte()));
                data = ObjectRange { base: object, first, count }.as_bytes().to_vec();
                let layout_version = self.word() as u32;
                encode_body(&OstRaiseReq { parent, claim, layout_version, lent: 0 })
            }
            _ => {
                let flags = BatchFlags::OIDS.when(self.byte() >= 128);
                for _ in 0..self.byte() % 4 {
                    let (first, count) = (self.word() as u32, self.word() as u32);
                    let base = self.of(&OBJECTS).into();
                    data.extend_from_slice(ObjectRange { base, first, count }.as_bytes());
                }
                encode_body(&OstBatchReq { count: 1, flags, store: claim.store })
            }
        };
        let mut call = Call::new(opcode, vec![body, Bytes::from(data)]);
        self.damage(&mut call);
        call
    }

    /// Some requests are not as a client of ours would write them.
    fn damage(&mut self, call: &mut Call) {
        let (how, at, with) = (self.byte(), usize::from(self.byte()), self.byte());
        call.modifies = matches!(
            call.opcode,
            Opcode::OstWrite | Opcode::OstPunch | Opcode::OstFallocate | Opcode::OstDestroy
        );
        match how {
            0..32 => {
                let mut body = call.bufs[0].to_vec();
                let at = at % body.len();
                body[at] ^= with;
                call.bufs[0] = body.into();
            }
            32..44 => call.bufs[0] = call.bufs[0].slice(..at % call.bufs[0].len()),
            44..52 => call.bufs.truncate(at % 2),
            52..60 => call.bufs[1] = Bytes::from(vec![with; at * 7]),
            60..68 => call.modifies = false,
            68..76 => call.bulk = Bulk::Source(vec![Bytes::from(vec![with; at * 64])]),
            76..84 => (call.bulk, call.modifies) = (Bulk::Sink(at * 64), false),
            84..92 => call.sync = true,
            _ => {}
        }
    }
}

struct At(NidAddr);

impl Resolve for At {
    fn addrs(&self, _target: TargetId) -> Vec<NidAddr> {
        vec![self.0]
    }
}

struct World {
    sim: Sim,
    client: NodeHandle,
    disk: MemDisk,
    remote: Rc<Remote>,
    _node: Rc<Node>, // lives as long as the machine
    _endpoint: Rc<Endpoint>,
}

impl World {
    fn new() -> World {
        // a damaged claim is told as an error
        let config = SimConfig { fail_on_error: false, ..SimConfig::default() };
        let sim = Sim::new(7, config);
        let server = sim.node("oss", "10.0.0.1@tcp".parse().expect("a NID"));
        let client = sim.node("client", "10.0.0.2@tcp".parse().expect("a NID"));
        let at = NidAddr { nid: server.nid(), port: 988 };
        let disk = MemDisk::new(MemDiskConfig { object_bytes: 8 << 20, ..Default::default() });
        let (env, served) = (server.env(), disk.clone());
        let node = sim.block_on(&server, async move {
            let meta = Rc::new(MemMeta::open(&env, &served));
            let objects = Rc::new(MemObjects::open(&env, &served));
            let config = OstConfig::new("testfs".parse().expect("a name"), 2);
            let ost = Ost::start(&env, config, meta, objects).await.expect("boots");
            let cpts = CptTable::new(NonZeroU32::MIN, NonZeroU32::MIN, 1, true).expect("one");
            let node = Node::new(&env, NodeConfig::new(cpts));
            node.add_target(ost);
            node.serve(env.listen(at).await.expect("free"));
            node
        });
        let config = EndpointConfig {
            import: endpoint::ImportConfig {
                client: ClientId(1),
                is_server: true, // it may destroy
                ..Default::default()
            },
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::new(&client.env(), config, Rc::new(At(at)));
        let remote = endpoint.remote(TargetId::ost(2));
        World { sim, client, disk, remote, _node: node, _endpoint: endpoint }
    }

    /// Whether it succeeded.
    fn call(&self, call: Call) -> bool {
        let (remote, opcode) = (self.remote.clone(), call.opcode);
        let answer = self
            .sim
            .block_on_for(&self.client, Span::secs(300), async move { remote.call(call).await });
        answer.unwrap_or_else(|| panic!("{opcode:?} is not answered")).is_ok()
    }

    /// Every object that is there has a record, and every record an object, or a layout version
    /// that it was told before it was made. Destroyed objects stay destroyed; the record of one
    /// that was told says so.
    fn fsck(&self) {
        let everything = Call::new(Opcode::OstSync, vec![encode_body(&OstBatchReq::default())]);
        assert!(self.call(everything), "a sync of everything succeeds");
        let fids = |table| -> Vec<Fid> {
            let records = self.disk.records(table);
            records.iter().map(|(key, _)| Fid::from_key(key).expect("a FID")).collect()
        };
        let objects = self.disk.objects();
        let recorded = fids(Table::Objects);
        assert!(objects.iter().all(|object| recorded.contains(object)));
        let is_told = |record: &[u8]| record[LAYOUT_VERSION].iter().any(|byte| *byte != 0);
        let is_gone = |record: &[u8]| record[LAYOUT_VERSION].iter().all(|byte| *byte == u8::MAX);
        let tombstones = fids(Table::Tombstones);
        for (fid, (_, record)) in recorded.iter().zip(self.disk.records(Table::Objects)) {
            assert!(objects.contains(fid) || is_told(&record), "{fid}");
            assert!(!objects.contains(fid) || !is_gone(&record), "{fid} is there again");
            assert!(!tombstones.contains(fid) || is_gone(&record), "{fid} was destroyed");
        }
        let records = [Table::Objects, Table::Tombstones].map(|table| self.disk.records(table));
        assert!(records.iter().flatten().all(|(_, value)| ost::fuzz::record(value)));
    }
}

#[test]
fn handlers() {
    let programs = bolero::produce::<Vec<u8>>().with().len(0..=PROGRAM_BYTES_MAX);
    bolero::check!()
        .with_iterations(PROGRAMS)
        .with_test_time(TIME)
        .with_generator(programs)
        .for_each(|program: &Vec<u8>| {
            let mut choices = Choices(program.iter());
            let world = World::new();
            while !choices.is_done() {
                world.call(choices.call());
            }
            world.fsck();
        });
}

#[test]
fn programs_draw_every_operation_of_an_ost() {
    let is_ours = |opcode: &&Opcode| opcode.target() == Some(TargetKind::Ost);
    for opcode in Opcode::ALL.iter().filter(is_ours) {
        assert!(OPCODES.contains(opcode), "{opcode:?}");
    }
}

/// The generator is of use: its plain requests succeed.
#[test]
fn some_requests_of_the_generator_succeed() {
    let world = World::new();
    let program: Vec<u8> = (0..=u8::MAX).cycle().step_by(7).take(4_000).collect();
    let mut choices = Choices(program.iter());
    let mut done = 0;
    while !choices.is_done() {
        done += u32::from(world.call(choices.call()));
    }
    assert!(done >= 50, "{done}");
    world.fsck();
}
