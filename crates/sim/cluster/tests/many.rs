//! Whole pages of a directory: one request asks about many files. Requests are counted by
//! operation.

use std::collections::BTreeMap;

use client::{Client, Ctx, DirPage, Kernel, Listing, flags};
use cluster::{Cluster, Granted, Scenario};
use env::LocalFuture;
use env_sim::NodeHandle;
use layout::dir::{Asked, UNLIMITED};
use types::{Fid, Span};
use wire::Opcode;

const FILES: u64 = 40;
/// Of them are open for writing, and longer than the MDT knows.
const OPEN: u64 = 15;

/// A client that writes and one that lists, on a cluster on which nothing else happens.
struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
}

impl World {
    fn new(mdts: u32) -> World {
        World::granting(mdts, Granted::Recall)
    }

    fn granting(mdts: u32, granted: Granted) -> World {
        let scenario = Scenario { granted, mdts: (mdts, mdts), ..Scenario::calm() };
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

    /// The directory as the second client sees it, and the requests that it sent for that.
    fn list(&self, dir: Fid) -> (BTreeMap<String, u64>, BTreeMap<Opcode, u64>) {
        let before = self.clients[1].1.requests();
        let sizes = self.run(1, async move |client| sizes(client, dir).await);
        (sizes, sent_since(&self.clients[1].1, &before))
    }
}

/// Requests that a client has sent since then.
fn sent_since(client: &Client, before: &BTreeMap<Opcode, u64>) -> BTreeMap<Opcode, u64> {
    let mut sent = client.requests();
    for (opcode, count) in before {
        *sent.entry(*opcode).or_default() -= count;
    }
    sent.retain(|_, count| *count > 0);
    sent
}

async fn sizes(client: &Client, dir: Fid) -> client::Result<BTreeMap<String, u64>> {
    let (me, listing) = (Ctx::root(), Listing::new(dir));
    let (mut sizes, mut cookie) = (BTreeMap::new(), 0);
    loop {
        let mut page: DirPage = client.readdir_on(&me, &listing, cookie, 1 << 20).await?;
        client.complete_page(&me, &mut page).await?;
        for entry in &page.entries {
            assert!(entry.has_attr, "attributes are complete");
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            sizes.insert(name, entry.attr.size);
            cookie = entry.cookie;
        }
        if page.at_end {
            return Ok(sizes);
        }
    }
}

/// Files of which the first ones are open and have as many bytes as their number.
async fn fill(client: &Client, dir: Fid) -> client::Result<()> {
    let me = Ctx::root();
    for number in 0..FILES {
        let name = format!("file{number}");
        let made = client.create(&me, dir, name.as_bytes(), 0o644, flags::O_RDWR, None).await?;
        made.1.write(0, vec![7; number as usize].into()).await?;
        match number < OPEN {
            true => std::mem::forget(made.1), // it stays open
            false => made.1.close().await?,
        }
    }
    Ok(())
}

fn expected() -> BTreeMap<String, u64> {
    (0..FILES).map(|number| (format!("file{number}"), number)).collect()
}

/// A directory with files that the first client has open, and of which it keeps nothing any more.
fn written(world: &World) -> Fid {
    let dir = world.run(0, async |client| {
        let dir = client.mkdir(&Ctx::root(), Fid::ROOT, b"dir", 0o755).await?.fid();
        fill(client, dir).await?;
        Ok(dir)
    });
    world.cluster.sim.run_for(Span::secs(2));
    dir
}

#[test]
fn sizes_of_files_being_written_are_asked_of_their_writer() {
    let world = World::new(1);
    let dir = written(&world);
    let (found, sent) = world.list(dir);
    assert_eq!(found, expected());
    assert_eq!(sent, BTreeMap::from([(Opcode::MdtReaddir, 1), (Opcode::MdtGetattrs, 1)]));
    let som = |name: &'static [u8]| {
        world.run(1, async move |client| {
            let fid = client.lookup(&Ctx::root(), dir, name).await?.fid();
            client.getxattr(&Ctx::root(), fid, b"lustre.som").await
        })
    };
    assert_eq!((som(b"file30")[0], som(b"file30")[8]), (1, 30), "exact");
    assert_eq!(som(b"file3")[0], 2, "it is being written");
}

