//! Servers and clients that ask a simulated MGS.

// the fuzzer instruments all programs of a package: each links what instrumented code calls
use bolero as _;

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, Directory, Endpoint, EndpointConfig, Registration, Resolve};
use env::CptTable;
use env_sim::{NodeHandle, Sim, SimConfig};
use mgt::{Mgt, MgtConfig, PoolChange};
use osd::MetaStore;
use osd::mem::{MemDisk, MemDiskConfig, MemMeta};
use service::{Node, NodeConfig};
use types::{ClientId, Errno, MDTS_MAX, Nid, NidAddr, Span, TargetId, TargetKind};
use wire::Opcode;
use wire::config::{FsConfig, Register, TargetInfo};

struct World {
    sim: Sim,
    server: NodeHandle,
    client: NodeHandle,
    disk: MemDisk,
    endpoint: Rc<Endpoint>,
    mgt: RefCell<Option<Rc<Mgt>>>,
}

struct At(NidAddr);

impl Resolve for At {
    fn addrs(&self, _target: TargetId) -> Vec<NidAddr> {
        vec![self.0]
    }
}

fn endpoint(node: &NodeHandle, client: u128, at: NidAddr, is_server: bool) -> Rc<Endpoint> {
    let import =
        endpoint::ImportConfig { client: ClientId(client), is_server, ..Default::default() };
    let config = EndpointConfig { import, ..EndpointConfig::default() };
    Endpoint::new(&node.env(), config, Rc::new(At(at)))
}

fn register(target: TargetId, nid: Nid, port: u16, instance: u64) -> Vec<Bytes> {
    let target = TargetInfo { id: target.to_u32(), nid: nid.0, port, instance };
    let register = Register { fsname: "testfs".to_owned(), target, uuid: 7 };
    vec![wire::config::encode(&register)]
}

impl World {
    fn new() -> World {
        let sim = Sim::new(3, SimConfig::default());
        let server = sim.node("mgs", "10.0.0.1@tcp".parse().expect("a NID"));
        let client = sim.node("client", "10.0.0.2@tcp".parse().expect("a NID"));
        let endpoint = endpoint(&client, 1, NidAddr { nid: server.nid(), port: 988 }, true);
        let disk = MemDisk::new(MemDiskConfig::default());
        let world = World { sim, server, client, disk, endpoint, mgt: RefCell::default() };
        world.start();
        world
    }

    fn start(&self) {
        let (env, disk) = (self.server.env(), self.disk.clone());
        let at = NidAddr { nid: self.server.nid(), port: 988 };
        let served = self.sim.block_on(&self.server, async move {
            let mgt = Mgt::start(&env, MgtConfig::default(), Rc::new(MemMeta::open(&env, &disk)))
                .await
                .expect("boots");
            let cpts = CptTable::new(NonZeroU32::MIN, NonZeroU32::MIN, 1, true).expect("one");
            let node = Node::new(&env, NodeConfig::new(cpts));
            node.add_target(mgt.clone());
            node.serve(env.listen(at).await.expect("free"));
            std::mem::forget(node); // lives as long as the machine
            mgt
        });
        *self.mgt.borrow_mut() = Some(served);
    }

    /// Starts the MGS with what is on `disk`, as `serve --older-copy` or `--reset-empty` does.
    fn begin_anew(&mut self, disk: MemDisk, seconds: u32) {
        self.server.kill_as(false);
        self.disk = disk;
        let (env, disk) = (self.server.env(), self.disk.clone());
        self.sim.block_on(&self.server, async move {
            let store = MemMeta::open(&env, &disk);
            let set = {
                let view = store.running().expect("records");
                let mut set = target::above(&*view, TargetKind::Mgt, seconds).expect("of an MGT");
                mgt::begin_anew(&mut set, &*view, seconds).expect("read");
                set
            };
            store.apply(&set).expect("there is room");
            store.commit().await.expect("durable");
        });
        self.server.kill_as(false);
        self.start();
    }

    fn ask(&self, opcode: Opcode, bufs: Vec<Bytes>) -> Result<FsConfig, Errno> {
        self.ask_from(&self.client, &self.endpoint, opcode, bufs)
    }

