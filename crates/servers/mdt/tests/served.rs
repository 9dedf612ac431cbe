//! An MDT behind its service, with clients and an OST that only destroys objects, on virtual time.

#[path = "served/locks.rs"]
mod locks;

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, Endpoint, EndpointConfig, Keep, Resolve};
use env::{CptTable, Env, LocalFuture};
use env_sim::{NodeHandle, Sim, SimConfig};
use ldlm::grants::Mode;
use mdt::{Bugs, Mdt, MdtConfig};
use osd::mem::{MemDisk, MemDiskConfig, MemMeta};
use osd::{MetaStore, Space, StoreError, Table, View, WriteSet};
use service::{
    Class, ClientRecord, Exports, ExportsConfig, Incoming, Node, NodeConfig, Session, Target, spec,
};
use types::{ClientId, Errno, Fid, Instance, Instant, NidAddr, Span, TargetId, Transno};
use wire::attr::S_IFREG;
use wire::body::{
    AttrRep, BatchFlags, CloseFlags, CloseReq, CreateFlags, CreateReq, FidReq, GrantAck, GrantBits,
    GrantWord, GrantsFlags, LookupReq, OpenWord, OstBatchReq, UnlinkReq, encode_opens,
};
use wire::{Opcode, Reply, Request, encode_body, grants};

const MDT: TargetId = TargetId { kind: types::TargetKind::Mdt, index: 0 };
const OST: TargetId = TargetId { kind: types::TargetKind::Ost, index: 0 };

fn addr(target: TargetId) -> NidAddr {
    let text = match target {
        MDT => "10.0.0.1@tcp",
        OST => "10.0.0.2@tcp",
        _ => "10.0.0.9@tcp", // nobody
    };
    text.parse().expect("a NID")
}

struct Where;

impl Resolve for Where {
    fn addrs(&self, target: TargetId) -> Vec<NidAddr> {
        vec![addr(target)]
    }
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

/// Commits at once and remembers what it destroyed.
struct ToyOst {
    exports: Rc<Exports>,
    destroyed: Rc<RefCell<u64>>,
}

impl Target for ToyOst {
    fn id(&self) -> TargetId {
        OST
    }
    fn exports(&self) -> Rc<Exports> {
        self.exports.clone()
    }
    fn class(&self, _: &Request) -> Class {
        Class::of(&spec::OST)
    }
    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        let transno = self.exports.next_transno(&incoming);
        let mut reply = Reply::ok(&incoming.request.header, Vec::new());
        self.exports.record(&incoming, transno, &mut reply);
        self.exports.applied(transno);
        if !incoming.request.body::<OstBatchReq>().flags.contains(BatchFlags::OIDS) {
            *self.destroyed.borrow_mut() += incoming.request.buf(1).len() as u64 / 24;
        }
        self.exports.committed(transno);
        Box::pin(std::future::ready(reply))
    }
    fn remember_client(self: Rc<Self>, _: ClientRecord) -> LocalFuture<'static, Result<(), Errno>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn sessions_ended(self: Rc<Self>, _: Vec<Rc<Session>>, _: bool) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// What goes wrong with the store.
#[derive(Default)]
struct Faults {
    /// Full: a set is taken if it is small and the first one after a commit.
    tight: Cell<bool>,
    /// Commits fail.
    broken: Cell<bool>,
    taken: Cell<bool>,
    /// Until then it cannot be read.
    busy_until: Cell<Instant>,
}

struct Faulty {
    env: Env,
    store: MemMeta,
    faults: Rc<Faults>,
}

impl MetaStore for Faulty {
    fn ready(&self) -> LocalFuture<'_, ()> {
        let busy_until = self.faults.busy_until.get();
        if self.env.now() < busy_until {
            return self.env.sleep_until(busy_until);
        }
        self.store.ready()
    }
    fn running(&self) -> Result<Box<dyn View + '_>, StoreError> {
        if self.env.now() < self.faults.busy_until.get() {
            return Err(StoreError::Busy);
        }
        self.store.running()
    }
    fn apply(&self, set: &WriteSet) -> Result<(), StoreError> {
        let faults = &self.faults;
        if faults.tight.get() && (set.changes.len() > 40 || faults.taken.get()) {
            return Err(StoreError::Full);
        }
        self.store.apply(set).inspect(|()| faults.taken.set(true))
    }
    fn dirty_bytes(&self) -> u64 {
        self.store.dirty_bytes()
    }
    fn commit(&self) -> LocalFuture<'_, Result<(), StoreError>> {
        if self.faults.broken.get() {
            return Box::pin(std::future::ready(Err(StoreError::Failed("planted".to_owned()))));
        }
        Box::pin(async {
            let committed = self.store.commit().await;
            self.faults.taken.set(false);
            committed
        })
    }
    fn space(&self) -> Result<Space, StoreError> {
        self.store.space()
    }
    fn is_full(&self) -> Result<bool, StoreError> {
        Ok(self.faults.tight.get())
    }
}

