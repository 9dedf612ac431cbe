//! Several MDTs and their clients: operations of several MDTs, and crashes of each of them in the
//! middle.

mod forgotten;
mod full;
mod inodes;
mod late;
mod mends;
mod migrate;
mod moves;
mod placed;
mod readonly;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use endpoint::{Call, Endpoint, EndpointConfig, Resolve};
use env::{CptTable, Env};
use env_sim::{Cut, NodeHandle, Sim, SimConfig};
use layout::dir;
use mdt::fsck::{self, Image};
use mdt::{Bugs, GrantMode, Mdt, MdtConfig, OstAt};
use osd::MetaStore;
use osd::mem::{MemDisk, MemMeta};
use service::{Node, NodeConfig};
use types::{ClientId, Errno, Fid, NidAddr, Span, SplitMix64, TargetId};
use wire::attr::{AttrFlags, S_IFDIR, S_IFMT, S_IFREG};
use wire::body::{
    AttrRep, CreateFlags, CreateReq, Disposition, FidReq, LinkReq, LookupReq, RenameReq,
    SetattrFlags, SetattrReq, SetxattrReq, UnlinkReq,
};
use wire::updates::RECORD_MAGIC;
use wire::{Attr, Opcode, Reply, encode_body};

const MDTS: u32 = 3;

/// Runs with a crash at a drawn moment.
const CRASHES: u64 = 400;

/// A number for each client and server.
#[derive(Clone, Default)]
struct Where {
    /// The MDT that the MGS has forgotten, if any.
    forgotten: Rc<Cell<Option<u32>>>,
    /// One that is registered and out of use.
    off: Rc<Cell<Option<u32>>>,
}

impl Resolve for Where {
    fn addrs(&self, target: TargetId) -> Vec<NidAddr> {
        vec![addr(target.index)]
    }

    fn mdts(&self) -> Vec<u32> {
        (0..MDTS).filter(|mdt| self.forgotten.get() != Some(*mdt)).collect()
    }

    fn is_off(&self, target: TargetId) -> bool {
        let off = [self.forgotten.get(), self.off.get()];
        off.into_iter().flatten().any(|mdt| target == TargetId::mdt(mdt))
    }
}

fn addr(mdt: u32) -> NidAddr {
    format!("10.0.0.{}@tcp", mdt + 1).parse().expect("a NID")
}

fn endpoint(env: &Env, at: &Where, client: u128, is_server: bool) -> Rc<Endpoint> {
    let config = EndpointConfig {
        import: endpoint::ImportConfig {
            client: ClientId(client),
            name: format!("c{client}"),
            is_server,
            ..Default::default()
        },
        ..EndpointConfig::default()
    };
    Endpoint::new(env, config, Rc::new(at.clone()))
}

/// A running MDT with its store.
type Running = Rc<RefCell<Option<(Rc<Mdt>, Rc<MemMeta>)>>>;

struct Server {
    node: NodeHandle,
    disk: MemDisk,
    running: Running,
    /// Its side of the connections to others.
    asking: Rc<RefCell<Weak<Endpoint>>>,
}

struct World {
    sim: Sim,
    at: Where,
    servers: Vec<Server>,
    clients: Vec<(NodeHandle, Rc<Endpoint>)>,
    bugs: Bugs,
    /// OSTs that files may have objects on. None of them runs.
    osts: &'static [u32],
    /// How often a server was started.
    boots: RefCell<BTreeMap<u32, u128>>,
    /// Servers that start from now on wait for no client.
    aborts: Cell<bool>,
}

impl World {
    fn new(seed: u64) -> World {
        World::with_bugs(seed, Bugs::default())
    }

    fn with_bugs(seed: u64, bugs: Bugs) -> World {
        World::of(Sim::new(seed, SimConfig::default()), bugs, &[])
    }

    /// A world in which files can be open for writing. What an ended session held is let go at
    /// once.
    fn with_an_ost(seed: u64) -> World {
        let sim = Sim::new(seed, SimConfig::default());
        World::of(sim, Bugs::plant("mdt.skip_fence"), &[77])
    }

    /// A world in which errors may be logged.
    fn damaged(seed: u64) -> World {
        let config = SimConfig { fail_on_error: false, ..SimConfig::default() };
        World::of(Sim::new(seed, config), Bugs::default(), &[])
    }

    fn of(sim: Sim, bugs: Bugs, osts: &'static [u32]) -> World {
        let server = |mdt: u32| Server {
            node: sim.node(&format!("mdt{mdt}"), addr(mdt).nid),
            disk: MemDisk::default(),
            running: Running::default(),
            asking: Rc::default(),
        };
        let servers: Vec<_> = (0..MDTS).map(server).collect();
        let at = Where::default();
        let client = |n: u32| {
            let nid = format!("10.0.1.{n}@tcp").parse().expect("a NID");
            let node = sim.node(&format!("c{n}"), nid);
            let endpoint = endpoint(&node.env(), &at, u128::from(n) + 1, false);
            (node, endpoint)
        };
        let clients = (0..2).map(client).collect();
        let (boots, aborts) = (RefCell::default(), Cell::default());
        let world = World { sim, at, servers, clients, bugs, osts, boots, aborts };
        (0..MDTS).for_each(|mdt| world.boot(mdt));
        world.sim.run_for(Span::secs(1));
        world
    }

