//! Rates in virtual time: four MDTs beside one, and streams into files of several components
//! beside streams into files of one striping. A seed gives the same figures on every machine.
//!
//! Nothing fails here. Time is taken by these things only:
//! - each MDT has one core, which takes CPU time for each request (`one_core.rs`);
//! - targets are on devices of the crate `device`, and each phase that changes something ends with
//!   a sync;
//! - a message is on its way for a few microseconds;
//! - a poll of a task takes a nanosecond or two, which is next to nothing.
//!
//! Clients and OSTs take no CPU time, so the MDTs and the devices are the limit.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, flags};
use device::Model;
use env::{LocalFuture, join_all};
use env_sim::NodeHandle;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template, dir};
use types::{Fid, Instant, Span};

use crate::fixture::{Cluster, Machine};
use crate::one_core::Meter;
use crate::{Granted, Scenario};

/// MDTs that are compared with one.
const MDTS: u32 = 4;
/// Files of each phase, and calls of the client in flight.
const FILES: u32 = 4_096;
const IN_FLIGHT: usize = 512;
/// Directories of their own, in turn on each MDT.
const DIRS: u32 = 4;
/// Shortest and longest time of a message: little beside the time of its request.
const FABRIC: (Span, Span) = (Span::micros(2), Span::micros(4));
/// Shortest and longest time of a poll. All nodes share it: at the microsecond of other worlds, the
/// eight polls of a create and its close take nearly as long as its CPU time at one MDT.
const POLL: (Span, Span) = (Span(1), Span(2));
/// A commit takes this long, and then the time of its device.
const COMMIT: Span = Span::micros(200);
/// Everything that is left of an earlier phase is done after this.
const SETTLES: Span = Span::secs(5);
/// A phase ends within this.
const PHASE_MAX: Span = Span::secs(60);

/// Writes, and reads, of a file, and bytes of each.
const TRANSFERS: u64 = 2;
const TRANSFER: u64 = 64 << 20;
/// Files of each layout.
const STREAMS: u64 = 3;
/// Where the first component ends, which is at the MDT.
const BORDER: u64 = 1 << 20;
const STRIPE_SIZE: u32 = 1 << 20;
const STREAM: &[u8] = b"stream";

/// Where the names are that are made over several MDTs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// In directories of which each is on one MDT.
    Remote,
    /// In one directory with a shard on each MDT.
    Striped,
}

/// What one operation comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Operations in a second of virtual time.
    pub per_sec: f64,
    /// CPU time of all MDTs for one of them, microseconds.
    pub cpu_us: f64,
}

/// An operation on four MDTs beside the same on one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MdtRates {
    /// The operation.
    pub what: &'static str,
    /// On one MDT.
    pub one: Rate,
    /// On four.
    pub four: Rate,
}

impl MdtRates {
    /// Names the columns.
    pub const HEADER: &str = "operation    1 MDT/s   4 MDTs/s  ratio  CPU us: 1      4";

    /// Rate of four MDTs, of one's.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.four.per_sec / self.one.per_sec
    }

    /// CPU time of an operation on four MDTs, of the same on one.
    #[must_use]
    pub fn cpu_ratio(&self) -> f64 {
        self.four.cpu_us / self.one.cpu_us
    }
}

impl fmt::Display for MdtRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MdtRates { what, one, four } = self;
        write!(f, "{what:<8} {:>10.0} {:>10.0}", one.per_sec, four.per_sec)?;
        write!(f, " {:>6.2} {:>10.2} {:>6.2}", self.ratio(), one.cpu_us, four.cpu_us)
    }
}

/// A stream into a file whose first component is at the MDT, beside one into a file of one
/// striping. Both are on the same OST.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamRates {
    /// What the OST is on.
    pub device: &'static str,
    /// Write or read.
    pub what: &'static str,
    /// MiB in a second of virtual time.
    pub plain: f64,
    /// The same of the file with components.
    pub progressive: f64,
}

