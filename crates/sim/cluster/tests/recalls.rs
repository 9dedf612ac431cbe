//! Grants that are called back: which calls a client answers by itself, and how long it delays
//! other clients' changes.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Attr, Client, Ctx, Kernel, Listing, SetAttr, flags};
use cluster::{Cluster, Granted, Scenario};
use env::{Env, LocalFuture};
use env_sim::NodeHandle;
use types::{Errno, Fid, Instant, Span, TargetKind};

/// Two clients of a cluster on which nothing else happens.
struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
    dir: Fid,
}

impl World {
    fn new() -> World {
        World::with(None)
    }

    fn with(bug: Option<&'static str>) -> World {
        let scenario = Scenario { granted: Granted::Recall, bug, ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        let mut world = World { cluster, clients, dir: Fid::ROOT };
        world.dir = world
            .run(0, async |client| client.mkdir(&Ctx::root(), Fid::ROOT, b"dir", 0o755).await)
            .0
            .fid();
        world
    }

    /// What a client's call returns, how long it took, and whether a message was sent meanwhile.
    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> (T, Span, bool) {
        let sim = &self.cluster.sim;
        let (before, begun) = (sim.faults().delivered, sim.now());
        let answer = self.cluster.run(&self.clients[at], work);
        (answer, sim.now() - begun, sim.faults().delivered != before)
    }

    fn look(&self, at: usize) -> (Attr, bool) {
        self.look_at(at, self.dir)
    }

    fn look_at(&self, at: usize, dir: Fid) -> (Attr, bool) {
        let (attr, _, asked) =
            self.run(at, async move |client| client.getattr(&Ctx::root(), dir, None).await);
        (attr, asked)
    }

    /// How long a change takes.
    fn chmod(&self, at: usize, mode: u32) -> Span {
        self.chmod_of(at, self.dir, mode)
    }

    fn chmod_of(&self, at: usize, dir: Fid, mode: u32) -> Span {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.run(at, async move |client| client.setattr(&Ctx::root(), dir, &set, None).await).1
    }
}

impl World {
    /// Messages that a change by the first client takes: the fewest of some files.
    fn messages(&self, files: &[Fid]) -> u64 {
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        let change = |fid: Fid| {
            let before = self.cluster.sim.faults().delivered;
            self.run(0, async move |client| client.setattr(&Ctx::root(), fid, &set, None).await);
            self.cluster.sim.faults().delivered - before
        };
        files.iter().map(|fid| change(*fid)).min().expect("there are some")
    }
}

/// A kernel that forgets at a time.
struct Told {
    env: Env,
    until: Instant,
    heard: Cell<u32>,
    /// How often it was to forget everything.
    emptied: Cell<u32>,
}

impl Told {
    fn at(until: Instant, node: &NodeHandle) -> Rc<Told> {
        let (heard, emptied) = (Cell::default(), Cell::default());
        Rc::new(Told { env: node.env(), until, heard, emptied })
    }
}

impl Kernel for Told {
    fn forget(&self, _fid: Fid, _names: bool) -> Option<LocalFuture<'static, ()>> {
        self.heard.set(self.heard.get() + 1);
        let (env, until) = (self.env.clone(), self.until);
        Some(Box::pin(async move { env.sleep_until(until).await }))
    }

    fn forget_all(&self) -> Option<LocalFuture<'static, ()>> {
        self.emptied.set(self.emptied.get() + 1);
        None
    }
}

#[test]
fn what_is_granted_is_not_asked_for_until_somebody_changes_it() {
    let world = World::new();
    assert!(world.look(1).1);
    world.cluster.sim.run_for(Span::secs(100));
    assert!(!world.look(1).1, "heartbeats renew the lease");
    let took = world.chmod(0, 0o700);
    assert!(took < Span::millis(20), "{took:?}");
    let (attr, asked) = world.look(1);
    assert_eq!((attr.mode & 0o777, asked), (0o700, true));
    world.chmod(1, 0o750);
    let (attr, asked) = world.look(1);
    assert_eq!((attr.mode & 0o777, asked), (0o750, false), "the answer of its own change told it");
}