struct World {
    sim: Sim,
    mds: NodeHandle,
    oss: NodeHandle,
    clients: Vec<(NodeHandle, Rc<Endpoint>)>,
    disk: MemDisk,
    mdt: Rc<RefCell<Option<Rc<Mdt>>>>,
    destroyed: Rc<RefCell<u64>>,
    bugs: Bugs,
    faults: Rc<Faults>,
    /// From the next start. Timed by default, because whoever calls here hears no callbacks.
    grants: Cell<Mode>,
}

fn cpts() -> NodeConfig {
    let one = NonZeroU32::new(1).expect("one");
    NodeConfig::new(CptTable::new(one, one, 1, true).expect("one partition"))
}

impl World {
    fn new(seed: u64) -> World {
        World::with_bugs(seed, Bugs::default())
    }

    fn with_bugs(seed: u64, bugs: Bugs) -> World {
        World::on(Sim::new(seed, SimConfig::default()), bugs)
    }

    fn on(sim: Sim, bugs: Bugs) -> World {
        World::with_disk(sim, bugs, MemDisk::default())
    }

    /// Each commit takes as long as that.
    fn with_commits_of(span: Span) -> World {
        let slow = MemDiskConfig { commit_min: span, commit_max: span, ..MemDiskConfig::default() };
        World::with_disk(Sim::new(1, SimConfig::default()), Bugs::default(), MemDisk::new(slow))
    }

    fn with_disk(sim: Sim, bugs: Bugs, disk: MemDisk) -> World {
        let (mds, oss) = (sim.node("mds", addr(MDT).nid), sim.node("oss", addr(OST).nid));
        let clients = (0..2u32)
            .map(|n| {
                let node =
                    sim.node(&format!("c{n}"), format!("10.0.1.{n}@tcp").parse().expect("a NID"));
                let endpoint = endpoint(&node.env(), u128::from(n) + 1, false);
                (node, endpoint)
            })
            .collect();
        let world = World {
            sim,
            mds,
            oss,
            clients,
            disk,
            mdt: Rc::default(),
            destroyed: Rc::default(),
            bugs,
            faults: Rc::default(),
            grants: Cell::new(Mode::Timed),
        };
        world.boot_ost();
        world.boot();
        world
    }

    fn boot(&self) {
        let (env, disk, slot, bugs) =
            (self.mds.env(), self.disk.clone(), self.mdt.clone(), self.bugs);
        let (faults, grants_mode) = (self.faults.clone(), self.grants.get());
        self.mds.env().spawn("mds", async move {
            let store = MemMeta::open(&env, &disk);
            let store = Rc::new(Faulty { env: env.clone(), store, faults });
            let mut config = MdtConfig::new("testfs".parse().expect("a name"), 0);
            config.grants = grants_mode;
            config.bugs = bugs;
            let osts = endpoint(&env, 99, true);
            let mdt =
                Mdt::start(&env, config, store, Some(osts), Rc::new(|| vec![mdt::OstAt::from(0)]))
                    .await
                    .expect("a good store");
            *slot.borrow_mut() = Some(mdt.clone());
            let node = Node::new(&env, cpts());
            node.add_target(mdt);
            node.serve(env.listen(addr(MDT)).await.expect("a free address"));
            std::future::pending::<()>().await;
        });
    }

