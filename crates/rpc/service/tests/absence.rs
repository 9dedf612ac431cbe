//! Absent clients: idle ones return at once after a restart, and dead ones are evicted when they
//! harm other clients.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::raw::{ask, check, connect};
use crate::common::{
    Disk, Fixed, Rules, STUCK, TARGET, Toy, addr, call, endpoint, endpoint_to, increment, node,
    read, serve, write,
};
use bytes::Bytes;
use endpoint::Endpoint;
use env::Env;
use env_sim::{Cut, Faults, NodeHandle, Sim, SimConfig};
use ptlrpc::RecoveryPhase;
use service::{Node, spec};
use types::Span;
use wire::body::ConnectReq;
use wire::{Opcode, Request};

type Up = Rc<RefCell<Option<(Rc<Node>, Rc<Toy>)>>>;

struct World {
    sim: Sim,
    server: NodeHandle,
    disk: Rc<Disk>,
    up: Up,
}

impl World {
    fn new(seed: u64) -> World {
        World::with(seed, Rules::default())
    }

    fn leasing(seed: u64, lease: Span) -> World {
        World::with(seed, Rules { lease, ..Rules::default() })
    }

    fn with(seed: u64, rules: Rules) -> World {
        let sim = Sim::new(seed, SimConfig { fail_on_error: false, ..SimConfig::default() });
        sim.set_faults(Faults::default());
        let server = node(&sim, "server", 1);
        let world = World { sim, server, disk: Rc::default(), up: Rc::default() };
        world.start_with(rules);
        world
    }

    fn start(&self) {
        self.start_with(Rules::default());
    }

    fn start_with(&self, rules: Rules) {
        let (disk, up, env, at) =
            (Rc::clone(&self.disk), Rc::clone(&self.up), self.server.env(), addr(&self.server));
        let starts = env.clone();
        env.spawn("server", async move {
            let served = serve(starts, at, disk, &rules).await;
            *up.borrow_mut() = Some(served);
        });
    }

    /// A client that has done one thing, and then nothing any more.
    fn idle(&self, id: u8, is_server: bool) -> (NodeHandle, Rc<Endpoint>) {
        let handle = node(&self.sim, "client", 10 + id);
        let env = handle.env();
        let idle = endpoint(&env, id.into(), addr(&self.server), is_server);
        let remote = idle.remote(TARGET);
        self.sim.block_on(&handle, async move {
            remote.call(increment(u64::from(id))).await.expect("done");
        });
        (handle, idle)
    }

    fn toy(&self) -> Rc<Toy> {
        Rc::clone(&self.up.borrow().as_ref().expect("it was started").1)
    }
}

#[test]
fn recovery_does_not_wait_for_pings_of_idle_clients() {
    for seed in 0..10 {
        let world = World::new(seed);
        let idle: Vec<_> = (1..=3).map(|id| world.idle(id, id == 3)).collect();
        world.sim.run_for(Span::millis(4_000 + seed * 700));
        world.server.kill_as(false);
        world.sim.run_for(Span::millis(seed * 250));
        *world.up.borrow_mut() = None;
        world.start();
        let back = world.sim.run_until(Span::millis(1_500), || {
            world.up.borrow().as_ref().is_some_and(|(_, toy)| !toy.exports.is_recovering())
        });
        assert!(back, "seed {seed}: still recovering");
        world.sim.run_for(Span::secs(3));
        assert_eq!(
            (world.toy().exports.sessions().len(), world.toy().evicted.get()),
            (3, 0),
            "seed {seed}"
        );
        assert!(idle.iter().all(|(_, endpoint)| endpoint.remote(TARGET).is_connected()));
    }
}

