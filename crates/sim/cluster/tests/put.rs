//! Small files in one request: how many requests they take, and what crashes leave of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, flags};
use cluster::{Cluster, Granted, Scenario};
use env_sim::NodeHandle;
use layout::Asked;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use types::{Errno, Fid, Span};
use wire::{Opcode, PUT_BYTES_MAX};

/// Bytes of a file that are at the MDT.
const BORDER: u64 = 128 << 10;
const FILE_BYTES: usize = 32 << 10;
/// Files that are made at a time.
const FILES: u8 = 40;

/// The first bytes of a file are at its MDT.
fn at_mdt(border: u64) -> Asked {
    let mut parts = CompositeTemplate::striped(0, [(border, 1), (END_OF_FILE, 1)]);
    parts.components[0] = TemplateComponent { end: border, wanted: Wanted::Mdt };
    Asked::Composite(parts)
}

fn bytes_of(number: u8) -> Bytes {
    Bytes::from(vec![number + 1; FILE_BYTES])
}

fn name_of(number: u8) -> Vec<u8> {
    format!("file{number}").into_bytes()
}

async fn put(client: &Client, name: &[u8], data: Bytes) -> client::Result<client::Attr> {
    client.put(&Ctx::root(), Fid::ROOT, name, 0o640, data, Some(&at_mdt(BORDER))).await
}

/// All bytes of a file; nothing if there is none.
async fn read(client: &Client, name: &[u8]) -> client::Result<Option<Bytes>> {
    let ctx = Ctx::root();
    let attr = match client.lookup(&ctx, Fid::ROOT, name).await {
        Ok(attr) => attr,
        Err(error) if error.errno() == Errno::ENOENT => return Ok(None),
        Err(error) => return Err(error),
    };
    let file = client.open(&ctx, attr.fid(), flags::O_RDONLY).await?;
    let data = file.read(0, 1 << 20).await?;
    file.close().await?;
    Ok(Some(data))
}

/// Two clients of a cluster on which nothing else happens.
struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
}