#[test]
fn objects_are_asked_where_several_clients_write() {
    let world = World::new(1);
    let dir = written(&world);
    let (size, sent) = world.run(1, async move |client| {
        let me = Ctx::root();
        let attr = client.lookup(&me, dir, b"file7").await?;
        let file = client.open(&me, attr.fid(), flags::O_RDWR).await?;
        file.write(100, b"x"[..].into()).await?;
        let before = client.requests();
        let mut page = client.readdir(&me, dir, 0, 1 << 20).await?;
        client.complete_page(&me, &mut page).await?;
        let after = client.requests();
        file.close().await?;
        let found = page.entries.iter().find(|entry| entry.name == b"file7");
        let glimpses = |requests: &BTreeMap<Opcode, u64>| {
            requests.get(&Opcode::OstGlimpse).copied().unwrap_or(0)
        };
        Ok((found.map(|entry| entry.attr.size), glimpses(&after) - glimpses(&before)))
    });
    assert_eq!(size, Some(101));
    assert!((1..=8).contains(&sent), "the objects of one file: {sent}");
}

#[test]
fn objects_are_asked_where_the_writer_is_silent() {
    let world = World::new(1);
    world.clients[0].1.set_writeback(false); // else it has to be given up first
    let dir = written(&world);
    world.clients[0].0.freeze();
    let (found, sent) = world.list(dir);
    assert_eq!(found, expected());
    assert!(sent[&Opcode::OstGlimpse] <= 8, "one for each OST: {sent:?}");
}

#[test]
fn a_silent_writer_is_waited_for_once() {
    let world = World::new(1);
    world.clients[0].1.set_writeback(false);
    let dir = written(&world);
    world.clients[0].0.freeze();
    let begun = world.cluster.sim.now();
    for _ in 0..3 {
        assert_eq!(world.list(dir).0, expected());
    }
    let took = world.cluster.sim.now() - begun;
    assert!(took < Span::secs(1), "{took:?}");
}

#[test]
fn the_size_of_one_file_is_asked_of_its_writer_too() {
    let world = World::new(1);
    let dir = written(&world);
    let file = world.run(0, async move |client| {
        let me = Ctx::root();
        let (_, file) = client.create(&me, dir, b"new", 0o644, flags::O_RDWR, None).await?;
        file.write(50, b"kept"[..].into()).await?;
        Ok(file)
    });
    for (name, size) in [("new", 54), ("file9", 9)] {
        let (found, sent) = world.run(1, async move |client| {
            let me = Ctx::root();
            let listed = client.readdir(&me, dir, 0, 1 << 20).await?;
            let fid = listed.entries.iter().find(|entry| entry.name == name.as_bytes());
            let fid = fid.expect("it is listed").attr.fid();
            let before = client.requests();
            let found = client.getattr(&me, fid, None).await?;
            Ok((found.size, sent_since(client, &before)))
        });
        assert_eq!(found, size, "{name}");
        assert_eq!(sent, BTreeMap::from([(Opcode::MdtGetattr, 1)]), "{name}");
    }
    let kept = |world: &World| world.clients[0].1.kept_stats().writes;
    let before = kept(&world);
    world.run(0, async move |_| file.write(54, b"more"[..].into()).await);
    assert_eq!(kept(&world), before + 1, "the writer goes on to keep");
}

#[test]
fn a_client_that_lists_what_it_writes_asks_no_object() {
    let world = World::new(1);
    let dir = world.run(0, async |client| {
        let dir = client.mkdir(&Ctx::root(), Fid::ROOT, b"dir", 0o755).await?.fid();
        fill(client, dir).await?;
        Ok(dir)
    });
    let (found, sent) = world.run(0, async move |client| {
        let before = client.requests();
        Ok((sizes(client, dir).await?, sent_since(client, &before)))
    });
    assert_eq!(found, expected());
    assert_eq!(sent.get(&Opcode::OstGlimpse), None, "{sent:?}");
}

#[test]
fn one_object_a_glimpse_is_the_old_way() {
    let world = World::new(1);
    let dir = written(&world);
    world.clients[1].1.set_glimpse_batch(1);
    let (found, sent) = world.list(dir);
    assert_eq!(found, expected());
    assert!(sent[&Opcode::OstGlimpse] >= OPEN, "{sent:?}");
}

