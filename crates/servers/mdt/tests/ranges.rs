//! An MDT and real OSTs through crashes and power cuts. Some objects belong to creates that were
//! lost with their client, others do not. Files change while the sweep runs, and clients continue
//! after the MDT has given them up.

#[path = "ranges/room.rs"]
mod room;
#[path = "ranges/som.rs"]
mod som;

use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, Endpoint, EndpointConfig, Keep, Resolve};
use env::{CptTable, Env};
use env_sim::{Cut, NodeHandle, Sim, SimConfig};
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Layout, Striping, Template};
use mdt::{Bugs, Mdt, MdtConfig};
use osd::mem::{MemDisk, MemMeta, MemObjects};
use osd::{MetaStore, Table};
use ost::{Ost, OstConfig};
use service::{Node, NodeConfig, Target};
use types::{ClientId, Errno, Fid, Instance, NidAddr, Span, TargetId, TargetKind};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{
    AttrRep, CreateFlags, CreateReq, LayoutReq, LockFlags, LockRep, LockReq, OpenReq,
    OstFallocateReq, OstIoReq, OstPunchReq, UnlinkReq, lock,
};
use wire::{Opcode, encode_body};

const OSTS: u32 = 2;

struct Where;

impl Resolve for Where {
    fn addrs(&self, target: TargetId) -> Vec<NidAddr> {
        vec![addr(target)]
    }
}

fn addr(target: TargetId) -> NidAddr {
    let host = match target.kind {
        TargetKind::Ost if target.is_dom() => 2 + OSTS,
        TargetKind::Ost => 2 + target.index,
        TargetKind::Mgt | TargetKind::Mdt | TargetKind::Lst => 1,
    };
    format!("10.0.0.{host}@tcp").parse().expect("a NID")
}

fn endpoint(env: &Env, client: u128, is_server: bool) -> Rc<Endpoint> {
    let config = EndpointConfig {
        import: endpoint::ImportConfig {
            client: ClientId(client),
            name: format!("c{client}"),
            is_server,
            ..Default::default()
        },
        ..EndpointConfig::default()
    };
    Endpoint::new(env, config, Rc::new(Where))
}

struct Server {
    target: TargetId,
    node: NodeHandle,
    disk: MemDisk,
}

struct World {
    sim: Sim,
    servers: Vec<Server>,
    clients: Vec<(NodeHandle, Rc<Endpoint>)>,
    bugs: Bugs,
    /// Of each file; all OSTs where it is -1.
    stripe_count: i32,
    /// The last server is the data target of the MDT.
    has_data: bool,
}

impl World {
    fn new(seed: u64, bugs: Bugs) -> World {
        World::on(Sim::new(seed, SimConfig::default()), bugs, -1)
    }

    fn on(sim: Sim, bugs: Bugs, stripe_count: i32) -> World {
        World::of(sim, bugs, stripe_count, false)
    }

    /// One with a data target, on a machine of its own.
    fn with_data(seed: u64) -> World {
        World::of(Sim::new(seed, SimConfig::default()), Bugs::default(), 1, true)
    }

    fn of(sim: Sim, bugs: Bugs, stripe_count: i32, has_data: bool) -> World {
        let data = has_data.then(|| TargetId::dom(0));
        let targets = [TargetId::mdt(0)].into_iter().chain((0..OSTS).map(TargetId::ost));
        let targets = targets.chain(data);
        let server = |target: TargetId| Server {
            target,
            node: sim.node(&target.to_string(), addr(target).nid),
            disk: MemDisk::default(),
        };
        let servers: Vec<_> = targets.map(server).collect();
        let clients = (0..3u32)
            .map(|n| {
                let node =
                    sim.node(&format!("c{n}"), format!("10.0.1.{n}@tcp").parse().expect("a NID"));
                let endpoint = endpoint(&node.env(), u128::from(n) + 1, false);
                (node, endpoint)
            })
            .collect();
        let world = World { sim, servers, clients, bugs, stripe_count, has_data };
        (0..world.servers.len()).for_each(|at| world.boot(at));
        world
    }