    fn boot_ost(&self) {
        let (env, destroyed) = (self.oss.env(), self.destroyed.clone());
        self.oss.env().spawn("oss", async move {
            let exports = Exports::new(
                &env,
                ExportsConfig {
                    target: OST,
                    instance: Instance(1),
                    known: Vec::new(),
                    replies: Vec::new(),
                    last_committed: Transno::NONE,
                    recovery_window: Span::secs(30),
                    recovery_window_max: Span::secs(120),
                    abort_recovery: true,
                    has_more_to_recover: false,
                    lease: Span::secs(150),
                    silence_max: Span::secs(150),
                },
            );
            let node = Node::new(&env, cpts());
            node.add_target(Rc::new(ToyOst { exports, destroyed }));
            node.serve(env.listen(addr(OST)).await.expect("a free address"));
            std::future::pending::<()>().await;
        });
    }

    fn crash(&self) {
        self.mdt.borrow_mut().take();
        self.mds.kill_as(false);
        self.boot();
    }

    fn call(&self, client: usize, call: Call) -> Result<(Reply, types::Xid), Errno> {
        let (node, endpoint) = &self.clients[client];
        let remote = endpoint.remote(MDT);
        let answer = self.sim.block_on(node, async move { remote.call(call).await });
        answer.map(|answer| (*answer.reply, answer.xid)).map_err(|error| error.errno())
    }

    /// Asks in the background.
    fn ask_later(&self, client: usize, call: Call) {
        let (node, endpoint) = &self.clients[client];
        let remote = endpoint.remote(MDT);
        node.env().spawn("ask", async move { drop(remote.call(call).await) });
    }

    fn running(&self) -> Rc<Mdt> {
        self.mdt.borrow().clone().expect("running")
    }

    /// Ends the session of a client that still uses it.
    fn evict(&self, client: u128) {
        let exports = self.running().exports();
        let sessions = exports.sessions();
        let session = sessions.iter().find(|session| session.client == ClientId(client + 1));
        exports.evict(session.expect("it has one").id);
    }

    fn records(&self, table: Table) -> usize {
        self.disk.records(table).len()
    }

    fn param(&self, name: &str) -> String {
        let tree = params::ParamTree::new();
        let place = target::Place {
            kind: "mdt",
            name: "testfs-MDT0000".into(),
            dir: String::new(),
            space: Rc::new(|| None),
        };
        self.running().register_params(&tree, &place);
        let found = tree.get(&format!("mdt.*.{name}")).expect("known");
        found.into_iter().map(|param| param.value).collect()
    }
}

fn modifying(opcode: Opcode, bufs: Vec<Bytes>) -> Call {
    let mut call = Call::new(opcode, bufs);
    call.modifies = true;
    call
}

fn creation_of(name: String) -> Call {
    let mut call = creation("", None);
    call.bufs[1] = Bytes::from(name);
    call
}

fn creation(name: &'static str, open_flags: Option<u32>) -> Call {
    let body = CreateReq {
        parent: Fid::ROOT.into(),
        mode: S_IFREG | 0o644,
        open_flags: open_flags.unwrap_or(0),
        flags: CreateFlags::OPEN.when(open_flags.is_some()),
        ..CreateReq::default()
    };
    let mut call =
        modifying(Opcode::MdtCreate, vec![encode_body(&body), Bytes::from_static(name.as_bytes())]);
    call.keep = if open_flags.is_some() { Keep::Open } else { Keep::No };
    call
}