    fn ask_from(
        &self,
        node: &NodeHandle,
        endpoint: &Rc<Endpoint>,
        opcode: Opcode,
        bufs: Vec<Bytes>,
    ) -> Result<FsConfig, Errno> {
        let remote = endpoint.remote(TargetId::MGT);
        let asked = async move {
            loop {
                // A restart ends the session, and with it what was in flight: ask again, as its
                // callers do.
                match remote.call(Call::new(opcode, bufs.clone())).await {
                    Err(endpoint::CallError::Evicted) => {}
                    other => return other.map_err(|error| error.errno()),
                }
            }
        };
        let answer = self.sim.block_on_for(node, Span::secs(300), asked).expect("is answered")?;
        Ok(wire::config::decode(&answer.reply.buf(1)).expect("a configuration"))
    }

    fn register(&self, target: TargetId, port: u16, uuid: u128) -> Result<FsConfig, Errno> {
        self.register_instance(target, port, uuid, 1)
    }

    fn register_instance(
        &self,
        target: TargetId,
        port: u16,
        uuid: u128,
        instance: u64,
    ) -> Result<FsConfig, Errno> {
        let info = TargetInfo { id: target.to_u32(), nid: self.client.nid().0, port, instance };
        let register = Register { fsname: "testfs".to_owned(), target: info, uuid };
        self.ask(Opcode::MgsRegister, vec![wire::config::encode(&register)])
    }

    fn config(&self, fsname: &'static str) -> Result<FsConfig, Errno> {
        self.ask(Opcode::MgsConfig, vec![Bytes::from_static(fsname.as_bytes())])
    }

    fn forget(&self, target: TargetId) -> Result<(), Errno> {
        let mgt = self.mgt.borrow().clone().expect("is served");
        let fsname = "testfs".parse().expect("a name");
        self.sim.block_on(&self.server, async move { mgt.forget(fsname, target).await })
    }

    fn set(&self, name: &'static str, value: &'static str) -> Result<FsConfig, Errno> {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        self.ask(Opcode::MgsSetParam, vec![text("testfs"), text(name), text(value)])
    }
}

#[test]
fn targets_register_are_found_and_outlive_the_power() {
    let world = World::new();
    assert_eq!(world.config("testfs"), Err(Errno::ENOENT));
    world.register(TargetId::ost(1), 1, 11).expect("registers");
    world.register(TargetId::mdt(0), 2, 12).expect("registers");
    let before = world.register(TargetId::ost(0), 3, 13).expect("registers");
    let ports: Vec<_> = before.targets.iter().map(|target| target.port).collect();
    assert_eq!(ports, [2, 3, 1], "MDTs first, by index");
    world.server.kill_as(true);
    world.disk.power_cut(5);
    world.start();
    assert_eq!(world.config("testfs"), Ok(before));
    assert_eq!(world.config("other"), Err(Errno::ENOENT));
}

#[test]
fn a_target_may_move_but_not_be_replaced_by_another_storage() {
    let world = World::new();
    let first = world.register(TargetId::ost(1), 1, 11).expect("registers");
    assert_eq!(
        world.register(TargetId::ost(1), 1, 11).expect("again").version,
        first.version,
        "nothing new"
    );
    let moved = world.register(TargetId::ost(1), 9, 11).expect("moves");
    assert_eq!((moved.version, moved.targets[0].port), (first.version + 1, 9));
    assert_eq!(world.register(TargetId::ost(1), 1, 12), Err(Errno::EADDRINUSE));
    assert_eq!(world.config("testfs"), Ok(moved));
    for none in [TargetId::MGT, TargetId::LST] {
        assert_eq!(world.register(none, 1, 1), Err(Errno::EINVAL));
    }
}

#[test]
fn an_instance_that_goes_back_is_refused() {
    let world = World::new();
    let ost = TargetId::ost(1);
    let known = world.register_instance(ost, 1, 11, 5).expect("registers");
    assert_eq!(world.register_instance(ost, 1, 11, 4), Err(Errno::ESTALE));
    assert_eq!(world.config("testfs"), Ok(known));
    world.register_instance(ost, 1, 11, 5).expect("asks again");
    let next = world.register_instance(ost, 2, 11, 6).expect("the next start");
    assert_eq!((next.targets[0].instance, next.targets[0].port), (6, 2));
}

