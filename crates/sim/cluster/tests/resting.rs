//! Handles that stay open at the MDT after their close, on a cluster on which nothing else happens.

use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, Kernel, flags};
use cluster::{Cluster, Granted, Scenario};
use env::LocalFuture;
use env_sim::NodeHandle;
use types::{Fid, Span};
use wire::Opcode;

const NAME: &[u8] = b"file";

/// A kernel that keeps data of files, and drops it at once.
struct Keeping;

impl Kernel for Keeping {
    fn forget(&self, _: Fid, _: bool) -> Option<LocalFuture<'static, ()>> {
        None
    }

    fn forget_all(&self) -> Option<LocalFuture<'static, ()>> {
        None
    }

    fn keeps_pages(&self) -> bool {
        true
    }
}

/// Two clients and a file that the first one has written. The second one has a kernel.
struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
    file: Fid,
    /// Objects of all other files.
    others: usize,
}

impl World {
    fn new() -> World {
        let scenario = Scenario { granted: Granted::Recall, ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        clients[1].1.serve_kernel(Rc::new(Keeping));
        let others = cluster.objects();
        let mut world = World { cluster, clients, file: Fid::ROOT, others };
        world.file = world.run(0, async |client| {
            let made =
                client.create(&Ctx::root(), Fid::ROOT, NAME, 0o755, flags::O_RDWR, None).await?;
            made.1.write(0, Bytes::from_static(b"some bytes")).await?;
            made.1.close().await?;
            Ok(made.0.fid())
        });
        world.cluster.sim.run_for(Span::secs(2));
        assert!(world.cluster.objects() > others);
        world
    }

    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> T {
        self.cluster.run(&self.clients[at], work)
    }

    /// The second client opens the file for reading, and closes it.
    fn look_into(&self) {
        let file = self.file;
        self.run(1, async move |client| {
            client.open(&Ctx::root(), file, flags::O_RDONLY).await?.close().await
        });
    }

    /// Opens and closes that the second client has sent.
    fn sent(&self) -> (u64, u64) {
        let requests = self.clients[1].1.requests();
        let count = |opcode| requests.get(&opcode).copied().unwrap_or(0);
        (count(Opcode::MdtOpen), count(Opcode::MdtClose))
    }

    fn resting(&self) -> usize {
        self.clients[1].1.open_cache_stats().resting
    }

    fn unlink_at(&self, at: usize) {
        self.run(at, async |client| client.unlink(&Ctx::root(), Fid::ROOT, NAME).await);
    }

    /// Whether the file's objects are gone within five seconds.
    fn is_gone(&self) -> bool {
        let cluster = &self.cluster;
        cluster.sim.run_until(Span::secs(5), || cluster.objects() == self.others)
    }
}

#[test]
fn a_file_that_is_read_again_and_again_is_opened_once_at_the_mdt() {
    let world = World::new();
    (0..4).for_each(|_| world.look_into());
    assert_eq!(world.sent(), (1, 0));
    let stats = world.clients[1].1.open_cache_stats();
    assert_eq!((stats.opens, stats.closes, stats.resting), (3, 4, 1));
    world.cluster.sim.run_for(Span::secs(12));
    assert_eq!((world.sent(), world.resting()), ((1, 1), 0), "it has rested long enough");
}

#[test]
fn two_handles_of_a_file_are_two_at_the_mdt_and_one_rests() {
    let world = World::new();
    let file = world.file;
    world.run(1, async move |client| {
        let first = client.open(&Ctx::root(), file, flags::O_RDONLY).await?;
        let second = client.open(&Ctx::root(), file, flags::O_RDONLY).await?;
        first.close().await?;
        second.close().await
    });
    world.cluster.sim.run_for(Span::millis(100));
    assert_eq!((world.sent(), world.resting()), ((2, 1), 1));
}

#[test]
fn nothing_rests_where_that_is_switched_off_nor_what_is_executed_or_written() {
    let world = World::new();
    let file = world.file;
    for open_flags in [0o40, flags::O_RDWR, flags::O_DIRECT] {
        world.run(1, async move |client| {
            client.open(&Ctx::root(), file, open_flags).await?.close().await
        });
        assert_eq!(world.resting(), 0, "{open_flags:o}");
    }
    world.clients[1].1.set_open_cache_age(Span::ZERO);
    world.look_into();
    assert_eq!((world.sent(), world.resting()), ((4, 4), 0));
}

#[test]
fn a_removed_file_is_gone_at_once_though_its_handle_rests() {
    for at in [0, 1] {
        let world = World::new();
        world.run(1, async |client| client.lookup(&Ctx::root(), Fid::ROOT, NAME).await);
        world.look_into();
        assert_eq!(world.resting(), 1);
        world.unlink_at(at);
        assert_eq!((world.sent(), world.resting()), ((1, 1), 0), "by client {at}");
        assert!(world.is_gone(), "by client {at}");
    }
}

#[test]
fn a_file_that_is_replaced_is_gone_at_once_though_its_handle_rests() {
    let world = World::new();
    world.run(1, async |client| client.lookup(&Ctx::root(), Fid::ROOT, NAME).await);
    world.look_into();
    world.run(1, async |client| {
        let ctx = Ctx::root();
        let made = client.create(&ctx, Fid::ROOT, b"other", 0o644, flags::O_RDWR, None).await?;
        made.1.close().await?;
        client.rename(&ctx, Fid::ROOT, b"other", Fid::ROOT, NAME, 0).await
    });
    assert_eq!(world.resting(), 0);
    assert!(world.is_gone());
}

#[test]
fn the_writer_after_a_reader_whose_handle_rests_may_keep_its_writes() {
    let world = World::new();
    world.look_into();
    let (file, before) = (world.file, world.clients[0].1.kept_stats().writes);
    world.run(0, async move |client| {
        let file = client.open(&Ctx::root(), file, flags::O_RDWR).await?;
        file.write(0, Bytes::from_static(b"others")).await?;
        file.close().await
    });
    assert_eq!(world.clients[0].1.kept_stats().writes, before + 1, "it was alone");
    assert_eq!(world.resting(), 0);
    world.look_into();
    assert_eq!(world.sent(), (2, 1), "what was called back is asked for again");
}

#[test]
fn after_a_restart_of_the_mdt_no_handle_is_used_that_rested_before() {
    let world = World::new();
    world.look_into();
    world.cluster.restart_mdt(0);
    world.cluster.sim.run_for(Span::secs(15));
    assert_eq!((world.sent(), world.resting()), ((1, 1), 0));
    world.look_into();
    world.unlink_at(0);
    assert!(world.is_gone());
}

/// No replay brings its handle back: the client states it to each run of the MDT.
#[test]
fn a_removed_file_stays_over_restarts_while_it_is_open_for_reading() {
    let world = World::new();
    let file = world.file;
    let open =
        world.run(1, async move |client| client.open(&Ctx::root(), file, flags::O_RDONLY).await);
    world.unlink_at(0);
    for _ in 0..2 {
        world.cluster.sim.run_for(Span::secs(2)); // the unlink is durable
        world.cluster.restart_mdt(0);
        world.cluster.sim.run_for(Span::secs(15));
        assert!(world.cluster.objects() > world.others);
    }
    let reader = open.clone();
    let read = world.run(1, async move |_| reader.read(0, 100).await);
    assert_eq!(read, Bytes::from_static(b"some bytes"));
    world.run(1, async move |_| open.close().await);
    assert!(world.is_gone());
}