fn unlinking(name: &'static str) -> Call {
    let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    modifying(Opcode::MdtUnlink, vec![encode_body(&body), Bytes::from_static(name.as_bytes())])
}

fn closing(open: &AttrRep, xid: types::Xid) -> Call {
    let body = CloseReq {
        fid: open.attr.fid().into(),
        handle: open.handle,
        flags: CloseFlags::SIZE | CloseFlags::WROTE,
        size: 5,
        write_epoch: open.write_epoch,
        ..CloseReq::default()
    };
    let mut call = modifying(Opcode::MdtClose, vec![encode_body(&body)]);
    call.keep = Keep::Close { open: xid };
    call
}

#[test]
fn an_idle_mdt_commits_within_its_interval_and_then_sleeps() {
    let world = World::new(1);
    let made: AttrRep = world.call(0, creation("a", None)).expect("room").0.body();
    assert_eq!(world.records(Table::Inodes), 1, "only the root is durable");
    world.sim.run_for(Span::millis(1_500));
    assert_eq!(world.records(Table::Inodes), 2);
    let body = LookupReq { parent: Fid::ROOT.into(), ..LookupReq::default() };
    let found = world
        .call(1, Call::new(Opcode::MdtLookup, vec![encode_body(&body), Bytes::from_static(b"a")]));
    assert_eq!(found.expect("it is there").0.body::<AttrRep>().attr, made.attr);
}

fn getattr(fid: Fid) -> Call {
    let body = FidReq { fid: fid.into(), ..FidReq::default() };
    Call::new(Opcode::MdtGetattr, vec![encode_body(&body)])
}

#[test]
fn no_read_and_no_create_waits_for_a_slow_commit() {
    let world = World::with_commits_of(Span::millis(500));
    let fid = world.call(0, creation("first", None)).expect("room").0.body::<AttrRep>().attr.fid();
    world.call(1, getattr(fid)).expect("there");
    let longest = Rc::new(Cell::new((Span::ZERO, 0)));
    for (client, (node, endpoint)) in world.clients.iter().enumerate() {
        let (env, remote, longest) = (node.env(), endpoint.remote(MDT), longest.clone());
        node.env().spawn("worker", async move {
            for number in 0.. {
                let name = format!("{client}-{number}");
                for call in [creation_of(name), getattr(fid)] {
                    let start = env.now();
                    remote.call(call).await.expect("works");
                    let (most, calls) = longest.get();
                    longest.set((most.max(env.now() - start), calls + 1));
                    env.sleep(Span::millis(5)).await;
                }
            }
        });
    }
    world.sim.run_for(Span::secs(10));
    let (longest, calls) = longest.get();
    assert!(longest <= Span::millis(150) && calls > 2_000, "{longest:?}, {calls} calls");
}

#[test]
fn a_lock_file_changes_hands_50_times_a_second() {
    let world = World::with_commits_of(Span::millis(5));
    let (holder, changes) = (Rc::new(Cell::new(usize::MAX)), Rc::new(Cell::new(0)));
    for (client, (node, endpoint)) in world.clients.iter().enumerate() {
        let (env, remote) = (node.env(), endpoint.remote(MDT));
        let (holder, changes) = (holder.clone(), changes.clone());
        node.env().spawn("worker", async move {
            loop {
                if remote.call(creation("lock", None)).await.is_ok() {
                    if holder.replace(client) != client {
                        changes.set(changes.get() + 1);
                    }
                    remote.call(unlinking("lock")).await.expect("it is ours");
                }
                env.sleep(Span::millis(1)).await;
            }
        });
    }
    world.sim.run_for(Span::secs(1));
    let before = changes.get();
    world.sim.run_for(Span::secs(10));
    assert!(changes.get() - before >= 500, "{} in ten seconds", changes.get() - before);
}