    /// Server 0 is the MDT, the others are OSTs and its data target.
    fn boot(&self, at: usize) {
        let Server { target, node, disk } = &self.servers[at];
        let (env, disk, target, bugs) = (node.env(), disk.clone(), *target, self.bugs);
        let (stripe_count, has_data) = (self.stripe_count, self.has_data);
        node.env().spawn("server", async move {
            let one = NonZeroU32::MIN;
            let service =
                Node::new(&env, NodeConfig::new(CptTable::new(one, one, 1, true).expect("one")));
            let (meta, fsname) =
                (Rc::new(MemMeta::open(&env, &disk)), "testfs".parse().expect("a name"));
            let running: Rc<dyn Target> = if target.kind == TargetKind::Ost {
                let objects = Rc::new(MemObjects::open(&env, &disk));
                Ost::start(&env, OstConfig::new(fsname, target.index), meta, objects)
                    .await
                    .expect("boots")
            } else {
                let mut config = MdtConfig::new(fsname, 0);
                (config.bugs, config.lod.stripe_count) = (bugs, stripe_count);
                config.has_data = has_data;
                let osts = Some(endpoint(&env, 99, true));
                Mdt::start(
                    &env,
                    config,
                    meta,
                    osts,
                    Rc::new(|| (0..OSTS).map(mdt::OstAt::from).collect()),
                )
                .await
                .expect("boots")
            };
            service.add_target(running);
            service.serve(env.listen(addr(target)).await.expect("a free address"));
            std::future::pending::<()>().await;
        });
    }

    fn cut_power(&self, seed: u64) {
        for server in &self.servers {
            server.node.kill_as(true);
            server.disk.power_cut(seed);
        }
    }

    fn ask(&self, client: usize, target: TargetId, call: Call) -> Result<wire::Reply, Errno> {
        let (node, endpoint) = &self.clients[client];
        let remote = endpoint.remote(target);
        let answer =
            self.sim.block_on_for(node, Span::secs(300), async move { remote.call(call).await });
        let answer = answer.expect("answered in time");
        answer.map(|answer| *answer.reply).map_err(|error| error.errno())
    }

    fn call(&self, client: usize, target: TargetId, call: Call) -> wire::Reply {
        self.ask(client, target, call).expect("no error")
    }

    /// Creates a file on all OSTs and opens it; returns its FID and layout.
    fn create(&self, client: usize, name: &str) -> (Fid, Layout) {
        self.create_as(client, name, CreateFlags::OPEN)
    }

    fn create_as(&self, client: usize, name: &str, flags: CreateFlags) -> (Fid, Layout) {
        let mut call = creating(Fid::ROOT, name, S_IFREG | 0o644, flags);
        call.keep = if flags.contains(CreateFlags::OPEN) { Keep::Open } else { Keep::No };
        let reply = self.call(client, TargetId::mdt(0), call);
        let layout = Layout::decode(&reply.buf(1)).expect("a file on OSTs has a layout");
        (reply.body::<AttrRep>().attr.fid(), layout)
    }

    /// Four bytes of one object of the file: written, or read where there is nothing to write.
    fn use_object(
        &self,
        client: usize,
        (fid, layout): &(Fid, Layout),
        stripe: u32,
        data: Option<&'static [u8]>,
    ) -> Result<Bytes, Errno> {
        let (object, ost) = layout.object(stripe);
        self.use_bytes(client, (*fid, object), TargetId::ost(ost.0), data)
    }

    /// The same of an object of a file.
    fn use_bytes(
        &self,
        client: usize,
        (file, object): (Fid, Fid),
        on: TargetId,
        data: Option<&'static [u8]>,
    ) -> Result<Bytes, Errno> {
        let claim = self.clients[client].1.remote(TargetId::mdt(0)).claim();
        let (object, parent) = (object.into(), file.into());
        let body = OstIoReq { object, parent, length: 4, claim, ..OstIoReq::default() };
        let mut bufs = vec![encode_body(&body)];
        bufs.extend(data.map(Bytes::from_static));
        let opcode = if data.is_some() { Opcode::OstWrite } else { Opcode::OstRead };
        self.ask(client, on, Call::new(opcode, bufs)).map(|reply| reply.buf(1))
    }

    /// Creates a file on all OSTs and writes both its objects; returns its object base.
    fn make(&self, client: usize, name: &str) -> Fid {
        self.make_as(client, name, CreateFlags::OPEN)
    }

    fn make_as(&self, client: usize, name: &str, flags: CreateFlags) -> Fid {
        let file = self.create_as(client, name, flags);
        for stripe in 0..OSTS {
            self.use_object(client, &file, stripe, Some(b"data")).expect("writes");
        }
        file.1.base
    }