#[test]
fn a_silent_client_is_evicted_when_it_is_in_the_way_and_no_sooner() {
    for is_killed in [true, false] {
        let world = World::leasing(7, Span::secs(10));
        let ((silent, first), (_alive, second)) = (world.idle(1, false), world.idle(2, false));
        let exports = Rc::clone(&world.toy().exports);
        let count = || exports.sessions().len();
        let ask_all =
            || exports.sessions().iter().for_each(|session| exports.evict_if_dead(session.id));
        world.sim.run_for(Span::secs(60));
        ask_all();
        if is_killed {
            silent.kill_as(false);
        } else {
            // its link is up, but nothing comes through
            world.sim.partition(&silent, &world.server, Cut::BothWays);
        }
        world.sim.run_for(Span::secs(8));
        ask_all();
        world.sim.run_for(Span::secs(60));
        assert_eq!(count(), 2, "too early, and afterwards in nobody's way");
        ask_all();
        world.sim.run_for(Span::secs(1));
        assert_eq!((count(), world.toy().evicted.get(), exports.evicted()), (1, 1, 1));
        assert!(second.remote(TARGET).is_connected() && second.remote(TARGET).is_leased());
        assert!(is_killed || !first.remote(TARGET).is_leased());
    }
}

#[test]
fn a_client_knows_by_itself_that_its_lease_is_over() {
    let world = World::leasing(8, Span::secs(10));
    let (cut, own) = world.idle(1, false);
    let remote = own.remote(TARGET);
    for _ in 0..100 {
        world.sim.run_for(Span::millis(700));
        assert!(remote.is_leased(), "heartbeats keep it");
    }
    world.sim.partition(&cut, &world.server, Cut::BothWays);
    world.sim.run_for(Span::secs(1));
    assert!(remote.is_leased(), "it was heard of 2.5 s before at most");
    world.sim.run_for(Span::secs(9));
    assert!(!remote.is_leased(), "no later than the server counts");
    world.sim.heal_all();
    world.sim.run_for(Span::secs(30));
    assert!(remote.is_leased(), "nobody wanted it gone");
}

#[test]
fn a_server_that_stood_still_holds_it_against_nobody() {
    let world = World::leasing(9, Span::secs(10));
    let (_node, idle) = world.idle(1, false);
    let exports = Rc::clone(&world.toy().exports);
    world.sim.run_for(Span::secs(20));
    world.server.pause(Span::secs(40));
    for _ in 0..600 {
        world.sim.run_for(Span::millis(100));
        exports.sessions().iter().for_each(|session| exports.evict_if_dead(session.id));
        assert!(!world.disk.clients()[0].silent, "its record says that it was");
    }
    assert_eq!((exports.sessions().len(), world.toy().evicted.get()), (1, 0));
    assert!(idle.remote(TARGET).is_leased());
}

#[test]
fn a_client_that_came_back_is_not_called_silent_after_a_crash() {
    let world = World::new(15);
    let (node, idle) = world.idle(1, false);
    world.sim.run_for(Span::secs(1));
    world.sim.partition(&node, &world.server, Cut::BothWays);
    world.sim.reset_links(&node, &world.server);
    world.sim.run_for(Span::secs(3));
    world.toy().commit();
    assert!(world.disk.clients()[0].silent, "its link went");
    let address = world.toy().exports.sessions()[0].address();
    assert_eq!(world.disk.clients()[0].nid.to_string(), address, "a restart knows it");
    world.sim.heal_all();
    let is_back = || idle.remote(TARGET).is_connected();
    assert!(world.sim.run_until(Span::secs(20), is_back));
    assert!(!world.disk.clients()[0].silent, "nothing else was committed since");
}

/// The store takes the note that its link went only when it is back.
#[test]
fn what_is_noted_of_a_client_is_not_written_behind_its_return() {
    let world = World::with(16, Rules { note: Span::secs(2), ..Rules::default() });
    let (node, idle) = world.idle(1, false);
    world.sim.run_for(Span::secs(1));
    world.sim.reset_links(&node, &world.server);
    world.sim.run_for(Span::millis(100));
    assert!(world.sim.run_until(Span::secs(20), || idle.remote(TARGET).is_connected()));
    for _ in 0..100 {
        assert!(!world.disk.clients()[0].silent, "it is back");
        world.sim.run_for(Span::millis(100));
    }
}