#[test]
fn a_client_that_uses_no_size_of_the_mdt_asks_the_objects_of_clean_files() {
    let world = World::new(1);
    let dir = written(&world);
    let stat = |som: bool| {
        world.run(1, async move |client| {
            let me = Ctx::root();
            client.set_som(som);
            let before = client.requests();
            let found = client.lookup(&me, dir, b"file30").await?;
            let found = client.getattr(&me, found.fid(), None).await?;
            Ok((found.size, sent_since(client, &before)))
        })
    };
    let (size, sent) = stat(true);
    assert_eq!((size, sent.get(&Opcode::OstGlimpse)), (30, None), "{sent:?}");
    let (size, sent) = stat(false);
    assert_eq!((size, sent.get(&Opcode::MdtGetattr)), (30, Some(&1)), "{sent:?}");
    assert!(sent.contains_key(&Opcode::OstGlimpse), "{sent:?}");
}

#[test]
fn a_page_of_a_directory_over_three_mdts_is_completed_by_one_request_each() {
    let world = World::new(3);
    let dir = world.run(0, async |client| {
        let asked = Asked { count: 3, ..Asked::default() };
        let me = Ctx::root();
        let dir = client.mkdir_spread(&me, Fid::ROOT, b"dir", 0o755, Some(&asked)).await?.fid();
        fill(client, dir).await?;
        for number in 0..9 {
            let name = format!("sub{number}");
            let count = 1 + number % 2; // some are striped themselves
            let asked = Asked { count, max_inherit: UNLIMITED, ..Asked::default() };
            client.mkdir_spread(&me, dir, name.as_bytes(), 0o755, Some(&asked)).await?;
        }
        Ok(dir)
    });
    let (found, sent) = world.list(dir);
    let files: BTreeMap<_, _> =
        found.into_iter().filter(|(name, _)| name.starts_with("file")).collect();
    assert_eq!(files, expected());
    let getattrs = sent[&Opcode::MdtGetattrs];
    assert!((1..=9).contains(&getattrs), "a page has three MDTs at most: {sent:?}");
}

/// A kernel that keeps nothing.
struct Forgetful;

impl Kernel for Forgetful {
    fn forget(&self, _: Fid, _: bool) -> Option<LocalFuture<'static, ()>> {
        None
    }

    fn forget_all(&self) -> Option<LocalFuture<'static, ()>> {
        None
    }
}

#[test]
fn names_that_were_looked_up_together_are_answered_until_a_change() {
    let world = World::new(1);
    let dir = written(&world);
    world.cluster.sim.run_for(Span::secs(2));
    world.clients[1].1.serve_kernel(std::rc::Rc::new(Forgetful));
    let names = |range: std::ops::Range<u64>| range.map(|number| format!("file{number}").into());
    let ahead: Vec<Vec<u8>> = names(OPEN..FILES + 5).collect();
    let found =
        world.run(1, async move |client| client.look_ahead(&Ctx::root(), dir, &ahead).await);
    assert_eq!(found as u64, FILES - OPEN, "five names are not there");
    let lookups = |world: &World| {
        let before = world.clients[1].1.requests();
        let all: Vec<Vec<u8>> = names(OPEN..FILES).collect();
        world.run(1, async move |client| {
            for (name, number) in all.iter().zip(OPEN..) {
                let glance = client.lookup_glance(&Ctx::root(), dir, name).await?;
                assert!(glance.size_known && glance.attr.size == number);
            }
            Ok(())
        });
        let count = |requests: BTreeMap<Opcode, u64>| requests.get(&Opcode::MdtLookup).copied();
        count(world.clients[1].1.requests()).unwrap_or(0) - count(before).unwrap_or(0)
    };
    assert_eq!(lookups(&world), 0);
    world.run(0, async move |client| {
        client.unlink(&Ctx::root(), dir, b"file20").await?;
        client.create(&Ctx::root(), dir, b"file20", 0o644, 0, None).await?.1.close().await
    });
    let gone = world.run(1, async move |client| {
        client.lookup_glance(&Ctx::root(), dir, b"file20").await.map(|glance| glance.attr.size)
    });
    assert_eq!(gone, 0, "another client has replaced it");
}

