//! Fuzz target: an MGS on hostile bodies, over the store in memory.
//!
//! The input is a program of requests of a client, of two servers and of an administrator. Bodies
//! are partly valid, because random bytes would only reach the first check of each handler. Every
//! request is answered. After each one:
//! - The configurations can be read, keep their bounds, and encode to bytes that mean the same.
//! - A refused request has changed nothing, and a version rises with each change.
//! - Each change was asked for by a peer that may.
//!
//! After the program, a restart behind a power cut finds the same configurations.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Bulk, Call, Endpoint, EndpointConfig, Resolve};
use env::CptTable;
use env_sim::{NodeHandle, Sim, SimConfig};
use mgt::{Mgt, MgtConfig};
use osd::mem::{MemDisk, MemDiskConfig, MemMeta};
use service::{Node, NodeConfig};
use types::{
    ClientId, FsName, MDTS_MAX, Nid, NidAddr, Role, Span, SplitMix64, TargetId, TargetKind,
};
use wire::config::{CONFIG_BYTES_MAX, FsConfig, Register, TargetInfo};
use wire::{Opcode, encode_body};

/// Bytes of a program, about 10 a request.
const PROGRAM_BYTES_MAX: usize = 300;
const PROGRAMS: usize = 2_000;
const TIME: std::time::Duration = std::time::Duration::from_secs(3);

/// What the MGS states as its bounds.
const FILE_SYSTEMS_MAX: usize = 64;
const TARGETS_MAX: usize = 2_047;
const PARAMS_MAX: usize = 1_024;
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 512;

const OPCODES: [Opcode; 8] = [
    Opcode::MgsRegister,
    Opcode::MgsRegister,
    Opcode::MgsRegister,
    Opcode::MgsSetParam,
    Opcode::MgsSetParam,
    Opcode::MgsConfig,
    Opcode::OstDestroy,
    Opcode::LstControl,
];
const PEERS: [(&str, bool); 4] = [
    ("10.0.0.2@tcp", false),
    ("10.0.0.3@tcp", true),
    ("10.0.0.4@tcp", true),
    ("127.0.0.9@tcp", true),
];
const NIDS: [&str; 6] =
    ["10.0.0.3@tcp", "10.0.0.4@tcp", "10.0.0.2@tcp", "127.0.0.1@tcp", "0.0.0.0@tcp", "0@lo"];
