//! Files with bytes that move to another MDT, under another FID: their objects stay where they are,
//! and clients with caches use them before and after. Each MDT dies in the middle.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, flags};
use cluster::{Cluster, Granted, Scenario};
use env_sim::NodeHandle;
use layout::dir::Asked;
use types::{Errno, Fid, Span};

const MDTS: u32 = 3;
/// Bytes of the file at first: more than one stripe has.
const BYTES: usize = 3 << 20;
/// Bytes that are written behind them each time.
const MORE: usize = 1_000;

/// What a call in the background returns, once it does.
type Outcome<T> = Rc<RefCell<Option<Result<T, Errno>>>>;

fn me() -> Ctx {
    Ctx::root()
}

/// Three MDTs, two clients, and a file with bytes in a directory of MDT 0.
struct World {
    clients: [(NodeHandle, Client); 2],
    dir: Fid,
    /// Goes last.
    cluster: Cluster,
}

impl World {
    fn new() -> World {
        let scenario =
            Scenario { granted: Granted::Recall, mdts: (MDTS, MDTS), ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        let mut world = World { clients, dir: Fid::ROOT, cluster };
        world.dir = world.run(0, async |client| {
            let asked = Asked { index: 0, ..Asked::default() };
            let dir = client.mkdir_spread(&me(), Fid::ROOT, b"d", 0o755, Some(&asked)).await?;
            let made = client.create(&me(), dir.fid(), b"f", 0o644, flags::O_RDWR, None).await;
            let (_, file) = made?;
            file.write(0, Bytes::from(vec![1; BYTES])).await?;
            file.close().await?;
            Ok(dir.fid())
        });
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

    /// The file, as a client finds it.
    fn file(&self, at: usize) -> Fid {
        let dir = self.dir;
        self.run(at, async move |client| Ok(client.lookup(&me(), dir, b"f").await?.fid()))
    }

    fn migrate(&self, mdt: u32) -> Outcome<()> {
        let file = self.file(0);
        self.begin(0, async move |client| client.migrate_inode(&me(), file, mdt).await)
    }

    /// A client reads the file.
    fn read(&self, at: usize) -> Vec<u8> {
        let file = self.file(at);
        self.run(at, async move |client| {
            let file = client.open(&me(), file, flags::O_RDONLY).await?;
            let read = file.read(0, 2 * BYTES).await?;
            file.close().await?;
            Ok(read.to_vec())
        })
    }

    /// A client writes behind all that the file has.
    fn write(&self, at: usize, behind: usize, byte: u8) {
        let file = self.file(at);
        self.run(at, async move |client| {
            let file = client.open(&me(), file, flags::O_RDWR).await?;
            file.write(behind as u64, Bytes::from(vec![byte; MORE])).await?;
            file.close().await
        });
    }

    /// Both clients find all bytes.
    fn check(&self, expected: &[u8], when: &str) {
        for at in 0..2 {
            let read = self.read(at);
            assert!(read == expected, "{when}: client {at} reads {} bytes", read.len());
        }
    }
}

#[test]
fn a_file_keeps_its_bytes_on_its_way_over_the_mdts() {
    let world = World::new();
    let mut all = vec![1_u8; BYTES];
    world.check(&all, "at first");
    for (mdt, byte) in [(1, 2), (2, 3), (0, 4), (1, 5)] {
        assert_eq!(world.end(&world.migrate(mdt)), Ok(()), "MDT {mdt}");
        assert_eq!(world.file(1).mdt_index(), mdt);
        world.check(&all, "it has moved");
        world.write(1, all.len(), byte);
        all.extend(vec![byte; MORE]);
        world.check(&all, "it has grown");
    }
    let dir = world.dir;
    world.run(1, async move |client| client.unlink(&me(), dir, b"f").await);
    world.cluster.sim.run_for(Span::secs(30)); // its objects are destroyed
}

/// No sweep destroys what is lent. So nothing is lent of a file that may be lost with its client.
#[test]
fn no_object_stays_behind_when_the_mover_and_the_mdt_die() {
    for after_us in [500, 1_000, 2_000, 3_000, 4_000, 6_000, 10_000] {
        let world = World::new();
        let _it_never_ends = world.migrate(1);
        world.cluster.sim.run_for(Span::micros(after_us));
        world.clients[0].0.kill();
        world.cluster.restart_mdt(0);
        world.cluster.sim.run_for(Span::secs(120)); // its session is over
        let dir = world.dir;
        let removed = world.begin(1, async move |client| client.unlink(&me(), dir, b"f").await);
        let removed = world.end(&removed);
        let was_lost = matches!(removed, Err(Errno::ENOENT | Errno::ESTALE));
        assert!(removed.is_ok() || was_lost, "{removed:?}");
        world.cluster.sim.run_for(Span::secs(60)); // its objects are destroyed
        assert_eq!(world.cluster.objects(), 0, "{after_us} us");
    }
}

#[test]
fn an_open_file_moves_when_it_is_closed() {
    let world = World::new();
    let fid = world.file(1);
    let file = world.run(1, async move |client| client.open(&me(), fid, flags::O_RDWR).await);
    assert_eq!(world.end(&world.migrate(1)), Err(Errno::EBUSY));
    world.run(1, async move |_| {
        file.write(0, Bytes::from(vec![7; MORE])).await?;
        file.close().await
    });
    assert_eq!(world.end(&world.migrate(1)), Ok(()));
    let expected = [vec![7_u8; MORE], vec![1; BYTES - MORE]].concat();
    world.check(&expected, "what was written last is there");
}

#[test]
fn each_mdt_may_die_while_a_file_with_bytes_moves() {
    for victim in 0..MDTS {
        for after_us in [0, 300, 1_000, 2_000, 5_000, 20_000] {
            let world = World::new();
            let moved = world.migrate(1);
            world.cluster.sim.run_for(Span::micros(after_us));
            world.cluster.restart_mdt(victim);
            assert_eq!(world.end(&moved), Ok(()), "MDT {victim}, {after_us} us");
            let when = format!("MDT {victim} died after {after_us} us");
            assert_eq!(world.file(1).mdt_index(), 1, "{when}");
            let mut all = vec![1_u8; BYTES];
            world.check(&all, &when);
            world.write(1, all.len(), 2);
            all.extend(vec![2; MORE]);
            world.check(&all, &when);
        }
    }
}