    /// Ids with objects that are durable on any OST, with the number of objects.
    fn objects(&self) -> Vec<(u32, usize)> {
        let mut found = std::collections::BTreeMap::new();
        self.servers
            .iter()
            .flat_map(|server| server.disk.objects())
            .for_each(|object| *found.entry(object.oid).or_default() += 1);
        found.into_iter().collect()
    }

    fn is_pending(&self) -> bool {
        self.servers[0].disk.records(Table::Meta).iter().any(|(key, _)| key.starts_with(b"burnt_"))
    }

    /// Files whose names are durable and whose objects are not there.
    fn robbed(&self) -> Vec<u32> {
        let (whole, layouts) = (self.objects(), self.servers[0].disk.records(Table::Layouts));
        let bases =
            layouts.iter().map(|(_, value)| Layout::decode(value).expect("a file's").base.oid);
        bases.filter(|oid| !whole.contains(&(*oid, OSTS as usize))).collect()
    }
}

fn creating(parent: Fid, name: &str, mode: u32, flags: CreateFlags) -> Call {
    let parent = parent.into();
    let body = CreateReq { parent, mode, open_flags: 1, flags, ..CreateReq::default() };
    let name = Bytes::copy_from_slice(name.as_bytes());
    let mut call = Call::new(Opcode::MdtCreate, vec![encode_body(&body), name]);
    call.modifies = true;
    call
}

fn unlinking(name: &str) -> Call {
    let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    let name = Bytes::copy_from_slice(name.as_bytes());
    let mut call = Call::new(Opcode::MdtUnlink, vec![encode_body(&body), name]);
    call.modifies = true;
    call
}

fn both(bases: &[Fid]) -> Vec<(u32, usize)> {
    bases.iter().map(|base| (base.oid, OSTS as usize)).collect()
}

/// A file is durable; then one client, which lives, and another one, which dies with the MDT, make
/// one each. The OSTs have everything.
fn crash_that_loses_a_create(seed: u64, bugs: Bugs) -> (World, [Fid; 3]) {
    let world = World::new(seed, bugs);
    let durable = world.make(0, "durable");
    world.make(1, "warm");
    world.sim.run_for(Span::secs(3));
    let lost = world.make(0, "lost");
    let replayed = world.make(1, "replayed");
    world.servers[0].node.kill_as(false);
    world.clients[0].0.kill_as(false);
    world.sim.run_for(Span::secs(3));
    (world, [durable, lost, replayed])
}

#[test]
fn only_objects_of_lost_creates_are_destroyed() {
    for seed in 0..10 {
        let (world, [durable, lost, replayed]) = crash_that_loses_a_create(seed, Bugs::default());
        let warm = Fid { oid: durable.oid + 1, ..durable };
        assert_eq!(
            world.objects(),
            both(&[durable, warm, lost, replayed]),
            "the OSTs have what the MDT lost"
        );
        world.boot(0);
        world.sim.run_for(Span::secs(1));
        assert!(world.is_pending() && world.objects().len() == 4, "its client may still come back");
        let fresh = world.make(1, "fresh");
        world.sim.run_for(Span::secs(10));
        assert_eq!(world.objects(), both(&[durable, warm, replayed, fresh]), "seed {seed}");
        assert!(!world.is_pending());
    }
}

#[test]
fn without_the_sweep_objects_leak() {
    let (world, [_, lost, _]) = crash_that_loses_a_create(1, Bugs::plant("mdt.skip_range_sweep"));
    world.boot(0);
    world.sim.run_for(Span::secs(100));
    assert!(world.objects().contains(&both(&[lost])[0]), "the planted bug shows");
}

#[test]
fn the_next_start_resumes_an_unconfirmed_sweep() {
    let (world, [durable, lost, replayed]) = crash_that_loses_a_create(3, Bugs::default());
    let warm = Fid { oid: durable.oid + 1, ..durable };
    world.servers[2].node.kill_as(false);
    for _ in 0..3 {
        world.boot(0);
        world.sim.run_for(Span::secs(60));
        assert!(world.is_pending());
        assert!(
            world.objects().contains(&(lost.oid, 1)),
            "one that is away does not hold up the other"
        );
        world.servers[0].node.kill_as(false);
    }
    world.boot(0);
    world.boot(2);
    let fresh = world.make(1, "fresh");
    world.sim.run_for(Span::secs(60));
    assert_eq!(world.objects(), both(&[durable, warm, replayed, fresh]));
    assert!(!world.is_pending());
}