    fn boot(&self, mdt: u32) {
        let Server { node, disk, running, asking } = &self.servers[mdt as usize];
        let (env, disk, running, bugs) = (node.env(), disk.clone(), running.clone(), self.bugs);
        let asking = asking.clone();
        let (osts, at, aborts) = (self.osts, self.at.clone(), self.aborts.get());
        let boot = {
            let mut boots = self.boots.borrow_mut();
            let boot = boots.entry(mdt).or_default();
            *boot += 1;
            *boot
        };
        node.env().spawn("server", async move {
            let one = NonZeroU32::MIN;
            let service =
                Node::new(&env, NodeConfig::new(CptTable::new(one, one, 1, true).expect("one")));
            let meta = Rc::new(MemMeta::open(&env, &disk));
            let mut config = MdtConfig::new("testfs".parse().expect("a name"), mdt);
            config.bugs = bugs;
            config.grants = GrantMode::None; // these clients answer no recalls
            config.abort_recovery = aborts;
            let own = endpoint(&env, &at, 1_000 + 100 * u128::from(mdt) + boot, true);
            *asking.borrow_mut() = Rc::downgrade(&own);
            let osts = Rc::new(|| osts.iter().copied().map(OstAt::from).collect());
            let target = Mdt::start(&env, config, meta.clone(), Some(own), osts).await;
            let target = target.expect("boots");
            *running.borrow_mut() = Some((target.clone(), meta));
            service.add_target(target);
            service.serve(env.listen(addr(mdt)).await.expect("a free address"));
            std::future::pending::<()>().await;
        });
    }

    /// The process dies, and with it everything that is not durable.
    fn kill(&self, mdt: u32) {
        let server = &self.servers[mdt as usize];
        *server.running.borrow_mut() = None;
        server.node.kill_as(true);
        server.disk.power_cut(7);
    }

    fn send(&self, client: usize, mdt: u32, call: Call) -> Result<Reply, Errno> {
        let (node, endpoint) = &self.clients[client];
        let remote = endpoint.remote(TargetId::mdt(mdt));
        let answer =
            self.sim.block_on_for(node, Span::secs(300), async move { remote.call(call).await });
        let answer = answer.expect("answered in time");
        answer.map(|answer| *answer.reply).map_err(|error| error.errno())
    }

    /// Makes everything on an MDT durable.
    fn sync(&self, mdt: u32) {
        let body = FidReq { fid: Fid::ROOT.into(), ..FidReq::default() };
        let call = Call::new(Opcode::MdtSync, vec![encode_body(&body)]);
        self.send(1, mdt, call).expect("committed");
    }

    /// Sends a request; its result is there when it is answered.
    fn ask(&self, client: usize, mdt: u32, call: Call) -> Rc<RefCell<Option<Result<(), Errno>>>> {
        let (node, endpoint) = &self.clients[client];
        let (remote, found) = (endpoint.remote(TargetId::mdt(mdt)), Rc::new(RefCell::new(None)));
        let seen = found.clone();
        node.env().spawn("asked", async move {
            let answer = remote.call(call).await;
            *seen.borrow_mut() = Some(answer.map(drop).map_err(|error| error.errno()));
        });
        found
    }

    /// Sends a request and waits for no answer.
    fn begin(&self, client: usize, mdt: u32, call: Call) {
        let (node, endpoint) = &self.clients[client];
        let remote = endpoint.remote(TargetId::mdt(mdt));
        node.env().spawn("begun", async move { drop(remote.call(call).await) });
    }

    fn mkdir(&self, parent: Fid, name: &str, on: &[u32]) -> Result<Attr, Errno> {
        let reply = self.send(0, parent.mdt_index(), mkdir(parent, name, on))?;
        let body: AttrRep = reply.body();
        assert_eq!(body.attr.mode & S_IFMT, S_IFDIR);
        Ok(body.attr)
    }

    fn create(&self, parent: Fid, name: &str) -> Fid {
        let reply = self.send(0, parent.mdt_index(), make(parent, name, S_IFREG | 0o644, &[]));
        reply.expect("created").body::<AttrRep>().attr.fid()
    }

    /// A file without a name, which a client has open.
    fn nameless(&self, client: usize, parent: Fid) -> Fid {
        let flags = CreateFlags::OPEN | CreateFlags::TMPFILE;
        let body = CreateReq { parent: parent.into(), flags, open_flags: 2, ..Default::default() };
        let call = Call::new(Opcode::MdtCreate, vec![encode_body(&body), Bytes::new()]);
        let reply = self.send(client, parent.mdt_index(), call);
        reply.expect("made").body::<AttrRep>().attr.fid()
    }

    /// A client ends its sessions.
    fn end(&self, client: usize) {
        let (node, endpoint) = &self.clients[client];
        let ending = endpoint.clone();
        node.env().spawn("ends", async move { ending.shutdown().await });
    }

