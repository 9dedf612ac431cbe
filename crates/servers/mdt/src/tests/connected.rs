//! Fuzz target: a whole MDT on hostile bodies, each sent by a client that has really connected.
//!
//! The input is a program of choices ([`super::drawn`]): every operation of MDTs and two of other
//! targets, from two clients. Every request is answered, and the records are whole after each.
//!
//! Operations between MDTs come from a machine that says that it is a server. The MDT trusts its
//! claims about files, so records may be broken afterwards. But the MDT lives, and answers clients.
//!
//! Bound of the generator: requests come through endpoints of ours, so no request is a replay that
//! the MDT never answered. None is sent as a change that its operation cannot be, because its link
//! would end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::rc::Rc;

use endpoint::{Bulk, Call, Endpoint, EndpointConfig, Resolve};
use env::{CptTable, Env};
use env_sim::{NodeHandle, Sim, SimConfig};
use osd::MetaStore;
use osd::mem::{MemDisk, MemMeta, MemObjects};
use ost::{Ost, OstConfig};
use service::{Node, NodeConfig};
use types::{
    ClientId, Creds, Errno, FID_FIRST_NORMAL_SEQ, FID_SEQUENCES_PER_MDT_BITS, Fid, NidAddr, Span,
    SplitMix64, TargetId, TargetKind,
};
use wire::body::FidReq;
use wire::updates::{self, Done, OpId, Own, Part, Prepare, Record, Round, Update};
use wire::{Opcode, encode_body};

use super::drawn::{Choices, Known, PROGRAM_BYTES_MAX, PROGRAMS, TIME, programs};
use crate::fsck::fsck;
use crate::{GrantMode, Mdt, MdtConfig, OstAt};

const MDT: TargetId = TargetId { kind: TargetKind::Mdt, index: 0 };
const OST: TargetId = TargetId { kind: TargetKind::Ost, index: 0 };
/// Nobody waits longer: not for a recall, not for a recovery. A client that lives and does not send
/// what it keeps is given 311 s.
const ANSWERED_WITHIN: Span = Span::secs(400);
/// A request of a server may wait for what another one of it has reserved.
const SERVER_PATIENCE: Span = Span::secs(20);
/// A restarted MDT waits for each MDT with which it has changed something.
const LIVES_WITHIN: Span = Span::secs(2_000);
/// Index of an MDT that the MGS has forgotten.
const FORGOTTEN: u32 = 200;
const MODES: [GrantMode; 3] = [GrantMode::Timed, GrantMode::Recall, GrantMode::None];

struct Where;

impl Resolve for Where {
    fn addrs(&self, target: TargetId) -> Vec<NidAddr> {
        vec![addr(target)]
    }

    fn is_off(&self, target: TargetId) -> bool {
        target == TargetId::mdt(FORGOTTEN)
    }
}

fn addr(target: TargetId) -> NidAddr {
    let host = if target.kind == TargetKind::Ost { 2 } else { 1 };
    format!("10.0.0.{host}@tcp").parse().expect("a NID")
}

fn endpoint(env: &Env, client: u128, is_server: bool) -> Rc<Endpoint> {
    let import = endpoint::ImportConfig {
        client: ClientId(client),
        name: format!("c{client}"),
        is_server,
        ..Default::default()
    };
    Endpoint::new(env, EndpointConfig { import, ..Default::default() }, Rc::new(Where))
}

fn node(env: &Env) -> Rc<Node> {
    let one = NonZeroU32::MIN;
    Node::new(env, NodeConfig::new(CptTable::new(one, one, 1, true).expect("one")))
}

/// Those of MDTs, creates more often, and what an MDT does not know.
fn opcodes() -> Vec<Opcode> {
    let ours = |opcode: &&Opcode| opcode.target() == Some(TargetKind::Mdt);
    let others = [Opcode::MdtCreate, Opcode::MdtCreate, Opcode::OstDestroy, Opcode::MgsConfig];
    Opcode::ALL.iter().filter(ours).copied().chain(others).collect()
}