/// The planted bug makes no answer wrong: only the number of recalls shows it.
#[test]
fn a_clients_own_change_calls_none_of_its_own_grants_back() {
    for (bug, is_called) in [(None, false), (Some("ldlm.own_recall_not_exempt"), true)] {
        let world = World::with(bug);
        world.look(0);
        drop(planted::take_counts());
        world.chmod(0, 0o700);
        let is_counted = planted::take_counts().contains_key("mdt: a grant was called back");
        assert_eq!(is_counted, is_called, "{bug:?}");
        assert_eq!(world.look(0).0.mode & 0o777, 0o700);
    }
}

#[test]
fn a_client_that_is_frozen_delays_a_change_by_its_lease_once() {
    let world = World::new();
    world.look(1);
    world.clients[1].0.freeze();
    let took = world.chmod(0, 0o700);
    assert!((Span::secs(20)..Span::secs(34)).contains(&took), "a lease is 30 s here: {took:?}");
    assert!(world.chmod(0, 0o711) < Span::millis(20));
}

#[test]
fn a_client_that_was_cut_off_believes_nothing_of_before() {
    let world = World::new();
    world.look(1);
    world.cluster.cut_off(&world.clients[1].0, TargetKind::Mdt);
    world.chmod(0, 0o700);
    world.cluster.sim.heal_all();
    world.cluster.sim.run_for(Span::secs(10));
    let (attr, asked) = world.look(1);
    assert_eq!((attr.mode & 0o777, asked), (0o700, true));
}

/// The first change ends its lease, so nothing is called back for the second one.
#[test]
fn a_client_that_stood_still_with_its_clock_believes_nothing_of_before_after_its_next_heartbeat() {
    let world = World::new();
    let other = world
        .run(0, async |client| client.mkdir(&Ctx::root(), Fid::ROOT, b"other", 0o755).await)
        .0
        .fid();
    let (node, client) = &world.clients[1];
    let kernel = Told::at(Instant::default(), node);
    client.serve_kernel(kernel.clone());
    world.look(1);
    world.look_at(1, other);
    assert!(!world.look_at(1, other).1, "it is granted");
    let wakes = world.cluster.sim.now() + Span::secs(60);
    node.stand_still(Span::secs(60));
    let took = world.chmod(0, 0o700);
    assert!((Span::secs(20)..Span::secs(34)).contains(&took), "a lease is 30 s here: {took:?}");
    assert!(world.chmod_of(0, other, 0o711) < Span::millis(20));
    world.cluster.sim.run_for(wakes - world.cluster.sim.now());
    assert_eq!(kernel.emptied.get(), 0, "by its own clock its lease lasts");
    world.cluster.sim.run_for(Span::secs(9)); // a quarter of a lease is 7.5 s
    assert_eq!(kernel.emptied.get(), 1);
    let (attr, asked) = world.look_at(1, other);
    assert_eq!((attr.mode & 0o777, asked), (0o711, true));
    let (attr, asked) = world.look(1);
    assert_eq!((attr.mode & 0o777, asked), (0o700, true));
    world.cluster.sim.run_for(Span::secs(100));
    assert_eq!(kernel.emptied.get(), 1, "each floor is new once");
}

/// Grants of one client: it gives 512 back with one request.
const HELD: usize = 600;

#[test]
fn a_client_whose_lease_was_over_gives_back_what_it_held() {
    let world = World::new();
    let dir = world.dir;
    let (files, ..) = world.run(0, async move |client| {
        let mut made = Vec::new();
        for number in 0..HELD + 3 {
            let name = number.to_string();
            made.push(client.mkdir(&Ctx::root(), dir, name.as_bytes(), 0o755).await?.fid());
        }
        Ok(made)
    });
    let held = files[..HELD].to_vec();
    world.run(1, async move |client| {
        for fid in held {
            client.getattr(&Ctx::root(), fid, None).await?;
        }
        Ok(())
    });
    let alone = world.messages(&files[HELD..]);
    assert!(world.messages(&files[..3]) > alone, "a grant is called back");
    world.cluster.cut_off(&world.clients[1].0, TargetKind::Mdt);
    world.cluster.sim.run_for(Span::secs(40));
    world.cluster.sim.heal_all();
    world.cluster.sim.run_for(Span::secs(20));
    world.run(1, async |client| client.mkdir(&Ctx::root(), Fid::ROOT, b"back", 0o755).await);
    world.cluster.sim.run_for(Span::millis(100));
    assert_eq!(world.messages(&files[3..6]), alone, "nothing is called back");
}