    fn lookup(&self, client: usize, parent: Fid, name: &str) -> Result<AttrRep, Errno> {
        self.send(client, parent.mdt_index(), lookup(parent, name)).map(|reply| reply.body())
    }

    fn attr(&self, fid: Fid) -> Result<Attr, Errno> {
        let body = FidReq { fid: fid.into(), ..FidReq::default() };
        let call = Call::new(Opcode::MdtGetattr, vec![encode_body(&body)]);
        self.send(0, fid.mdt_index(), call).map(|reply| reply.body::<AttrRep>().attr)
    }

    fn unlink(&self, parent: Fid, name: &str, is_dir: bool) -> Result<AttrRep, Errno> {
        let reply = self.send(0, parent.mdt_index(), unlink(parent, name, is_dir));
        reply.map(|reply| reply.body())
    }

    fn rename(&self, from: (Fid, &str), to: (Fid, &str)) -> Result<AttrRep, Errno> {
        self.send(0, from.0.mdt_index(), rename(from, to)).map(|reply| reply.body())
    }

    fn image(&self, mdt: u32) -> Image {
        let server = &self.servers[mdt as usize];
        let running = server.running.borrow();
        let (_, meta) = running.as_ref().expect("it runs");
        self.sim.block_on(&server.node, {
            let meta = meta.clone();
            async move { meta.ready().await }
        });
        let view = meta.running().expect("ready");
        Image::of(mdt, &*view).expect("readable")
    }

    fn images(&self) -> Vec<Image> {
        (0..MDTS).map(|mdt| self.image(mdt)).collect()
    }

    /// All MDTs agree, and no record of an operation is left some time later.
    fn check(&self) {
        assert_eq!(fsck::all(&self.images()), Vec::<String>::new());
        self.sim.run_for(Span::secs(20));
        let images = self.images();
        assert_eq!(fsck::all(&images), Vec::<String>::new());
        assert_eq!(fsck::left(&images), Vec::<String>::new());
    }