struct World {
    sim: Sim,
    mds: NodeHandle,
    clients: Vec<(NodeHandle, Rc<Endpoint>)>,
    /// What says that it is a server.
    server: (NodeHandle, Rc<Endpoint>),
    disk: MemDisk,
    grants: GrantMode,
    /// Of the MDT that runs.
    meta: Rc<RefCell<Option<Rc<MemMeta>>>>,
    opcodes: Vec<Opcode>,
    known: Known,
    /// Operations of which one succeeded.
    done: BTreeSet<Opcode>,
}

impl World {
    fn new(grants: GrantMode) -> World {
        // clients that misbehave are told of as errors
        let sim = Sim::new(7, SimConfig { fail_on_error: false, ..SimConfig::default() });
        let (mds, oss) = (sim.node("mds", addr(MDT).nid), sim.node("oss", addr(OST).nid));
        let clients = (1..3u32).map(|n| {
            let node =
                sim.node(&format!("c{n}"), format!("10.0.1.{n}@tcp").parse().expect("a NID"));
            let endpoint = endpoint(&node.env(), u128::from(n), false);
            (node, endpoint)
        });
        let clients = clients.collect();
        let server = sim.node("server", "10.0.2.1@tcp".parse().expect("a NID"));
        let as_server = endpoint(&server.env(), 50, true);
        boot_ost(&oss);
        let world = World {
            sim,
            mds,
            clients,
            server: (server, as_server),
            disk: MemDisk::default(),
            grants,
            meta: Rc::default(),
            opcodes: opcodes(),
            known: Known::new(),
            done: BTreeSet::new(),
        };
        world.boot();
        world
    }

    fn boot(&self) {
        let (env, disk, slot) = (self.mds.env(), self.disk.clone(), self.meta.clone());
        let mut config = MdtConfig::new("testfs".parse().expect("a name"), 0);
        (config.grants, config.has_data) = (self.grants, true);
        self.mds.env().spawn("mds", async move {
            let meta = Rc::new(MemMeta::open(&env, &disk));
            let osts: Rc<dyn Fn() -> Vec<OstAt>> = Rc::new(|| vec![OstAt::from(0)]);
            let to_osts = Some(endpoint(&env, 99, true));
            let mdt = Mdt::start(&env, config, meta.clone(), to_osts, osts).await.expect("boots");
            *slot.borrow_mut() = Some(meta);
            let node = node(&env);
            node.add_target(mdt);
            node.serve(env.listen(addr(MDT)).await.expect("a free address"));
            std::future::pending::<()>().await;
        });
    }

    fn crash(&self) {
        self.meta.take();
        self.mds.kill_as(false);
        self.boot();
    }

    /// One request; before it now and then a restart.
    fn step(&mut self, choices: &mut Choices<'_>) {
        if choices.byte() == 0 {
            self.crash();
        }
        let who = choices.byte();
        let request = self.known.request(&self.opcodes, choices);
        let opcode = request.opcode();
        let mut call = Call::new(opcode, request.bufs);
        let uid = if who & 0x0e == 0 { 1_000 } else { 0 };
        call.creds = Creds { uid, gid: uid, groups: Vec::new() };
        match choices.byte() {
            0..8 => call.modifies = false,
            8..16 => call.sync = true,
            16..24 => call.bulk = Bulk::Source(vec![vec![7; usize::from(who) * 64].into()]),
            24..32 => (call.bulk, call.modifies) = (Bulk::Sink(usize::from(who) * 64), false),
            _ => {}
        }
        let (node, endpoint) = &self.clients[usize::from(who & 1)];
        let remote = endpoint.remote(MDT);
        let answer =
            self.sim.block_on_for(node, ANSWERED_WITHIN, async move { remote.call(call).await });
        let answer = answer.unwrap_or_else(|| panic!("{opcode:?} is not answered"));
        if let Ok(answer) = answer {
            self.known.learn(opcode, &answer.reply);
            self.done.insert(opcode);
        }
    }

    /// One request of the server; before it now and then a restart.
    fn server_step(&mut self, choices: &mut Choices<'_>) {
        if choices.byte() == 0 {
            self.crash();
        }
        let request = self.known.between(choices);
        let opcode = request.opcode();
        if self.as_server(Call::new(opcode, request.bufs)).is_ok() {
            self.done.insert(opcode);
        }
    }