impl World {
    fn new() -> World {
        let scenario = Scenario { granted: Granted::Recall, dom: true, ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        World { cluster, clients }
    }

    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> T {
        self.cluster.run(&self.clients[at], work)
    }

    /// What a call of the first client returns, and the requests that it sent.
    fn count<T: 'static>(
        &self,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> (T, BTreeMap<Opcode, u64>) {
        let before = self.clients[0].1.requests();
        let answer = self.run(0, work);
        let mut sent = self.clients[0].1.requests();
        for (opcode, count) in before {
            *sent.get_mut(&opcode).expect("counts do not go") -= count;
        }
        sent.retain(|_, count| *count > 0);
        (answer, sent)
    }

    /// The first client makes files, all at once; the numbers of those that are answered.
    fn put_all(&self) -> Rc<RefCell<BTreeSet<u8>>> {
        let answered = Rc::<RefCell<BTreeSet<u8>>>::default();
        let (node, client) = &self.clients[0];
        for number in 0..FILES {
            let (client, answered) = (client.clone(), answered.clone());
            node.env().spawn("put", async move {
                let made = put(&client, &name_of(number), bytes_of(number)).await;
                made.expect("nothing stands against it");
                answered.borrow_mut().insert(number);
            });
        }
        answered
    }

    /// The files that the second client finds, which have all of their bytes.
    fn find_all(&self) -> BTreeSet<u8> {
        let found = self.run(1, async |client| {
            let mut found = BTreeSet::new();
            for number in 0..FILES {
                if let Some(data) = read(client, &name_of(number)).await? {
                    assert_eq!(data, bytes_of(number), "file {number} has other bytes");
                    found.insert(number);
                }
            }
            Ok(found)
        });
        assert_eq!(self.cluster.objects(), found.len(), "each object has its file");
        found
    }
}

#[test]
fn a_small_file_is_made_with_one_request() {
    let world = World::new();
    world.run(0, async |client| put(client, b"first", Bytes::from_static(b"connects")).await);
    let (attr, sent) =
        world.count(async |client| put(client, b"small", Bytes::from(vec![7; FILE_BYTES])).await);
    assert_eq!(sent, BTreeMap::from([(Opcode::MdtCreate, 1)]));
    assert_eq!((attr.size, attr.mode & 0o777), (FILE_BYTES as u64, 0o640));
    assert!(attr.blocks > 0 && !client::needs_glimpse(&attr), "the size is known at once");
    assert_eq!(attr.mtime(), attr.ctime());
    let (again, sent) =
        world.count(async move |client| client.getattr(&Ctx::root(), attr.fid(), None).await);
    assert_eq!((again.size, sent), (attr.size, BTreeMap::new()), "its attributes are granted");
    let found = world.run(1, async |client| read(client, b"small").await);
    assert_eq!(found, Some(Bytes::from(vec![7; FILE_BYTES])));
}

#[test]
fn a_name_that_exists_is_refused_and_no_object_stays() {
    let world = World::new();
    world.run(0, async |client| put(client, b"one", Bytes::from_static(b"first")).await);
    let refused = world.run(1, async |client| {
        Ok(put(client, b"one", Bytes::from_static(b"second")).await.map_err(|error| error.errno()))
    });
    assert_eq!(refused, Err(Errno::EEXIST));
    let found = world.run(0, async |client| read(client, b"one").await);
    assert_eq!(found, Some(Bytes::from_static(b"first")));
    assert_eq!(world.cluster.objects(), 1);
}

/// Both decide on the name before either has made it.
#[test]
fn one_of_two_that_make_a_name_at_once_makes_it() {
    for late in [0, 5, 50, 100, 200, 400] {
        let world = World::new();
        let outcomes = Rc::<RefCell<Vec<Option<Errno>>>>::default();
        for (node, client) in &world.clients {
            let (client, outcomes) = (client.clone(), outcomes.clone());
            node.env().spawn("put", async move {
                let data = Bytes::from(client.identity().to_le_bytes().to_vec());
                let made = put(&client, b"contested", data).await;
                outcomes.borrow_mut().push(made.err().map(|error| error.errno()));
            });
            world.cluster.sim.run_for(Span::micros(late));
        }
        world.cluster.sim.run_for(Span::secs(20));
        let mut outcomes = outcomes.take();
        outcomes.sort_unstable();
        assert_eq!(outcomes, [None, Some(Errno::EEXIST)], "{late} us apart");
        assert_eq!(world.cluster.objects(), 1, "{late} us apart");
    }
}

#[test]
fn a_file_that_does_not_fit_at_the_mdt_is_made_in_steps() {
    let world = World::new();
    let plain = Asked::from(layout::Template { stripe_count: 1, ..Default::default() });
    let cases: [(&'static [u8], Asked, usize); 5] = [
        (b"long", at_mdt(BORDER), PUT_BYTES_MAX + 1),
        (b"behind the border", at_mdt(64 << 10), 200_000),
        (b"plain", plain, FILE_BYTES),
        (b"empty", at_mdt(BORDER), 0),
        (b"largest", at_mdt(BORDER), PUT_BYTES_MAX),
    ];
    for (name, striping, length) in cases {
        let data = Bytes::from((0..length).map(|at| at as u8).collect::<Vec<_>>());
        let sent = data.clone();
        let (attr, requests) = world.count(async move |client| {
            client.put(&Ctx::root(), Fid::ROOT, name, 0o600, sent, Some(&striping)).await
        });
        assert_eq!(attr.size, length as u64);
        let is_one = requests == BTreeMap::from([(Opcode::MdtCreate, 1)]);
        assert_eq!(is_one, matches!(name, b"empty" | b"largest"), "{requests:?}");
        let found = world.run(1, async move |client| read(client, name).await);
        assert_eq!(found, Some(data));
    }
}

#[test]
fn a_directory_that_refused_is_not_asked_with_bytes_again() {
    let world = World::new();
    let file = |name: &'static [u8]| {
        world.count(async move |client| {
            let data = Bytes::from(vec![1; FILE_BYTES]);
            client.put(&Ctx::root(), Fid::ROOT, name, 0o600, data, None).await
        })
    };
    let creates = |requests: BTreeMap<Opcode, u64>| requests[&Opcode::MdtCreate];
    assert_eq!(creates(file(b"one").1), 2, "the default layout has no component at the MDT");
    assert_eq!(creates(file(b"two").1), 1);
}

#[test]
fn a_power_cut_leaves_all_of_a_file_or_nothing() {
    let (mut some, mut partly) = (0, 0);
    for seed in 1..=16 {
        let world = World::new();
        let answered = world.put_all();
        world.cluster.sim.run_for(Span::micros(seed * 60));
        world.clients[0].0.kill_as(false); // it sends nothing again
        let answered = answered.borrow().len();
        world.cluster.cut_power_of_mdt(0, seed);
        world.cluster.sim.run_for(Span::secs(120)); // the recovery, and the sweep of ids
        let found = world.find_all().len();
        assert!(found <= usize::from(FILES));
        some += usize::from(found > 0 || answered > 0);
        partly += usize::from(answered > 0 && answered < usize::from(FILES));
    }
    assert!(some > 0 && partly > 0, "the power is cut in the midst of it: {some}, {partly}");
}

/// The client dies later, when some commits have ended.
#[test]
fn a_commit_covers_a_name_only_with_its_bytes() {
    let mut kept = 0;
    for seed in 1..=24 {
        let world = World::new();
        let answered = world.put_all();
        world.cluster.sim.run_for(Span::millis(880 + seed * 12));
        assert_eq!(answered.borrow().len(), usize::from(FILES));
        world.clients[0].0.kill_as(false);
        world.cluster.cut_power_of_mdt(0, seed);
        world.cluster.sim.run_for(Span::secs(120));
        kept += usize::from(!world.find_all().is_empty());
    }
    assert!((1..24).contains(&kept), "the power is cut around the commit: {kept}");
}

#[test]
fn files_of_a_client_that_lives_survive_power_cuts() {
    for seed in 1..=10 {
        let world = World::new();
        let answered = world.put_all();
        world.cluster.sim.run_for(Span::micros(seed * 80));
        world.cluster.cut_power_of_mdt(0, seed);
        world.cluster.sim.run_for(Span::secs(3));
        world.cluster.cut_power_of_mdt(0, seed + 100);
        world.cluster.sim.run_for(Span::secs(120));
        assert_eq!(answered.borrow().len(), usize::from(FILES), "seed {seed}");
        assert_eq!(world.find_all().len(), usize::from(FILES), "seed {seed}");
    }
}

/// A create that is sent again with its bytes does not replace what was written afterwards.
#[test]
fn bytes_that_were_written_later_stay() {
    for step in 0..12 {
        let world = World::new();
        world.run(0, async |client| {
            let ctx = Ctx::root();
            let attr = put(client, b"file", Bytes::from(vec![1; FILE_BYTES])).await?;
            let file = client.open(&ctx, attr.fid(), flags::O_WRONLY).await?;
            file.write(0, Bytes::from(vec![2; FILE_BYTES])).await?;
            file.close().await
        });
        world.cluster.sim.run_for(Span::millis(step * 100));
        world.cluster.restart_mdt(0);
        world.cluster.sim.run_for(Span::secs(60));
        let found = world.run(1, async |client| read(client, b"file").await);
        assert_eq!(found, Some(Bytes::from(vec![2; FILE_BYTES])), "step {step}");
    }
}

#[test]
fn a_removed_file_leaves_no_object() {
    let world = World::new();
    world.run(0, async |client| {
        put(client, b"file", Bytes::from(vec![1; FILE_BYTES])).await?;
        client.unlink(&Ctx::root(), Fid::ROOT, b"file").await
    });
    world.cluster.restart_mdt(0);
    world.cluster.sim.run_for(Span::secs(60));
    assert_eq!(world.run(1, async |client| read(client, b"file").await), None);
    assert_eq!(world.cluster.objects(), 0);
}

#[test]
fn a_file_that_is_made_again_keeps_its_time() {
    let world = World::new();
    let made = world.run(0, async |client| put(client, b"file", Bytes::from_static(b"x")).await);
    world.cluster.restart_mdt(0);
    world.cluster.sim.run_for(Span::secs(60));
    let found = world.run(0, async move |client| {
        let ctx = Ctx::root();
        let file = client.open(&ctx, made.fid(), flags::O_WRONLY).await?;
        let found = client.getattr(&ctx, made.fid(), None).await?;
        file.close().await?;
        Ok(found)
    });
    assert_eq!((found.size, found.mtime()), (1, made.mtime()), "nobody has changed it");
}