#[test]
fn after_a_power_cut_every_object_has_its_file() {
    let mut lost = 0;
    for seed in 0..60 {
        let world = World::new(seed, Bugs::default());
        let durable = world.make(0, "durable");
        world.sim.run_for(Span::secs(3));
        for (client, name) in [(0, "a"), (1, "b"), (0, "c")] {
            world.make(client, name);
            world.sim.run_for(Span::millis(seed * 17 % 600));
        }
        world.clients[..2].iter().for_each(|(node, _)| node.kill_as(true));
        world.cut_power(seed);
        (0..world.servers.len()).for_each(|at| world.boot(at));
        let fresh = world.make(2, "fresh");
        world.sim.run_for(Span::secs(200));
        let layouts = world.servers[0].disk.records(Table::Layouts);
        let held: Vec<u32> = layouts
            .iter()
            .map(|(_, value)| Layout::decode(value).expect("a file's").base.oid)
            .collect();
        lost += 5 - held.len();
        let objects = world.objects();
        assert!(
            objects.iter().all(|(oid, _)| held.contains(oid)),
            "seed {seed}: {objects:?} of {held:?}"
        );
        assert!(both(&[durable, fresh]).iter().all(|of| objects.contains(of)), "seed {seed}");
        assert!(!world.is_pending());
    }
    assert!(lost > 0, "some creates were lost");
}

impl World {
    /// Makes a file without a layout, in a directory whose files begin at the MDT.
    fn make_unplaced(&self, client: usize) -> Fid {
        let at_mdt = TemplateComponent { end: 64 << 10, wanted: Wanted::Mdt };
        let rest = Wanted::Striped(Template { stripe_count: 1, ..Template::default() });
        let rest = TemplateComponent { end: END_OF_FILE, wanted: rest };
        let default = Asked::Composite(CompositeTemplate { components: vec![at_mdt, rest] });
        let mut dir = creating(Fid::ROOT, "dir", S_IFDIR | 0o755, CreateFlags::empty());
        dir.bufs.extend([Bytes::new(), default.encode().into()]);
        let made = |call| {
            let reply = self.call(client, TargetId::mdt(0), call);
            reply.body::<AttrRep>().attr.fid()
        };
        let dir = made(dir);
        made(creating(dir, "late", S_IFREG | 0o644, CreateFlags::NO_LAYOUT))
    }

    /// Gives the file its layout and writes its first bytes; returns their object.
    fn place(&self, client: usize, fid: Fid) -> Fid {
        let body = LayoutReq { fid: fid.into(), behind: 4, ..LayoutReq::default() };
        let mut call = Call::new(Opcode::MdtLayout, vec![encode_body(&body)]);
        call.modifies = true;
        let reply = self.call(client, TargetId::mdt(0), call);
        let Ok(Striping::Layout(layout)) = Striping::decode(fid, &reply.buf(1)) else {
            panic!("it has a layout now")
        };
        let object = layout.mdt_object().expect("it begins at the MDT");
        self.use_bytes(client, (fid, object), TargetId::dom(0), Some(b"data")).expect("writes");
        object
    }
}

#[test]
fn a_file_that_gets_its_layout_during_the_sweep_keeps_its_bytes() {
    let world = World::with_data(17);
    let fid = world.make_unplaced(0);
    world.sim.run_for(Span::secs(3)); // durable
    let [mdt, data] = [0, 1 + OSTS as usize].map(|at| &world.servers[at].node);
    mdt.kill_as(false);
    world.sim.partition(mdt, data, Cut::BothWays);
    world.boot(0);
    world.sim.run_for(Span::secs(30));
    assert!(world.is_pending(), "the layouts were read, and the data target is away");
    let object = world.place(0, fid);
    world.sim.heal_all();
    assert!(world.sim.run_until(Span::secs(100), || !world.is_pending()));
    let read = world.use_bytes(0, (fid, object), TargetId::dom(0), None);
    assert_eq!(read.map(|read| read.to_vec()), Ok(b"data".to_vec()));
}

