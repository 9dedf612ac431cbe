//! Names of directories that move to an MDT that is named, while clients with caches use them: each
//! MDT dies in the middle, and messages are lost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use client::{Client, Ctx, Listing, flags};
use cluster::{Cluster, Granted, Scenario};
use env_sim::{Faults, NodeHandle};
use layout::dir::{Asked, BY_SPACE};
use types::{Errno, Fid, Span};
use wire::Opcode;

const MDTS: u32 = 3;
/// Files that stay while the names move.
const KEPT: u32 = 150;
/// Between two rounds of a user.
const WORK_PAUSE: Span = Span::millis(25);

/// Names of one user with the numbers of their files.
type Names = BTreeMap<String, Fid>;

/// What a call in the background returns, once it does.
type Outcome<T> = Rc<RefCell<Option<Result<T, Errno>>>>;

fn me() -> Ctx {
    Ctx::root()
}

/// All names on this MDT.
fn only(mdt: u32) -> Asked {
    Asked { count: 1, index: BY_SPACE, mdts: vec![mdt], ..Asked::default() }
}

/// A cluster of three MDTs, a directory on MDT 0 with files in it, and two clients.
struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
    dir: Fid,
    kept: Names,
}

impl World {
    fn new() -> World {
        let scenario =
            Scenario { granted: Granted::Recall, mdts: (MDTS, MDTS), ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        let mut world = World { cluster, clients, dir: Fid::ROOT, kept: Names::new() };
        let (dir, kept) = world.run(0, async |client| {
            let asked = Asked { index: 0, ..Asked::default() };
            let made = client.mkdir_spread(&me(), Fid::ROOT, b"d", 0o755, Some(&asked)).await?;
            let mut kept = Names::new();
            for number in 0..KEPT {
                let name = format!("kept.{number}");
                let file = make(client, made.fid(), &name).await?;
                kept.insert(name, file);
            }
            Ok((made.fid(), kept))
        });
        (world.dir, world.kept) = (dir, kept);
        world
    }

    fn begin<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> Outcome<T> {
        let (node, client) = &self.clients[at];
        let (own, outcome) = (client.clone(), Outcome::<T>::default());
        let fill = outcome.clone();
        node.env().spawn("work", async move {
            let done = work(&own).await;
            *fill.borrow_mut() = Some(done.map_err(|error| error.errno()));
        });
        outcome
    }

    fn end<T>(&self, outcome: &Outcome<T>) -> Result<T, Errno> {
        let limit = Span::secs(300);
        assert!(self.cluster.sim.run_until(limit, || outcome.borrow().is_some()), "it never ends");
        outcome.borrow_mut().take().expect("it has ended")
    }

    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> T {
        self.end(&self.begin(at, work)).expect("it is done")
    }

    /// Has all names move to an MDT.
    fn migrate(&self, mdt: u32) -> Outcome<()> {
        let dir = self.dir;
        self.begin(0, async move |client| client.migrate_names(&me(), dir, &only(mdt)).await)
    }

    /// Waits until no name is left to move; returns the MDTs of the shards.
    fn moved(&self) -> Vec<u32> {
        let dir = self.dir;
        for _ in 0..600 {
            let stripes = self.run(0, async move |client| client.dir_stripes(&me(), dir).await);
            match stripes {
                None => return Vec::new(),
                Some(stripes) if stripes.leaving.is_none() => {
                    return stripes.shards.iter().map(|shard| shard.mdt_index()).collect();
                }
                Some(_) => self.cluster.sim.run_for(Span::millis(100)),
            }
        }
        panic!("names move for ever");
    }

    /// A user who makes, renames and removes files in the directory until `stop` is set; returns
    /// the names that are left.
    fn work(&self, stop: &Rc<Cell<bool>>) -> Outcome<Names> {
        let (dir, stop, env) = (self.dir, stop.clone(), self.clients[1].0.env());
        self.begin(1, async move |client| {
            let mut left = Names::new();
            for number in 0_u32.. {
                if stop.get() {
                    break;
                }
                let name = format!("own.{number}");
                let file = make(client, dir, &name).await?;
                assert_eq!(client.lookup(&me(), dir, name.as_bytes()).await?.fid(), file);
                match number % 3 {
                    0 => {
                        client.unlink(&me(), dir, name.as_bytes()).await?;
                    }
                    1 => {
                        let new = format!("renamed.{number}");
                        let (from, to) = (name.as_bytes(), new.as_bytes());
                        client.rename(&me(), dir, from, dir, to, 0).await?;
                        left.insert(new, file);
                    }
                    _ => {
                        left.insert(name, file);
                    }
                }
                env.sleep(WORK_PAUSE).await;
            }
            Ok(left)
        })
    }

    /// Both clients find and list these names and no others.
    fn check(&self, own: &Names) {
        let dir = self.dir;
        let expected: Names = self.kept.iter().chain(own).map(|(n, f)| (n.clone(), *f)).collect();
        for at in 0..2 {
            let shown = self.run(at, async move |client| {
                let (mut shown, mut cookie, listing) = (Names::new(), 0, Listing::new(dir));
                loop {
                    let page = client.readdir_on(&me(), &listing, cookie, 0).await?;
                    for entry in &page.entries {
                        let name = String::from_utf8_lossy(&entry.name).into_owned();
                        let found = client.lookup(&me(), dir, &entry.name).await?;
                        assert_eq!(shown.insert(name.clone(), found.fid()), None, "{name} twice");
                        cookie = entry.cookie;
                    }
                    if page.at_end {
                        return Ok(shown);
                    }
                }
            });
            assert_eq!(shown, expected, "client {at}");
        }
    }
}

async fn make(client: &Client, dir: Fid, name: &str) -> client::Result<Fid> {
    let made = client.create(&me(), dir, name.as_bytes(), 0o644, flags::O_RDWR, None).await;
    let (attr, file) = made?;
    file.close().await?;
    Ok(attr.fid())
}

#[test]
fn a_directory_that_is_used_moves_and_each_mdt_dies_meanwhile() {
    for victim in 0..MDTS {
        for after_ms in [0, 2, 30, 200] {
            let world = World::new();
            let stop = Rc::new(Cell::new(false));
            let worker = world.work(&stop);
            world.cluster.sim.run_for(Span::millis(50));
            let begun = world.migrate(1);
            world.cluster.sim.run_for(Span::millis(after_ms));
            world.cluster.restart_mdt(victim);
            assert_eq!(world.end(&begun), Ok(()), "MDT {victim}, {after_ms} ms");
            assert_eq!(world.moved(), [1], "MDT {victim}, {after_ms} ms");
            stop.set(true);
            let own = world.end(&worker).expect("a user sees no error");
            world.check(&own);
            let (dir, one) = (world.dir, "made last");
            let last = world.run(1, async move |client| make(client, dir, one).await);
            assert_eq!(last.mdt_index(), 1, "new files are on the new MDT");
            assert!(world.kept.values().all(|file| file.mdt_index() == 0), "inodes stay");
        }
    }
}

/// Inodes stay, so nothing that a client knows of files changes. A recall for each of them would hold
/// up the move, and with it all that wait for its names.
#[test]
fn attributes_of_files_stay_known_while_their_names_move() {
    let world = World::new();
    let files: Rc<Vec<Fid>> = Rc::new(world.kept.values().copied().collect());
    let asked = || {
        let files = files.clone();
        world.run(1, async move |client| {
            let asked = || client.requests().get(&Opcode::MdtGetattr).copied().unwrap_or(0);
            let before = asked();
            for file in &*files {
                client.getattr(&me(), *file, None).await?;
            }
            Ok(asked() - before)
        })
    };
    world.cluster.sim.run_for(Span::secs(3));
    let first = asked();
    let before = asked();
    assert!(before < first, "most are granted: {first}, {before}");
    assert_eq!(world.end(&world.migrate(1)), Ok(()));
    assert_eq!(world.moved(), [1]);
    let after = asked();
    assert!(after <= before, "{before}, {after}");
    world.check(&Names::new());
}

#[test]
fn messages_that_are_lost_move_no_name_twice() {
    let world = World::new();
    let stop = Rc::new(Cell::new(false));
    let worker = world.work(&stop);
    for mdt in [2, 1, 0] {
        world.cluster.sim.set_faults(Faults { loss_ppm: 20_000, ..Faults::stormy() });
        let begun = world.migrate(mdt);
        assert_eq!(world.end(&begun), Ok(()), "MDT {mdt}");
        world.cluster.sim.run_for(Span::secs(2));
        world.cluster.sim.set_faults(Faults::default());
        let expected = if mdt == 0 { vec![] } else { vec![mdt] };
        assert_eq!(world.moved(), expected, "on its own MDT it is plain");
    }
    stop.set(true);
    let own = world.end(&worker).expect("a user sees no error");
    world.check(&own);
}

/// The caller is gone as soon as the names have begun to move: they go on.
#[test]
fn names_move_on_without_the_client_that_had_them_moved() {
    let mut world = World::new();
    assert_eq!(world.end(&world.migrate(2)), Ok(()));
    world.clients[0].0.kill();
    world.cluster.sim.run_for(Span::secs(30));
    let (node, client) = world.clients[1].clone();
    world.clients[0] = (node, client);
    assert_eq!(world.moved(), [2]);
    world.check(&Names::new());
}
