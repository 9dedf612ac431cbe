//! Locks of applications, on a cluster on which nothing else happens: waits that are given up, and
//! the locks that clients state to a restarted MDT.

use client::{Client, Ctx, LockKind, LockMode, LockSpec, flags};
use cluster::{Cluster, Granted, Scenario};
use env_sim::NodeHandle;
use types::{Errno, Fid, Span};

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
    world.run(0, async move |client| {
        for owner in 100..100 + IN_LINE {
            let own = client.clone();
            client.env().spawn("waits", async move {
                let _it_waits_for_ever =
                    own.lock(&Ctx::root(), busy, flock(exclusive, owner, true)).await;
            });
        }
        Ok(())
    });
    world.cluster.sim.run_for(Span::secs(1));
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
