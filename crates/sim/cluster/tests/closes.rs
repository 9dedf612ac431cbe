//! Closes of several files in one request, on a cluster on which nothing else happens.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, flags};
use cluster::{Cluster, Granted, Scenario};
use env::Env;
use env_sim::{Faults, NodeHandle};
use types::{Fid, Span};
use wire::Opcode;

/// Files that are closed at once: more than one request takes.
const FILES: u32 = 150;

struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
}

fn name(number: u32) -> Vec<u8> {
    format!("file{number}").into_bytes()
}

/// Bytes of a file, which differ from those of others.
fn bytes(number: u32) -> Bytes {
    vec![number.to_le_bytes()[0]; 1 + number as usize].into()
}

async fn make(client: &Client, number: u32) -> client::Result<File> {
    let flags = flags::O_RDWR | flags::O_EXCL;
    let made = client.create(&Ctx::root(), Fid::ROOT, &name(number), 0o644, flags, None).await?;
    made.1.write(0, bytes(number)).await?;
    Ok(made.1)
}

impl World {
    fn of_seed(seed: u64) -> World {
        let scenario = Scenario { granted: Granted::Recall, ..Scenario::calm() };
        let cluster = Cluster::new(seed, &scenario);
        cluster.boot();
        let clients = [0, 1].map(|index| {
            let node = cluster.client_node(&format!("c{index}"), index);
            let client = cluster.mount(&node);
            (node, client)
        });
        cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        World { cluster, clients }
    }

    /// Files of the first client, which are open and written.
    fn make_all(&self) -> Vec<File> {
        self.cluster.run(&self.clients[0], async |client| {
            let mut files = Vec::new();
            for number in 0..FILES {
                files.push(make(client, number).await?);
            }
            Ok(files)
        })
    }

    /// The first client closes all of them at once. Returns how many are closed so far.
    fn close_all(&self, files: Vec<File>) -> Rc<Cell<u32>> {
        let closed = Rc::<Cell<u32>>::default();
        for file in files {
            let closed = closed.clone();
            self.clients[0].0.env().spawn("closes", async move {
                file.close().await.expect("it is closed");
                closed.set(closed.get() + 1);
            });
        }
        closed
    }

    /// Requests of the first client that closed one handle, and that closed several.
    fn sent(&self) -> (u64, u64) {
        let requests = self.clients[0].1.requests();
        let count = |opcode| requests.get(&opcode).copied().unwrap_or(0);
        (count(Opcode::MdtClose), count(Opcode::MdtCloses))
    }

    /// The second client finds every file as it was written.
    fn check_files(&self) {
        self.cluster.run(&self.clients[1], async |client| {
            for number in 0..FILES {
                let ctx = Ctx::root();
                let attr = client.lookup(&ctx, Fid::ROOT, &name(number)).await?;
                assert_eq!(attr.size, u64::from(number) + 1);
                let file = client.open(&ctx, attr.fid(), flags::O_RDONLY).await?;
                assert_eq!(file.read(0, 1_000).await?, bytes(number));
                file.close().await?;
            }
            Ok(())
        });
    }

    /// The second client removes all files. Their objects go only if no handle of them is left.
    fn remove_all(&self, objects: usize) {
        self.cluster.run(&self.clients[1], async |client| {
            for number in 0..FILES {
                client.unlink(&Ctx::root(), Fid::ROOT, &name(number)).await?;
            }
            Ok(())
        });
        let cluster = &self.cluster;
        let are_gone = cluster.sim.run_until(Span::secs(60), || cluster.objects() == objects);
        assert!(are_gone, "{} objects are left", cluster.objects() - objects);
    }
}

#[test]
fn closes_that_come_together_are_few_requests() {
    let world = World::of_seed(1);
    let objects = world.cluster.objects();
    let files = world.make_all();
    let before = world.sent();
    let closed = world.close_all(files);
    assert!(world.cluster.sim.run_until(Span::secs(10), || closed.get() == FILES));
    let (alone, together) = world.sent();
    let requests = alone - before.0 + together - before.1;
    assert!(together > before.1 && requests <= 12, "{requests} requests");
    world.check_files();
    world.remove_all(objects);
}

#[test]
fn a_close_by_itself_does_not_wait() {
    let world = World::of_seed(1);
    let files = world.make_all();
    let before = world.sent();
    for file in files {
        world.cluster.run(&world.clients[0], async move |_| file.close().await);
    }
    assert_eq!(world.sent(), (before.0 + u64::from(FILES), before.1));
}

/// The MDT restarts while closes are under way, and messages are lost.
#[test]
fn every_handle_is_closed_once_through_losses_and_restarts() {
    let mut together = 0;
    for seed in 0..12 {
        let world = World::of_seed(seed);
        let objects = world.cluster.objects();
        let files = world.make_all();
        if seed % 2 == 0 {
            world.cluster.sim.set_faults(Faults::stormy());
        }
        let closed = world.close_all(files);
        world.cluster.sim.run_for(Span::micros(200 * seed));
        if seed % 3 != 0 {
            world.cluster.restart_mdt(0);
        }
        world.cluster.sim.run_for(Span::secs(3));
        world.cluster.sim.set_faults(Faults::default());
        let are_closed = world.cluster.sim.run_until(Span::secs(300), || closed.get() == FILES);
        assert!(are_closed, "seed {seed}: {} are closed", closed.get());
        together += world.sent().1;
        if seed % 4 == 1 {
            world.cluster.restart_mdt(0); // what was answered is kept or repeated
        }
        world.check_files();
        world.remove_all(objects);
    }
    assert!(together > 0);
}

/// Closes and opens files one after the other.
async fn go_on(env: Env, client: Client, number: u32) {
    loop {
        let Ok(file) = make(&client, number).await else { return };
        env.sleep(Span::micros(env.random() % 2_000)).await;
        let _dies = file.close().await;
        let _dies = client.unlink(&Ctx::root(), Fid::ROOT, &name(number)).await;
    }
}

#[test]
fn a_client_that_dies_leaves_no_handle() {
    for seed in 0..6 {
        let world = World::of_seed(seed);
        let objects = world.cluster.objects();
        let (node, client) = &world.clients[0];
        for number in 0..20 {
            node.env().spawn("goes on", go_on(node.env(), client.clone(), number));
        }
        let is_busy = || world.sent().1 > 3 + seed;
        assert!(world.cluster.sim.run_until(Span::secs(60), is_busy), "{:?}", world.sent());
        node.kill();
        let cluster = &world.cluster;
        cluster.sim.run_for(Span::secs(200)); // it is evicted
        cluster.run(&world.clients[1], async |client| {
            for number in 0..20 {
                let _may_be_gone = client.unlink(&Ctx::root(), Fid::ROOT, &name(number)).await;
            }
            Ok(())
        });
        let are_gone = cluster.sim.run_until(Span::secs(60), || cluster.objects() == objects);
        assert!(are_gone, "seed {seed}: {} objects are left", cluster.objects() - objects);
    }
}