#[test]
fn a_kernel_that_has_not_forgotten_is_waited_for() {
    let world = World::new();
    world.look(1);
    let end = world.cluster.sim.now() + Span::millis(300);
    let (node, client) = &world.clients[1];
    let kernel = Told::at(end, node);
    client.serve_kernel(kernel.clone());
    client.told_kernel(world.dir, end);
    let took = world.chmod(0, 0o700);
    assert!((Span::millis(250)..Span::millis(400)).contains(&took), "{took:?}");
    assert_eq!(kernel.heard.get(), 1);
}

/// A client that asks while a change waits is given nothing that would come in its way. The planted
/// bug makes no answer wrong: only the number of recalls shows it.
#[test]
fn a_change_that_waits_calls_nothing_back_that_was_granted_later() {
    for (bug, recalls) in [(None, 1), (Some("ldlm.grant_during_takeover"), 2)] {
        let world = World::with(bug);
        let node = world.cluster.client_node("reader", 2);
        let reader = world.cluster.mount(&node);
        world.look(1);
        let end = world.cluster.sim.now() + Span::millis(300);
        let (slow, client) = &world.clients[1];
        client.serve_kernel(Told::at(end, slow));
        client.told_kernel(world.dir, end);
        let (env, reading, dir) = (node.env(), reader.clone(), world.dir);
        node.env().spawn("reader", async move {
            env.sleep(Span::millis(100)).await;
            reading.getattr(&Ctx::root(), dir, None).await.expect("it is there");
        });
        drop(planted::take_counts());
        world.chmod(0, 0o700);
        let counted = planted::take_counts().get("mdt: a grant was called back").copied();
        assert_eq!(counted, Some(recalls), "{bug:?}");
    }
}

#[test]
fn after_a_restart_nobody_waits_for_a_lease() {
    let world = World::new();
    world.look(1);
    world.cluster.restart_mdt(0);
    let took = world.chmod(0, 0o700);
    assert!(took < Span::secs(10), "{took:?}");
    let (attr, asked) = world.look(1);
    assert_eq!((attr.mode & 0o777, asked), (0o700, true));
    assert!(!world.look(1).1);
}

/// It has the time of silent clients in the recovery, and no lease after that.
#[test]
fn a_client_that_died_before_a_restart_delays_a_change_once() {
    for (before, least, most) in [(40, 0, 12), (20, 5, 22)] {
        let world = World::new();
        world.look(1);
        world.clients[1].0.kill_as(false);
        world.cluster.sim.run_for(Span::secs(before));
        world.cluster.restart_mdt(0);
        let took = world.chmod(0, 0o700);
        let bounds = Span::secs(least)..Span::secs(most);
        assert!(bounds.contains(&took), "dead for {before} s of a lease of 33 s: {took:?}");
    }
}

/// When its link went, the MDT has made a list of what it held.
#[test]
fn a_client_that_died_before_a_restart_delays_no_change_of_what_it_did_not_hold() {
    let world = World::new();
    let other = world
        .run(0, async |client| client.mkdir(&Ctx::root(), Fid::ROOT, b"other", 0o755).await)
        .0
        .fid();
    world.look(1);
    world.clients[1].0.kill_as(false);
    world.cluster.sim.run_for(Span::secs(3));
    world.cluster.restart_mdt(0);
    let took = world.chmod_of(0, other, 0o711);
    assert!(took < Span::secs(12), "it has the time of silent clients: {took:?}");
    let took = world.chmod(0, 0o700);
    assert!((Span::secs(10)..Span::secs(34)).contains(&took), "a lease is 30 s here: {took:?}");
}