#[test]
fn parameters_are_set_taken_back_and_checked() {
    let world = World::new();
    assert_eq!(
        world.set("llite.statahead_max", "64"),
        Err(Errno::ENOENT),
        "no such file system yet"
    );
    let first = world.register(TargetId::mdt(0), 1, 1).expect("registers");
    let set = world.set("llite.statahead_max", "64").expect("sets");
    assert_eq!((set.version, set.params.len()), (first.version + 1, 1));
    assert_eq!(world.set("llite.statahead_max", "64").expect("again").version, set.version);
    assert_eq!(world.set("llite.statahead_max", "").expect("takes back").params, []);
    for (name, value) in [("", "1"), ("a\nb", "1"), ("a", "b\0")] {
        assert_eq!(world.set(name, value), Err(Errno::EINVAL));
    }
    assert_eq!(world.config("bad/name"), Err(Errno::EINVAL));
}

#[test]
fn there_are_as_many_mdts_as_a_directory_may_have_shards() {
    let world = World::new();
    for target in [TargetId::mdt(MDTS_MAX), TargetId::dom(MDTS_MAX)] {
        assert_eq!(world.register(target, 2, 12), Err(Errno::EOPNOTSUPP));
    }
    assert_eq!(world.config("testfs"), Err(Errno::ENOENT), "nothing is known of it");
    for (uuid, mdt) in [(12, 0), (13, 1), (14, MDTS_MAX - 1)] {
        world.register(TargetId::mdt(mdt), 2, uuid).expect("registers");
        world.register(TargetId::dom(mdt), 2, uuid ^ 0x100).expect("registers");
    }
    assert_eq!(world.config("testfs").expect("known").targets.len(), 6);
}

/// Every server that is admitted may name one, and all are kept for ever.
#[test]
fn an_mgs_has_no_more_file_systems_than_it_may() {
    let world = World::new();
    let register = |fsname: &str, target: TargetId| {
        let (id, nid) = (target.to_u32(), world.client.nid().0);
        let target = TargetInfo { id, nid, port: 988, instance: 1 };
        let register = Register { fsname: fsname.to_owned(), target, uuid: u128::from(id) + 1 };
        world.ask(Opcode::MgsRegister, vec![wire::config::encode(&register)])
    };
    let mdt = TargetId::mdt(0);
    let made = (0..1_000).take_while(|number| register(&format!("fs{number}"), mdt).is_ok());
    assert_eq!(made.count(), 64);
    assert_eq!(register("another", mdt), Err(Errno::E2BIG));
    assert_eq!(world.config("another"), Err(Errno::ENOENT), "nothing is kept of it");
    register("fs7", mdt).expect("it is known");
    register("fs7", TargetId::ost(0)).expect("a further target of one that is known");
}

#[test]
fn a_forgotten_ost_is_out_of_use_and_its_index_is_free() {
    let world = World::new();
    world.register(TargetId::mdt(0), 2, 12).expect("registers");
    world.register(TargetId::ost(3), 3, 13).expect("registers");
    assert_eq!(world.forget(TargetId::mdt(0)), Err(Errno::EPERM));
    assert_eq!(world.forget(TargetId::MGT), Err(Errno::EPERM));
    assert_eq!(world.forget(TargetId::ost(2)), Err(Errno::ENOENT));
    let before = world.config("testfs").expect("known");
    world.forget(TargetId::ost(3)).expect("forgets");
    world.server.kill_as(true);
    world.start();
    let after = world.config("testfs").expect("known");
    let fsname = "testfs".parse().expect("a name");
    assert_eq!(after.targets.iter().map(|target| target.port).collect::<Vec<_>>(), [2]);
    assert_eq!(after.inactive_osts(fsname), [TargetId::ost(3)]);
    assert!(after.is_inactive(TargetId::ost(3), fsname) && after.version > before.version);
    world.register(TargetId::ost(3), 3, 14).expect("another storage may be OST0003");
}