impl StreamRates {
    /// Names the columns.
    pub const HEADER: &str = "stream        plain MiB/s  components MiB/s  ratio";

    /// Rate of the file with components, of the plain one's.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.progressive / self.plain
    }
}

impl fmt::Display for StreamRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StreamRates { device, what, plain, progressive } = self;
        write!(f, "{device:<6} {what:<6} {plain:>11.1} {progressive:>17.1} {:>6.3}", self.ratio())
    }
}

/// An operation on one name.
#[derive(Clone, Copy)]
enum Op {
    /// With its close.
    Create,
    Stat,
    /// An open and its close. The files are empty.
    Open,
    Unlink,
}

const OPS: [Op; 4] = [Op::Create, Op::Stat, Op::Open, Op::Unlink];

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::Stat => "stat",
            Op::Open => "open",
            Op::Unlink => "unlink",
        }
    }

    fn changes(self) -> bool {
        matches!(self, Op::Create | Op::Unlink)
    }

    async fn run(self, client: &Client, dir: &Dir, number: u32) -> client::Result<()> {
        let (me, name) = (Ctx::root(), format!("file{number}"));
        let name = name.as_bytes();
        match self {
            Op::Create => {
                let open_flags = flags::O_WRONLY | flags::O_EXCL;
                let (_, file) = client.create(&me, dir.fid, name, 0o644, open_flags, None).await?;
                file.close().await?;
                dir.made.borrow_mut()[number as usize] = file.fid();
                Ok(())
            }
            Op::Stat => client.lookup(&me, dir.fid, name).await.map(|_| ()),
            Op::Open => {
                let fid = dir.made.borrow()[number as usize];
                client.open(&me, fid, flags::O_RDONLY).await?.close().await
            }
            Op::Unlink => client.unlink(&me, dir.fid, name).await,
        }
    }
}

/// A directory and the files that are made in it.
struct Dir {
    fid: Fid,
    files: u32,
    /// The file that comes next in this phase.
    next: Cell<u32>,
    /// By number: those that were made one after the other are of one MDT for long stretches.
    made: RefCell<Vec<Fid>>,
}

impl Dir {
    fn next(&self) -> Option<u32> {
        let number = self.next.get();
        self.next.set(number + 1);
        (number < self.files).then_some(number)
    }
}

/// A client of a cluster on which nothing else happens.
struct World {
    cluster: Cluster,
    client: (NodeHandle, Client),
}

impl World {
    fn new(machine: Machine, seed: u64, scenario: &Scenario) -> World {
        let cluster = Cluster::on(machine, seed, scenario);
        cluster.boot();
        let node = cluster.client_node("client", 0);
        let client = cluster.mount(&node);
        client.set_writeback(false);
        client.set_open_cache_age(Span::ZERO);
        World { cluster, client: (node, client) }
    }

    fn now(&self) -> Instant {
        self.cluster.sim.now()
    }