#[test]
fn no_object_is_swept_before_the_removal_of_its_file_is_durable() {
    for seed in 0..3 {
        let world = World::new(seed, Bugs::default());
        let names: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
        for name in &names {
            world.make_as(0, name, CreateFlags::empty());
        }
        world.sim.run_for(Span::secs(3)); // durable
        world.servers[0].node.kill_as(false);
        world.boot(0);
        world.call(0, TargetId::mdt(0), unlinking(&names[0])); // the recovery is over
        world.servers[0].disk.set_slow(Span::secs(4));
        assert!(world.is_pending(), "the sweep is to come");
        let (node, endpoint) = &world.clients[0];
        let (env, remote) = (node.env(), endpoint.remote(TargetId::mdt(0)));
        node.env().spawn("unlinks", async move {
            for name in &names[1..] {
                remote.call(unlinking(name)).await.expect("removed");
                env.sleep(Span::millis(100)).await;
            }
        });
        for _ in 0..1_200 {
            world.sim.run_for(Span::millis(50));
            let robbed = world.robbed();
            assert!(robbed.is_empty(), "seed {seed}: a crash brings back files of {robbed:?}");
        }
        assert_eq!((world.objects(), world.is_pending()), (vec![], false));
    }
}

#[test]
fn an_mdt_whose_store_was_made_anew_shows_no_old_bytes() {
    let config = SimConfig { fail_on_error: false, ..SimConfig::default() };
    let mut world = World::on(Sim::new(5, config), Bugs::default(), -1);
    let old = world.make(0, "old");
    world.sim.run_for(Span::secs(3));
    world.servers[0].node.kill_as(false);
    world.clients[0].0.kill_as(false);
    world.servers[0].disk = MemDisk::default();
    world.boot(0);
    let file = world.create(2, "new");
    assert_eq!(file.1.base, old, "ids begin anew");
    for stripe in 0..OSTS {
        assert_eq!(world.use_object(2, &file, stripe, None), Err(Errno::EIO));
        assert_eq!(world.use_object(2, &file, stripe, Some(b"more")), Err(Errno::EIO));
    }
    world.sim.run_for(Span::secs(10));
    assert_eq!(world.objects(), both(&[old]), "they may still be wanted");
}

impl World {
    /// Asks for the file's own lock; says whether it is held now.
    fn lock(&self, client: usize, fid: Fid) -> bool {
        let body = LockReq {
            fid: fid.into(),
            kind: lock::FILE,
            mode: lock::EXCLUSIVE,
            end: u64::MAX,
            owner: 1,
            cookie: 1,
            flags: LockFlags::WAIT,
            wait_ms: 4_000,
            ..LockReq::default()
        };
        let call = Call::new(Opcode::MdtLock, vec![encode_body(&body)]);
        self.call(client, TargetId::mdt(0), call).body::<LockRep>().state == lock::GRANTED
    }

    /// Asks again and again; how long it took, none where it was not granted.
    fn lock_within(&self, client: usize, fid: Fid, most: Span) -> Option<Span> {
        let start = self.sim.now();
        while self.sim.now() - start < most {
            if self.lock(client, fid) {
                return Some(self.sim.now() - start);
            }
        }
        None
    }

    /// Client 0 has the file's lock and loses its MDT, not its OSTs. Client 1 has the file open.
    fn holder_is_cut_off(&self) -> (Fid, Layout) {
        let file = self.create(0, "a");
        self.use_object(0, &file, 0, Some(b"AAAA")).expect("writes");
        assert!(self.lock(0, file.0));
        let body = OpenReq { fid: file.0.into(), open_flags: 1, ..OpenReq::default() };
        let mut open = Call::new(Opcode::MdtOpen, vec![encode_body(&body)]);
        open.keep = Keep::Open;
        self.call(1, TargetId::mdt(0), open);
        self.sim.partition(&self.clients[0].0, &self.servers[0].node, Cut::BothWays);
        file
    }

    /// What each change by client 0 comes to, under the session that it knows.
    fn late_changes(&self, (fid, layout): &(Fid, Layout)) -> Vec<Result<(), Errno>> {
        let claim = self.clients[0].1.remote(TargetId::mdt(0)).claim();
        let (object, ost) = layout.object(0);
        let (object, parent) = (object.into(), (*fid).into());
        let write = OstIoReq { object, parent, length: 4, claim, ..OstIoReq::default() };
        let punch = OstPunchReq { object, parent, size: 1, claim, ..OstPunchReq::default() };
        let zero =
            OstFallocateReq { object, parent, length: 2, claim, mode: 16, ..Default::default() };
        let calls = [
            Call::new(Opcode::OstFallocate, vec![encode_body(&zero)]),
            Call::new(Opcode::OstPunch, vec![encode_body(&punch)]),
            Call::new(Opcode::OstWrite, vec![encode_body(&write), Bytes::from_static(b"late")]),
        ];
        let late = |call| self.ask(0, TargetId::ost(ost.0), call).map(drop);
        calls.into_iter().map(late).collect()
    }
}

