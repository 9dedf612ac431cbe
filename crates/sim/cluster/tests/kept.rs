//! Writes that are acknowledged before they are sent, on a cluster on which nothing else happens.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, SetAttr, SetTime, flags};
use cluster::{Cluster, Granted, Scenario};
use env::Env;
use env_sim::{Faults, NodeHandle};
use layout::Asked;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use types::{Errno, Fid, Span, TargetKind, Timespec};
use wire::Opcode;

/// A piece of an append that takes longer than a small one.
const LARGE: usize = 1 << 20;

struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
}

impl World {
    fn new() -> World {
        let scenario = Scenario { granted: Granted::Recall, ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        World { cluster, clients }
    }

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

    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> T {
        self.cluster.run(&self.clients[at], work)
    }

    /// A file of the first client, which is open.
    fn make(&self, name: &'static [u8], more: u32) -> File {
        self.run(0, async move |client| {
            let flags = flags::O_RDWR | more;
            client
                .create(&Ctx::root(), Fid::ROOT, name, 0o644, flags, None)
                .await
                .map(|made| made.1)
        })
    }

    /// Changes attributes of a file of the first client as a mount does.
    fn set(&self, file: &File, set: SetAttr) {
        let file = file.clone();
        self.run(0, async move |client| {
            let ctx = Ctx::root();
            client.setattr_glance(&ctx, file.fid(), &set, Some(&file)).await.map(drop)
        });
    }

    /// Mode, modification time and size, as a client sees them.
    fn look(&self, at: usize, fid: Fid) -> (u32, Timespec, u64) {
        self.run(at, async move |client| {
            let attr = client.getattr(&Ctx::root(), fid, None).await?;
            Ok((attr.mode & 0o7777, attr.mtime(), attr.size))
        })
    }

    /// Requests of the first client that changed attributes.
    fn changes(&self) -> u64 {
        self.clients[0].1.requests().get(&Opcode::MdtSetattr).copied().unwrap_or(0)
    }

    /// Changes of attributes that it has kept.
    fn kept_changes(&self) -> u64 {
        self.clients[0].1.kept_stats().setattrs
    }

    /// Blocks that are free by the word of all OSTs.
    fn free(&self) -> u64 {
        self.run(1, async |client| client.statfs().await.map(|told| told.blocks_free))
    }
}

#[test]
fn pieces_of_an_append_that_end_in_any_order_stay_before_the_next_append() {
    let world = World::new();
    let file = world.make(b"log", flags::O_APPEND);
    let (own, env) = (file.clone(), world.clients[0].0.env());
    world.run(0, async move |_| {
        own.write(0, Bytes::from_static(b"first")).await?;
        let appending = Rc::new(own.begin_append().await?);
        let (at, is_done) = (appending.end(), Rc::new(Cell::new(false)));
        let (small, done) = (appending.clone(), is_done.clone());
        env.spawn("a small piece", async move {
            let bytes = Bytes::from(vec![2; 100]);
            small.write(flags::O_RDWR, at + LARGE as u64, bytes).await.expect("written");
            done.set(true);
        });
        appending.write(flags::O_RDWR, at, Bytes::from(vec![1; LARGE])).await?;
        assert!(is_done.get(), "the small piece was faster");
        appending.finish().await?;
        own.write(0, Bytes::from_static(b"last")).await.map(drop)
    });
    let fid = file.fid();
    let tail = world.run(1, async move |client| {
        let file = client.open(&Ctx::root(), fid, flags::O_RDONLY).await?;
        file.read(5 + LARGE as u64, 200).await
    });
    assert_eq!(tail, [&[2; 100][..], b"last"].concat());
}

#[test]
fn room_that_rests_is_given_back() {
    let world = World::new();
    let before = world.free();
    let file = world.make(b"file", 0);
    let write = |at: u64| {
        let file = file.clone();
        world.run(0, async move |_| file.write(at, Bytes::from(vec![7; 100])).await);
    };
    (0..4).for_each(|number| write(100 * number)); // the first ones find no room
    let kept = world.clients[0].1.kept_stats();
    assert!(kept.writes > 0, "{kept:?}");
    world.cluster.sim.run_for(Span::secs(1));
    let held = before - world.free();
    world.cluster.sim.run_for(Span::secs(30));
    let rests = before - world.free();
    assert!(held > 1_000 && rests < 100, "{held} blocks and then {rests}");
    write(400); // at once, and room is asked for again
    world.cluster.sim.run_for(Span::secs(1));
    write(500);
    assert_eq!(world.clients[0].1.kept_stats().writes, kept.writes + 1);
}

/// Blocks that are free after a kept write. The disks are full at first, or are not.
fn free_after_a_kept_write(is_full: bool) -> u64 {
    let world = World::new();
    let (sim, writer) = (&world.cluster.sim, &world.clients[0].1);
    let file = world.make(b"file", 0);
    let own = file.clone();
    world.run(0, async move |_| own.write(0, Bytes::from_static(b"asks for room")).await);
    sim.run_for(Span::secs(1));
    if is_full {
        world.cluster.limit_osts(NO_ROOM);
    }
    let own = file.clone();
    world.run(0, async move |_| own.write(LARGE as u64, Bytes::from(vec![7; LARGE - 1])).await);
    sim.run_for(Span::millis(500));
    assert_eq!((writer.kept_stats().writes, writer.kept_bytes() > 0), (1, is_full));
    world.cluster.limit_osts(1 << 40);
    assert!(sim.run_until(Span::secs(2), || writer.kept_bytes() == 0), "it is never sent");
    world.free()
}

#[test]
fn room_of_a_write_that_was_refused_at_first_is_used_by_the_next_try() {
    let (at_once, later) = (free_after_a_kept_write(false), free_after_a_kept_write(true));
    assert!(at_once.abs_diff(later) < 50, "{at_once} blocks are free, and {later}");
}

#[test]
fn many_small_writes_to_one_block_take_the_room_of_one() {
    let world = World::new();
    let file = world.make(b"log", flags::O_APPEND);
    let own = file.clone();
    world.run(0, async move |_| own.write(0, Bytes::from_static(b"asks for room")).await);
    world.cluster.sim.run_for(Span::secs(1));
    let asked = |world: &World| world.clients[0].1.requests()[&Opcode::OstReserve];
    let (before, questions) = (world.clients[0].1.kept_stats(), asked(&world));
    let own = file.clone();
    world.run(0, async move |_| {
        for _ in 0..8_000 {
            own.write(0, Bytes::from_static(b"x")).await?;
        }
        Ok(())
    });
    let after = world.clients[0].1.kept_stats();
    assert_eq!((after.writes - before.writes, after.no_room), (8_000, before.no_room));
    assert_eq!(asked(&world), questions, "it needs no more room");
}

#[test]
fn an_unmount_sends_what_is_kept_or_names_it() {
    for is_away in [false, true] {
        let world = World::new();
        let (node, writer) = &world.clients[0];
        let file = world.make(b"file", 0);
        let own = file.clone();
        world.run(0, async move |_| own.write(0, Bytes::from_static(b"asks for room")).await);
        world.cluster.sim.run_for(Span::secs(1));
        let before = writer.kept_stats().writes;
        if is_away {
            world.cluster.cut_off(node, TargetKind::Ost);
        }
        let own = file.clone();
        world.run(0, async move |_| own.write(100, Bytes::from_static(b"kept")).await);
        assert_eq!(writer.kept_stats().writes, before + 1);
        let env = node.env();
        let told = world.run(0, async move |client| {
            let _late = env.timeout(Span::secs(5), client.settle()).await;
            Ok(client.give_up().await)
        });
        let is_named = told.iter().any(|line| line == "/file: 4 bytes, not sent");
        assert_eq!((is_named, told.is_empty()), (is_away, !is_away), "{told:?}");
    }
}

#[test]
fn an_unmount_names_bytes_that_an_mdt_has_not_made_durable() {
    let scenario = Scenario { granted: Granted::Recall, dom: true, ..Scenario::calm() };
    let (cluster, clients) = Cluster::with_two_clients(&scenario);
    let world = World { cluster, clients };
    let fid = world.run(0, async |client| {
        let mut parts = CompositeTemplate::striped(0, [(1 << 20, 1), (END_OF_FILE, 1)]);
        parts.components[0] = TemplateComponent { end: 1 << 20, wanted: Wanted::Mdt };
        let (me, asked) = (Ctx::root(), Asked::Composite(parts));
        let flags = flags::O_RDWR;
        let made = client.create(&me, Fid::ROOT, b"file", 0o644, flags, Some(&asked)).await?;
        made.1.write(0, Bytes::from(vec![1; 100_000])).await?;
        made.1.close().await?;
        Ok(made.0.fid())
    });
    let (node, client) = &world.clients[0];
    let of_data = |client: &Client| client.unconfirmed().into_iter().find(|of| of.id.is_dom());
    assert!(of_data(client).is_some_and(|of| of.bytes == 100_000), "{:?}", client.unconfirmed());
    world.cluster.cut_off(node, TargetKind::Mdt);
    let env = node.env();
    let told = world.run(0, async move |client| {
        let settled = env.timeout(Span::secs(5), client.settle()).await;
        assert!(settled.is_none(), "the MDT is away");
        Ok(client.give_up().await)
    });
    let is_of_data = |line: &String| line.contains("DOM0000") && line.contains(&fid.to_string());
    assert!(told.iter().any(is_of_data), "{told:?}");
}

#[test]
fn an_append_comes_behind_what_another_handle_keeps() {
    let world = World::new();
    let file = world.make(b"file", 0);
    let fid = file.fid();
    let size = world.run(0, async move |client| {
        let log = client.open(&Ctx::root(), fid, flags::O_RDWR | flags::O_APPEND).await?;
        file.write(0, Bytes::from(vec![1; 1_000])).await?;
        file.write(5_000, Bytes::from(vec![1; 1_000])).await?;
        log.write(0, Bytes::from_static(b"end")).await?;
        Ok(client.getattr(&Ctx::root(), fid, None).await?.size)
    });
    assert_eq!(size, 6_003);
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

fn mtime(sec: i64) -> SetAttr {
    SetAttr { mtime: Some(SetTime::At(Timespec::new(sec, 0))), ..SetAttr::default() }
}

#[test]
fn attributes_of_a_new_file_are_set_with_one_request() {
    let world = World::new();
    let file = world.make(b"copied", 0);
    let (fid, own, before) = (file.fid(), file.clone(), world.changes());
    world.run(0, async move |_| own.write(0, Bytes::from_static(b"bytes")).await);
    let owner = SetAttr { uid: Some(0), gid: Some(0), kill_suid: true, ..SetAttr::default() };
    for set in [mtime(77), owner, mode(0o640)] {
        world.set(&file, set);
    }
    assert_eq!((world.kept_changes(), world.changes()), (3, before));
    world.run(0, async move |_| file.close().await);
    assert_eq!(world.changes(), before + 1);
    assert_eq!(world.look(1, fid), (0o640, Timespec::new(77, 0), 5));
}

#[test]
fn kept_attributes_are_sent_before_anybody_looks_at_them() {
    let world = World::new();
    let file = world.make(b"file", 0);
    let fid = file.fid();
    world.set(&file, mode(0o600));
    assert_eq!(world.look(0, fid).0, 0o600, "its own question waits");
    world.set(&file, mode(0o640));
    let found = world.run(0, async |client| client.lookup(&Ctx::root(), Fid::ROOT, b"file").await);
    assert_eq!(found.mode & 0o7777, 0o640, "by name, too");
    world.set(&file, mode(0o604));
    assert_eq!(world.kept_changes(), 3);
    assert_eq!(world.look(1, fid).0, 0o604, "what another client asks for is called back");
    world.set(&file, mode(0o666));
    assert_eq!(world.kept_changes(), 3, "and no more is kept");
    assert_eq!(world.look(1, fid).0, 0o666);
}

/// By the mode that the MDT has, others may not write it.
#[test]
fn no_client_is_refused_by_a_mode_that_the_owner_has_replaced() {
    let world = World::new();
    let file = world.make(b"file", 0);
    world.set(&file, mode(0o666));
    assert_eq!(world.kept_changes(), 1);
    let fid = file.fid();
    world.run(1, async move |client| {
        let file = client.open(&Ctx::user(7, 8), fid, flags::O_RDWR).await?;
        file.close().await
    });
    world.set(&file, mode(0o600));
    let error = world.run(1, async move |client| {
        let opened = client.open(&Ctx::user(7, 8), fid, flags::O_RDWR).await;
        Ok(opened.err().map(|error| error.errno()))
    });
    assert_eq!(error, Some(Errno::EACCES), "by the mode that is in force");
}

#[test]
fn kept_attributes_hold_up_nothing_that_names_another_file() {
    let world = World::new();
    let file = world.make(b"file", 0);
    let before = world.changes();
    world.set(&file, mode(0o600));
    let begun = world.cluster.sim.now();
    world.run(0, async |client| {
        let (ctx, excl) = (Ctx::root(), flags::O_RDWR | flags::O_EXCL);
        client.create(&ctx, Fid::ROOT, b"other", 0o644, excl, None).await?;
        client.mkdir(&ctx, Fid::ROOT, b"dir", 0o755).await?;
        client.lookup(&ctx, Fid::ROOT, b"dir").await.map(drop)
    });
    assert!(world.cluster.sim.now() - begun < Span::millis(90), "they are not sent by time");
    assert_eq!((world.kept_changes(), world.changes()), (1, before));
    let found = world.run(0, async |client| client.lookup(&Ctx::root(), Fid::ROOT, b"file").await);
    assert_eq!((found.mode & 0o7777, world.changes()), (0o600, before + 1));
}

#[test]
fn kept_attributes_hold_up_no_open_and_no_question_about_another_file() {
    let world = World::new();
    let (file, other) = (world.make(b"file", 0), world.make(b"other", 0).fid());
    let before = world.changes();
    world.set(&file, mode(0o600));
    let begun = world.cluster.sim.now();
    world.run(0, async move |client| {
        let ctx = Ctx::root();
        client.getattr(&ctx, other, None).await?;
        let found = client.getxattr(&ctx, other, b"user.none").await;
        assert_eq!(found.expect_err("it has none").errno(), Errno::ENODATA);
        client.open(&ctx, other, flags::O_RDONLY).await?.close().await
    });
    assert!(world.cluster.sim.now() - begun < Span::millis(90), "they are not sent by time");
    assert_eq!((world.kept_changes(), world.changes()), (1, before));
    let fid = file.fid();
    world.run(0, async move |client| client.open(&Ctx::root(), fid, flags::O_RDONLY).await);
    assert_eq!(world.changes(), before + 1, "an open of the file itself waits");
}

#[test]
fn kept_attributes_are_sent_when_nothing_needs_them() {
    let world = World::new();
    let file = world.make(b"file", 0);
    let before = world.changes();
    world.set(&file, mode(0o600));
    world.cluster.sim.run_for(Span::millis(50));
    assert_eq!(world.changes(), before);
    world.cluster.sim.run_for(Span::millis(100));
    assert_eq!(world.changes(), before + 1);
}

/// Its client was away until the MDT had ended its session for another one.
#[test]
fn a_kept_change_is_lost_with_its_session_and_undoes_no_later_one() {
    let world = World::new();
    let file = world.make(b"file", 0);
    let (fid, own) = (file.fid(), file.clone());
    let (node, client) = &world.clients[0];
    world.cluster.cut_off(node, TargetKind::Mdt);
    world.cluster.break_links(node, TargetKind::Mdt);
    world.set(&file, mode(0o600));
    assert_eq!(world.kept_changes(), 1);
    world.cluster.sim.run_for(Span::millis(300));
    world.run(1, async move |client| {
        client.setattr(&Ctx::root(), fid, &mode(0o644), None).await.map(drop)
    });
    world.cluster.sim.heal_all();
    world.cluster.sim.run_for(Span::secs(5));
    assert_eq!((world.look(1, fid).0, client.lost()), (0o644, 1));
    let synced = world.run(0, async move |_| Ok(own.fsync(false).await.is_err()));
    assert!(synced, "it is told");
}

#[test]
fn a_change_by_another_client_comes_after_what_was_kept() {
    let world = World::new();
    let file = world.make(b"file", 0);
    let fid = file.fid();
    world.set(&file, mode(0o600));
    assert_eq!(world.kept_changes(), 1);
    world.run(1, async move |client| {
        client.setattr(&Ctx::root(), fid, &mode(0o644), None).await.map(drop)
    });
    world.run(0, async move |_| file.close().await);
    assert_eq!(world.look(0, fid).0, 0o644);
}

#[test]
fn a_write_after_a_kept_time_is_newer() {
    let world = World::new();
    let file = world.make(b"file", 0);
    let fid = file.fid();
    world.set(&file, mtime(77));
    world.run(0, async move |_| {
        file.write(0, Bytes::from_static(b"newer")).await?;
        file.close().await
    });
    assert_eq!(world.kept_changes(), 1);
    assert!(world.look(1, fid).1 > Timespec::new(77, 0));
}

/// Seeds of runs with faults, and files of each.
const SEEDS: u64 = 12;
const FILES: u32 = 12;
/// First and last mode of a file.
const MODES: (u32, u32) = (0o600, 0o610);

/// Modes of the file that is being written.
#[derive(Default)]
struct Modes {
    file: Cell<Option<Fid>>,
    /// Set, by the word of its writer.
    answered: Cell<u32>,
    /// About to be set.
    begun: Cell<u32>,
    is_over: Cell<bool>,
    has_looked: Cell<bool>,
}

/// Makes files and sets their modes, each higher than the one before.
async fn set_modes(env: Env, client: Client, modes: Rc<Modes>) -> client::Result<()> {
    let (ctx, flags) = (Ctx::root(), flags::O_RDWR | flags::O_EXCL);
    for number in 0..FILES {
        modes.file.set(None);
        let name = format!("file{number}");
        let made = client.create(&ctx, Fid::ROOT, name.as_bytes(), MODES.0, flags, None);
        let file = made.await?.1;
        file.write(0, Bytes::from_static(b"bytes")).await?;
        modes.answered.set(MODES.0);
        modes.begun.set(MODES.0);
        modes.file.set(Some(file.fid()));
        for next in MODES.0 + 1..=MODES.1 {
            modes.begun.set(next);
            client.setattr_glance(&ctx, file.fid(), &mode(next), Some(&file)).await?;
            modes.answered.set(next);
            env.sleep(Span::millis(env.random() % 40)).await;
        }
        file.close().await?;
    }
    modes.is_over.set(true);
    Ok(())
}

/// No look sees a mode that was replaced before it began.
async fn look_at_modes(env: Env, client: Client, modes: Rc<Modes>) -> client::Result<()> {
    while !modes.is_over.get() {
        env.sleep(Span::millis(env.random() % 200)).await;
        let (Some(fid), floor) = (modes.file.get(), modes.answered.get()) else { continue };
        let found = client.getattr(&Ctx::root(), fid, None).await?.mode & 0o7777;
        let newest = modes.begun.get();
        let is_right = modes.file.get() != Some(fid) || (floor..=newest).contains(&found);
        assert!(is_right, "{found:o} is seen, and not {floor:o} to {newest:o}");
    }
    modes.has_looked.set(true);
    Ok(())
}

#[test]
fn kept_attributes_are_seen_through_losses_and_restarts_of_the_mdt() {
    let mut kept = 0;
    for seed in 0..SEEDS {
        let (world, modes) = (World::of_seed(seed), Rc::<Modes>::default());
        let [(writing, writer), (looking, looker)] = &world.clients;
        let set = set_modes(writing.env(), writer.clone(), modes.clone());
        let look = look_at_modes(looking.env(), looker.clone(), modes.clone());
        writing.env().spawn("sets modes", async move { set.await.expect("they are set") });
        looking.env().spawn("looks", async move { look.await.expect("it looks") });
        if seed % 2 == 0 {
            world.cluster.sim.set_faults(Faults::stormy());
        }
        world.cluster.sim.run_for(Span::millis(500 + 50 * seed));
        if seed % 3 != 0 {
            world.cluster.restart_mdt(0);
        }
        world.cluster.sim.run_for(Span::secs(3));
        world.cluster.sim.set_faults(Faults::default());
        let is_over = world.cluster.sim.run_until(Span::secs(300), || modes.has_looked.get());
        assert!(is_over, "seed {seed}: a call is never answered");
        kept += world.kept_changes();
    }
    assert!(kept > SEEDS, "{kept} changes were kept");
}

/// Clients that fill an OST together, and what it has room for.
const WRITERS: u32 = 8;
const ROOM: u64 = 32 << 20;
/// A client goes on until so many of its writes were refused, so that all others are refused too.
const REFUSED: u32 = 20;

/// Writes until the OST is full. Returns the file, and where what was acknowledged ends.
async fn fill(env: Env, client: Client, number: u8) -> client::Result<(Fid, u64)> {
    let (ctx, name) = (Ctx::root(), [b'f', number]);
    let (attr, file) = client.create(&ctx, Fid::ROOT, &name, 0o644, flags::O_RDWR, None).await?;
    let (mut end, mut refused) = (0, 0);
    while refused < REFUSED {
        let len = 1 + (env.random() % 60_000) as usize;
        match file.write(end, Bytes::from(vec![number; len])).await {
            Ok(written) => end += written as u64,
            Err(error) if error.errno() == Errno::ENOSPC => refused += 1,
            Err(error) => return Err(error),
        }
    }
    file.fsync(false).await?;
    file.close().await?;
    Ok((attr.fid(), end))
}

/// What is at the start of a file, which may be longer.
async fn start_of(client: &Client, fid: Fid, len: u64) -> client::Result<Vec<u8>> {
    let file = client.open(&Ctx::root(), fid, flags::O_RDONLY).await?;
    let mut found = Vec::new();
    while (found.len() as u64) < len {
        let piece = file.read(found.len() as u64, LARGE).await?;
        if piece.is_empty() {
            break;
        }
        found.extend_from_slice(&piece);
    }
    found.truncate(len as usize);
    file.close().await?;
    Ok(found)
}

#[test]
fn nothing_that_was_acknowledged_meets_a_full_ost() {
    let scenario = Scenario { granted: Granted::Recall, osts: 1, ..Scenario::calm() };
    let cluster = Cluster::new(1, &scenario);
    cluster.boot();
    cluster.limit_osts(ROOM);
    let clients: Vec<_> = (0..=WRITERS)
        .map(|index| {
            let node = cluster.client_node(&format!("c{index}"), index);
            let client = cluster.mount(&node);
            (node, client)
        })
        .collect();
    let (reader, writers) = clients.split_first().expect("there are some");
    cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
    let filled = Rc::new(RefCell::new(Vec::new()));
    for ((node, client), number) in writers.iter().zip(1..) {
        let (env, client, filled) = (node.env(), client.clone(), filled.clone());
        node.env().spawn("fill", async move {
            let (fid, end) = fill(env, client, number).await.expect("nothing is lost");
            filled.borrow_mut().push((number, fid, end));
        });
    }
    let is_full = || filled.borrow().len() == writers.len();
    assert!(cluster.sim.run_until(Span::secs(300), is_full), "a write is never answered");
    let kept: Vec<_> = writers.iter().map(|(_, client)| client.kept_stats()).collect();
    let kept_some = kept.iter().filter(|kept| kept.writes > 0).count();
    assert!(kept_some > 1 && kept.iter().any(|kept| kept.no_room > 0), "{kept:?}");
    let mut whole = 0;
    for (number, fid, end) in filled.take() {
        let found = cluster.run(reader, async move |client| start_of(client, fid, end).await);
        assert_eq!(found.len() as u64, end, "file {number} is shorter");
        assert!(found.iter().all(|byte| *byte == number), "file {number} has other bytes");
        whole += end;
    }
    assert!(whole > ROOM / 2, "an OST of {ROOM} bytes was full with {whole}");
}

/// A disk with no more room than this takes no write.
const NO_ROOM: u64 = 4_096;

fn errno(outcome: client::Result<()>) -> Option<Errno> {
    outcome.err().map(|error| error.errno())
}

#[test]
fn each_handle_hears_of_a_kept_write_that_finds_no_room() {
    let world = World::new();
    let (sim, writer) = (&world.cluster.sim, &world.clients[0].1);
    let file = world.make(b"file", 0);
    let (fid, own) = (file.fid(), file.clone());
    let [second, unheard] = world.run(0, async move |client| {
        own.write(0, Bytes::from_static(b"asks for room")).await?;
        let (me, flags) = (Ctx::root(), flags::O_RDWR);
        Ok([client.open(&me, fid, flags).await?, client.open(&me, fid, flags).await?])
    });
    sim.run_for(Span::secs(1));
    let (own, before) = (file.clone(), writer.kept_stats().writes);
    world.run(0, async move |_| own.write(100, Bytes::from_static(b"is lost")).await);
    assert_eq!((writer.kept_stats().writes, writer.lost()), (before + 1, 0));
    world.cluster.limit_osts(NO_ROOM); // another program fills the disks
    let begun = sim.now();
    assert!(sim.run_until(Span::secs(90), || writer.lost() > 0), "it is never given up");
    assert!(sim.now() - begun > Span::secs(59), "it is sent again for a minute");
    let told = world.run(0, async move |_| {
        let mut told = Vec::new();
        for file in [file, second] {
            let synced = [file.flush(), file.fsync(false).await, file.fsync(false).await];
            told.push((synced.map(errno), errno(file.close().await)));
        }
        Ok((told, errno(unheard.close().await)))
    });
    let eio = Some(Errno::EIO);
    assert_eq!(told, (vec![([eio, eio, None], None); 2], eio), "each hears once, by its fsync");
    assert_eq!(writer.lost(), 1);
}
