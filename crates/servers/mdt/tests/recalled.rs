//! A client with a grant that another one wants. Its requests overtake those that a policy holds
//! back, and its session goes on after its lease has ended.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{
    Call, CallbackAnswer, Endpoint, EndpointConfig, ImportConfig, OnCallback, Remote, Resolve,
};
use env::CptTable;
use env_sim::{NodeHandle, Sim, SimConfig};
use mdt::{Mdt, MdtConfig, OstAt};
use osd::mem::{MemDisk, MemMeta};
use params::ParamTree;
use service::{Node, NodeConfig, Target, spec};
use types::{ClientId, Errno, Fid, Instant, NidAddr, Span, TargetId, TargetKind};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{
    AttrRep, CreateReq, FidReq, GrantAck, GrantWord, LockFlags, LockRep, LockReq, LookupReq,
    SetattrFlags, SetattrReq, UnlinkReq, lock,
};
use wire::{Attr, Opcode, Reply, encode_body};

const MDT: TargetId = TargetId { kind: TargetKind::Mdt, index: 0 };

/// Requests of the holder; its bucket lets three pass.
const ASKED: u32 = 8;

/// A second each for what is held back is longer.
const AT_ONCE: Span = Span::millis(300);

fn addr(host: u32) -> NidAddr {
    format!("10.0.0.{host}@tcp").parse().expect("a NID")
}

struct Where;

impl Resolve for Where {
    fn addrs(&self, _: TargetId) -> Vec<NidAddr> {
        vec![addr(1)]
    }
}

struct Client {
    node: NodeHandle,
    mdt: Rc<Remote>,
    _near: Rc<Endpoint>,
}

struct World {
    sim: Sim,
    mds: NodeHandle,
    up: Rc<Node>,
    mdt: Rc<Mdt>,
    /// 10.0.0.2 holds something that 10.0.0.3 wants.
    holder: Client,
    other: Client,
}

impl World {
    fn new(seed: u64) -> World {
        let (delay_min, delay_max) = (Span::micros(20), Span::micros(21));
        let sim = Sim::new(seed, SimConfig { delay_min, delay_max, ..SimConfig::default() });
        let mds = sim.node("mds", addr(1).nid);
        let env = mds.env();
        let (up, mdt) = sim.block_on(&mds, async move {
            let store = Rc::new(MemMeta::open(&env, &MemDisk::default()));
            let config = MdtConfig::new("testfs".parse().expect("a name"), 0);
            let osts = Rc::new(|| vec![OstAt::from(0)]);
            let mdt = Mdt::start(&env, config, store, None, osts).await.expect("a good store");
            let one = NonZeroU32::MIN;
            let cpts = CptTable::new(one, one, 1, true).expect("one partition");
            let up = Node::new(&env, NodeConfig::new(cpts));
            up.add_target(mdt.clone());
            up.serve(env.listen(addr(1)).await.expect("a free address"));
            (up, mdt)
        });
        let [holder, other] = [2, 3].map(|host| client(&sim, host));
        World { sim, mds, up, mdt, holder, other }
    }

    /// Regular requests of the holder leave one a second from now on.
    fn hold_back(&self) {
        let (up, params) = (self.up.clone(), ParamTree::new());
        self.sim.block_on(&self.mds, async move {
            up.register_params(&params, &[&spec::MDT]);
            let settings = [
                ("mds.MDS.mdt.nrs_policies", "tbf reg nid"),
                ("mds.MDS.mdt.nrs_tbf_rule", "reg start slow nid={10.0.0.2@tcp} rate=1"),
            ];
            for (name, value) in settings {
                let answers = params.set_now(name, value).expect("it is there");
                answers.into_iter().for_each(|answer| drop(answer.expect("taken")));
            }
        });
    }

    fn call(&self, client: &Client, call: Call) -> Reply {
        let mdt = client.mdt.clone();
        let answer = self.sim.block_on(&client.node, async move { mdt.call(call).await });
        *answer.expect("it succeeds").reply
    }

    fn make(&self, client: &Client, dir: Fid, name: &str, mode: u32) -> Fid {
        self.call(client, creating(dir, name, mode)).body::<AttrRep>().attr.fid()
    }

    /// The holder asks all this at once; returns how many answers are to come.
    fn ask(&self, calls: impl IntoIterator<Item = Call>) -> Rc<Cell<u32>> {
        let left = Rc::new(Cell::new(0));
        for call in calls {
            left.set(left.get() + 1);
            let (mdt, left) = (self.holder.mdt.clone(), left.clone());
            self.holder.node.env().spawn("asks", async move {
                mdt.call(call).await.expect("it succeeds");
                left.set(left.get() - 1);
            });
        }
        left
    }