#[test]
fn a_client_that_is_heard_of_on_its_old_link_is_not_silent() {
    let rules =
        Rules { lease: Span::secs(10), commit_every: Span::secs(1_000), ..Rules::default() };
    let world = World::with(17, rules);
    let (node, idle) = world.idle(1, false);
    let remote = idle.remote(TARGET);
    world.sim.partition(&node, &world.server, Cut::BothWays);
    let noted = || world.toy().running.borrow().clients().iter().any(|record| record.silent);
    assert!(world.sim.run_until(Span::secs(60), noted));
    world.toy().commit();
    assert!(world.disk.clients()[0].silent && !remote.is_leased());
    world.sim.heal_all();
    assert!(world.sim.run_until(Span::secs(30), || remote.is_leased()));
    assert!(!world.disk.clients()[0].silent, "no reply renews its lease before");
}

#[test]
fn a_client_has_no_lease_while_the_store_does_not_take_that_it_is_back() {
    let world = World::leasing(19, Span::secs(10));
    let (node, idle) = world.idle(1, false);
    let remote = idle.remote(TARGET);
    world.sim.partition(&node, &world.server, Cut::BothWays);
    let silent = || world.disk.clients()[0].silent;
    assert!(world.sim.run_until(Span::secs(60), silent));
    world.toy().is_full.set(true);
    world.sim.heal_all();
    world.sim.run_for(Span::secs(20));
    assert!(silent() && !remote.is_leased(), "after a restart its lease would count as over");
    world.toy().is_full.set(false);
    assert!(world.sim.run_until(Span::secs(30), || remote.is_leased()));
    assert!(!silent());
}

#[test]
fn a_record_says_how_long_its_client_was_silent_over_restarts() {
    let world = World::leasing(18, Span::secs(10));
    let ((dead, _first), (_handle, _alive)) = (world.idle(1, false), world.idle(2, false));
    let secs = || {
        let clients = world.disk.clients();
        let dead = clients.iter().find(|record| record.client.0 == 1);
        dead.map(|record| (record.silent, record.silent_secs))
    };
    assert_eq!(secs(), Some((false, 0)));
    dead.kill_as(false);
    world.sim.run_for(Span::secs(6));
    assert_eq!(secs(), Some((true, 4)), "a step, a round and a commit later");
    world.server.kill_as(false);
    *world.up.borrow_mut() = None;
    world.start_with(Rules { lease: Span::secs(10), ..Rules::default() });
    world.sim.run_for(Span::millis(3_500));
    let is_absent = |session: &Rc<service::Session>| session.is_absent();
    let sessions = world.toy().exports.sessions();
    let absent = sessions.iter().find(|session| is_absent(session)).expect("it has its time");
    assert_eq!(absent.silent_before(), Span::secs(4));
    assert_eq!(secs(), Some((true, 6)), "it goes on");
    world.sim.run_for(Span::secs(5));
    assert_eq!(secs(), None, "it is waited for once");
}

impl World {
    fn restart(&self) {
        self.server.kill_as(false);
        *self.up.borrow_mut() = None;
        self.start();
    }

    /// How long the target recovers, from now on.
    fn recovers_for(&self) -> Span {
        let start = self.server.env().now();
        let over =
            || self.up.borrow().as_ref().is_some_and(|(_, toy)| !toy.exports.is_recovering());
        assert!(self.sim.run_until(Span::secs(200), over), "it ends");
        self.server.env().now() - start
    }
}

#[test]
fn recovery_does_not_wait_long_for_a_client_that_died_before() {
    let world = World::new(12);
    let ((dead, _first), (_handle, alive)) = (world.idle(1, false), world.idle(2, false));
    dead.kill_as(false);
    world.sim.run_for(Span::secs(1));
    world.restart();
    let took = world.recovers_for();
    assert!(took < Span::secs(7), "{took:?}");
    world.sim.run_for(Span::secs(1));
    assert_eq!((world.toy().exports.sessions().len(), world.toy().evicted.get()), (1, 1));
    assert!(alive.remote(TARGET).is_connected());
    world.restart();
    let took = world.recovers_for();
    assert!(took < Span::secs(2), "nobody waits for it again: {took:?}");
}