#[test]
fn a_crash_loses_nothing_that_was_answered() {
    for seed in 0..20 {
        let world = World::new(seed);
        let (open, xid) = world.call(0, creation("open", Some(1))).expect("room");
        let open: AttrRep = open.body();
        let plain: AttrRep = world.call(0, creation("plain", None)).expect("room").0.body();
        world.call(0, unlinking("open")).expect("it is there");
        world.crash();
        let again: AttrRep = world.call(0, getattr(plain.attr.fid())).expect("replayed").0.body();
        assert_eq!(again.attr, plain.attr, "seed {seed}");
        let orphan: AttrRep = world.call(0, getattr(open.attr.fid())).expect("still open").0.body();
        assert_eq!(orphan.attr.nlink, 0);
        world.call(0, closing(&open, xid)).expect("the handle is back");
        assert_eq!(world.call(0, getattr(open.attr.fid())).map(drop), Err(Errno::ESTALE));
    }
}

#[test]
fn objects_of_removed_files_are_destroyed_and_the_log_empties() {
    let world = World::new(3);
    let (open, xid) = world.call(0, creation("a", Some(1))).expect("room");
    world.call(0, closing(&open.body(), xid)).expect("open");
    world.call(0, unlinking("a")).expect("there");
    assert_eq!(*world.destroyed.borrow(), 0, "nothing goes before it is durable");
    world.sim.run_for(Span::secs(5));
    assert_eq!((*world.destroyed.borrow(), world.records(Table::Destroys)), (1, 0));
}

#[test]
fn the_log_of_objects_survives_a_crash() {
    let world = World::new(4);
    let (open, xid) = world.call(0, creation("a", Some(1))).expect("room");
    world.call(0, closing(&open.body(), xid)).expect("open");
    world.oss.kill_as(false);
    world.call(0, unlinking("a")).expect("there");
    world.sim.run_for(Span::secs(3));
    assert_eq!((world.records(Table::Destroys), world.param("destroys_left")), (1, "1".into()));
    world.crash();
    world.boot_ost();
    world.sim.run_for(Span::secs(60));
    assert_eq!((*world.destroyed.borrow(), world.records(Table::Destroys)), (1, 0));
    assert_eq!(world.param("destroys_left"), "0");
}

/// A client states after a crash that it holds the root, and a file that is absent, to a store that
/// cannot be read for a while. Its last vector is empty. Returns what the MDT takes.
fn taken_after_a_crash(seed: u64, busy: Span) -> Vec<(Fid, GrantBits)> {
    let world = World::new(seed);
    world.grants.set(Mode::Recall);
    world.crash();
    let fid = world.call(0, creation("a", None)).expect("room").0.body::<AttrRep>().attr.fid();
    let word = |fid: Fid| GrantWord {
        fid: fid.into(),
        number: 1,
        bits: GrantBits::UPDATE | GrantBits::WRITE,
        ..GrantWord::default()
    };
    let absent = Fid { oid: fid.oid + 1_000, ..fid };
    let words = [word(Fid::ROOT), word(absent)];
    let remote = world.clients[0].1.remote(MDT);
    let (faults, env) = (world.faults.clone(), world.clients[0].0.env());
    remote.on_recovery(Rc::new(move || {
        faults.busy_until.set(env.now() + busy);
        let vectors = [(&words[..], GrantsFlags::empty()), (&[][..], GrantsFlags::LAST)];
        let call = |(words, flags)| Call::new(Opcode::MdtRestate, grants::encode(words, flags));
        vectors.map(call).to_vec()
    }));
    let taken = Rc::new(RefCell::new(Vec::new()));
    let heard = taken.clone();
    remote.after_restate(Rc::new(move |replies: &[Box<Reply>]| {
        let (words, _) = grants::decode::<GrantWord>(&replies[0].bufs).expect("it can be read");
        heard.borrow_mut().extend(words.iter().map(|word| (Fid::from(word.fid), word.bits)));
        None
    }));
    world.crash();
    world.call(0, creation("b", None)).expect("the recovery is over");
    taken.take()
}