    /// The other client changes the mode of a file, at a time.
    fn chmod_at(&self, at: Instant, file: Fid) {
        let call = chmodding(file);
        let (env, mdt) = (self.other.node.env(), self.other.mdt.clone());
        self.other.node.env().spawn("chmod", async move {
            env.sleep_until(at).await;
            mdt.call(call).await.expect("it succeeds");
        });
    }

    /// When the MDT heard of the holder last.
    fn heard(&self) -> Instant {
        let sessions = self.mdt.exports().sessions();
        let holder = sessions.iter().find(|session| session.client == ClientId(2));
        holder.expect("it has a session").heard()
    }
}

fn client(sim: &Sim, host: u32) -> Client {
    let name = format!("c{host}");
    let node = sim.node(&name, addr(host).nid);
    let import = ImportConfig { client: ClientId(host.into()), name, ..ImportConfig::default() };
    let config = EndpointConfig { import, ..EndpointConfig::default() };
    let near = Endpoint::new(&node.env(), config, Rc::new(Where));
    Client { mdt: near.remote(MDT), node, _near: near }
}

fn change(opcode: Opcode, body: Bytes, name: &str) -> Call {
    let mut call = Call::new(opcode, vec![body, Bytes::copy_from_slice(name.as_bytes())]);
    call.modifies = true;
    call
}

fn creating(dir: Fid, name: &str, mode: u32) -> Call {
    let (parent, mode) = (dir.into(), mode | 0o755);
    let body = CreateReq { parent, mode, ..CreateReq::default() };
    change(Opcode::MdtCreate, encode_body(&body), name)
}

fn chmodding(file: Fid) -> Call {
    let attr = Attr { mode: 0o600, ..Attr::default() }.with_fid(file);
    let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    let mut call = Call::new(Opcode::MdtSetattr, vec![encode_body(&body)]);
    call.modifies = true;
    call
}

fn unlinking(dir: Fid, name: &str) -> Call {
    let body = UnlinkReq { parent: dir.into(), ..UnlinkReq::default() };
    change(Opcode::MdtUnlink, encode_body(&body), name)
}

/// A client that gives nothing up.
fn never() -> OnCallback {
    Rc::new(|_| Box::pin(std::future::pending::<Result<CallbackAnswer, Errno>>()))
}

fn looking_up(dir: Fid, name: &'static str) -> Call {
    let body = LookupReq { parent: dir.into(), ..LookupReq::default() };
    let name = Bytes::from_static(name.as_bytes());
    Call::new(Opcode::MdtLookup, vec![encode_body(&body), name])
}

fn locking(file: Fid, mode: u32) -> Call {
    let body = LockReq {
        fid: file.into(),
        kind: lock::FILE,
        mode,
        end: u64::MAX,
        owner: 1,
        cookie: u64::from(mode != lock::UNLOCK), // with it an unlock ends a wait alone
        flags: LockFlags::WAIT,
        wait_ms: 20_000,
        ..LockReq::default()
    };
    let opcode = if mode == lock::UNLOCK { Opcode::MdtUnlock } else { Opcode::MdtLock };
    let mut call = Call::new(opcode, vec![encode_body(&body)]);
    call.modifies = true;
    call
}

#[test]
fn requests_in_a_directory_overtake_while_a_name_there_is_called_back() {
    let world = World::new(3);
    let dir = world.make(&world.holder, Fid::ROOT, "dir", S_IFDIR);
    world.make(&world.holder, dir, "wanted", S_IFREG);
    world.hold_back();
    let names = (0..ASKED).map(|number| creating(dir, &number.to_string(), S_IFREG));
    let left = world.ask(names);
    world.sim.run_for(Span::millis(1)); // the tasks of one moment begin in any order
    let elsewhere = world.ask([looking_up(Fid::ROOT, "dir")]);
    let (env, locked) = (world.holder.node.env(), left.clone());
    let on_callback: OnCallback = Rc::new(move |callback| {
        let (env, locked) = (env.clone(), locked.clone());
        Box::pin(async move {
            while locked.get() > 0 {
                env.sleep(Span::millis(1)).await; // the kernel has the directory locked
            }
            let ack = |word: &GrantWord| {
                let (fid, number) = (word.fid, word.number);
                GrantAck { fid, number, ..GrantAck::default() }
            };
            Ok(CallbackAnswer::Acks(callback.words().iter().map(ack).collect()))
        })
    });
    world.holder.mdt.on_callback(on_callback);
    world.sim.run_for(Span::millis(100));
    assert!((4..ASKED).contains(&left.get()), "{} are held back", left.get());

    let begun = world.sim.now();
    world.call(&world.other, unlinking(dir, "wanted"));
    let took = world.sim.now() - begun;
    assert!(took < AT_ONCE, "the change waited for {took:?}");
    assert_eq!((left.get(), elsewhere.get()), (0, 1), "a request elsewhere waits its turn");
}