    /// An answer to the server; `ETIMEDOUT` if there is none.
    fn as_server(&self, mut call: Call) -> Result<(), Errno> {
        call.patience = Some(SERVER_PATIENCE);
        let (node, endpoint) = &self.server;
        let remote = endpoint.remote(MDT);
        let answer =
            self.sim.block_on_for(node, ANSWERED_WITHIN, async move { remote.call(call).await });
        answer
            .map_or(Err(Errno::ETIMEDOUT), |answer| answer.map(drop).map_err(|error| error.errno()))
    }

    /// A client is answered, whatever it is answered.
    fn lives(&self) {
        let (node, endpoint) = &self.clients[0];
        let remote = endpoint.remote(MDT);
        let call = Call::new(Opcode::MdtStatfs, vec![encode_body(&FidReq::default())]);
        let answer =
            self.sim.block_on_for(node, LIVES_WITHIN, async move { remote.call(call).await });
        assert!(answer.is_some(), "the MDT answers clients");
    }

    fn fsck(&self) {
        let meta = self.meta.borrow().clone().expect("it runs: it has just answered");
        let view = meta.running().expect("a store in memory");
        assert_eq!(fsck(&*view), Ok(Vec::new()));
    }
}

fn boot_ost(oss: &NodeHandle) {
    let env = oss.env();
    oss.env().spawn("oss", async move {
        let disk = MemDisk::default();
        let (meta, objects) = (MemMeta::open(&env, &disk), MemObjects::open(&env, &disk));
        let config = OstConfig::new("testfs".parse().expect("a name"), 0);
        let ost = Ost::start(&env, config, Rc::new(meta), Rc::new(objects)).await.expect("boots");
        let node = node(&env);
        node.add_target(ost);
        node.serve(env.listen(addr(OST)).await.expect("a free address"));
        std::future::pending::<()>().await;
    });
}

fn run(program: &[u8]) -> World {
    let mut choices = Choices::new(program);
    let mut world = World::new(choices.of(&MODES));
    while !choices.is_done() {
        world.step(&mut choices);
        world.fsck();
    }
    world
}

/// Every request is answered, and the records are whole after each.
#[test]
fn handlers() {
    bolero::check!()
        .with_iterations(PROGRAMS)
        .with_test_time(TIME)
        .with_generator(programs())
        .for_each(|program: &Vec<u8>| drop(run(program)));
}

/// Programs that reached only the refusals would show little.
#[test]
fn every_operation_succeeds_for_a_connected_client() {
    let ours = Opcode::ALL.iter().filter(|opcode| opcode.target() == Some(TargetKind::Mdt));
    let ours: BTreeSet<Opcode> = ours.filter(|opcode| !opcode.is_between_mdts()).copied().collect();
    let mut chance = SplitMix64::new(1);
    let mut done = BTreeSet::new();
    for _ in 0..PROGRAMS {
        let program: Vec<u8> = (0..PROGRAM_BYTES_MAX).map(|_| chance.bits() as u8).collect();
        done.append(&mut run(&program).done);
        if done == ours {
            return;
        }
    }
    assert_eq!(done, ours, "after {PROGRAMS} programs");
}

/// A server's requests, to an MDT with some files.
fn run_between(program: &[u8]) -> World {
    let mut choices = Choices::new(program);
    let mut world = World::new(choices.of(&MODES));
    world.opcodes = vec![Opcode::MdtCreate];
    for _ in 0..4 {
        world.step(&mut choices);
    }
    while !choices.is_done() {
        world.server_step(&mut choices);
    }
    world.lives();
    world
}

#[test]
fn handlers_between_mdts() {
    bolero::check!()
        .with_iterations(PROGRAMS)
        .with_test_time(TIME)
        .with_generator(programs())
        .for_each(|program: &Vec<u8>| drop(run_between(program)));
}

/// Programs that reached only the refusals would show little.
#[test]
fn every_operation_between_mdts_succeeds_for_a_server() {
    let between = Opcode::ALL
        .iter()
        .filter(|opcode| opcode.is_between_mdts() && opcode.target() == Some(TargetKind::Mdt));
    let between: BTreeSet<Opcode> = between.copied().collect();
    let mut chance = SplitMix64::new(2);
    let mut done = BTreeSet::new();
    for _ in 0..PROGRAMS {
        let program: Vec<u8> = (0..PROGRAM_BYTES_MAX).map(|_| chance.bits() as u8).collect();
        let world = run_between(&program);
        done.extend(world.done.intersection(&between).copied());
        if done == between {
            return;
        }
    }
    assert_eq!(done, between, "after {PROGRAMS} programs");
}