#[test]
fn of_what_a_client_states_after_a_crash_only_what_may_be_true_is_taken() {
    assert_eq!(taken_after_a_crash(8, Span::ZERO), [(Fid::ROOT, GrantBits::UPDATE)]);
}

#[test]
fn grants_that_are_stated_while_a_commit_begins_are_taken() {
    for seed in 0..10 {
        let taken = taken_after_a_crash(seed, Span::millis(50));
        assert_eq!(taken, [(Fid::ROOT, GrantBits::UPDATE)], "seed {seed}");
    }
}

#[test]
fn a_sync_is_answered_when_everything_is_durable() {
    let durable = |bugs| {
        let world = World::with_bugs(9, bugs);
        world.call(0, creation("a", None)).expect("room");
        world
            .call(0, Call::new(Opcode::MdtSync, vec![encode_body(&FidReq::default())]))
            .expect("a good store");
        world.records(Table::Inodes) == 2
    };
    assert!(durable(Bugs::default()));
    assert!(!durable(Bugs::plant("mdt.ack_sync_before_commit")), "the planted bug shows");
}

#[test]
fn a_reply_that_was_lost_with_its_server_is_not_earned_twice() {
    let twice = |bugs| {
        (0..60).any(|seed| {
            let world = World::with_bugs(seed, bugs);
            world.call(0, creation("warm", None)).expect("room");
            let (node, endpoint) = &world.clients[0];
            let (remote, slot) = (endpoint.remote(MDT), Rc::new(RefCell::new(None)));
            let fill = slot.clone();
            node.env().spawn("create", async move {
                let mut call = creation("a", None);
                // the reply leaves after the commit: a kill in between loses only the reply
                call.sync = true;
                *fill.borrow_mut() =
                    Some(remote.call(call).await.map(drop).map_err(|error| error.errno()));
            });
            world.sim.run_until(Span::secs(5), || world.records(Table::Inodes) == 3);
            world.crash();
            world.sim.run_until(Span::secs(300), || slot.borrow().is_some());
            let outcome = slot.borrow_mut().take();
            outcome.expect("answered in the end").is_err()
        })
    };
    assert!(!twice(Bugs::default()));
    assert!(twice(Bugs::plant("mdt.skip_reply_record")), "the planted bug shows");
}

#[test]
fn a_client_that_never_returns_is_forgotten_with_its_open_files() {
    let world = World::new(8);
    let (open, _) = world.call(0, creation("a", Some(1))).expect("room");
    world.call(0, unlinking("a")).expect("there");
    world.call(1, creation("b", None)).expect("room");
    world.sim.run_for(Span::secs(2));
    assert_eq!(world.records(Table::Orphans), 1);
    world.clients[0].0.kill_as(false);
    world.crash();
    let body = FidReq { fid: open.body::<AttrRep>().attr.fid().into(), ..FidReq::default() };
    let gone = world.call(1, Call::new(Opcode::MdtGetattr, vec![encode_body(&body)]));
    assert_eq!(gone.map(drop), Err(Errno::ESTALE));
    world.sim.run_for(Span::secs(5));
    assert_eq!((world.records(Table::Orphans), world.records(Table::Clients)), (0, 1));
    assert_eq!(*world.destroyed.borrow(), 1);
}

#[test]
fn nothing_is_called_unnamed_while_clients_may_bring_names_back() {
    let world = World::new(8);
    world.call(0, creation("a", None)).expect("room");
    world.call(1, creation("b", None)).expect("room");
    world.sim.run_for(Span::secs(2));
    let unnamed = || {
        let mdt = world.running();
        world.sim.block_on(&world.mds, async move { mdt.unnamed(0, Fid::ZERO, true).await })
    };
    assert_eq!(unnamed(), Ok(mdt::UnnamedPage::default()));
    world.clients[0].0.kill_as(false);
    world.crash();
    world.sim.run_for(Span::secs(1));
    assert_eq!(unnamed(), Err(mdt::UnnamedError::Recovering), "it waits for a client");
    world.sim.run_for(Span::secs(130));
    assert_eq!(unnamed(), Ok(mdt::UnnamedPage::default()));
}