#[test]
fn a_forgotten_mdt_is_out_of_use_and_its_index_stays_taken() {
    let world = World::new();
    for (uuid, mdt) in [(12, 0), (13, 1)] {
        world.register(TargetId::mdt(mdt), 2, uuid).expect("registers");
        world.register(TargetId::dom(mdt), 2, uuid ^ 0x100).expect("registers");
    }
    assert_eq!(world.forget(TargetId::mdt(2)), Err(Errno::ENOENT));
    assert_eq!(world.forget(TargetId::dom(1)), Err(Errno::EPERM), "it goes with its MDT");
    world.forget(TargetId::mdt(1)).expect("forgets");
    world.server.kill_as(true);
    world.start();
    let after = world.config("testfs").expect("known");
    let left: Vec<u32> = after.targets.iter().map(|target| target.id).collect();
    assert_eq!(left, [TargetId::mdt(0), TargetId::dom(0)].map(TargetId::to_u32));
    let fsname = "testfs".parse().expect("a name");
    let off = [0, 1].map(|mdt| after.is_inactive(TargetId::mdt(mdt), fsname));
    assert_eq!((off, after.inactive_osts(fsname)), ([false, true], vec![]));
    assert_eq!(after.inactive_mdts(fsname), [TargetId::mdt(1)]);
    for target in [TargetId::mdt(1), TargetId::dom(1)] {
        assert_eq!(world.register(target, 3, 14), Err(Errno::EADDRINUSE));
        assert_eq!(world.register(target, 2, 13), Err(Errno::EADDRINUSE), "not even its own");
    }
    world.register(TargetId::mdt(2), 3, 15).expect("another index is free");
}

#[test]
fn a_forgotten_ost_leaves_its_pools() {
    let world = World::new();
    for index in 0..3 {
        world.register(TargetId::ost(index), 3, 13 + u128::from(index)).expect("registers");
    }
    let members = |pool: &str| world.config("testfs").expect("known").pools().remove(pool);
    let change = |pool: &'static str, change: PoolChange| {
        let mgt = world.mgt.borrow().clone().expect("is served");
        let fsname = "testfs".parse().expect("a name");
        let done = async move { mgt.pool(fsname, pool, change).await };
        world.sim.block_on(&world.server, done).expect(pool);
    };
    for (pool, osts) in [("both", vec![0, 1]), ("one", vec![1]), ("other", vec![2])] {
        change(pool, PoolChange::New);
        osts.into_iter().for_each(|ost| change(pool, PoolChange::Add(ost)));
    }
    world.forget(TargetId::ost(1)).expect("forgets");
    assert_eq!(members("both"), Some(vec![0]));
    assert_eq!((members("one"), members("other")), (Some(vec![]), Some(vec![2])));
    change("one", PoolChange::Destroy);
    world.register(TargetId::ost(1), 3, 99).expect("another storage takes the index");
    assert_eq!(members("both"), Some(vec![0]), "and is in no pool");
}

#[test]
fn clients_neither_register_nor_set_parameters() {
    let world = World::new();
    world.register(TargetId::ost(0), 988, 7).expect("a server");
    let at = NidAddr { nid: world.server.nid(), port: 988 };
    let client = endpoint(&world.client, 2, at, false);
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let set = vec![text("testfs"), text("testfs-OST0000.osc.active"), text("0")];
    let moved = register(TargetId::ost(0), world.client.nid(), 988, 9);
    for (opcode, bufs) in [(Opcode::MgsSetParam, set), (Opcode::MgsRegister, moved)] {
        let answer = world.ask_from(&world.client, &client, opcode, bufs);
        assert_eq!(answer.err(), Some(Errno::EPERM), "{opcode:?}");
    }
    let config = world.config("testfs").expect("known");
    assert!(config.params.is_empty() && config.targets[0].port == 988);
}

/// Who says that it is a server speaks for its own address alone, and sets parameters only where
/// one of its targets is known.
#[test]
fn a_server_speaks_for_itself_alone() {
    let world = World::new();
    world.register(TargetId::ost(0), 988, 7).expect("a server");
    let at = NidAddr { nid: world.server.nid(), port: 988 };
    let stranger = world.sim.node("stranger", "10.0.0.9@tcp".parse().expect("a NID"));
    let says_so = endpoint(&stranger, 9, at, true);
    let ask = |opcode, bufs| world.ask_from(&stranger, &says_so, opcode, bufs).err();
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let set = || vec![text("testfs"), text("testfs-OST0000.osc.active"), text("0")];
    let elsewhere = register(TargetId::ost(5), world.client.nid(), 988, 1);
    assert_eq!(ask(Opcode::MgsRegister, elsewhere), Some(Errno::EPERM));
    assert_eq!(ask(Opcode::MgsSetParam, set()), Some(Errno::EPERM));
    let own = register(TargetId::ost(5), stranger.nid(), 988, 1);
    assert_eq!(ask(Opcode::MgsRegister, own), None);
    assert_eq!(ask(Opcode::MgsSetParam, set()), None);
}