    fn run<T: 'static>(&self, work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static) -> T {
        self.cluster.run(&self.client, work)
    }

    /// The directories of a measurement on these MDTs.
    fn dirs(&self, spread: Spread, mdts: u32) -> Vec<Rc<Dir>> {
        let on = |mdt: u32| dir::Asked { index: mdt as i32, ..dir::Asked::default() };
        let over = |all: Vec<u32>| dir::Asked { count: mdts, mdts: all, ..dir::Asked::default() };
        let asked: Vec<dir::Asked> = match spread {
            Spread::Remote => (0..DIRS).map(|at| on(at % mdts)).collect(),
            Spread::Striped if mdts == 1 => vec![on(0)],
            Spread::Striped => vec![over((0..mdts).collect())],
        };
        let files = FILES / asked.len() as u32;
        let make = |(at, asked): (usize, dir::Asked)| {
            let name = format!("dir{at}");
            let made = self.run(async move |client| {
                let (me, name) = (Ctx::root(), name.as_bytes());
                client.mkdir_spread(&me, Fid::ROOT, name, 0o755, Some(&asked)).await
            });
            let made_in_it = RefCell::new(vec![Fid::ZERO; files as usize]);
            Rc::new(Dir { fid: made.fid(), files, next: Cell::new(0), made: made_in_it })
        };
        asked.into_iter().enumerate().map(make).collect()
    }

    /// A file at each MDT, without objects. Its sync makes durable what its MDT has done.
    fn synced(&self, mdts: u32) -> Vec<File> {
        let make = |mdt: u32| {
            let name = format!("synced{mdt}");
            self.run(async move |client| {
                let (me, name) = (Ctx::root(), name.as_bytes());
                let asked = dir::Asked { index: mdt as i32, ..dir::Asked::default() };
                let parent = client.mkdir_spread(&me, Fid::ROOT, name, 0o755, Some(&asked)).await?;
                let open_flags = flags::O_RDWR | flags::O_DELAY_LAYOUT;
                let made = client.create(&me, parent.fid(), b"file", 0o644, open_flags, None).await;
                Ok(made?.1)
            })
        };
        (0..mdts).map(make).collect()
    }

    /// How long it takes until the operation is done on every file, and durable if it changes
    /// something. A sync of everything would also wait for the objects of removed files.
    fn phase(&self, dirs: &[Rc<Dir>], synced: &[File], op: Op) -> Span {
        let left = Rc::new(Cell::new(IN_FLIGHT));
        let begun = self.now();
        dirs.iter().for_each(|dir| dir.next.set(0));
        for at in 0..IN_FLIGHT {
            let (node, client) = &self.client;
            let (client, dir, left) = (client.clone(), dirs[at % dirs.len()].clone(), left.clone());
            node.env().spawn("worker", async move {
                while let Some(number) = dir.next() {
                    op.run(&client, &dir, number).await.expect("it is done");
                }
                left.set(left.get() - 1);
            });
        }
        let is_done = self.cluster.sim.run_until(PHASE_MAX, || left.get() == 0);
        assert!(is_done, "{} takes longer than {PHASE_MAX:?}", op.name());
        if op.changes() {
            let files = synced.to_vec();
            self.run(async move |_| {
                let syncs = files.iter().map(|file| -> LocalFuture<'_, client::Result<()>> {
                    Box::pin(file.fsync(false))
                });
                join_all(syncs.collect()).await.into_iter().collect::<client::Result<()>>()
            });
        }
        self.now() - begun
    }

    /// How long it takes to write a file of this layout, and to read it. It is removed then.
    fn stream(&self, layout: &Asked, bytes: &Bytes) -> [Span; 2] {
        let (asked, bytes, begun) = (layout.clone(), bytes.clone(), self.now());
        let fid = self.run(async move |client| {
            let open_flags = flags::O_WRONLY | flags::O_EXCL | flags::O_DIRECT;
            let (me, asked) = (Ctx::root(), Some(&asked));
            let (_, file) = client.create(&me, Fid::ROOT, STREAM, 0o644, open_flags, asked).await?;
            for at in 0..TRANSFERS {
                let written = file.write(at * TRANSFER, bytes.clone()).await?;
                assert_eq!(written as u64, TRANSFER, "there is room");
            }
            file.fsync(false).await?;
            file.close().await?;
            Ok(file.fid())
        });
        let written = self.now();
        self.run(async move |client| {
            let open_flags = flags::O_RDONLY | flags::O_DIRECT;
            let file = client.open(&Ctx::root(), fid, open_flags).await?;
            for at in 0..TRANSFERS {
                let pieces = file.read_pieces(at * TRANSFER, TRANSFER as usize).await?;
                let read: usize = pieces.iter().map(Bytes::len).sum();
                assert_eq!(read as u64, TRANSFER, "it was written");
            }
            file.close().await
        });
        let read = self.now();
        self.run(async |client| client.unlink(&Ctx::root(), Fid::ROOT, STREAM).await);
        self.cluster.sim.run_for(SETTLES);
        [written - begun, read - written]
    }
}