#[test]
fn a_close_whose_reply_was_lost_stays_closed() {
    for seed in 0..40 {
        let world = World::new(seed);
        let (open, xid) = world.call(0, creation("a", Some(1))).expect("room");
        let (node, endpoint) = &world.clients[0];
        let (remote, done) = (endpoint.remote(MDT), Rc::new(RefCell::new(false)));
        let (fill, open) = (done.clone(), open.body::<AttrRep>());
        node.env().spawn("close", async move {
            let mut call = closing(&open, xid);
            // the reply leaves after the commit: a kill in between loses only the reply
            call.sync = true;
            remote.call(call).await.expect("closed once");
            *fill.borrow_mut() = true;
        });
        let committed = |world: &World| {
            world.mdt.borrow().as_ref().is_some_and(|mdt| mdt.counts().open_handles == 0)
        };
        world.sim.run_until(Span::secs(5), || committed(&world));
        world.sim.run_for(Span::millis(seed));
        world.crash();
        world.sim.run_until(Span::secs(300), || *done.borrow());
        world.sim.run_for(Span::secs(3));
        assert_eq!(
            world.mdt.borrow().as_ref().expect("running").counts().open_handles,
            0,
            "seed {seed}"
        );
    }
}

#[test]
fn a_full_store_forgets_a_client_with_all_that_it_had() {
    for restarts in [false, true] {
        let names =
            ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
        let world = World::new(11);
        for name in names {
            world.call(0, creation(name, Some(1))).expect("room");
            world.call(0, unlinking(name)).expect("there");
        }
        world.call(1, creation("kept", None)).expect("room");
        world.sim.run_for(Span::secs(2));
        assert_eq!(
            (world.records(Table::Orphans), world.records(Table::Clients)),
            (names.len(), 2)
        );
        world.faults.tight.set(true);
        let (node, endpoint) = &world.clients[0];
        if restarts {
            node.kill_as(false);
            world.crash();
        } else {
            let leaving = endpoint.clone();
            node.env().spawn("leave", async move { leaving.shutdown().await });
        }
        world.sim.run_for(Span::secs(60));
        assert_eq!(
            (world.records(Table::Orphans), world.records(Table::Clients)),
            (0, 1),
            "restarts: {restarts}"
        );
        assert_eq!(world.records(Table::Inodes), 2, "the root and one file");
    }
}

#[test]
fn a_stop_ends_although_the_store_fails() {
    // it tells the failure as an error
    let config = SimConfig { fail_on_error: false, ..SimConfig::default() };
    let world = World::on(Sim::new(12, config), Bugs::default());
    world.call(0, creation("a", None)).expect("room");
    world.faults.broken.set(true);
    let mdt = world.mdt.borrow().clone().expect("running");
    let stopped = world.sim.block_on(&world.mds, async move { mdt.stop().await });
    assert!(matches!(stopped, Err(StoreError::Failed(_))), "{stopped:?}");
}

/// A record of the destroy log: one object, on this OST.
fn destroy_record(oid: u32, ost: u32) -> Vec<u8> {
    let mut record = vec![3, 1, 28, 0];
    record.extend(1_u32.to_le_bytes());
    record.extend(0x2_0003_0000_u64.to_le_bytes());
    record.extend(oid.to_le_bytes());
    record.extend(0_u32.to_le_bytes());
    record.extend(ost.to_le_bytes());
    record
}

