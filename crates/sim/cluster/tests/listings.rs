//! Listings that are repeated: the requests that a kernel sends for them, and the messages that its
//! client sends.

use std::collections::BTreeSet;

use client::{Client, Ctx};
use cluster::{Cluster, Granted, Scenario};
use env_sim::{NodeHandle, Rng};
use fusedev::InitInfo;
use fusedev::abi::cap;
use kernel::{Kernel, Traits, Version, Who};
use types::{Errno, Fid, Span};
use wire::Opcode;

const FILES: u32 = 60;
/// Of the calls of `ls` for the names: the directory's path, its pages and their end.
const NAMES_REQUESTS_MAX: u64 = 12;

/// A mount, and a client that has made a directory with files.
struct World {
    cluster: Cluster,
    maker: (NodeHandle, Client),
    node: NodeHandle,
    mount: Client,
    kernel: Kernel,
    dir: Fid,
}

/// What `ls -l` of the directory was.
#[derive(Debug)]
struct Shown {
    names: u32,
    /// Requests of the kernel for the names, and for the files.
    for_names: u64,
    for_files: u64,
    /// Whether the client sent a message.
    asked: bool,
}

impl World {
    fn new() -> World {
        World::with_files(FILES)
    }

    fn with_files(files: u32) -> World {
        let scenario = Scenario { granted: Granted::Recall, ..Scenario::calm() };
        let cluster = Cluster::new(1, &scenario);
        cluster.boot();
        let [maker, (node, client)] = [0, 1].map(|index| {
            let node = cluster.client_node(&format!("c{index}"), index);
            let client = cluster.mount(&node);
            (node, client)
        });
        cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        let version = Version::Epochs;
        let info = InitInfo {
            minor: version.minor(),
            capabilities: cap::POSIX_ACL,
            max_write: 1 << 20,
            max_readahead: 0,
        };
        let (env, mount) = (node.env(), client.clone());
        let handler = |notifier| fuse::handler(&env, client, info, notifier, fuse::Bugs::default());
        let traits = Traits { tick: Span::millis(4), late_max: Span::ZERO, plus: true, version };
        let kernel = Kernel::new(&env, handler, traits, Rng::new(1));
        let own = maker.1.clone();
        let filled = async move { fill(&own, files).await.expect("room") };
        let dir = cluster.sim.block_on(&maker.0, filled);
        cluster.sim.run_for(Span::secs(2));
        World { cluster, maker, node, mount, kernel, dir }
    }

    fn ls(&self) -> Shown {
        let sim = &self.cluster.sim;
        let before = sim.faults().delivered;
        let done = sim.block_on_for(&self.node, Span::secs(10), ls(self.kernel.clone()));
        let shown = done.expect("it ends").expect("it is done");
        let shown = Shown { asked: sim.faults().delivered != before, ..shown };
        sim.run_for(Span::millis(100)); // the directory was read: its access time
        shown
    }
}

async fn fill(client: &Client, files: u32) -> client::Result<Fid> {
    let me = Ctx::root();
    let dir = client.mkdir(&me, Fid::ROOT, b"dir", 0o755).await?.fid();
    for file in 0..files {
        let name = format!("file{file}");
        let (_, file) = client.create(&me, dir, name.as_bytes(), 0o644, 0, None).await?;
        file.close().await?;
    }
    Ok(dir)
}

async fn ls(kernel: Kernel) -> Result<Shown, Errno> {
    let (who, begun) = (Who::root(1), kernel.requests());
    let dir = kernel.path(who, "dir").await?;
    let names = kernel.list(who, &dir).await?.concat();
    let listed = kernel.requests();
    for (name, _) in &names {
        let path = format!("dir/{}", String::from_utf8_lossy(name));
        let found = kernel.path(who, &path).await?;
        kernel.stat(who, &found).await?;
        kernel.acl(who, &found).await;
    }
    Ok(Shown {
        names: names.len() as u32,
        for_names: listed - begun,
        for_files: kernel.requests() - listed,
        asked: false,
    })
}

#[test]
fn a_listing_that_is_repeated_asks_for_no_file_and_sends_no_message() {
    let world = World::new();
    let cold = world.ls();
    assert!(cold.names == FILES && cold.asked, "{cold:?}");
    assert!(cold.for_files >= FILES.into(), "each access list once: {cold:?}");
    world.ls(); // the access time of the directory is new
    let warm = world.ls();
    assert!(warm.names == FILES && warm.for_names <= NAMES_REQUESTS_MAX, "{warm:?}");
    assert!(warm.for_files == 0 && !warm.asked, "{warm:?}");
}

#[test]
fn a_repeated_listing_has_the_names_that_any_client_made_and_none_that_went() {
    let world = World::new();
    let names = || world.ls().names;
    assert_eq!([names(), names()], [FILES; 2]);
    let ((node, maker), dir) = (&world.maker, world.dir);
    let own = maker.clone();
    let made = async move { own.mkdir(&Ctx::root(), dir, b"far", 0o755).await.map(drop) };
    world.cluster.sim.block_on(node, made).expect("room");
    assert_eq!([names(), names()], [FILES + 1; 2]);
    let kernel = world.kernel.clone();
    let made = async move { kernel.mkdir(Who::root(1), "dir/near", 0o755).await };
    world.cluster.sim.block_on(&world.node, made).expect("room");
    assert_eq!([names(), names()], [FILES + 2; 2]);
    let kernel = world.kernel.clone();
    let gone = async move { kernel.unlink(Who::root(1), "dir/file7").await };
    world.cluster.sim.block_on(&world.node, gone).expect("it was there");
    let own = maker.clone();
    let gone = async move { own.unlink(&Ctx::root(), dir, b"file8").await };
    world.cluster.sim.block_on(node, gone).expect("it was there");
    assert_eq!([names(), names()], [FILES; 2]);
}

#[test]
fn a_cold_listing_asks_for_whole_pages_ahead_of_the_kernel() {
    const MANY: u32 = 600;
    let world = World::with_files(MANY);
    let pages = |world: &World| world.mount.requests().get(&Opcode::MdtReaddir).copied();
    let before = pages(&world).unwrap_or(0);
    let kernel = world.kernel.clone();
    let list = async move {
        let dir = kernel.path(Who::root(1), "dir").await?;
        kernel.list(Who::root(1), &dir).await
    };
    let done = world.cluster.sim.block_on_for(&world.node, Span::secs(10), list);
    let listed = done.expect("it ends").expect("it is done");
    let names: BTreeSet<_> = listed.concat().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), MANY as usize);
    let asked = pages(&world).unwrap_or(0) - before;
    let of_kernel = listed.len() as u64;
    assert!(of_kernel > 20 && asked <= 5, "{asked} requests for {of_kernel} pages of the kernel");
}