/// Longest that the lock of a lapsed client may take: its lease, and some.
const LAPSES_WITHIN: Span = Span::secs(300);

#[test]
fn late_changes_of_an_evicted_holder_are_refused() {
    for (bug, refused) in [(Bugs::default(), true), (Bugs::plant("mdt.skip_fence"), false)] {
        let world = World::new(11, bug);
        let file = world.holder_is_cut_off();
        world.lock_within(1, file.0, LAPSES_WITHIN).expect("it lapses");
        world.use_object(1, &file, 0, Some(b"BBBB")).expect("the next holder writes");
        let late = world.late_changes(&file);
        if refused {
            assert_eq!(late, [Err(Errno::EKEYREVOKED); 3]);
            assert_eq!(world.use_object(1, &file, 0, None).expect("reads")[..], b"BBBB"[..]);
        } else {
            assert_eq!(late, [Ok(()); 3], "the planted bug shows");
        }
    }
}

#[test]
fn a_fence_outlives_the_ost_and_goes_with_its_client() {
    let world = World::new(12, Bugs::default());
    let file = world.holder_is_cut_off();
    world.lock_within(1, file.0, LAPSES_WITHIN).expect("it lapses");
    for at in 1..world.servers.len() {
        world.servers[at].node.kill_as(true);
        world.servers[at].disk.power_cut(1);
        world.boot(at);
    }
    assert_eq!(world.late_changes(&file), [Err(Errno::EKEYREVOKED); 3]);
    let fences = |world: &World| {
        let records = world.servers.iter().skip(1).flat_map(|ost| ost.disk.records(Table::Meta));
        records.filter(|(key, _)| key.starts_with(b"fence/")).count()
    };
    assert_eq!(fences(&world), OSTS as usize);
    let (node, leaving) = (&world.clients[0].0, world.clients[0].1.clone());
    world.sim.block_on(node, async move { leaving.shutdown().await });
    world.sim.run_for(Span::secs(3));
    assert_eq!(fences(&world), 1, "it has only talked to one of them");
}

#[test]
fn a_lock_waits_for_an_ost_that_is_away() {
    for mdt_restarts in [false, true] {
        let world = World::new(13, Bugs::default());
        let file = world.holder_is_cut_off();
        let away = 1 + file.1.object(1).1.0 as usize;
        world.servers[away].node.kill_as(false);
        assert_eq!(world.lock_within(1, file.0, LAPSES_WITHIN), None);
        if mdt_restarts {
            world.servers[0].node.kill_as(false);
            world.boot(0);
            assert_eq!(world.lock_within(1, file.0, LAPSES_WITHIN), None);
        }
        assert_eq!(world.late_changes(&file)[0], Err(Errno::EKEYREVOKED), "there it is told");
        world.boot(away);
        assert!(world.lock_within(1, file.0, Span::secs(100)).is_some());
    }
}

#[test]
fn a_lock_does_not_wait_for_osts_of_other_files() {
    let world = World::on(Sim::new(15, SimConfig::default()), Bugs::default(), 1);
    let files = [world.create(0, "a"), world.create(0, "b")];
    let on = files.each_ref().map(|(_, layout)| 1 + layout.object(0).1.0 as usize);
    assert_ne!(on[0], on[1], "each on an OST of its own");
    for (fid, _) in &files {
        assert!(world.lock(0, *fid));
    }
    world.sim.partition(&world.clients[0].0, &world.servers[0].node, Cut::BothWays);
    world.servers[on[0]].node.kill_as(false);
    assert_eq!(world.lock_within(1, files[0].0, Span::secs(60)), None);
    assert!(world.lock_within(2, files[1].0, Span::secs(20)).is_some());
    world.boot(on[0]);
    assert!(world.lock_within(1, files[0].0, Span::secs(100)).is_some());
}

impl World {
    /// Whether an open for reading is answered in time.
    fn opens_within(&self, client: usize, fid: Fid, most: Span) -> bool {
        let (node, endpoint) = &self.clients[client];
        let remote = endpoint.remote(TargetId::mdt(0));
        let body = OpenReq { fid: fid.into(), ..OpenReq::default() };
        let mut open = Call::new(Opcode::MdtOpen, vec![encode_body(&body)]);
        open.keep = Keep::Open;
        let answer = self.sim.block_on_for(node, most, async move { remote.call(open).await });
        answer.is_some_and(|answer| answer.is_ok())
    }
}