/// As daemons have it: nobody knows that it is dead, so it has the window, and no more.
#[test]
fn a_client_that_dies_with_its_server_holds_the_others_up_for_the_window() {
    let window = Span::secs(12);
    let world = World::with(20, Rules { window, ..Rules::default() });
    let ((dead, _first), (_handle, alive)) = (world.idle(1, false), world.idle(2, false));
    dead.kill_as(false);
    world.server.kill_as(false);
    *world.up.borrow_mut() = None;
    world.start_with(Rules { window, ..Rules::default() });
    let took = world.recovers_for();
    assert!((Span::secs(10)..=Span::secs(14)).contains(&took), "{took:?}");
    world.sim.run_for(Span::secs(1));
    assert_eq!((world.toy().exports.sessions().len(), world.toy().evicted.get()), (1, 1));
    assert!(alive.remote(TARGET).is_connected());
}

#[test]
fn a_recovery_that_was_cut_short_tells_the_next_who_was_missing() {
    let world = World::new(13);
    let ((dead, _first), (_handle, _alive)) = (world.idle(1, false), world.idle(2, false));
    dead.kill_as(false); // with the server, which does not see it
    world.restart();
    world.sim.run_for(Span::secs(8)); // one that lives may still wait for the old machine
    assert!(world.disk.clients().iter().all(|record| !record.silent));
    world.sim.run_for(Span::secs(6));
    let awaited = world.toy().exports.recovery_status().waits_for;
    assert!(awaited.starts_with("client1 (1"), "it has the window: {awaited}");
    world.restart();
    world.sim.run_for(Span::secs(3));
    let awaited = world.toy().exports.recovery_status().waits_for;
    assert!(awaited.contains("client1 ("), "{awaited}");
    assert!(awaited.contains(" s, was silent before)"), "{awaited}");
    let took = world.recovers_for();
    assert!(took < Span::secs(4), "{took:?}");
}

/// It has said that it is done, and says nothing more until it is answered.
#[test]
fn a_client_that_waited_for_the_end_of_a_recovery_was_not_silent() {
    let world = World::leasing(16, Span::secs(10));
    let ((dead, _first), (waiting, _second)) = (world.idle(1, false), world.idle(2, false));
    world.sim.run_for(Span::secs(2)); // what they did is durable
    dead.kill_as(false); // with the server, which waits for it
    world.server.kill_as(false);
    *world.up.borrow_mut() = None;
    world.start_with(Rules { lease: Span::secs(10), ..Rules::default() });
    world.sim.run_for(Span::secs(25));
    let silent = world.disk.clients().iter().filter(|record| record.silent).count();
    assert_eq!(silent, 1, "the dead one; a server that ends now has to wait for the other");
    world.sim.partition(&waiting, &world.server, Cut::BothWays);
    world.recovers_for();
    world.sim.run_for(Span::secs(3));
    let exports = Rc::clone(&world.toy().exports);
    let is_in_the_way =
        || exports.sessions().iter().for_each(|session| exports.evict_if_dead(session.id));
    is_in_the_way();
    world.sim.run_for(Span::secs(1));
    assert_eq!((exports.sessions().len(), world.toy().evicted.get()), (1, 1), "too early");
    world.sim.run_for(Span::secs(8));
    is_in_the_way();
    world.sim.run_for(Span::secs(1));
    assert_eq!(exports.sessions().len(), 0);
}

#[test]
fn a_client_that_lost_its_link_and_came_back_has_the_window_again() {
    let world = World::new(14);
    let (handle, idle) = world.idle(1, false);
    world.sim.reset_links(&handle, &world.server);
    world.sim.run_for(Span::secs(2));
    assert!(idle.remote(TARGET).is_connected());
    world.server.kill_as(false);
    world.sim.partition(&handle, &world.server, Cut::BothWays);
    *world.up.borrow_mut() = None;
    world.start();
    let other = node(&world.sim, "client", 12);
    let stranger = endpoint(&other.env(), 2, addr(&world.server), false);
    let remote = stranger.remote(TARGET);
    other.env().spawn("stranger", async move {
        let _waits = remote.call(increment(2)).await;
    });
    world.sim.run_for(Span::secs(15));
    world.sim.heal_all();
    world.recovers_for();
    assert_eq!(world.toy().evicted.get(), 0);
}

