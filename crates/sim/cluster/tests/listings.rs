//! Listings that are repeated: the requests that a kernel sends for them, and the messages that its
//! client sends.

use std::collections::BTreeSet;
use std::rc::Rc;

use client::{Client, Ctx, SetAttr};
use cluster::{Cluster, Granted, Scenario};
use env_sim::{NodeHandle, Rng};
use fusedev::InitInfo;
use fusedev::abi::cap;
use kernel::{Kernel, Listed, OpenDir, Traits, Version, Who};
use types::{Errno, Fid, Span};
use wire::Opcode;

const FILES: u32 = 60;
/// Of the calls of `ls` for the names: the directory's path, its pages and their end.
const NAMES_REQUESTS_MAX: u64 = 12;
/// What a kernel has that keeps names of directories.
const KEEPS: u64 = cap::POSIX_ACL | cap::AUTO_INVAL_DATA | cap::DO_READDIRPLUS;
const QUICK: Traits =
    Traits { tick: Span::millis(4), late_max: Span::ZERO, plus: true, version: Version::Epochs };

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
        World::with(FILES, cap::POSIX_ACL)
    }

    fn with(files: u32, capabilities: u64) -> World {
        World::of(1, files, capabilities, QUICK)
    }

    fn of(seed: u64, files: u32, capabilities: u64, traits: Traits) -> World {
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
        let info = InitInfo { minor, capabilities, max_write: 1 << 20, max_readahead: 0 };
        let (env, mount) = (node.env(), client.clone());
        let handler = |notifier| fuse::handler(&env, client, info, notifier, fuse::Bugs::default());
        let kernel = Kernel::new(&env, handler, traits, Rng::new(seed));
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

    /// What a call of the mount returns.
    fn run<T: 'static>(&self, call: impl Future<Output = Result<T, Errno>> + 'static) -> T {
        let done = self.cluster.sim.block_on_for(&self.node, Span::secs(10), call);
        done.expect("it ends").expect("it is done")
    }

    /// Another client makes a directory.
    fn make_far(&self, name: &'static [u8]) {
        let ((node, maker), dir) = (&self.maker, self.dir);
        let own = maker.clone();
        let made = async move { own.mkdir(&Ctx::root(), dir, name, 0o755).await.map(drop) };
        self.cluster.sim.block_on(node, made).expect("room");
    }

    /// And removes it.
    fn remove_far(&self, name: &'static [u8]) {
        let ((node, maker), dir) = (&self.maker, self.dir);
        let own = maker.clone();
        let gone = async move { own.rmdir(&Ctx::root(), dir, name).await };
        self.cluster.sim.block_on(node, gone).expect("it is there");
    }

    /// Another client changes all files.
    fn chmod_far(&self) {
        let ((node, maker), dir) = (&self.maker, self.dir);
        let own = maker.clone();
        let changed = async move {
            let (me, set) = (Ctx::root(), SetAttr { mode: Some(0o600), ..SetAttr::default() });
            for file in 0..FILES {
                let name = format!("file{file}");
                let fid = own.lookup(&me, dir, name.as_bytes()).await?.fid();
                own.setattr(&me, fid, &set, None).await?;
            }
            Ok::<(), client::Error>(())
        };
        self.cluster.sim.block_on(node, changed).expect("they are there");
    }

    fn open(&self) -> Rc<OpenDir> {
        let (kernel, who) = (self.kernel.clone(), Who::root(1));
        Rc::new(self.run(async move {
            let dir = kernel.path(who, "dir").await?;
            kernel.opendir(who, &dir).await
        }))
    }

    /// What an open directory has from its start on.
    fn read(&self, open: &Rc<OpenDir>) -> Listed {
        let (kernel, open) = (self.kernel.clone(), open.clone());
        self.run(async move { kernel.read_from_start(Who::root(1), &open).await })
    }

    fn close(&self, open: Rc<OpenDir>) {
        let kernel = self.kernel.clone();
        self.run(async move { kernel.closedir(Who::root(1), &open).await });
    }

    /// Lists the directory all the time, each time twice through one handle.
    fn list_for_ever(&self, thread: u32) {
        let (kernel, env, who) = (self.kernel.clone(), self.node.env(), Who::root(thread));
        self.node.env().spawn("lister", async move {
            loop {
                if let Ok(dir) = kernel.path(who, "dir").await
                    && let Ok(open) = kernel.opendir(who, &dir).await
                {
                    for _ in 0..2 {
                        let _ = kernel.read_from_start(who, &open).await;
                        env.sleep(Span::millis(1)).await;
                    }
                    let _ = kernel.closedir(who, &open).await;
                }
                env.sleep(Span::millis(1)).await;
            }
        });
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
    world.make_far(b"far");
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
    let world = World::with(MANY, cap::POSIX_ACL);
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

/// Of `ls` for the names, where the kernel has them: the path, the attributes, open and close.
const KEPT_NAMES_REQUESTS_MAX: u64 = 4;

#[test]
fn a_listing_that_is_repeated_asks_for_no_names_where_the_kernel_keeps_them() {
    let world = World::with(FILES, KEEPS);
    assert_eq!(world.ls().names, FILES);
    world.ls(); // the access time of the directory is new
    let warm = world.ls();
    assert!(warm.names == FILES && warm.for_names <= KEPT_NAMES_REQUESTS_MAX, "{warm:?}");
    assert!(warm.for_files == 0 && !warm.asked, "{warm:?}");
    world.make_far(b"far");
    let names = || world.ls().names;
    assert_eq!([names(), names()], [FILES + 1; 2]);
    let kernel = world.kernel.clone();
    world.run(async move { kernel.unlink(Who::root(1), "dir/file7").await });
    assert_eq!([names(), names()], [FILES; 2]);
    world.cluster.sim.run_for(Span::secs(10));
    let late = world.ls();
    assert_eq!(late.names, FILES);
    assert!(late.for_files < u64::from(FILES) * 2, "attributes come with names: {late:?}");
}

#[test]
fn a_listing_of_files_that_another_client_changed_brings_their_attributes_with_names() {
    let world = World::with(FILES, KEEPS);
    for _ in 0..3 {
        world.ls();
    }
    world.chmod_far();
    let changed = world.ls();
    assert_eq!(changed.names, FILES);
    // each access list, and not the attributes of each file
    assert!(changed.for_files < u64::from(FILES) * 3 / 2, "{changed:?}");
    let warm = world.ls();
    assert!(warm.for_names <= KEPT_NAMES_REQUESTS_MAX && warm.for_files == 0, "{warm:?}");
}

#[test]
fn an_open_directory_that_is_read_from_its_start_has_the_names_of_now() {
    let world = World::with(FILES, KEEPS);
    for _ in 0..3 {
        world.ls();
    }
    let open = world.open();
    let names = || world.read(&open).concat().len() as u32;
    let before = world.kernel.requests();
    assert_eq!(names(), FILES);
    let requests = world.kernel.requests() - before;
    assert!(requests <= 1, "{requests} requests for names that are kept");
    world.make_far(b"far");
    assert_eq!([names(), names()], [FILES + 1; 2]);
    let kernel = world.kernel.clone();
    world.run(async move { kernel.mkdir(Who::root(1), "dir/near", 0o755).await });
    assert_eq!([names(), names()], [FILES + 2; 2]);
    assert_eq!(world.ls().names, FILES + 2, "beside a handle of before");
}

#[test]
fn no_answer_that_comes_late_brings_back_a_name() {
    const SEEDS: u64 = 40;
    const FEW: u32 = 6;
    const LISTERS: u32 = 3;
    /// After some more, names are not granted for a while.
    const CHANGES: u32 = 10;
    const FAR: &[u8] = b"far";
    for seed in 1..=SEEDS {
        let version = match seed.is_multiple_of(2) {
            true => Version::LooksFirst,
            false => Version::Epochs,
        };
        let traits = Traits { late_max: Span::millis(20), version, ..QUICK };
        let (world, mut rng) = (World::of(seed, FEW, KEEPS, traits), Rng::new(seed));
        (2..2 + LISTERS).for_each(|thread| world.list_for_ever(thread));
        for change in 0..CHANGES {
            world.cluster.sim.run_for(rng.span(Span::ZERO, Span::millis(40)));
            let (before, is_there) = (world.open(), change % 2 == 0);
            world.read(&before);
            match is_there {
                true => world.make_far(FAR),
                false => world.remove_far(FAR),
            }
            for open in [before, world.open()] {
                let found = world.read(&open).concat().iter().any(|(name, _)| name == FAR);
                assert_eq!(found, is_there, "seed {seed}, change {change}");
                world.close(open);
            }
        }
    }
}