#[test]
fn what_an_absent_ost_keeps_in_the_log_keeps_nothing_else_there() {
    const ABSENT: u32 = 5_000;
    let world = World::new(11);
    world.sim.run_for(Span::secs(2));
    world.mdt.borrow_mut().take();
    world.mds.kill_as(false);
    let (env, disk) = (world.oss.env(), world.disk.clone());
    world.sim.block_on(&world.oss, async move {
        let store = MemMeta::open(&env, &disk);
        for numbers in (0..ABSENT + 10).collect::<Vec<_>>().chunks(1_000) {
            let mut set = WriteSet::new();
            for number in numbers {
                let ost = if *number < ABSENT { 1 } else { 0 };
                let key = u64::from(*number).to_be_bytes();
                set.put(Table::Destroys, key, destroy_record(1 + number, ost));
            }
            store.apply(&set).expect("room");
        }
        store.commit().await.expect("a good store");
    });
    world.boot();
    world.sim.run_for(Span::secs(60));
    assert_eq!((*world.destroyed.borrow(), world.records(Table::Destroys)), (10, ABSENT as usize));
}

#[test]
fn every_answer_says_of_which_change_it_speaks() {
    let world = World::new(3);
    let as_of = |client: usize, call: Call| {
        let (reply, _) = world.call(client, call).expect("answered");
        (reply.header.as_of, reply.header.transno)
    };
    let root = FidReq { fid: Fid::ROOT.into(), ..FidReq::default() };
    let getattr = || Call::new(Opcode::MdtGetattr, vec![encode_body(&root)]);
    let (first, transno) = as_of(0, creation("a", None));
    assert_eq!(first, transno);
    assert_eq!(as_of(1, getattr()), (first, 0), "a question has no place of its own");
    let (second, transno) = as_of(1, creation("b", None));
    assert_eq!((second, second > first), (transno, true));
    assert_eq!(as_of(0, getattr()), (second, 0));
    let none: [GrantAck; 0] = [];
    let ack = Call::new(Opcode::MdtAck, grants::encode(&none, GrantsFlags::empty()));
    assert_eq!(as_of(0, ack), (0, 0), "it speaks of nothing");
}

#[test]
fn what_is_said_of_grants_is_taken_if_it_can_be_read() {
    let world = World::new(4);
    let word = GrantWord { number: 3, bits: GrantBits::UPDATE, ..GrantWord::default() };
    let ack = GrantAck { number: 3, ..GrantAck::default() };
    let words = || grants::encode(&[word, word], GrantsFlags::LAST);
    let acks = grants::encode(&[ack, ack], GrantsFlags::empty());
    let told = [
        (Opcode::MdtAck, acks.clone(), Ok(())),
        (Opcode::MdtShed, words(), Ok(())),
        (Opcode::MdtRestate, words(), Ok(())),
        (Opcode::MdtAck, words(), Err(Errno::EPROTO)),
        (Opcode::MdtShed, acks, Err(Errno::EPROTO)),
        (Opcode::MdtRestate, vec![Bytes::from_static(&[9; 16])], Err(Errno::EPROTO)),
    ];
    for (opcode, bufs, outcome) in told {
        let answer = world.call(0, Call::new(opcode, bufs)).map(|(reply, _)| reply);
        let goes_on = answer.map(|reply| grants::decode::<GrantWord>(&reply.bufs).expect("ours").0);
        assert_eq!(goes_on, outcome.map(|()| Vec::new()), "{opcode:?}: nobody holds a grant");
    }
}

#[test]
fn a_handle_that_is_stated_without_a_recovery_is_not_taken() {
    let world = World::new(5);
    let fid = world.call(0, creation("a", None)).expect("room").0.body::<AttrRep>().attr.fid();
    world.crash();
    world.call(0, creation("b", None)).expect("the recovery is over");
    let none: [GrantWord; 0] = [];
    let handle: u64 = (1 << 32) + 9; // the first run can have given it
    let open = OpenWord { fid: fid.into(), handle, ..OpenWord::default() };
    let mut bufs = grants::encode(&none, GrantsFlags::LAST);
    bufs.push(encode_opens(&[open]));
    let answer = world.call(0, Call::new(Opcode::MdtRestate, bufs)).map(drop);
    assert_eq!((answer, world.running().counts().open_handles), (Err(Errno::ESTALE), 0));
}