/// What no MDT would send changes nothing, reserves nothing, and ends no MDT.
#[test]
fn what_no_mdt_would_say_is_refused() {
    let world = World::new(GrantMode::None);
    let own = |fid, name: Vec<u8>| {
        Update::Own(Own {
            fid,
            mode: 0o755,
            uid: 0,
            gid: 0,
            projid: 0,
            atime: None,
            mtime: None,
            layout: Vec::new(),
            xattrs: vec![(name, vec![1])],
        })
    };
    let record = |mdt, updates| {
        let id = OpId { mdt, number: 7 };
        let parts = vec![Part { mdt: 0, updates }];
        updates::encode(&Record { id, time: (0, 0), parts, reply: (vec![7; 16], vec![7]) })
    };
    let away = Fid::new(FID_FIRST_NORMAL_SEQ + (1 << FID_SEQUENCES_PER_MDT_BITS), 1);
    let name = || b"trusted.a".to_vec();
    let unreadable = Update::Stripe { fid: Fid::ROOT, value: vec![7; 8] };
    let far = OpId { mdt: 1 << 20, number: 7 };
    let done = Done { mdt: 1 << 20, below: 9, ..Done::default() };
    let question = ((1_u32 << 20, None::<OpId>, 5_u64), Round::First);
    for (opcode, body) in [
        (Opcode::MdtUpdate, record(1, vec![own(Fid::ROOT, vec![b'n'; 600])])),
        (Opcode::MdtUpdate, record(1, vec![own(away, name())])),
        (Opcode::MdtUpdate, record(1, vec![unreadable])),
        (Opcode::MdtUpdate, record(0, vec![own(Fid::ROOT, name())])),
        (Opcode::MdtUpdate, record(1 << 20, vec![own(Fid::ROOT, name())])),
        (Opcode::MdtPrepare, updates::encode(&Prepare { id: far, wants: Vec::new() })),
        (Opcode::MdtUpdatesDone, updates::encode(&done)),
        (Opcode::MdtUpdates, updates::encode(&question)),
    ] {
        let call = Call::new(opcode, vec![bytes::Bytes::new(), body.into()]);
        assert_eq!(world.as_server(call), Err(Errno::EPROTO), "{opcode:?}");
    }
    let good = record(1, vec![own(Fid::ROOT, name())]);
    let call = Call::new(Opcode::MdtUpdate, vec![bytes::Bytes::new(), good.into()]);
    assert_eq!(world.as_server(call), Ok(()));
    world.lives();
}

#[test]
fn operations_of_a_forgotten_mdt_come_from_other_mdts_only() {
    let world = World::new(GrantMode::None);
    let update = |number, more: &[bool]| {
        let parts = vec![Part { mdt: 0, updates: Vec::new() }];
        let id = OpId { mdt: FORGOTTEN, number };
        let record = Record { id, time: (0, 0), parts, reply: (Vec::new(), Vec::new()) };
        let mut bufs = vec![bytes::Bytes::new(), updates::encode(&record).into()];
        bufs.extend(
            more.iter().map(|is_passed_on| bytes::Bytes::from(updates::encode(is_passed_on))),
        );
        world.as_server(Call::new(Opcode::MdtUpdate, bufs))
    };
    assert_eq!(update(7, &[]), Err(Errno::ESTALE));
    assert_eq!(update(7, &[false]), Err(Errno::ESTALE));
    assert_eq!(update(7, &[true]), Ok(()), "another one has executed its part");
    let ask = Prepare { id: OpId { mdt: FORGOTTEN, number: 8 }, wants: Vec::new() };
    let bufs = vec![bytes::Bytes::new(), updates::encode(&ask).into()];
    assert_eq!(world.as_server(Call::new(Opcode::MdtPrepare, bufs)), Err(Errno::ESTALE));
    world.lives();
}