/// The list that was made when its link broke is void when it is back. The next one has what it was
/// granted since.
#[test]
fn a_client_that_was_back_before_it_died_delays_a_change_of_what_it_was_granted_since() {
    let world = World::new();
    let other = world
        .run(0, async |client| client.mkdir(&Ctx::root(), Fid::ROOT, b"other", 0o755).await)
        .0
        .fid();
    world.look(1);
    let node = &world.clients[1].0;
    world.cluster.cut_off(node, TargetKind::Mdt);
    world.cluster.break_links(node, TargetKind::Mdt);
    world.cluster.sim.run_for(Span::secs(3));
    world.cluster.sim.heal_all();
    world.cluster.sim.run_for(Span::secs(10));
    assert!(world.look_at(1, other).1);
    assert!(!world.look_at(1, other).1, "it is granted");
    node.kill_as(false);
    world.cluster.sim.run_for(Span::secs(3));
    world.cluster.restart_mdt(0);
    let took = world.chmod_of(0, other, 0o711);
    assert!((Span::secs(10)..Span::secs(36)).contains(&took), "a lease is 30 s here: {took:?}");
}

#[test]
fn what_was_durable_is_answered_without_a_request_after_a_restart() {
    let world = World::new();
    world.look(1);
    world.cluster.sim.run_for(Span::secs(10)); // a heartbeat tells that all is durable
    for mode in [0o700, 0o711] {
        assert!(!world.look(1).1);
        world.cluster.restart_mdt(0);
        world.cluster.sim.run_for(Span::secs(5));
        assert!(!world.look(1).1, "its grant lives on");
        let took = world.chmod(0, mode);
        assert!(took < Span::millis(20), "{took:?}");
        let (attr, asked) = world.look(1);
        assert_eq!((attr.mode & 0o777, asked), (mode, true), "it was called back");
        world.cluster.sim.run_for(Span::secs(10));
    }
}

#[test]
fn what_may_be_lost_is_asked_for_after_a_restart() {
    let world = World::new();
    world.look(1);
    world.cluster.sim.run_for(Span::secs(10));
    world.chmod(0, 0o700);
    let (attr, _) = world.look(1);
    assert_eq!((attr.mode & 0o777, world.look(1).1), (0o700, false));
    world.clients[0].0.kill();
    world.cluster.restart_mdt(0);
    world.cluster.sim.run_for(Span::secs(20));
    let (attr, asked) = world.look(1);
    assert_eq!((attr.mode & 0o777, asked), (0o755, true), "the change went with its client");
}

/// The first client's change ends the lease of the second one, whose clock stands still, so that it
/// may believe that its lease lasts.
#[test]
fn an_expulsion_outlives_a_restart() {
    let world = World::new();
    world.look(1);
    world.cluster.sim.run_for(Span::secs(10));
    assert!(!world.look(1).1);
    let wakes = world.cluster.sim.now() + Span::secs(36);
    world.clients[1].0.stand_still(Span::secs(36));
    let took = world.chmod(0, 0o700);
    assert!((Span::secs(20)..Span::secs(34)).contains(&took), "a lease is 30 s here: {took:?}");
    world.cluster.restart_mdt(0);
    world.cluster.sim.run_for(wakes + Span::secs(10) - world.cluster.sim.now());
    let (attr, asked) = world.look(1);
    assert_eq!((attr.mode & 0o777, asked), (0o700, true));
}

/// The first recovery evicts the second client. The MDT that starts then does not know it.
#[test]
fn the_lease_of_an_evicted_client_outlives_two_restarts_and_no_more() {
    let world = World::new();
    world.look(1);
    world.cluster.cut_off(&world.clients[1].0, TargetKind::Mdt);
    world.cluster.restart_mdt(0);
    world.cluster.sim.run_for(Span::secs(16));
    world.cluster.restart_mdt(0);
    let took = world.chmod(0, 0o700);
    assert!((Span::secs(15)..Span::secs(40)).contains(&took), "a lease is 30 s here: {took:?}");
    world.cluster.sim.run_for(Span::secs(2)); // that it is over is durable too
    world.cluster.restart_mdt(0);
    let took = world.chmod(0, 0o711);
    assert!(took < Span::secs(10), "the lease is over: {took:?}");
}

