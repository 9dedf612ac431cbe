//! Locks of applications, on a cluster on which nothing else happens: waits that are given up, and
//! the locks that clients state to a restarted MDT.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use client::{Client, Ctx, LockKind, LockMode, LockSpec, flags};
use cluster::{Cluster, Granted, Scenario};
use env_sim::{Faults, NodeHandle};
use types::{Errno, Fid, Span, TargetKind};
use wire::Opcode;

/// Waits that a mount has in line at an MDT at a time.
const IN_LINE: u64 = client::limits::LOCK_WAITS_MAX as u64;

struct World {
    cluster: Cluster,
    clients: Vec<(NodeHandle, Client)>,
    files: [Fid; 2],
}

impl World {
    fn new() -> World {
        let scenario = Scenario { granted: Granted::Recall, ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        let mut clients = Vec::from(clients);
        let third = cluster.client_node("c2", 2);
        let client = cluster.mount(&third);
        clients.push((third, client));
        let mut world = World { cluster, clients, files: [Fid::ROOT; 2] };
        world.files = [&b"one"[..], b"two"].map(|name| {
            world.run(0, async move |client| {
                let ctx = Ctx::root();
                let made = client.create(&ctx, Fid::ROOT, name, 0o644, flags::O_RDWR, None).await?;
                made.1.close().await?;
                Ok(made.0.fid())
            })
        });
        world
    }

    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> T {
        self.cluster.run(&self.clients[at], work)
    }

    /// What a lock call comes to.
    fn lock(&self, at: usize, fid: Fid, spec: LockSpec) -> Result<(), Errno> {
        self.run(at, async move |client| {
            Ok(client.lock(&Ctx::root(), fid, spec).await.map_err(|error| error.errno()))
        })
    }

    /// Programs of a client wait for a file, as many as its MDT holds requests back for.
    fn fill_line(&self, at: usize, busy: Fid) {
        self.run(at, async move |client| {
            for owner in 100..100 + IN_LINE {
                let own = client.clone();
                client.env().spawn("waits", async move {
                    let spec = flock(LockMode::Exclusive, owner, true);
                    let _it_waits_for_ever = own.lock(&Ctx::root(), busy, spec).await;
                });
            }
            Ok(())
        });
        self.cluster.sim.run_for(Span::secs(1));
    }

    /// The second client holds both files, and the first has no place in line. Programs of the
    /// first then wait for the second file. Each gives it back at once, and leaves its owner here.
    fn wait_for_calls(&self, owners: std::ops::Range<u64>) -> Rc<RefCell<Vec<u64>>> {
        let [busy, fid] = self.files;
        for file in [busy, fid] {
            assert_eq!(self.lock(1, file, flock(LockMode::Exclusive, 1, false)), Ok(()));
        }
        self.fill_line(0, busy);
        let granted: Rc<RefCell<Vec<u64>>> = Rc::default();
        for owner in owners {
            let granted = granted.clone();
            self.run(0, async move |client| {
                let own = client.clone();
                client.env().spawn("is called", async move {
                    let of = |mode| flock(mode, owner, true);
                    own.lock(&Ctx::root(), fid, of(LockMode::Exclusive)).await.expect("waits");
                    granted.borrow_mut().push(owner);
                    own.lock(&Ctx::root(), fid, of(LockMode::Unlock)).await.expect("holds it");
                });
                Ok(())
            });
            self.cluster.sim.run_for(Span::millis(10)); // they come one after another
        }
        granted
    }

    /// The second client gives the second file back.
    fn free(&self) {
        assert_eq!(self.lock(1, self.files[1], flock(LockMode::Unlock, 1, false)), Ok(()));
    }

    /// Begins a wait, and gives it up after a time.
    fn wait_for(&self, at: usize, fid: Fid, spec: LockSpec, most: Span) {
        self.run(at, async move |client| {
            let ctx = Ctx::root();
            let wait = client.lock(&ctx, fid, spec);
            let ended = client.env().timeout(most, wait).await;
            assert!(ended.is_none(), "it is given up before it is answered");
            Ok(())
        });
        self.cluster.sim.run_for(Span::secs(1));
    }
}

fn posix(mode: LockMode, owner: u64, wait: bool) -> LockSpec {
    LockSpec { start: 0, end: 100, ..LockSpec::whole(LockKind::Posix, mode, owner, wait) }
}

fn flock(mode: LockMode, owner: u64, wait: bool) -> LockSpec {
    LockSpec::whole(LockKind::Flock, mode, owner, wait)
}

#[test]
fn a_wait_that_is_interrupted_leaves_what_was_held() {
    let (world, shared) = (World::new(), LockMode::Shared);
    let fid = world.files[0];
    assert_eq!(world.lock(0, fid, posix(shared, 7, false)), Ok(()));
    world.wait_for(0, fid, posix(LockMode::Exclusive, 7, true), Span(1_000));
    let found = world.run(1, async move |client| {
        client.test_lock(&Ctx::root(), fid, posix(LockMode::Exclusive, 8, false)).await
    });
    assert_eq!(found.map(|conflict| conflict.mode), Some(shared));
    assert_eq!(world.lock(1, fid, posix(shared, 8, false)), Ok(()), "nothing more is held");
}

#[test]
fn a_wait_that_was_given_up_keeps_no_place_in_line() {
    let (world, exclusive) = (World::new(), LockMode::Exclusive);
    let [busy, fid] = world.files;
    for file in [busy, fid] {
        assert_eq!(world.lock(1, file, flock(exclusive, 1, false)), Ok(()));
    }
    world.fill_line(0, busy);
    world.wait_for(0, fid, flock(exclusive, 7, true), Span::millis(1_005));
    assert_eq!(world.lock(1, fid, flock(LockMode::Unlock, 1, false)), Ok(()));
    world.cluster.sim.run_for(Span::millis(100));
    assert_eq!(world.lock(2, fid, flock(exclusive, 9, false)), Ok(()));
}

#[test]
fn a_refused_conversion_gives_the_old_lock_up_also_after_a_restart() {
    let (world, shared) = (World::new(), LockMode::Shared);
    let fid = world.files[0];
    for at in [0, 1] {
        assert_eq!(world.lock(at, fid, flock(shared, 7, false)), Ok(()));
    }
    let refused = world.lock(0, fid, flock(LockMode::Exclusive, 7, false));
    assert_eq!(refused, Err(Errno::EAGAIN));
    world.cluster.restart_mdt(0);
    world.cluster.sim.run_for(Span::secs(15));
    assert_eq!(world.lock(1, fid, flock(LockMode::Unlock, 7, false)), Ok(()));
    assert_eq!(world.lock(2, fid, flock(LockMode::Exclusive, 9, false)), Ok(()));
}

#[test]
fn waits_that_are_called_ask_rarely_and_hand_the_lock_on_at_once() {
    const CALLED: u64 = 8;
    let world = World::new();
    let granted = world.wait_for_calls(1..1 + CALLED);
    let asked = || world.clients[0].1.requests()[&Opcode::MdtLock];
    let before = asked();
    world.cluster.sim.run_for(Span::secs(20));
    assert!(granted.borrow().is_empty());
    let most = 6 * (IN_LINE + CALLED); // every 4 s
    assert!(asked() - before <= most, "{} requests in 20 s", asked() - before);
    world.free();
    world.cluster.sim.run_for(Span::millis(100));
    assert_eq!(*granted.borrow(), (1..1 + CALLED).collect::<Vec<_>>());
    assert_eq!(world.lock(2, world.files[1], flock(LockMode::Exclusive, 9, false)), Ok(()));
}

#[test]
fn a_wait_that_is_called_goes_on_at_an_mdt_that_restarted() {
    let world = World::new();
    let granted = world.wait_for_calls(1..3);
    world.cluster.restart_mdt(0);
    world.cluster.sim.run_for(Span::secs(15));
    assert!(granted.borrow().is_empty(), "the holder has stated its lock again");
    world.free();
    world.cluster.sim.run_for(Span::millis(100));
    assert_eq!(granted.borrow().len(), 2);
}

#[test]
fn a_call_that_does_not_arrive_delays_its_wait_and_loses_nothing() {
    let world = World::new();
    let granted = world.wait_for_calls(1..2);
    world.cluster.cut_off(&world.clients[0].0, TargetKind::Mdt);
    world.free();
    world.cluster.sim.run_for(Span::secs(2));
    assert!(granted.borrow().is_empty());
    let refused = world.lock(2, world.files[1], flock(LockMode::Exclusive, 9, false));
    assert_eq!(refused, Err(Errno::EAGAIN), "its place is kept");
    world.cluster.sim.heal_all();
    world.cluster.sim.run_for(Span::secs(7));
    assert_eq!(*granted.borrow(), [1]);
}

#[test]
fn a_client_that_does_not_come_when_it_is_called_keeps_a_lock_free_for_10_s_at_most() {
    let world = World::new();
    let granted = world.wait_for_calls(1..2);
    world.clients[0].0.freeze();
    world.free();
    let begun = world.cluster.sim.now();
    assert_eq!(world.lock(2, world.files[1], flock(LockMode::Exclusive, 9, true)), Ok(()));
    let took = world.cluster.sim.now() - begun;
    assert!(took > Span::secs(1) && took <= Span::secs(10), "{took:?}");
    assert!(granted.borrow().is_empty());
}

#[test]
fn who_is_told_of_the_interruption_stands_in_line_no_more() {
    let (world, exclusive) = (World::new(), LockMode::Exclusive);
    let fid = world.files[0];
    for late in 0..20 {
        assert_eq!(world.lock(1, fid, posix(exclusive, 1, false)), Ok(()), "{late}");
        let (told, took) = world.run(0, async move |client| {
            let (ctx, env) = (Ctx::root(), client.env());
            let given_up = env.sleep(Span::micros(500_000 + 100 * late));
            let begun = env.now();
            let told = client.lock_until(&ctx, fid, posix(exclusive, 7, true), given_up).await;
            Ok((told.map_err(|error| error.errno()), env.now() - begun))
        });
        assert_eq!(told, Err(Errno::EINTR));
        assert!(took < Span::millis(600), "{took:?}");
        for (at, mode) in [(1, LockMode::Unlock), (2, exclusive), (2, LockMode::Unlock)] {
            assert_eq!(world.lock(at, fid, posix(mode, 1, false)), Ok(()), "{late}");
        }
    }
}

#[test]
fn a_wait_is_given_up_within_a_second_while_the_mdt_is_away() {
    let world = World::new();
    let fid = world.files[0];
    assert_eq!(world.lock(1, fid, posix(LockMode::Exclusive, 1, false)), Ok(()));
    let (node, client) = &world.clients[0];
    let (own, took) = (client.clone(), Rc::new(Cell::new(None)));
    let answer = took.clone();
    node.env().spawn("is interrupted", async move {
        let env = own.env();
        let spec = posix(LockMode::Exclusive, 7, true);
        let given_up = env.sleep(Span::secs(1));
        let begun = env.now();
        let told = own.lock_until(&Ctx::root(), fid, spec, given_up).await;
        answer.set(Some((told.map_err(|error| error.errno()), env.now() - begun)));
    });
    world.cluster.sim.run_for(Span::millis(500));
    world.cluster.cut_off(node, TargetKind::Mdt);
    world.cluster.sim.run_for(Span::secs(2));
    let (told, took) = took.take().expect("it is answered");
    assert_eq!(told, Err(Errno::EINTR));
    assert!(took >= Span::secs(2) && took < Span::millis(2_100), "{took:?}");
}

#[test]
fn a_call_that_crosses_the_end_of_its_wait_leaves_no_lock() {
    let (world, exclusive) = (World::new(), LockMode::Exclusive);
    let fid = world.files[1];
    drop(world.wait_for_calls(0..0));
    for late in 0..20 {
        world.run(0, async move |client| {
            let own = client.clone();
            client.env().spawn("is interrupted", async move {
                let ctx = Ctx::root();
                let wait = own.lock(&ctx, fid, flock(exclusive, 7, true));
                let given_up_at = Span::micros(500_000 + 100 * late);
                let _given_up = own.env().timeout(given_up_at, wait).await;
                let unlock = flock(LockMode::Unlock, 7, false);
                own.lock(&ctx, fid, unlock).await.expect("it may hold it");
            });
            Ok(())
        });
        world.cluster.sim.run_for(Span::micros(499_500));
        world.free();
        world.cluster.sim.run_for(Span::secs(1));
        assert_eq!(world.lock(2, fid, flock(exclusive, 9, false)), Ok(()), "{late}");
        assert_eq!(world.lock(2, fid, flock(LockMode::Unlock, 9, false)), Ok(()));
        assert_eq!(world.lock(1, fid, flock(exclusive, 1, false)), Ok(()));
    }
}

/// What programs share that take turns.
#[derive(Clone, Default)]
struct Turns {
    /// A program holds the lock.
    is_inside: Rc<Cell<bool>>,
    is_over: Rc<Cell<bool>>,
    /// How often each of them had it.
    had: Rc<RefCell<BTreeMap<(usize, u64), u64>>>,
}

impl Turns {
    /// A program of a client takes the lock again and again.
    async fn take(self, client: Client, fid: Fid, (at, owner): (usize, u64)) {
        let ctx = Ctx::root();
        while !self.is_over.get() {
            let taken = client.lock(&ctx, fid, flock(LockMode::Exclusive, owner, true)).await;
            taken.expect("it waits for its turn");
            assert!(!self.is_inside.replace(true), "two programs hold it");
            client.env().sleep(Span::millis(50)).await;
            self.is_inside.set(false);
            *self.had.borrow_mut().entry((at, owner)).or_default() += 1;
            let given = client.lock(&ctx, fid, flock(LockMode::Unlock, owner, false)).await;
            given.expect("it is held");
        }
    }
}

#[test]
fn waits_that_are_called_exclude_each_other_through_storms_and_restarts() {
    let (world, turns) = (World::new(), Turns::default());
    let [busy, fid] = world.files;
    assert_eq!(world.lock(1, busy, flock(LockMode::Exclusive, 1, false)), Ok(()));
    for at in 0..3 {
        world.fill_line(at, busy);
        for owner in 11..15 {
            let turns = turns.clone();
            world.run(at, async move |client| {
                client.env().spawn("takes turns", turns.take(client.clone(), fid, (at, owner)));
                Ok(())
            });
        }
    }
    for _ in 0..3 {
        world.cluster.sim.set_faults(Faults::stormy());
        world.cluster.sim.run_for(Span::secs(4));
        world.cluster.restart_mdt(0);
        world.cluster.sim.run_for(Span::secs(4));
        world.cluster.sim.set_faults(Faults::default());
        world.cluster.sim.run_for(Span::secs(30));
    }
    let before = turns.had.borrow().clone();
    world.cluster.sim.run_for(Span::secs(10));
    let after = turns.had.borrow().clone();
    assert_eq!(after.len(), 12);
    assert!(after.iter().all(|(who, had)| before.get(who) < Some(had)), "{before:?} {after:?}");
    turns.is_over.set(true);
    world.cluster.sim.run_for(Span::secs(10));
    assert_eq!(world.lock(2, fid, flock(LockMode::Exclusive, 9, false)), Ok(()));
}