/// The MDT counts 10 % more than what it tells its clients.
const LEASE: Span = Span::secs(11);

#[test]
fn a_session_has_a_lease_again_after_a_change_has_ended_the_last_one() {
    for seed in 0..5 {
        let world = World::new(seed);
        let file = world.make(&world.holder, Fid::ROOT, "file", S_IFREG);
        world.holder.mdt.on_callback(never());
        world.holder.node.pause(Span::secs(14));
        world.sim.run_for(Span::secs(1));
        let ends = world.heard() + LEASE;
        world.chmod_at(world.sim.now(), file); // 5 s later, replies do not renew the lease
        // the timer is up to a millisecond late: one of these changes finds the lease over first
        (0..20).for_each(|number| world.chmod_at(ends + Span::micros(50 * number), file));
        world.sim.run_for(ends - world.sim.now());
        assert_eq!(world.mdt.counts().grants_expelled, 0, "seed {seed}");
        world.sim.run_for(Span::secs(1));
        assert_eq!(world.mdt.counts().grants_expelled, 1, "seed {seed}");
        world.sim.run_for(Span::secs(30)); // the holder is back
        assert!(world.holder.mdt.is_leased(), "seed {seed}: its appends would wait for ever");
    }
}

#[test]
fn a_frozen_client_delays_a_change_by_11_s_and_a_live_one_by_16_s() {
    for is_frozen in [true, false] {
        for unlinks in [true, false] {
            let world = World::new(3);
            let file = world.make(&world.holder, Fid::ROOT, "file", S_IFREG);
            world.holder.mdt.on_callback(never());
            if is_frozen {
                world.holder.node.freeze();
            }
            let call = if unlinks { unlinking(Fid::ROOT, "file") } else { chmodding(file) };
            let begun = world.sim.now();
            world.call(&world.other, call);
            let took = (world.sim.now() - begun).as_secs_f64();
            let bound = if is_frozen { 11.0 } else { 16.0 };
            let range = bound - 4.0..bound + 0.1;
            assert!(range.contains(&took), "frozen: {is_frozen}, unlink: {unlinks}: {took} s");
        }
    }
}

#[test]
fn the_mdt_says_which_client_waits_for_which() {
    let world = World::new(3);
    let file = world.make(&world.holder, Fid::ROOT, "file", S_IFREG);
    world.holder.mdt.on_callback(never());
    world.chmod_at(world.sim.now(), file);
    world.sim.run_for(Span::millis(2_500));
    assert_eq!(world.mdt.grants_waiting_on(), [format!("c3 waits for c2 for 2 s: {file}")]);
    assert_eq!(world.other.mdt.held_up_by().as_deref(), Some("MDT0000 (waits for c2)"));
    world.sim.run_for(Span::secs(30));
    assert!(world.mdt.grants_waiting_on().is_empty(), "it was executed");
    assert_eq!(world.other.mdt.held_up_by(), None);
}

#[test]
fn requests_about_a_file_overtake_while_another_client_waits_for_its_lock() {
    let world = World::new(3);
    let file = world.make(&world.holder, Fid::ROOT, "file", S_IFREG);
    let dir = world.make(&world.holder, Fid::ROOT, "dir", S_IFDIR);
    let state = |reply: Reply| reply.body::<LockRep>().state;
    let held = world.call(&world.holder, locking(file, lock::EXCLUSIVE));
    assert_eq!(state(held), lock::GRANTED);
    world.hold_back();
    let look = |fid: Fid| {
        let body = FidReq { fid: fid.into(), ..FidReq::default() };
        Call::new(Opcode::MdtGetattr, vec![encode_body(&body)])
    };
    let left = world.ask((0..ASKED).map(|_| look(file)));
    world.sim.run_for(Span::millis(1));
    let elsewhere = world.ask([look(dir)]);
    world.sim.run_for(Span::millis(100));
    assert!((4..ASKED).contains(&left.get()), "{} are held back", left.get());

    let (env, mdt) = (world.holder.node.env(), world.holder.mdt.clone());
    let under_way = left.clone();
    world.holder.node.env().spawn("gives it back", async move {
        while under_way.get() > 0 {
            env.sleep(Span::millis(1)).await;
        }
        mdt.call(locking(file, lock::UNLOCK)).await.expect("it is held");
    });
    let begun = world.sim.now();
    let granted = world.call(&world.other, locking(file, lock::EXCLUSIVE));
    let took = world.sim.now() - begun;
    assert_eq!(state(granted), lock::GRANTED);
    assert!(took < AT_ONCE, "the lock came after {took:?}");
    assert_eq!((left.get(), elsewhere.get()), (0, 1), "a request elsewhere waits its turn");
}