/// Looks all closed files up, in order. Returns the requests that the client sent.
fn look_up_in_order(world: &World, dir: Fid) -> BTreeMap<Opcode, u64> {
    let before = world.clients[1].1.requests();
    world.run(1, async move |client| {
        for number in OPEN..FILES {
            let name = format!("file{number}");
            let glance = client.lookup_glance(&Ctx::root(), dir, name.as_bytes()).await?;
            assert!(glance.size_known && glance.attr.size == number);
        }
        Ok(())
    });
    let mut sent = world.clients[1].1.requests();
    before.into_iter().for_each(|(opcode, count)| *sent.entry(opcode).or_default() -= count);
    sent.retain(|_, count| *count > 0);
    sent
}

#[test]
fn names_with_a_number_are_asked_ahead() {
    let world = World::new(1);
    let dir = written(&world);
    world.cluster.sim.run_for(Span::secs(2));
    let client = &world.clients[1].1;
    client.serve_kernel(std::rc::Rc::new(Forgetful));
    let sent = look_up_in_order(&world, dir);
    assert_eq!(sent[&Opcode::MdtLookup], 4, "{sent:?}");
    assert!(sent[&Opcode::MdtGetattrs] <= 6, "{sent:?}");
    let stats = client.statahead_stats();
    assert_eq!((stats.total, stats.wrong, stats.hit_total), (1, 0, FILES - OPEN - 4));
    assert_eq!((stats.miss_total, stats.agl_total), (0, 0));
}

#[test]
fn names_that_are_not_granted_until_recalled_are_hardly_asked_ahead() {
    let world = World::granting(1, Granted::Timed);
    let dir = written(&world);
    let client = &world.clients[1].1;
    client.serve_kernel(std::rc::Rc::new(Forgetful));
    world.run(1, async move |client| {
        for number in OPEN..FILES {
            let name = format!("file{number}");
            client.lookup_glance(&Ctx::root(), dir, name.as_bytes()).await?;
        }
        Ok(())
    });
    let stats = client.statahead_stats();
    assert!((1..=4).contains(&stats.fname_total), "{stats:?}");
}

/// Looks files up in order that were not written for a while and may be written again. Returns for
/// how many the client asked the objects ahead, and the requests for that.
fn asked_of_quiet_files(agl: bool) -> (u64, u64) {
    let world = World::new(1);
    world.clients[0].1.set_writeback(false); // files whose writes may be kept are left alone
    let dir = written(&world);
    world.cluster.sim.run_for(Span::secs(12));
    let client = &world.clients[1].1;
    client.serve_kernel(std::rc::Rc::new(Forgetful));
    client.set_statahead_agl(agl);
    let before = client.requests();
    world.run(1, async move |client| {
        for number in 1..OPEN {
            let name = format!("file{number}");
            client.lookup_glance(&Ctx::root(), dir, name.as_bytes()).await?;
        }
        Ok(())
    });
    world.cluster.sim.run_for(Span::secs(1)); // no lookup waits for objects
    let sent = sent_since(client, &before);
    assert!(sent.contains_key(&Opcode::MdtGetattrs), "names are asked ahead: {sent:?}");
    let glimpses = sent.get(&Opcode::OstGlimpse).copied().unwrap_or(0);
    (client.statahead_stats().agl_total, glimpses)
}

#[test]
fn objects_of_quiet_files_are_asked_ahead_unless_that_is_switched_off() {
    let (files, requests) = asked_of_quiet_files(true);
    assert!((1..OPEN).contains(&files) && requests > 0, "{files} files, {requests} requests");
    assert_eq!(asked_of_quiet_files(false), (0, 0));
}

#[test]
fn nothing_is_asked_ahead_where_that_is_switched_off() {
    let world = World::new(1);
    let dir = written(&world);
    world.cluster.sim.run_for(Span::secs(2));
    world.clients[1].1.serve_kernel(std::rc::Rc::new(Forgetful));
    world.clients[1].1.set_statahead_max(0);
    let sent = look_up_in_order(&world, dir);
    assert_eq!(sent, BTreeMap::from([(Opcode::MdtLookup, FILES - OPEN)]));
}