#[test]
fn many_evictions_take_the_time_of_one_and_nobody_else_waits_for_them() {
    let world = World::new(15);
    world.server.kill_as(false);
    world.start_with(Rules { end: Span::secs(10), ..Rules::default() });
    let idle: Vec<_> = (1..=20).map(|id| world.idle(id, false)).collect();
    let (handle, waiting) = world.idle(21, false);
    let remote = waiting.remote(TARGET);
    let slow = Rc::clone(&remote);
    handle.env().spawn("slow", async move {
        slow.call(increment(STUCK)).await.expect("early replies come until it is done");
    });
    world.sim.run_for(Span::secs(1));
    let exports = Rc::clone(&world.toy().exports);
    let evicted = exports.sessions().into_iter().filter(|session| session.client.0 <= 20);
    evicted.for_each(|session| exports.evict(session.id));
    let lost = world.sim.run_until(Span::secs(30), || remote.state() != "FULL");
    assert!(!lost, "its attempt timed out");
    assert_eq!((world.toy().evicted.get(), world.toy().ends.get()), (20, 1));
    drop(idle);
}

#[test]
fn a_client_that_returns_during_the_sweep_is_served() {
    let world = World::new(3);
    let (handle, idle) = world.idle(1, false);
    world.sim.run_for(Span::secs(1));
    world.server.kill_as(false);
    *world.up.borrow_mut() = None;
    world.start_with(Rules { sweep: Span::secs(3), ..Rules::default() });
    let sweeps =
        || {
            world.up.borrow().as_ref().is_some_and(|(_, toy)| {
                toy.exports.recovery_status().phase == RecoveryPhase::Complete
            })
        };
    assert!(world.sim.run_until(Span::secs(3), sweeps));
    assert!(world.toy().exports.is_recovering());
    world.sim.reset_links(&handle, &world.server);
    world.sim.run_for(Span::secs(2));
    assert_eq!(idle.remote(TARGET).state(), "REPLAY_WAIT");
    world.sim.run_for(Span::secs(2));
    assert_eq!(idle.remote(TARGET).state(), "FULL");
}

#[test]
fn a_clients_next_life_with_an_earlier_clock_is_served_at_once() {
    for machine in [false, true] {
        let world = World::new(4);
        let (handle, _former) = world.idle(1, false);
        handle.kill_as(machine);
        handle.skew_clock(-3_600_000_000_000);
        let next = endpoint(&handle.env(), 1, addr(&world.server), false);
        let remote = next.remote(TARGET);
        let served = world
            .sim
            .block_on_for(&handle, Span::secs(5), async move { remote.call(increment(9)).await });
        assert!(matches!(served, Some(Ok(_))), "{machine}");
    }
}

#[test]
fn a_replay_whose_data_cannot_be_had_is_not_overtaken() {
    let world = World::new(5);
    world.server.kill_as(false);
    world.start_with(Rules { commit_every: Span::secs(1_000), ..Rules::default() });
    let (handle, idle) = world.idle(1, false);
    let (remote, data) = (idle.remote(TARGET), Bytes::from(vec![7; 100_000]));
    let (written, own) = (data.clone(), Rc::clone(&remote));
    world.sim.block_on(&handle, async move {
        own.call(write(2, &written)).await.expect("written");
        own.call(increment(3)).await.expect("done");
    });
    world.server.kill_as(false);
    *world.up.borrow_mut() = None;
    world.start();
    let pulls = || {
        let up = world.up.borrow();
        up.as_ref().is_some_and(|(_, toy)| toy.exports.recovery_status().queued == 1)
    };
    assert!(world.sim.run_until(Span::secs(3), pulls));
    world.sim.partition(&handle, &world.server, Cut::BothWays);
    world.sim.run_for(Span::millis(2_500));
    world.sim.heal_all();
    let answer =
        world.sim.block_on(&handle, async move { remote.call(read(2)).await.expect("read") });
    assert_eq!(answer.data, data);
}

