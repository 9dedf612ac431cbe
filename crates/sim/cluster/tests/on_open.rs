//! Read-on-open: which reads of small files at the MDT need no request, counted in messages of a
//! quiet world, and what they return.

use bytes::Bytes;
use client::{Client, Ctx, File};
use cluster::{Cluster, Granted, Scenario};
use env_sim::NodeHandle;
use layout::Asked;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use types::{Fid, Span};

const O_RDWR: u32 = 0o2;
const O_DIRECT: u32 = 0o40_000;
const BORDER: u64 = 128 << 10;
/// More than one reply brings.
const LARGE: usize = 65_537;

/// Two clients of a cluster on which nothing else happens.
struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
}

impl World {
    fn new(granted: Granted) -> World {
        let (cluster, clients) =
            Cluster::with_two_clients(&Scenario { granted, dom: true, ..Scenario::calm() });
        World { cluster, clients }
    }

    /// What a client's call returns, and whether a message was sent meanwhile.
    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> (T, bool) {
        let sim = &self.cluster.sim;
        let before = sim.faults().delivered;
        let answer = self.cluster.run(&self.clients[at], work);
        (answer, sim.faults().delivered != before)
    }

    /// A file of the first client, whose first bytes are at the MDT; it is closed.
    fn make(&self, name: &'static [u8], bytes: usize) -> Fid {
        let made = self.run(0, async move |client| {
            let mut parts = CompositeTemplate::striped(0, [(BORDER, 1), (END_OF_FILE, 1)]);
            parts.components[0] = TemplateComponent { end: BORDER, wanted: Wanted::Mdt };
            let (ctx, asked) = (Ctx::root(), Asked::Composite(parts));
            let (attr, file) =
                client.create(&ctx, Fid::ROOT, name, 0o644, O_RDWR, Some(&asked)).await?;
            if bytes > 0 {
                file.write(0, Bytes::from(vec![1; bytes])).await?;
            }
            file.close().await?;
            Ok(attr.fid())
        });
        made.0
    }

    fn open(&self, at: usize, fid: Fid, flags: u32) -> File {
        self.run(at, async move |client| client.open(&Ctx::root(), fid, flags).await).0
    }

    /// What is read, and whether a request was sent for it.
    fn read(&self, at: usize, file: &File, offset: u64) -> (Bytes, bool) {
        let file = file.clone();
        self.run(at, async move |_| file.read(offset, 1 << 20).await)
    }

    /// As many bytes, all of them others.
    fn overwrite(&self, at: usize, fid: Fid, with: u8, bytes: usize) {
        let file = self.open(at, fid, O_RDWR);
        self.run(at, async move |_| {
            file.write(0, Bytes::from(vec![with; bytes])).await?;
            file.close().await
        });
    }

    fn hits(&self, at: usize) -> (u64, u64) {
        let stats = self.clients[at].1.on_open_stats();
        (stats.hits, stats.misses)
    }
}

#[test]
fn a_small_file_is_read_without_a_request_behind_its_open() {
    let world = World::new(Granted::Recall);
    let fid = world.make(b"small", 4_096);
    let file = world.open(1, fid, 0);
    assert_eq!(world.read(1, &file, 0), (Bytes::from(vec![1; 4_096]), false));
    assert_eq!(world.read(1, &file, 4_000), (Bytes::from(vec![1; 96]), false));
    assert_eq!(world.read(1, &file, 4_096), (Bytes::new(), false), "the end is known too");
    let other = world.open(1, fid, 0);
    assert!(!world.read(1, &other, 0).1 && !world.read(1, &file, 0).1);
    assert_eq!(world.hits(1), (5, 0));
    let kept = || world.clients[1].1.on_open_stats().bytes;
    assert_eq!(kept(), 4_096);
    for file in [file, other] {
        world.run(1, async move |_| file.close().await);
    }
    assert_eq!(kept(), 0);
}

#[test]
fn what_another_client_writes_is_read_through_each_handle() {
    let world = World::new(Granted::Recall);
    let fid = world.make(b"small", 4_096);
    let early = world.open(1, fid, 0);
    assert!(!world.read(1, &early, 0).1);
    world.overwrite(0, fid, 2, 4_096);
    assert_eq!(world.read(1, &early, 0), (Bytes::from(vec![2; 4_096]), true));
    world.cluster.sim.run_for(Span::secs(60)); // nobody contends any more
    let late = world.open(1, fid, 0);
    assert_eq!(world.read(1, &late, 0), (Bytes::from(vec![2; 4_096]), false));
    assert_eq!(world.read(1, &early, 0), (Bytes::from(vec![2; 4_096]), false));
    world.overwrite(1, fid, 3, 4_096);
    assert_eq!(world.read(1, &early, 0).0, Bytes::from(vec![3; 4_096]), "its own write");
    let writer = world.open(0, fid, O_RDWR);
    let blind = world.open(1, fid, 0);
    assert!(world.read(1, &blind, 0).1, "it may be written at any time");
    world.run(0, async move |_| writer.close().await);
}

#[test]
fn bytes_do_not_outlive_the_mdt_that_gave_them() {
    let world = World::new(Granted::Recall);
    let fid = world.make(b"small", 100);
    world.run(0, async |client| client.sync().await);
    let file = world.open(1, fid, 0);
    assert!(!world.read(1, &file, 0).1);
    world.cluster.restart_mdt(0);
    world.run(1, async |client| client.getattr(&Ctx::root(), Fid::ROOT, None).await);
    world.cluster.sim.run_for(Span::secs(60));
    assert_eq!(world.read(1, &file, 0), (Bytes::from(vec![1; 100]), true));
}

#[test]
fn large_files_direct_reads_and_mounts_without_it_ask() {
    let world = World::new(Granted::Recall);
    let (small, large) = (world.make(b"small", 4_096), world.make(b"large", LARGE));
    let is_asked = |fid, flags| {
        let file = world.open(1, fid, flags);
        let (read, asked) = world.read(1, &file, 0);
        assert!(read.iter().all(|byte| *byte == 1));
        world.run(1, async move |_| file.close().await);
        asked
    };
    assert_eq!((is_asked(small, 0), is_asked(large, 0)), (false, true));
    assert!(is_asked(small, O_DIRECT));
    world.clients[1].1.set_read_on_open(false);
    assert!(is_asked(small, 0));
    world.clients[1].1.set_read_on_open(true);
    assert!(!is_asked(small, 0));
}

#[test]
fn grants_that_end_by_time_bring_no_bytes() {
    let world = World::new(Granted::Timed);
    let fid = world.make(b"small", 4_096);
    let file = world.open(1, fid, 0);
    assert_eq!(world.read(1, &file, 0), (Bytes::from(vec![1; 4_096]), true));
    assert_eq!(world.hits(1), (0, 1));
}