/// Their writer may keep what it has written to either file.
#[test]
fn a_file_of_a_dead_writer_does_not_wait_for_osts_of_other_files() {
    let world = World::on(Sim::new(18, SimConfig::default()), Bugs::default(), 1);
    let flags = CreateFlags::OPEN | CreateFlags::KEEPS;
    let files = ["a", "b"].map(|name| world.create_as(0, name, flags));
    let on = files.each_ref().map(|(_, layout)| 1 + layout.object(0).1.0 as usize);
    assert_ne!(on[0], on[1], "each on an OST of its own");
    world.sim.partition(&world.clients[0].0, &world.servers[0].node, Cut::BothWays);
    world.servers[on[0]].node.kill_as(false);
    assert!(!world.opens_within(1, files[0].0, Span::secs(60)));
    assert!(world.opens_within(2, files[1].0, Span::secs(20)));
    world.boot(on[0]);
    assert!(world.opens_within(1, files[0].0, Span::secs(100)));
}

#[test]
fn a_restarted_mdt_fences_who_does_not_return() {
    let world = World::new(14, Bugs::default());
    let file = world.holder_is_cut_off();
    world.servers[0].node.kill_as(false);
    world.boot(0);
    world.lock_within(1, file.0, LAPSES_WITHIN).expect("recovery ends without it");
    assert_eq!(world.late_changes(&file), [Err(Errno::EKEYREVOKED); 3]);
}

/// As `serve --older-copy` does.
#[test]
fn late_changes_of_clients_that_an_older_copy_does_not_know_are_refused() {
    let world = World::new(17, Bugs::default());
    let file = world.holder_is_cut_off();
    let Server { node, disk, .. } = &world.servers[0];
    node.kill_as(false);
    let (env, disk) = (node.env(), disk.clone());
    world.sim.block_on(node, async move {
        let store = MemMeta::open(&env, &disk);
        let mut set = target::above(&*store.running().expect("records"), TargetKind::Mdt, 1_000)
            .expect("records of an MDT");
        for table in [Table::Clients, Table::Replies] {
            disk.records(table).into_iter().for_each(|(key, _)| set.delete(table, key));
        }
        mdt::sessions_anew(&mut set, Instance(1_001));
        store.apply(&set).expect("there is room");
        store.commit().await.expect("durable");
    });
    node.kill_as(false);
    world.boot(0);
    world.lock_within(1, file.0, LAPSES_WITHIN).expect("nobody holds it");
    assert_eq!(world.late_changes(&file), [Err(Errno::EKEYREVOKED); 3]);
}

/// A client dies with all servers, while it holds a file's lock.
fn everything_dies_with_the_holder(seed: u64) -> (World, (Fid, Layout)) {
    let world = World::new(seed, Bugs::default());
    let file = world.create(0, "a");
    world.use_object(0, &file, 0, Some(b"AAAA")).expect("writes");
    world.use_object(1, &world.create(1, "b"), 0, Some(b"BBBB")).expect("the next holder is known");
    world.sim.run_for(Span::secs(3));
    assert!(world.lock(0, file.0));
    for node in world.servers.iter().map(|server| &server.node).chain([&world.clients[0].0]) {
        node.kill_as(false);
    }
    (world, file)
}

/// The window of a recovery without progress, and what a lock, a fence and a read take.
const ONE_WINDOW: Span = Span::secs(16);

#[test]
fn recoveries_one_behind_the_other_cost_the_next_holder_one_window() {
    let (world, file) = everything_dies_with_the_holder(16);
    world.boot(0);
    let begun = world.sim.now();
    // the OSTs come back in the midst of the MDT's recovery and wait for that client anew
    for at in 1..world.servers.len() {
        world.sim.run_for(Span::secs(5));
        world.boot(at);
    }
    world.lock_within(1, file.0, LAPSES_WITHIN).expect("it lapses");
    let took = world.sim.now() - begun;
    assert!(took < ONE_WINDOW, "the lock took {took:?}");
    assert_eq!(world.use_object(1, &file, 0, None).expect("reads")[..], b"AAAA"[..]);
    let took = world.sim.now() - begun;
    assert!(took < ONE_WINDOW, "the data took {took:?}");
}