#[test]
fn no_policy_slows_a_recovery() {
    let world = World::new(6);
    world.server.kill_as(false);
    world.start_with(Rules { commit_every: Span::secs(1_000), ..Rules::default() });
    let (handle, idle) = world.idle(1, false);
    let remote = idle.remote(TARGET);
    remote.on_recovery(Rc::new(|| (0..30).map(|key| call(Opcode::MdtLock, key)).collect()));
    world.sim.block_on(&handle, async move {
        for key in 0..30 {
            remote.call(increment(3 * key)).await.expect("done");
        }
    });
    world.server.kill_as(false);
    *world.up.borrow_mut() = None;
    world.start();
    assert!(world.sim.run_until(Span::secs(1), || world.up.borrow().is_some()));
    let up = Rc::clone(&world.up.borrow().as_ref().expect("it was started").0);
    world.sim.block_on(&world.server, async move {
        up.nrs_select(&spec::MDT, "tbf nid").await.expect("started");
        up.nrs_set(&spec::MDT, "nrs_tbf_rule", "change default rate=1").expect("a rule");
    });
    assert!(world.toy().exports.is_recovering(), "the rule is there before the replays");
    let over = || !world.toy().exports.is_recovering();
    assert!(world.sim.run_until(Span::secs(2), over), "{}", world.toy().exports.recovery_status());
    assert_eq!(world.toy().executed.get(), 31, "all were replayed");
}

#[test]
fn a_client_of_another_file_system_changes_nothing() {
    let world = World::new(9);
    world.sim.run_for(Span::millis(10));
    world.toy().exports.set_uuid(5);
    let at = addr(&world.server);
    for (number, (uuid, welcome)) in
        (20..).zip([(5, true), (0, true), (6, false), (5 << 64, false)])
    {
        let executed = world.toy().executed.get();
        let handle = node(&world.sim, "client", number);
        let endpoint = endpoint_to(&handle.env(), number.into(), Fixed(at, uuid), true);
        let remote = endpoint.remote(TARGET);
        let call = endpoint::Call { patience: Some(Span::secs(2)), ..increment(3) };
        let answer = world.sim.block_on(&handle, async move { remote.call(call).await });
        assert_eq!(answer.is_ok(), welcome, "{uuid}");
        assert_eq!(world.toy().executed.get() - executed, u64::from(welcome));
        handle.kill();
    }
}

/// A recovery would wait for it for seconds, and it never comes back.
#[test]
fn a_server_that_starts_anew_ends_its_former_life_and_no_other() {
    check(|env, server, toy, _, at| async move {
        let says = |number: u64, is_server: u32, name: &str| {
            let mut request = connect(None, name);
            let body =
                ConnectReq { client_low: number, tags: 8, is_server, ..ConnectReq::default() };
            request.bufs[0] = wire::encode_body(&body);
            request
        };
        let joins = async |env: &Env, request: Request| {
            let mut link = env.connect(None, at).await.expect("it listens");
            assert_eq!(ask(&mut link, &request).await.errno(), None);
            link
        };
        let former = joins(&env, says(8, 1, "MDT0001 at a")).await;
        let others = [
            joins(&env, says(9, 1, "MDT0002 at a")).await,
            joins(&env, says(10, 0, "MDT0001 at a")).await,
            joins(&server, says(11, 1, "MDT0001 at a")).await,
        ];
        let long = "x".repeat(service::limits::NAME_CHARS_MAX);
        let cut = joins(&env, says(12, 1, &format!("{long}1"))).await;
        let alive = joins(&env, says(13, 1, "MDT0003 at a")).await;
        drop((former, others, cut));
        env.sleep(Span::millis(100)).await;
        let after = [
            joins(&env, says(20, 1, "MDT0001 at a")).await,
            joins(&env, says(21, 1, &format!("{long}2"))).await,
            joins(&env, says(22, 1, "MDT0003 at a")).await,
        ];
        let sessions = toy.exports.sessions();
        let mut there: Vec<u128> = sessions.iter().map(|session| session.client.0).collect();
        there.sort_unstable();
        assert_eq!(there, [9, 10, 11, 12, 13, 20, 21, 22]);
        drop((alive, after));
    });
}