const FS_NAMES: [&str; 6] = ["testfs", "testfs", "a", "eight-ch", "bad/name", ""];
const PARAMS: [&str; 6] = [
    "llite.statahead_max",
    "testfs-OST0000.osc.active",
    "testfs.pool.flash",
    "mdt.*.nrs_policies",
    "a\nb",
    "",
];
const VALUES: [&str; 6] = ["0", "64", "osts=0-4000000000", "fifo now", "a\0b", ""];

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

    fn target(&mut self) -> u32 {
        let all = [
            TargetId::mdt(0),
            TargetId::ost(0),
            TargetId::ost(1),
            TargetId::dom(0),
            TargetId::mdt(MDTS_MAX - 1),
            TargetId::mdt(MDTS_MAX),
            TargetId::dom(MDTS_MAX),
            TargetId::MGT,
            TargetId::LST,
        ];
        match self.byte() {
            edge @ 248.. => u32::MAX >> (edge - 248),
            choice => all[usize::from(choice) % all.len()].to_u32(),
        }
    }

    fn text(&mut self, all: &[&str]) -> Bytes {
        match self.byte() {
            long @ 250.. => Bytes::from(vec![b'x'; usize::from(long) * 3]),
            choice => all[usize::from(choice) % all.len()].to_owned().into(),
        }
    }

    fn register(&mut self) -> Bytes {
        let nid: Nid = self.of(&NIDS).parse().expect("a NID");
        let id = self.target();
        let (port, instance) = (988 + u16::from(self.byte() % 2), u64::from(self.byte() % 4));
        let target = TargetInfo { id, nid: nid.0, port, instance };
        let fsname = self.of(&FS_NAMES).to_owned();
        // mostly one storage, so that it may register again
        let uuid = u128::from(self.byte() / 200);
        wire::config::encode(&Register { fsname, target, uuid })
    }

    fn call(&mut self) -> Call {
        let opcode = self.of(&OPCODES);
        let bufs = match opcode {
            Opcode::MgsRegister => vec![self.register()],
            Opcode::MgsConfig => vec![self.text(&FS_NAMES)],
            Opcode::MgsSetParam => {
                vec![self.text(&FS_NAMES), self.text(&PARAMS), self.text(&VALUES)]
            }
            _ => vec![encode_body(&self.byte())],
        };
        let mut call = Call::new(opcode, bufs);
        self.damage(&mut call);
        call
    }

    /// Some requests are not as a peer of ours would write them.
    fn damage(&mut self, call: &mut Call) {
        let (how, at, with) = (self.byte(), usize::from(self.byte()), self.byte());
        match how {
            0..32 => {
                let count = call.bufs.len();
                let buf = &mut call.bufs[at % count];
                let mut bytes = buf.to_vec();
                if !bytes.is_empty() {
                    let at = at % bytes.len();
                    bytes[at] ^= with;
                }
                *buf = bytes.into();
            }
            32..44 => {
                let len = call.bufs[0].len();
                call.bufs[0] = call.bufs[0].slice(..at % (len + 1));
            }
            44..52 => call.bufs.truncate(at % 3),
            52..60 => call.bufs.push(Bytes::from(vec![with; at * 7])),
            60..68 => call.bufs[0] = Bytes::from(vec![with; at * 64]),
            68..76 => call.bulk = Bulk::Source(vec![Bytes::from(vec![with; at * 64])]),
            76..84 if !call.modifies => call.bulk = Bulk::Sink(at * 64),
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

struct Peer {
    handle: NodeHandle,
    role: Role,
    endpoint: Rc<Endpoint>,
}

type Configs = BTreeMap<FsName, FsConfig>;

struct World {
    sim: Sim,
    server: NodeHandle,
    disk: MemDisk,
    mgt: Rc<Mgt>,
    peers: Vec<Peer>,
}

impl World {
    fn new() -> World {
        let sim = Sim::new(7, SimConfig::default());
        let server = sim.node("mgs", "10.0.0.1@tcp".parse().expect("a NID"));
        let disk = MemDisk::new(MemDiskConfig::default());
        let mgt = serve(&sim, &server, &disk);
        let at = NidAddr { nid: server.nid(), port: 988 };
        let peers = (1..).zip(PEERS).map(|(number, (nid, is_server))| {
            let nid: Nid = nid.parse().expect("a NID");
            let handle = sim.node(&format!("peer{number}"), nid);
            let import = endpoint::ImportConfig {
                client: ClientId(number),
                is_server,
                ..Default::default()
            };
            let config = EndpointConfig { import, ..EndpointConfig::default() };
            let endpoint = Endpoint::new(&handle.env(), config, Rc::new(At(at)));
            Peer { handle, role: Role::of_peer(nid, is_server), endpoint }
        });
        let peers = peers.collect();
        World { sim, server, disk, mgt, peers }
    }

    /// Whether it succeeded.
    fn call(&self, peer: &Peer, call: Call) -> bool {
        let (remote, opcode) = (peer.endpoint.remote(TargetId::MGT), call.opcode);
        let asked = async move { remote.call(call).await };
        let answer = self.sim.block_on_for(&peer.handle, Span::secs(300), asked);
        answer.unwrap_or_else(|| panic!("{opcode:?} is not answered")).is_ok()
    }

    fn configs(&self) -> Configs {
        let mgt = Rc::clone(&self.mgt);
        let read = self.sim.block_on(&self.server, async move { mgt.configs().await });
        read.expect("they can be read").into_iter().collect()
    }

    /// One request of the program; its operation if it succeeded.
    fn step(&self, choices: &mut Choices<'_>) -> Option<Opcode> {
        let peer = &self.peers[usize::from(choices.byte()) % self.peers.len()];
        let call = choices.call();
        let (opcode, bufs, before) = (call.opcode, call.bufs.clone(), self.configs());
        let is_done = self.call(peer, call);
        let after = self.configs();
        check_bounds(&after);
        if is_done {
            check_may(peer, opcode, &bufs, &before);
        }
        if !is_done || opcode == Opcode::MgsConfig {
            assert_eq!(before, after, "{opcode:?} by {:?}", peer.role);
        }
        check_versions(&before, &after);
        is_done.then_some(opcode)
    }

    /// What was answered is durable.
    fn restart(mut self) {
        let before = self.configs();
        self.server.kill_as(true);
        self.disk.power_cut(5);
        self.mgt = serve(&self.sim, &self.server, &self.disk);
        assert_eq!(self.configs(), before);
    }
}

fn serve(sim: &Sim, server: &NodeHandle, disk: &MemDisk) -> Rc<Mgt> {
    let (env, disk) = (server.env(), disk.clone());
    let at = NidAddr { nid: server.nid(), port: 988 };
    let task = env.clone();
    sim.block_on(server, async move {
        let meta = Rc::new(MemMeta::open(&env, &disk));
        let mgt = Mgt::start(&env, MgtConfig::default(), meta).await.expect("boots");
        let cpts = CptTable::new(NonZeroU32::MIN, NonZeroU32::MIN, 1, true).expect("one");
        let node = Node::new(&env, NodeConfig::new(cpts));
        node.add_target(mgt.clone());
        node.serve(env.listen(at).await.expect("free"));
        task.spawn("held", async move {
            let _node = node; // lives as long as the machine
            std::future::pending::<()>().await;
        });
        mgt
    })
}

fn check_bounds(configs: &Configs) {
    assert!(configs.len() <= FILE_SYSTEMS_MAX);
    for (name, config) in configs {
        assert_eq!(config.fsname, name.as_str());
        assert!(config.version > 0, "only what has something is listed");
        check_targets(config);
        assert!(config.params.len() <= PARAMS_MAX);
        for (param, value) in &config.params {
            assert!((1..=NAME_BYTES_MAX).contains(&param.len()), "{param:?}");
            assert!((1..=VALUE_BYTES_MAX).contains(&value.len()), "{param:?}");
            assert!(!param.chars().chain(value.chars()).any(char::is_control), "{param:?}");
        }
        let bytes = wire::config::encode(config);
        assert!(bytes.len() <= CONFIG_BYTES_MAX);
        assert_eq!(FsConfig::decode(&bytes).as_ref(), Some(config));
        let _pools = config.pools();
    }
}

fn check_targets(config: &FsConfig) {
    assert!((1..=TARGETS_MAX).contains(&config.targets.len()), "of {}", config.fsname);
    assert_eq!(config.targets.len(), config.uuids.len());
    assert!(config.targets.is_sorted_by(|one, next| one.id < next.id), "one record each");
    for info in &config.targets {
        let id = TargetId::from_u32(info.id).expect("a target");
        assert!(matches!(id.kind, TargetKind::Mdt | TargetKind::Ost), "{id:?}");
        let mdt = id.dom_of().unwrap_or(id);
        assert!(mdt.kind != TargetKind::Mdt || mdt.index < MDTS_MAX, "{id:?}");
    }
}

/// Known file systems stay, and a version rises exactly when something changes.
fn check_versions(before: &Configs, after: &Configs) {
    for (name, was) in before {
        let is = after.get(name).expect("none goes away");
        match was == is {
            true => assert_eq!(was.version, is.version),
            false => assert_eq!(was.version + 1, is.version),
        }
    }
}

/// A peer whose request was carried out may ask for it.
fn check_may(peer: &Peer, opcode: Opcode, bufs: &[Bytes], before: &Configs) {
    let (nid, first) = (peer.handle.nid(), bufs.first().cloned().unwrap_or_default());
    assert!(peer.role >= opcode.least_role(), "{opcode:?} by {:?}", peer.role);
    if peer.role == Role::Administrator {
        return;
    }
    match opcode {
        Opcode::MgsRegister => {
            let register: Register = wire::config::decode(&first).expect("it was understood");
            let told = Nid(register.target.nid);
            assert!(told == nid || told.addr().is_unspecified(), "{nid} registered {told}");
        }
        Opcode::MgsSetParam => {
            let text = String::from_utf8_lossy(&first).into_owned();
            let of = |name: &FsName| text.ends_with(name.as_str());
            let its = |config: &FsConfig| config.targets.iter().any(|info| info.nid == nid.0);
            let may = before.iter().any(|(name, config)| of(name) && its(config));
            assert!(may, "{nid} has no target of {text:?}");
        }
        _ => assert_eq!(opcode, Opcode::MgsConfig, "no other operation is carried out"),
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
                world.step(&mut choices);
            }
            world.restart();
        });
}

/// The generator is of use: its plain requests succeed, of each operation.
#[test]
fn some_requests_of_the_generator_succeed() {
    let world = World::new();
    let mut random = SplitMix64::new(1);
    let program: Vec<u8> = (0..6_000).map(|_| random.bits() as u8).collect();
    let mut choices = Choices(program.iter());
    let mut done = BTreeMap::<Opcode, u32>::new();
    while !choices.is_done() {
        if let Some(opcode) = world.step(&mut choices) {
            *done.entry(opcode).or_default() += 1;
        }
    }
    let all = [Opcode::MgsRegister, Opcode::MgsConfig, Opcode::MgsSetParam];
    assert!(all.iter().all(|opcode| done.get(opcode).is_some_and(|count| *count > 3)), "{done:?}");
    world.restart();
}