    /// A second later everything is durable.
    fn settle(&self) {
        self.sim.run_for(Span::secs(3));
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn make(parent: Fid, name: &str, mode: u32, on: &[u32]) -> Call {
    let body = CreateReq { parent: parent.into(), mode, ..CreateReq::default() };
    let asked = match on {
        [] => Bytes::new(),
        [one] => dir::Asked { index: *one as i32, ..dir::Asked::default() }.encode().into(),
        many => {
            let (count, mdts) = (many.len() as u32, many.to_vec());
            dir::Asked { count, mdts, ..dir::Asked::default() }.encode().into()
        }
    };
    let bufs = vec![encode_body(&body), bytes(name), Bytes::new(), Bytes::new(), asked];
    Call::new(Opcode::MdtCreate, bufs)
}

fn mkdir(parent: Fid, name: &str, on: &[u32]) -> Call {
    make(parent, name, S_IFDIR | 0o755, on)
}

fn lookup(parent: Fid, name: &str) -> Call {
    let body = LookupReq { parent: parent.into(), ..LookupReq::default() };
    Call::new(Opcode::MdtLookup, vec![encode_body(&body), bytes(name)])
}

fn unlink(parent: Fid, name: &str, is_dir: bool) -> Call {
    let body =
        UnlinkReq { parent: parent.into(), is_dir: u32::from(is_dir), ..UnlinkReq::default() };
    Call::new(Opcode::MdtUnlink, vec![encode_body(&body), bytes(name)])
}

fn rename(from: (Fid, &str), to: (Fid, &str)) -> Call {
    let body = RenameReq { parent: from.0.into(), new_parent: to.0.into(), ..RenameReq::default() };
    Call::new(Opcode::MdtRename, vec![encode_body(&body), bytes(from.1), bytes(to.1)])
}

fn link(fid: Fid, parent: Fid, name: &str) -> Call {
    let body = LinkReq { fid: fid.into(), parent: parent.into(), ..LinkReq::default() };
    Call::new(Opcode::MdtLink, vec![encode_body(&body), bytes(name)])
}

#[test]
fn a_remote_directory_is_made_used_and_removed() {
    let world = World::new(1);
    let dir = world.mkdir(Fid::ROOT, "d", &[2]).expect("made");
    assert_eq!((dir.fid().mdt_index(), dir.nlink), (2, 2));
    let found = world.lookup(1, Fid::ROOT, "d").expect("found");
    assert_eq!(found.disposition, Disposition::REMOTE);
    assert_eq!((found.attr.fid(), found.attr.mode), (dir.fid(), S_IFDIR));
    assert_eq!(world.attr(Fid::ROOT).expect("the root").nlink, 3);
    assert_eq!(world.attr(dir.fid()).map(|attr| attr.mode), Ok(dir.mode));
    let file = world.create(dir.fid(), "f");
    assert_eq!(file.mdt_index(), 2, "a file is made where its directory is");
    assert_eq!(world.mkdir(Fid::ROOT, "d", &[1]).err(), Some(Errno::EEXIST));
    assert_eq!(world.unlink(Fid::ROOT, "d", true).err(), Some(Errno::ENOTEMPTY));
    assert_eq!(world.unlink(Fid::ROOT, "d", false).err(), Some(Errno::EISDIR));
    world.check();
    world.unlink(dir.fid(), "f", false).expect("removed");
    let gone = world.unlink(Fid::ROOT, "d", true).expect("removed");
    assert_eq!((gone.disposition, gone.attr.fid()), (Disposition::REMOTE, dir.fid()));
    assert_eq!(world.lookup(1, Fid::ROOT, "d").err(), Some(Errno::ENOENT));
    assert_eq!(world.attr(dir.fid()).err(), Some(Errno::ESTALE));
    assert_eq!(world.attr(Fid::ROOT).expect("the root").nlink, 2);
    world.check();
}

#[test]
fn a_directory_on_an_mdt_that_does_not_exist_or_answer_is_refused_soon() {
    let world = World::new(2);
    assert_eq!(world.mkdir(Fid::ROOT, "d", &[9]).err(), Some(Errno::ENODEV));
    world.kill(2);
    let before = world.clients[0].0.env().now();
    assert_eq!(world.mkdir(Fid::ROOT, "d", &[2]).err(), Some(Errno::ENODEV));
    assert!(world.clients[0].0.env().now() - before < Span::secs(10));
    world.mkdir(Fid::ROOT, "d", &[1]).expect("another one is there");
    world.boot(2);
    world.settle();
    world.mkdir(Fid::ROOT, "e", &[2]).expect("it is back");
    world.check();
}

#[test]
fn an_mdt_needs_no_other_one_for_its_own_files() {
    let world = World::new(9);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let sub = world.mkdir(dir, "sub", &[]).expect("made").fid();
    assert_eq!(sub.mdt_index(), 1, "a directory is made where its parent is");
    world.settle();
    world.kill(0);
    world.kill(2);
    let before = world.clients[0].0.env().now();
    world.create(sub, "f");
    world.rename((sub, "f"), (dir, "g")).expect("moved");
    world.send(0, 1, link(world.create(sub, "h"), dir, "i")).expect("linked");
    world.unlink(dir, "g", false).expect("removed");
    assert!(world.clients[0].0.env().now() - before < Span::millis(100));
    world.boot(0);
    world.boot(2);
    world.settle();
    world.check();
}

/// An operation that waits for an MDT which is away keeps no other one from what it has looked at.
#[test]
fn an_operation_that_waits_for_an_mdt_holds_nothing() {
    let world = World::new(11);
    world.mkdir(Fid::ROOT, "d", &[2]).expect("made");
    world.settle();
    world.kill(2);
    let removed = world.ask(0, 0, unlink(Fid::ROOT, "d", true));
    world.sim.run_for(Span::secs(5));
    let attr = Attr { mode: 0o711, ..world.attr(Fid::ROOT).expect("there") }.with_fid(Fid::ROOT);
    let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    let changed = world.ask(1, 0, Call::new(Opcode::MdtSetattr, vec![encode_body(&body)]));
    world.sim.run_for(Span::secs(1));
    assert_eq!(*changed.borrow(), Some(Ok(())), "the root is here");
    assert_eq!(*removed.borrow(), None);
    world.boot(2);
    world.sim.run_for(Span::secs(20));
    assert_eq!(*removed.borrow(), Some(Ok(())));
    world.check();
}

/// MDT 0 makes a directory, and MDT 2 cannot be told from so many microseconds after the call on.
/// MDT 0 dies in another operation with MDT 1, whose caller dies too, so many microseconds after
/// that call. Returns whether the directory's name was there, and what became of a change at MDT 1.
fn reserved_by_an_earlier_run(cut: u64, death: u64) -> (bool, Option<Result<(), Errno>>) {
    let world = World::damaged(16); // recovery goes on without MDT 2
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    world.mkdir(Fid::ROOT, "e", &[2]).expect("made");
    let file = world.create(dir, "a");
    world.settle();
    world.begin(0, 0, mkdir(Fid::ROOT, "x", &[2]));
    world.sim.run_for(Span::micros(cut));
    world.sim.partition(&world.servers[0].node, &world.servers[2].node, Cut::BothWays);
    let is_made = world.lookup(1, Fid::ROOT, "x").is_ok();
    world.sync(0);
    world.begin(0, 0, link(file, Fid::ROOT, "b"));
    world.sim.run_for(Span::micros(death));
    world.kill(0);
    world.clients[0].0.kill_as(false);
    world.boot(0);
    world.sim.run_for(Span::secs(400));
    let attr = Attr { mode: 0o600, ..Attr::default() }.with_fid(file);
    let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    let changed = world.ask(1, 1, Call::new(Opcode::MdtSetattr, vec![encode_body(&body)]));
    world.sim.run_for(Span::secs(10));
    (is_made, changed.borrow_mut().take())
}

#[test]
fn what_an_earlier_run_has_reserved_is_freed_although_a_third_mdt_is_away() {
    let is_made = |cut: &u64| reserved_by_an_earlier_run(*cut, 0).0;
    let cut = (0..40).map(|step| 50 * step).find(is_made).expect("it is applied at some time");
    for step in 0..40 {
        let (_, changed) = reserved_by_an_earlier_run(cut, 50 * step);
        assert_eq!(changed, Some(Ok(())), "step {step}");
    }
}

#[test]
fn what_an_earlier_run_has_reserved_is_freed_although_its_recovery_is_aborted() {
    for step in 0..40 {
        let world = World::damaged(17); // nothing is known of what was not durable
        let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
        let file = world.create(dir, "a");
        world.settle();
        world.begin(0, 0, link(file, Fid::ROOT, "b"));
        world.sim.run_for(Span::micros(50 * step));
        world.kill(0);
        world.clients[0].0.kill_as(false);
        world.aborts.set(true);
        world.boot(0);
        world.sim.run_for(Span::secs(60));
        let attr = Attr { mode: 0o600, ..Attr::default() }.with_fid(file);
        let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
        let changed = world.ask(1, 1, Call::new(Opcode::MdtSetattr, vec![encode_body(&body)]));
        world.sim.run_for(Span::secs(10));
        assert_eq!(*changed.borrow(), Some(Ok(())), "step {step}");
    }
}

/// A directory of MDT 1 is not removed, because it has a name. From so many microseconds after the
/// call on, MDT 0 cannot ask MDT 1 for a moment, and each attempt fails at once. Returns what
/// becomes of a change of the directory's mode.
fn refused_while_nothing_can_be_asked(after: u64) -> Option<Result<(), Errno>> {
    let world = World::new(18);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    world.create(dir, "f");
    world.settle();
    world.begin(0, 0, unlink(Fid::ROOT, "d", true));
    world.sim.run_for(Span::micros(after));
    let asking = world.servers[0].asking.borrow().upgrade().expect("it runs");
    let remote = asking.remote(TargetId::mdt(1));
    remote.set_active(false);
    world.sim.run_for(Span::millis(50));
    remote.set_active(true);
    let attr = Attr { mode: 0o711, ..Attr::default() }.with_fid(dir);
    let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    let changed = world.ask(1, 1, Call::new(Opcode::MdtSetattr, vec![encode_body(&body)]));
    world.sim.run_for(Span::secs(10));
    changed.borrow_mut().take()
}

#[test]
fn what_an_operation_has_reserved_is_freed_although_the_first_attempt_to_say_so_fails() {
    for step in 0..40 {
        let changed = refused_while_nothing_can_be_asked(50 * step);
        assert_eq!(changed, Some(Ok(())), "step {step}");
    }
}

/// Both stop in good order; only one returns.
#[test]
fn an_mdt_that_was_stopped_waits_for_no_other_one() {
    let world = World::new(10);
    world.mkdir(Fid::ROOT, "d", &[1]).expect("made");
    world.sim.run_for(Span::secs(10)); // no record is left
    for mdt in [0, 1] {
        let server = &world.servers[mdt as usize];
        let target = server.running.borrow().as_ref().expect("it runs").0.clone();
        world.sim.block_on(&server.node, async move { target.stop().await.expect("committed") });
        world.kill(mdt);
    }
    world.boot(0);
    let before = world.clients[0].0.env().now();
    world.create(Fid::ROOT, "f");
    assert!(world.clients[0].0.env().now() - before < Span::secs(30));
    world.boot(1);
    world.settle();
    world.check();
}

#[test]
fn files_and_directories_move_between_mdts_and_replace_others() {
    let world = World::new(3);
    let dirs: Vec<Fid> = (0..MDTS)
        .map(|mdt| world.mkdir(Fid::ROOT, &format!("d{mdt}"), &[mdt]).expect("made").fid())
        .collect();
    let file = world.create(dirs[0], "f");
    let moved = world.rename((dirs[0], "f"), (dirs[1], "g")).expect("moved");
    assert_eq!(moved.attr.fid(), file);
    assert_eq!(world.lookup(1, dirs[0], "f").err(), Some(Errno::ENOENT));
    assert_eq!(world.lookup(1, dirs[1], "g").expect("there").attr.fid(), file);
    // again, from an MDT that has the name and not the file, onto a file of a third one
    let victim = world.create(dirs[2], "h");
    world.rename((dirs[1], "g"), (dirs[2], "h")).expect("moved");
    assert_eq!(world.lookup(1, dirs[2], "h").expect("there").attr.fid(), file);
    assert_eq!(world.attr(victim).err(), Some(Errno::ESTALE));
    world.check();
    // a directory with a file in it, and one below itself
    let sub = world.mkdir(dirs[1], "sub", &[0]).expect("made").fid();
    world.create(sub, "x");
    world.rename((dirs[1], "sub"), (dirs[2], "sub")).expect("moved");
    assert_eq!(world.attr(dirs[1]).expect("there").nlink, 2);
    assert_eq!(world.attr(dirs[2]).expect("there").nlink, 3);
    let below = world.mkdir(sub, "below", &[2]).expect("made").fid();
    let looped = world.rename((dirs[2], "sub"), (below, "loop"));
    assert_eq!(looped.err(), Some(Errno::EINVAL), "a directory does not come to lie below itself");
    world.check();
}

#[test]
fn a_path_goes_on_at_the_mdt_of_a_directory_above() {
    let world = World::new(6);
    let paths = |fid: Fid| {
        let body = FidReq { fid: fid.into(), ..FidReq::default() };
        let call = Call::new(Opcode::MdtFid2path, vec![encode_body(&body)]);
        let found = world.send(0, fid.mdt_index(), call).expect("paths").buf(1);
        String::from_utf8(found.to_vec()).expect("text")
    };
    let dir = world.mkdir(Fid::ROOT, "d", &[2]).expect("made").fid();
    let sub = world.mkdir(dir, "sub", &[]).expect("made").fid();
    let file = world.create(sub, "f");
    assert_eq!(paths(file), format!("/{}/d/sub/f\0", Fid::ROOT));
    let big = world.mkdir(Fid::ROOT, "big", &[0, 1]).expect("made").fid();
    let shards = world.stripes(big).expect("a striping").shards;
    let files = [world.create(shards[0], "x"), world.create(shards[1], "y")];
    assert_eq!(files.map(paths), ["big/x\0".to_owned(), format!("/{big}/y\0")]);
    assert_eq!(paths(shards[0]), "big\0", "a shard's path is that of its directory");
    world.rename((sub, "f"), (shards[1], "z")).expect("moved");
    assert_eq!(paths(file), format!("/{}/z\0", shards[1]));
    assert_eq!(paths(shards[1]), format!("/{big}\0"));
}

#[test]
fn links_count_over_mdts() {
    let world = World::new(4);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let file = world.create(Fid::ROOT, "f");
    let linked = world.send(0, 1, link(file, dir, "g")).expect("linked");
    assert_eq!(linked.body::<AttrRep>().disposition, Disposition::REMOTE);
    assert_eq!(world.attr(file).expect("there").nlink, 2);
    world.unlink(Fid::ROOT, "f", false).expect("removed");
    assert_eq!(world.attr(file).expect("there").nlink, 1);
    world.check();
    world.unlink(dir, "g", false).expect("removed");
    assert_eq!(world.attr(file).err(), Some(Errno::ESTALE));
    world.check();
}

#[test]
fn a_striped_directory_has_shards_that_follow_it() {
    let world = World::new(5);
    let dir = world.mkdir(Fid::ROOT, "d", &[1, 0, 2]).expect("made");
    assert_eq!((dir.fid().mdt_index(), dir.flags.contains(AttrFlags::STRIPED)), (1, true));
    let stripes = world.stripes(dir.fid()).expect("a striping");
    let mdts: Vec<u32> = stripes.shards.iter().map(|shard| shard.mdt_index()).collect();
    assert_eq!(mdts, [1, 0, 2]);
    for shard in &stripes.shards {
        let attr = world.attr(*shard).expect("a shard");
        assert_eq!((attr.flags.contains(AttrFlags::SHARD), attr.nlink), (true, 2));
    }
    let mut names = (0..).map(|number| format!("f{number}"));
    let is_there = |name: &String| stripes.shard_of(name.as_bytes()) == 2;
    let name = names.find(is_there).expect("a name of the third shard");
    let file = world.create(stripes.shards[2], &name);
    assert_eq!(file.mdt_index(), 2);
    let attr = Attr { mode: 0o711, ..dir }.with_fid(dir.fid());
    let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    world.send(0, 1, Call::new(Opcode::MdtSetattr, vec![encode_body(&body)])).expect("changed");
    for fid in stripes.shards.iter().chain([&dir.fid()]) {
        assert_eq!(world.attr(*fid).expect("there").mode & 0o777, 0o711, "{fid}");
    }
    assert_eq!(world.unlink(Fid::ROOT, "d", true).err(), Some(Errno::ENOTEMPTY));
    let astray = world.send(0, 1, make(dir.fid(), "g", S_IFREG | 0o644, &[]));
    assert_eq!(astray.err(), Some(Errno::ESTALE), "the shards hold the names");
    world.check();
    world.unlink(stripes.shards[2], &name, false).expect("removed");
    world.unlink(Fid::ROOT, "d", true).expect("removed");
    for fid in stripes.shards.iter().chain([&dir.fid()]) {
        assert_eq!(world.attr(*fid).err(), Some(Errno::ESTALE), "{fid}");
    }
    world.check();
}

/// The shards are one directory: what moves between them keeps its parent.
#[test]
fn a_directory_of_another_user_is_renamed_within_a_striped_one() {
    let world = World::new(14);
    let call = make(Fid::ROOT, "d", S_IFDIR | 0o777, &[0, 1]);
    let dir = world.send(0, 0, call).expect("made").body::<AttrRep>().attr.fid();
    let stripes = world.stripes(dir).expect("a striping");
    let mut at = "a0".to_owned();
    world.mkdir(stripes.home(at.as_bytes()), &at, &[0]).expect("made");
    let mut shards = BTreeSet::new();
    for number in 1..9 {
        let to = format!("a{number}");
        let [from, home] = [&at, &to].map(|name| stripes.home(name.as_bytes()));
        let call = placed::by_user(rename((from, &at), (home, &to)));
        world.send(0, from.mdt_index(), call).expect("the directory is everybody's");
        shards.insert(home);
        at = to;
    }
    assert_eq!(shards.len(), 2, "it has moved between them");
    world.check();
}

/// An attribute that the shards do not share is the directory's alone.
#[test]
fn an_attribute_of_a_striped_directory_is_repeated_after_a_crash() {
    let world = World::new(13);
    let dir = world.mkdir(Fid::ROOT, "d", &[0, 1]).expect("made").fid();
    world.settle();
    let body = SetxattrReq { fid: dir.into(), ..SetxattrReq::default() };
    let bufs = vec![encode_body(&body), bytes("user.a"), bytes("value")];
    world.send(0, 0, Call::new(Opcode::MdtSetxattr, bufs)).expect("set");
    world.kill(0);
    world.boot(0);
    let body = FidReq { fid: dir.into(), ..FidReq::default() };
    let call = Call::new(Opcode::MdtGetxattr, vec![encode_body(&body), bytes("user.a")]);
    assert_eq!(world.send(0, 0, call).map(|reply| reply.buf(1)), Ok(bytes("value")));
    world.check();
}

/// The coordinator dies right after its answer; the client replays.
#[test]
fn a_coordinator_repeats_what_it_lost_from_its_clients_replay() {
    for seed in 0..10 {
        let world = World::new(seed);
        let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
        world.settle();
        let file = world.create(Fid::ROOT, "f");
        world.rename((Fid::ROOT, "f"), (dir, "g")).expect("moved");
        world.mkdir(Fid::ROOT, "e", &[2]).expect("made");
        world.kill(0);
        world.boot(0);
        assert_eq!(world.lookup(0, Fid::ROOT, "f").err(), Some(Errno::ENOENT), "seed {seed}");
        assert_eq!(world.lookup(0, dir, "g").expect("there").attr.fid(), file);
        world.lookup(0, Fid::ROOT, "e").expect("there");
        world.check();
    }
}

/// A directory moves within one MDT, below a directory of another one. The walk to the root passes
/// both, and a replay asks nobody.
#[test]
fn a_move_that_only_looked_at_another_mdt_is_repeated_from_its_record() {
    let world = World::new(12);
    let away = world.mkdir(Fid::ROOT, "away", &[1]).expect("made").fid();
    let back = world.mkdir(away, "back", &[0]).expect("made").fid();
    world.mkdir(Fid::ROOT, "d", &[]).expect("made");
    world.settle();
    world.rename((Fid::ROOT, "d"), (back, "d")).expect("moved");
    world.kill(0);
    world.boot(0);
    world.lookup(0, back, "d").expect("the move was acknowledged");
    assert_eq!(world.lookup(0, Fid::ROOT, "d").err(), Some(Errno::ENOENT));
    world.check();
}

/// The coordinator and its client die; another MDT has the operation.
#[test]
fn what_another_mdt_has_is_completed_without_the_client() {
    for seed in 0..10 {
        let world = World::new(seed);
        world.lookup(1, Fid::ROOT, "nothing").expect_err("it is not there");
        let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
        world.settle();
        let made = world.mkdir(dir, "e", &[2]).expect("made").fid();
        // MDT 2 commits what it has because the directory is used
        let other = world.send(1, 2, make(made, "f", S_IFREG | 0o644, &[])).expect("made");
        world.kill(1);
        world.clients[0].0.kill_as(false);
        world.boot(1);
        let found = world.lookup(1, dir, "e").expect("the operation is complete");
        assert_eq!(found.attr.fid(), made, "seed {seed}");
        let file = other.body::<AttrRep>().attr.fid();
        assert_eq!(world.lookup(1, made, "f").expect("there").attr.fid(), file);
        world.sim.run_for(Span::secs(20));
        assert_eq!(fsck::all(&world.images()), Vec::<String>::new());
    }
}

/// An MDT dies at a drawn moment while operations are under way; returns what does not fit then.
fn crash_amid_operations(seed: u64, bugs: Bugs) -> Vec<String> {
    let world = World::with_bugs(seed, bugs);
    let dirs: Vec<Fid> = (0..MDTS)
        .map(|mdt| world.mkdir(Fid::ROOT, &format!("d{mdt}"), &[mdt]).expect("made").fid())
        .collect();
    for (dir, name) in dirs.iter().zip(["a", "b", "c"]) {
        world.create(*dir, name);
    }
    if !seed.is_multiple_of(5) {
        world.settle();
    }
    world.begin(0, 0, rename((dirs[0], "a"), (dirs[1], "x")));
    world.begin(1, 1, rename((dirs[1], "b"), (dirs[0], "x")));
    world.begin(0, 2, rename((dirs[2], "c"), (dirs[1], "b")));
    world.begin(1, 0, mkdir(dirs[0], "sub", &[2]));
    world.begin(0, 0, unlink(Fid::ROOT, "d2", true));
    world.begin(1, 0, mkdir(Fid::ROOT, "s", &[0, 1, 2]));
    let mut chance = SplitMix64::new(seed);
    let victim = chance.below(u64::from(MDTS)) as u32;
    world.sim.run_for(Span::micros(chance.below(4_000)));
    world.kill(victim);
    if chance.below(4) == 0 {
        world.clients[chance.below(2) as usize].0.kill_as(false);
    }
    world.sim.run_for(Span::millis(chance.below(500)));
    world.boot(victim);
    if chance.below(3) == 0 {
        world.sim.run_for(Span::millis(chance.below(100)));
        let other = chance.below(u64::from(MDTS)) as u32;
        world.kill(other);
        world.sim.run_for(Span::millis(chance.below(100)));
        world.boot(other);
    }
    world.sim.run_for(Span::secs(60));
    let images = world.images();
    [fsck::all(&images), fsck::left(&images)].concat()
}

#[test]
fn a_crash_at_any_moment_leaves_no_half_operation() {
    for seed in 0..CRASHES {
        assert_eq!(crash_amid_operations(seed, Bugs::default()), Vec::<String>::new(), "{seed}");
    }
}

/// A file that is replaced from another MDT was made just before, by a client that dies with the
/// file's MDT; returns what does not fit then.
fn replaced_just_after_its_making(bugs: Bugs) -> Vec<String> {
    let world = World::with_bugs(1, bugs);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    world.create(Fid::ROOT, "a");
    world.settle();
    world.send(1, 1, make(dir, "b", S_IFREG | 0o644, &[])).expect("made");
    world.rename((Fid::ROOT, "a"), (dir, "b")).expect("moved");
    world.clients[1].0.kill_as(false);
    world.kill(1);
    world.settle();
    world.boot(1);
    world.sim.run_for(Span::secs(30));
    fsck::all(&world.images())
}

#[test]
fn what_an_operation_decides_on_is_durable_before() {
    assert_eq!(replaced_just_after_its_making(Bugs::default()), Vec::<String>::new());
    let broken = Bugs::plant("mdt.prepare_uncommitted");
    assert!(shows(|| replaced_just_after_its_making(broken)));
}

/// A name moves to another MDT, which is cut off so many microseconds after the call. Once the old
/// name is gone, the new one is looked for there; returns what does not fit.
fn looked_for_amid_a_move(bugs: Bugs, after: u64) -> Vec<String> {
    let world = World::with_bugs(1, bugs);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    world.create(Fid::ROOT, "a");
    world.settle();
    world.begin(0, 0, rename((Fid::ROOT, "a"), (dir, "b")));
    world.sim.run_for(Span::micros(after));
    world.sim.partition(&world.servers[0].node, &world.servers[1].node, Cut::BothWays);
    let is_gone = world.lookup(1, Fid::ROOT, "a").is_err();
    let found = world.ask(1, 1, lookup(dir, "b"));
    world.sim.run_for(Span::millis(200));
    world.sim.heal_all();
    world.sim.run_for(Span::secs(30));
    let found = found.borrow_mut().take();
    if !is_gone || found == Some(Ok(())) {
        return Vec::new();
    }
    vec![format!("{after} us after its call the name is gone, and then found is {found:?}")]
}

#[test]
fn a_name_that_moves_is_always_at_one_of_its_places() {
    let seen = |bugs| (0..40).flat_map(move |step| looked_for_amid_a_move(bugs, 50 * step));
    assert_eq!(seen(Bugs::default()).collect::<Vec<_>>(), Vec::<String>::new());
    let broken = Bugs::plant("mdt.show_halves");
    assert!(seen(broken).next().is_some(), "a reader between the two parts is met");
}

/// Whether a run ends with a breach, or with an error in the log.
fn shows(run: impl FnOnce() -> Vec<String>) -> bool {
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    ran.map_or(true, |breaches| !breaches.is_empty())
}

/// The drawn runs would show it if a rule were not kept.
#[test]
fn broken_rules_show() {
    for bug in ["mdt.forget_records_early", "mdt.open_before_peers"] {
        let bugs = Bugs::plant(bug);
        let is_found = |seed| shows(|| crash_amid_operations(seed, bugs));
        assert!((0..CRASHES).any(is_found), "{bug}");
    }
}

#[test]
fn a_reply_that_was_forged_repeats_nothing() {
    let world = World::new(8);
    let call = mkdir(Fid::ROOT, "d", &[1]);
    let reply = world.send(0, 0, call).expect("made");
    let sealed = reply.bufs.last().expect("a record");
    assert!(sealed.starts_with(&RECORD_MAGIC), "the record comes last");
    let asked = Call::new(Opcode::MdtUpdate, vec![Bytes::new(), sealed.slice(24..)]);
    assert_eq!(world.send(0, 1, asked).err(), Some(Errno::EPERM), "clients are no MDTs");
}
