//! Names of directories that a kernel keeps for long: the requests of a walk through them, and
//! moves of a directory by another client.

use client::{Client, Ctx};
use cluster::{Cluster, Granted, Scenario};
use env_sim::{NodeHandle, Rng};
use fusedev::InitInfo;
use kernel::{Kernel, Traits, Version, Who};
use types::{Errno, Fid, Span};

const TICK: Span = Span::millis(4);
/// With the ticks it is what a mount must bear.
const LATE: Span = Span::millis(20);
const SEEDS: u64 = 40;
/// Threads of the mount that walk all the time.
const WALKERS: u32 = 4;
/// Moves in a row. After some more, names of the directory are not granted for a while.
const MOVES: usize = 10;

/// A mount, and a client that has made the directory `dir/sub`.
struct World {
    cluster: Cluster,
    maker: (NodeHandle, Client),
    node: NodeHandle,
    kernel: Kernel,
    dir: Fid,
}

impl World {
    fn new(seed: u64, traits: Traits) -> World {
        let scenario = Scenario { granted: Granted::Recall, ..Scenario::calm() };
        let cluster = Cluster::new(seed, &scenario);
        cluster.boot();
        let [maker, (node, client)] = [0, 1].map(|index| {
            let node = cluster.client_node(&format!("c{index}"), index);
            let client = cluster.mount(&node);
            (node, client)
        });
        cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        let minor = traits.version.minor();
        let info = InitInfo { minor, capabilities: 0, max_write: 1 << 20, max_readahead: 0 };
        let env = node.env();
        let handler = |notifier| fuse::handler(&env, client, info, notifier, fuse::Bugs::default());
        let kernel = Kernel::new(&env, handler, traits, Rng::new(seed));
        let own = maker.1.clone();
        let made = async move {
            let me = Ctx::root();
            let dir = own.mkdir(&me, Fid::ROOT, b"dir", 0o755).await?.fid();
            own.mkdir(&me, dir, b"sub", 0o755).await?;
            Ok::<Fid, client::Error>(dir)
        };
        let dir = cluster.sim.block_on(&maker.0, made).expect("room");
        World { cluster, maker, node, kernel, dir }
    }

    /// The number of the inode that a path leads to, and the requests for it.
    fn walk(&self, path: &'static str) -> (Result<u64, Errno>, u64) {
        let (kernel, before) = (self.kernel.clone(), self.kernel.requests());
        let walk = async move { kernel.path(Who::root(1), path).await.map(|found| found.ino()) };
        let found = self.cluster.sim.block_on_for(&self.node, Span::secs(10), walk);
        (found.expect("it ends"), self.kernel.requests() - before)
    }

    /// The other client moves a directory in `dir`.
    fn rename(&self, from: &'static [u8], to: &'static [u8]) {
        let ((node, maker), dir) = (&self.maker, self.dir);
        let own = maker.clone();
        let moved = async move { own.rename(&Ctx::root(), dir, from, dir, to, 0).await };
        self.cluster.sim.block_on(node, moved).expect("it is there");
    }

    fn walk_for_ever(&self, thread: u32) {
        let (kernel, env) = (self.kernel.clone(), self.node.env());
        self.node.env().spawn("walker", async move {
            loop {
                for path in ["dir/sub", "dir/new"] {
                    let _ = kernel.path(Who::root(thread), path).await;
                }
                env.sleep(Span::millis(1)).await;
            }
        });
    }
}

#[test]
fn a_walk_through_directories_asks_for_nothing_until_another_client_moves_one() {
    let traits = Traits { tick: TICK, late_max: Span::ZERO, plus: true, version: Version::Epochs };
    let world = World::new(1, traits);
    let ino = world.walk("dir/sub").0.expect("it is there");
    world.cluster.sim.run_for(Span::millis(200));
    assert_eq!(world.walk("dir/sub"), (Ok(ino), 0));
    world.rename(b"sub", b"new");
    assert_eq!(world.walk("dir/sub").0, Err(Errno::ENOENT));
    assert_eq!(world.walk("dir/new").0, Ok(ino));
}

#[test]
fn no_answer_that_comes_late_brings_back_the_name_of_a_directory() {
    for seed in 1..=SEEDS {
        let version = match seed.is_multiple_of(2) {
            true => Version::LooksFirst,
            false => Version::Epochs,
        };
        let traits = Traits { tick: TICK, late_max: LATE, plus: true, version };
        let (world, mut rng) = (World::new(seed, traits), Rng::new(seed));
        let ino = world.walk("dir/sub").0.expect("it is there");
        (2..2 + WALKERS).for_each(|thread| world.walk_for_ever(thread));
        let names: [(&'static [u8], &'static str); 2] = [(b"sub", "dir/sub"), (b"new", "dir/new")];
        for round in 0..MOVES {
            world.cluster.sim.run_for(rng.span(Span::ZERO, Span::millis(12)));
            let [(from, old), (to, new)] = [names[round % 2], names[(round + 1) % 2]];
            world.rename(from, to);
            let seen = [world.walk(old).0, world.walk(new).0];
            assert_eq!(seen, [Err(Errno::ENOENT), Ok(ino)], "seed {seed}, move {round}");
        }
    }
}