#[test]
fn a_close_that_states_the_size_grants_the_attributes() {
    let world = World::new();
    let file = world.run(0, async |client| {
        let made =
            client.create(&Ctx::root(), Fid::ROOT, b"file", 0o644, flags::O_RDWR, None).await?;
        made.1.write(0, Bytes::from_static(b"some bytes")).await?;
        made.1.close().await?;
        client.open(&Ctx::root(), made.0.fid(), flags::O_RDWR).await?.close().await?;
        let again = client.open(&Ctx::root(), made.0.fid(), flags::O_RDWR).await?;
        again.write(10, Bytes::from_static(b"and more")).await?;
        again.close().await?;
        Ok(made.0.fid())
    });
    let (attr, asked) = world.look_at(0, file.0);
    assert_eq!((attr.size, asked), (18, false));
    assert!(world.chmod_of(1, file.0, 0o600) < Span::millis(20));
    let (attr, asked) = world.look_at(0, file.0);
    assert_eq!((attr.mode & 0o777, asked), (0o600, true), "it was called back");
}

#[test]
fn a_name_that_is_absent_from_a_new_directory_is_not_asked_for_until_somebody_else_may_make_it() {
    let world = World::new();
    let (node, client) = &world.clients[0];
    client.serve_kernel(Told::at(Instant::default(), node));
    let dir = world.dir; // the first client made it
    let look = |name: &'static [u8]| {
        world.run(0, async move |client| {
            let found = client.lookup_glance(&Ctx::root(), dir, name).await;
            Ok(found.map(|glance| glance.attr.fid()).map_err(|error| error.errno()))
        })
    };
    let make = |at: usize, name: &'static [u8]| {
        let made =
            world.run(at, async move |client| client.mkdir(&Ctx::root(), dir, name, 0o700).await);
        made.0.fid()
    };
    let absent = |name| {
        let (found, _, asked) = look(name);
        assert_eq!(found, Err(Errno::ENOENT));
        asked
    };
    assert_eq!((absent(b"a"), absent(b"b")), (false, false));
    let made = make(0, b"a");
    assert_eq!((look(b"a").0, absent(b"b")), (Ok(made), false));
    world.run(0, async move |client| client.rename(&Ctx::root(), dir, b"a", dir, b"b", 0).await);
    assert_eq!((look(b"b").0, absent(b"a"), absent(b"c")), (Ok(made), false, false));
    world.run(0, async move |client| client.rmdir(&Ctx::root(), dir, b"b").await);
    assert!(!absent(b"b"));
    let made = make(1, b"c");
    assert_eq!(look(b"c").0, Ok(made));
    assert!(absent(b"d"), "others make names here");
}

#[test]
fn a_directory_that_was_read_to_its_end_is_not_asked_for_until_another_client_makes_a_name() {
    let world = World::new();
    let (node, client) = &world.clients[1];
    client.serve_kernel(Told::at(Instant::default(), node));
    let dir = world.dir; // the other client made it
    let make = |name: &'static [u8]| {
        world.run(0, async move |client| client.mkdir(&Ctx::root(), dir, name, 0o700).await);
    };
    let list = || {
        let (page, _, asked) = world.run(1, async move |client| {
            let listing = Listing::new(dir);
            client.readdir_leased(&Ctx::root(), &listing, 0, 1 << 16).await.map(|(page, _)| page)
        });
        (page.entries.len(), asked)
    };
    let is_asked_for_absent = |name: &'static [u8]| {
        let (found, _, asked) = world.run(1, async move |client| {
            let found = client.lookup_glance(&Ctx::root(), dir, name).await;
            Ok(found.map(|glance| glance.attr.fid()).map_err(|error| error.errno()))
        });
        assert_eq!(found, Err(Errno::ENOENT));
        asked
    };
    make(b"a");
    make(b"b");
    world.look(1); // grants the directory's names
    assert_eq!(list(), (2, true));
    assert_eq!((list(), is_asked_for_absent(b"c")), ((2, false), false));
    make(b"c");
    assert_eq!(list(), (3, true));
    assert!(is_asked_for_absent(b"d"), "others make names here");
    world.look(1);
    assert_eq!((list(), list()), ((3, true), (3, false)));
    assert!(!is_asked_for_absent(b"d"));
}