/// Measures each operation on one MDT and on four. All MDTs are on flash devices. One client has
/// all calls in flight.
#[must_use]
pub fn metadata(seed: u64, spread: Spread) -> Vec<MdtRates> {
    let (one, four) = (phases(seed, spread, 1), phases(seed, spread, MDTS));
    let both = OPS.iter().zip(one.into_iter().zip(four));
    both.map(|(op, (one, four))| MdtRates { what: op.name(), one, four }).collect()
}

fn phases(seed: u64, spread: Spread, mdts: u32) -> Vec<Rate> {
    let meter = Rc::<Meter>::default();
    let scenario = Scenario {
        granted: Granted::Recall,
        mdts: (mdts, mdts),
        commit_max: COMMIT,
        ..Scenario::calm()
    };
    let devices = [Some(Model::flash()), Some(Model::flash())];
    let machine = Machine { devices, delay: FABRIC, poll: POLL, meter: Some(meter.clone()) };
    let world = World::new(machine, seed, &scenario);
    let (dirs, synced) = (world.dirs(spread, mdts), world.synced(mdts));
    let measure = |op: &Op| {
        world.cluster.sim.run_for(SETTLES);
        let before = meter.total();
        let took = world.phase(&dirs, &synced, *op);
        let cpu = meter.total().0 - before.0;
        let files = f64::from(FILES);
        Rate { per_sec: files / took.as_secs_f64(), cpu_us: cpu as f64 / 1e3 / files }
    };
    OPS.iter().map(measure).collect()
}

/// Measures streams of one client into one OST, which is on flash or on a disk. The MDT is on
/// flash. A file is made, written and synced, and then read, around all caches.
#[must_use]
pub fn streams(seed: u64) -> Vec<StreamRates> {
    let on_flash = streams_on(seed, "flash", Model::flash());
    let on_disk = streams_on(seed, "disk", Model::disk());
    on_flash.into_iter().chain(on_disk).collect()
}

fn streams_on(seed: u64, device: &'static str, model: Model) -> [StreamRates; 2] {
    let scenario = Scenario {
        granted: Granted::Recall,
        osts: 1,
        dom: true,
        commit_max: COMMIT,
        ..Scenario::calm()
    };
    let devices = [Some(Model::flash()), Some(model)];
    let machine = Machine { devices, delay: FABRIC, poll: POLL, meter: None };
    let world = World::new(machine, seed, &scenario);
    world.cluster.sim.run_for(SETTLES);
    let bytes = Bytes::from(vec![7; TRANSFER as usize]);
    let layouts = [plain(), progressive()];
    let mut times = [[Span::ZERO; 2]; 2];
    for _ in 0..STREAMS {
        for (layout, times) in layouts.iter().zip(&mut times) {
            for (sum, took) in times.iter_mut().zip(world.stream(layout, &bytes)) {
                *sum = Span(sum.0 + took.0);
            }
        }
    }
    let mibps = |span: Span| ((STREAMS * TRANSFERS * TRANSFER) >> 20) as f64 / span.as_secs_f64();
    let [plain, progressive] = times;
    let row = |what, at: usize| StreamRates {
        device,
        what,
        plain: mibps(plain[at]),
        progressive: mibps(progressive[at]),
    };
    [row("write", 0), row("read", 1)]
}

/// One object.
fn plain() -> Asked {
    let (stripe_size, stripe_count) = (STRIPE_SIZE, 1);
    Asked::Plain(Template { stripe_size, stripe_count, ..Template::default() })
}

/// The first bytes are at the MDT, all others in one object.
fn progressive() -> Asked {
    let mut parts = CompositeTemplate::striped(STRIPE_SIZE, [(BORDER, 1), (END_OF_FILE, 1)]);
    parts.components[0] = TemplateComponent { end: BORDER, wanted: Wanted::Mdt };
    Asked::Composite(parts)
}