#[test]
fn a_target_does_not_move_while_its_server_is_there() {
    let world = World::new();
    let ost = TargetId::ost(0);
    let at = NidAddr { nid: world.server.nid(), port: 988 };
    let own = register(ost, world.client.nid(), 988, 1);
    world.ask(Opcode::MgsRegister, own).expect("at its own address");
    let elsewhere = world.sim.node("elsewhere", "10.0.0.3@tcp".parse().expect("a NID"));
    let thief = endpoint(&elsewhere, 3, at, true);
    let moved = || register(ost, elsewhere.nid(), 988, 2);
    let ask = || world.ask_from(&elsewhere, &thief, Opcode::MgsRegister, moved());
    assert_eq!(ask().err(), Some(Errno::EBUSY));
    let leaving = world.endpoint.clone();
    world.sim.block_on(&world.client, async move { leaving.shutdown().await });
    let config = ask().expect("it has left");
    assert_eq!(config.targets[0].nid, elsewhere.nid().0);
}

/// Its records are lost: targets register again, mounts take what it says for news, and neither
/// forgets meanwhile who was known.
#[test]
fn an_mgs_without_its_records_is_told_again() {
    let mut world = World::new();
    let targets = [(TargetId::mdt(0), 11), (TargetId::ost(0), 12), (TargetId::ost(1), 13)];
    let mut registrations = Vec::new();
    let mount = Directory::new(Vec::new());
    for (target, uuid) in targets {
        let info =
            TargetInfo { id: target.to_u32(), nid: world.client.nid().0, port: 988, instance: 4 };
        let register = Register { fsname: "testfs".to_owned(), target: info, uuid };
        let answer = world.ask(Opcode::MgsRegister, vec![wire::config::encode(&register)]);
        let answer = answer.expect("registers");
        registrations.push(Registration::new(register, answer.version));
        mount.update(answer).expect("of this file system");
    }
    world.forget(TargetId::ost(1)).expect("forgets");
    let before = world.config("testfs").expect("known");
    registrations.iter_mut().for_each(|one| one.hear(Some(&before)));
    assert!(!registrations.iter().any(Registration::is_lost), "one was forgotten");
    assert_eq!(mount.update(before.clone()), Ok(true));

    world.begin_anew(MemDisk::new(MemDiskConfig::default()), 1_000);
    assert_eq!(world.config("testfs"), Err(Errno::ENOENT));
    registrations.iter_mut().for_each(|one| one.hear(None));
    let lost: Vec<_> = registrations.iter().map(Registration::is_lost).collect();
    assert_eq!(lost, [true, true, false], "who was forgotten stays away");
    for registration in registrations.iter_mut().filter(|one| one.is_lost()) {
        let bytes = wire::config::encode(registration.register());
        let answer = world.ask(Opcode::MgsRegister, vec![bytes]).expect("takes it again");
        registration.repeated(answer.version);
        assert_eq!(mount.update(answer), Ok(true), "it is news to a mount");
        assert_eq!(mount.config().targets, before.targets);
    }
    let after = world.config("testfs").expect("known");
    assert_eq!((&after.targets, &after.uuids), (&before.targets, &before.uuids));
    assert!(after.generation() > before.generation());
}

/// As one that is restored and said to be an older copy: what was added since comes back, and its
/// versions are above all that it gave away before.
#[test]
fn an_older_copy_of_an_mgs_goes_on_above_what_was_seen() {
    let mut world = World::new();
    let first = world.register(TargetId::ost(0), 1, 11).expect("registers");
    world.begin_anew(world.disk.clone(), 1_000);
    let copy = world.config("testfs").expect("known");
    assert!(copy.version > first.version && copy.targets == first.targets);
    let next = world.set("llite.statahead_max", "64").expect("sets");
    assert_eq!(next.version, copy.version + 1);
    let other = world.register(TargetId::mdt(0), 2, 12).expect("registers");
    assert_eq!(other.version, copy.version + 2);
    world.begin_anew(world.disk.clone(), 1_000);
    let again = world.config("testfs").expect("known");
    assert!(again.generation() > other.generation(), "also within one second");
}
