//! **kernel**: programs on three mounts create, remove, rename, list and stat names in common
//! directories. They go through a model of the kernel's cache ([`kernel`]) and a real FUSE handler,
//! while messages are lost and the MDT is killed. Some order must explain all answers. When a
//! change was answered, no call that begins later, on any mount, sees the earlier state.
//!
//! From seed 1,000 on, daemons also stop for up to 15 s or die while their kernels go on. The
//! clocks of mounts run apart from the MDT's. A change whose daemon died meanwhile takes effect
//! later or never. Changes that were answered hold, because no MDT dies in that round.
//!
//! A call by path is two calls here, as in the kernel: finding the inode, then the operation on it.
//! In every second seed, kernels keep names of directories. Programs then also read an open
//! directory again from its start.
//!
//! In the end of a run without these faults, answers come late (`answers`).

mod answers;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use client::Client;
use env::Env;
use env_sim::{Control, Faults, NodeHandle};
use fusedev::InitInfo;
use fusedev::abi::cap;
use kernel::{Found, Kernel, Listed, Stat, Traits, Who};
use oracle::history::{self, Entry, Names, NamesCall, RenameHow, Seen, Told};
use oracle::{EXCHANGE, NOREPLACE};
use types::{Errno, Span};

use super::Stage;
use crate::run::PEACE_MAX;

/// Pairs of directories of one run: what was contended once is not leased for a while.
const ROUNDS: u32 = 16;
const MOUNTS: usize = 3;
/// Programs on each mount.
const PROGRAMS: usize = 3;
/// Names in each directory.
const PLACES: u8 = 3;
const DIRS: usize = 2;
/// Calls of one program in one round.
const CALLS: u32 = 6;
/// Owner of the file that create 0 made.
const FIRST_OWNER: u32 = 1_000;
const PERMISSIONS: u32 = 0o7777;
/// A client has heard of a death by then, and has forgotten what the MDT had granted.
const HEARD_AFTER: Span = Span::millis(100);
/// What a kernel may believe longer than it was told: its ticks, and how late its callers run.
const SLACK: Span = Span::millis(30);
/// Seeds from here on have faults of mounts too. The runs of others do not change.
const HARD_FROM: u64 = 1_000;
/// A daemon that is stopped runs again after this.
const STOP_MAX: Span = Span::secs(15);
/// Nothing that a dead daemon had begun happens later than this.
const FORGOTTEN_AFTER: Span = Span::secs(120);
/// A program is at work this long after its round's begin.
const AT_WORK: Span = Span::millis(100);
/// A directory that is open is read again as late as this.
const AGAIN_MAX: Span = Span::millis(60);
/// Clocks of a mount run apart from the MDT's by so many millionths: `ldlm::grants::SKEW_PERCENT`
/// allows less than 100,000.
const DRIFT_PPM_MAX: u64 = 40_000;

/// A mount: its machine with the kernel and programs, and its daemon.
#[derive(Clone)]
struct Entered {
    machine: NodeHandle,
    daemon: NodeHandle,
    client: Client,
}

/// The same with a kernel.
#[derive(Clone)]
struct Mount {
    machine: NodeHandle,
    daemon: NodeHandle,
    kernel: Kernel,
    /// Its daemon was killed.
    is_dead: Rc<Cell<bool>>,
}

impl Stage<'_> {
    pub(super) fn kernel(&mut self, seed: u64) -> Result<(), String> {
        let (is_hard, keeps) = (seed >= HARD_FROM, seed.is_multiple_of(2));
        let entered: Vec<_> = (0..MOUNTS).map(|_| self.enter_machine(is_hard)).collect();
        let mounts = entered.iter().map(|entered| self.mount_kernel(entered, keeps));
        let mut mounts: Vec<_> = mounts.collect();
        let mut dead = Vec::new();
        for round in 0..ROUNDS {
            self.kernel_once(&mounts, round, (is_hard, keeps))?;
            for mount in mounts.iter_mut().filter(|mount| mount.is_dead.get()) {
                let entered = self.enter_machine(is_hard);
                dead.push(std::mem::replace(mount, self.mount_kernel(&entered, keeps)));
            }
        }
        if !is_hard {
            self.answer_late()?;
        }
        drop(mounts);
        if !dead.is_empty() {
            self.cluster.sim.run_for(FORGOTTEN_AFTER); // what they had begun is over
        }
        let first = &entered[0];
        self.nothing_is_left(&(first.daemon.clone(), first.client.clone()))
    }

    /// The daemon of a hard run has a node of its own.
    fn enter_machine(&mut self, is_hard: bool) -> Entered {
        if !is_hard {
            let (node, client) = self.enter("mount");
            return Entered { machine: node.clone(), daemon: node, client };
        }
        let drift = self.rng.range(0, 2 * DRIFT_PPM_MAX) as i32 - DRIFT_PPM_MAX as i32;
        self.enter_apart(drift)
    }

    /// A daemon with a node of its own. Clocks there and on its machine run faster by so many
    /// millionths.
    fn enter_apart(&mut self, drift: i32) -> Entered {
        let [machine, daemon] = ["machine", "mount"].map(|name| {
            self.nodes += 1;
            let node = self.cluster.client_node(&format!("{name}{}", self.nodes), self.nodes);
            node.drift_clock(drift);
            node
        });
        let client = self.cluster.mount(&daemon);
        Entered { machine, daemon, client }
    }

    fn mount_kernel(&mut self, entered: &Entered, keeps: bool) -> Mount {
        let Entered { machine, daemon, client } = entered.clone();
        let (env, bugs) = (daemon.env(), self.bugs);
        let traits = Traits::draw(SLACK, &mut self.rng);
        let minor = traits.version.minor();
        let kept = cap::AUTO_INVAL_DATA | cap::DO_READDIRPLUS;
        let capabilities = if keeps && traits.plus { kept } else { 0 };
        let info = InitInfo { minor, capabilities, max_write: 1 << 20, max_readahead: 0 };
        let handler = |notifier| fuse::handler(&env, client, info, notifier, bugs);
        let kernel = Kernel::apart([&machine.env(), &env], handler, traits, self.rng.fork());
        Mount { machine, daemon, kernel, is_dead: Rc::default() }
    }

    fn kernel_once(
        &mut self,
        mounts: &[Mount],
        round: u32,
        (is_hard, keeps): (bool, bool),
    ) -> Result<(), String> {
        let cluster = self.cluster;
        let board = Rc::new(RefCell::new(Board::new(cluster.sim.control())));
        let (node, maker) = (mounts[0].machine.clone(), mounts[0].kernel.clone());
        let made = cluster.sim.block_on_for(&node, PEACE_MAX, async move {
            for dir in 0..DIRS {
                maker.mkdir(Who::root(0), &dir_path(round, dir), 0o777).await?;
            }
            Ok::<(), Errno>(())
        });
        match made {
            Some(Ok(())) => {}
            other => return Err(format!("mkdir: {other:?}")),
        }
        let programs = (0..).zip(mounts.iter().cycle().take(MOUNTS * PROGRAMS));
        for (who, mount) in programs {
            let program = Program {
                who,
                env: mount.machine.env(),
                kernel: mount.kernel.clone(),
                round,
                board: board.clone(),
                is_dead: mount.is_dead.clone(),
                keeps,
            };
            mount.machine.env().spawn("program", program.work(self.rng.fork()));
        }
        match is_hard && self.rng.chance(500_000) {
            true => self.disturb_one(mounts),
            false => self.disturb(&board),
        }
        let finished =
            cluster.sim.run_until(PEACE_MAX, || board.borrow().finished == MOUNTS * PROGRAMS);
        cluster.sim.set_faults(Faults::default());
        if is_hard {
            mounts.iter().for_each(|mount| mount.daemon.resume());
        }
        let board = board.borrow();
        self.ops += board.raw.len() as u64;
        if !finished {
            let waits = mounts.iter().map(|mount| (mount.daemon.name(), mount.kernel.waits()));
            let waits: Vec<_> = waits.collect();
            return Err(format!("round {round}: not every program finishes: {waits:?}"));
        }
        board.check().map_err(|breach| format!("round {round}: {breach}"))
    }

    /// A daemon stops or dies while its kernel and programs go on. The MDT lives meanwhile, because
    /// a client that is stopped does not hear of its death, and what a dead client was answered may
    /// be lost together with it.
    fn disturb_one(&mut self, mounts: &[Mount]) {
        if self.rng.chance(400_000) {
            self.cluster.sim.set_faults(Faults::stormy());
        }
        self.pause(AT_WORK);
        if self.rng.chance(150_000) {
            // the first one's client removes everything in the end
            let victim = &mounts[1 + self.rng.index(MOUNTS - 1)];
            self.cluster.sim.narrate(&format!("kills {}", victim.daemon.name()));
            victim.is_dead.set(true);
            return victim.daemon.kill();
        }
        let (index, span) = (self.rng.index(MOUNTS), self.rng.span(Span::ZERO, STOP_MAX));
        let daemon = &mounts[index].daemon;
        let what = format!("stops {} for {:.3} s", daemon.name(), span.as_secs_f64());
        self.cluster.sim.narrate(&what);
        daemon.pause(span);
    }

    /// Mostly something is wrong with the network or the MDT.
    fn disturb(&mut self, board: &RefCell<Board>) {
        if self.rng.chance(400_000) {
            self.cluster.sim.set_faults(Faults::stormy());
        }
        if self.rng.chance(300_000) {
            self.pause(Span::millis(300));
            self.cluster.sim.narrate("kills the MDT");
            board.borrow_mut().kills.push(self.cluster.sim.now().0);
            self.mdt().kill(false);
            self.restarts += 1;
            self.pause(Span::millis(40));
            self.mdt().boot();
        }
    }
}

fn dir_path(round: u32, dir: usize) -> String {
    format!("round{round}.{dir}")
}

/// Lengths are powers of two, so that the size of a directory tells which names it has.
fn name_of(place: u8) -> String {
    "x".repeat(1 << (place % PLACES))
}

fn path_of(round: u32, place: u8) -> String {
    format!("{}/{}", dir_path(round, usize::from(place / PLACES)), name_of(place))
}

fn seen(stat: &Stat) -> Seen {
    Seen { links: stat.nlink, mode: stat.mode & PERMISSIONS }
}

/// An inode number.
type Ino = u64;

/// A call whose file is known by its inode number so far.
enum Raw {
    Known(NamesCall),
    Find(u8, Option<Ino>),
    Stat(Ino, Option<Seen>),
    Link(Ino, u8, Told),
    Chmod(Ino, u32, Told),
    List(usize, BTreeMap<u8, Ino>),
}

impl Raw {
    /// How it ended, where it was to change something.
    fn told(&self) -> Option<Told> {
        match self {
            Raw::Known(
                NamesCall::Create { told, .. }
                | NamesCall::Unlink { told, .. }
                | NamesCall::Rename { told, .. },
            )
            | Raw::Link(_, _, told)
            | Raw::Chmod(_, _, told) => Some(*told),
            _ => None,
        }
    }
}

struct Call {
    who: u32,
    begin: u64,
    /// Nothing for an unknown outcome.
    end: Option<u64>,
    raw: Raw,
}

/// What everybody was told in one round.
struct Board {
    clock: Control,
    raw: Vec<Call>,
    /// Which create made what.
    made: BTreeMap<Ino, u32>,
    next_id: u32,
    /// When the MDT died.
    kills: Vec<u64>,
    finished: usize,
    wrong: Option<String>,
}

impl Board {
    fn new(clock: Control) -> Board {
        Board {
            clock,
            raw: Vec::new(),
            made: BTreeMap::new(),
            next_id: 0,
            kills: Vec::new(),
            finished: 0,
            wrong: None,
        }
    }

    fn saw(&mut self, ino: Ino, owner: u32) {
        let id = owner.wrapping_sub(FIRST_OWNER);
        if *self.made.entry(ino).or_insert(id) != id {
            self.wrong.get_or_insert(format!("inode {ino} has two makers"));
        }
    }

    fn next_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn id(&self, ino: Ino) -> Result<u32, String> {
        self.made.get(&ino).copied().ok_or_else(|| format!("nobody made inode {ino}"))
    }

    fn call(&self, raw: &Raw) -> Result<NamesCall, String> {
        Ok(match raw {
            Raw::Known(call) => call.clone(),
            Raw::Find(place, found) => {
                let found = found.map(|ino| self.id(ino)).transpose()?;
                NamesCall::Find { place: *place, found }
            }
            Raw::Stat(ino, found) => NamesCall::Stat { id: self.id(*ino)?, found: *found },
            Raw::Link(ino, place, told) => {
                NamesCall::Link { id: self.id(*ino)?, place: *place, told: *told }
            }
            Raw::Chmod(ino, mode, told) => {
                NamesCall::Chmod { id: self.id(*ino)?, mode: *mode, told: *told }
            }
            Raw::List(dir, found) => {
                let found = found.iter().map(|(place, ino)| Ok((*place, self.id(*ino)?)));
                NamesCall::List { dir: *dir, found: found.collect::<Result<_, String>>()? }
            }
        })
    }

    /// Whether another order may explain the answer than the one that all others saw:
    /// - A read makes no dependency: it may have seen a change that had no answer yet when the MDT
    ///   died, and that is made again later, perhaps as another inode. So may one from a cache,
    ///   until its client is connected again.
    /// - A change does not wait for what its own mount believes: until it is answered, calls on
    ///   that mount see what was before or what is now, whatever others have seen.
    fn is_unclear(&self, read: &Call) -> bool {
        let is_change = |call: &&Call| call.raw.told().is_some();
        let spans = |at: u64, call: &Call| call.begin <= at && call.end.is_none_or(|end| end > at);
        let changes = || self.raw.iter().filter(is_change);
        if read.raw.told() == Some(Told::Done) {
            return false;
        }
        let before_a_death = self.kills.iter().any(|at| {
            let since = changes().filter(|call| spans(*at, call)).map(|call| call.begin).min();
            let is_later = |since: u64| read.end.is_some_and(|end| end >= since);
            let is_earlier = read.begin <= *at + HEARD_AFTER.0;
            is_earlier && since.is_some_and(is_later)
        });
        let is_of_mount = |call: &Call| (call.who as usize) % MOUNTS == read.who as usize % MOUNTS;
        let beside_a_change = changes()
            .any(|call| is_of_mount(call) && call.who != read.who && spans(read.begin, call));
        before_a_death || beside_a_change || self.is_of_nobody(&read.raw)
    }

    /// Whether it names files that nobody has looked at, and some may be of a create that was begun
    /// and then made another one.
    fn is_of_nobody(&self, raw: &Raw) -> bool {
        let Raw::List(_, found) = raw else { return false };
        let has_begun = self.raw.iter().any(|call| call.end.is_none());
        has_begun && !found.values().all(|ino| self.made.contains_key(ino))
    }

    fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let clear = self.raw.iter().filter(|call| !self.is_unclear(call));
        let entries = clear.map(|Call { who, begin, end, raw }| {
            let call = self.call(raw)?;
            Ok(Entry { who: *who, begin: *begin, end: *end, call })
        });
        let entries = entries.collect::<Result<Vec<_>, String>>()?;
        let names = Names { dirs: vec![PLACES; DIRS] };
        history::check(&names, &entries).map_err(|breach| breach.to_string())
    }
}

/// One program of a mount.
struct Program {
    who: u32,
    env: Env,
    kernel: Kernel,
    round: u32,
    board: Rc<RefCell<Board>>,
    is_dead: Rc<Cell<bool>>,
    /// Its kernel may keep names of directories.
    keeps: bool,
}

impl Program {
    async fn work(self, mut rng: env_sim::Rng) {
        for _ in 0..CALLS {
            if self.is_dead.get() {
                break;
            }
            let place = |rng: &mut env_sim::Rng| rng.below(u64::from(PLACES) * DIRS as u64) as u8;
            let (one, other, dir) = (place(&mut rng), place(&mut rng), rng.index(DIRS));
            let mode = *rng.pick(&[0o600, 0o640, 0o644, 0o666]);
            match rng.below(20) {
                0..=3 => self.create(one, mode).await,
                4..=6 => self.unlink(one).await,
                7..=8 if one != other => self.rename(one, other, rng.below(4)).await,
                9 => self.link(one, other).await,
                10..=11 => self.chmod(one, mode).await,
                12..=13 => {
                    let pause = self.keeps.then(|| rng.span(Span::ZERO, AGAIN_MAX));
                    self.list(dir, pause).await;
                }
                14..=15 => self.taken(dir).await,
                _ => self.stat(one).await,
            }
            if rng.chance(400_000) {
                self.taken(usize::from(one / PLACES)).await;
            }
            if rng.chance(150_000) && !self.is_dead.get() {
                self.kernel.shrink();
            }
            self.env.sleep(rng.span(Span::ZERO, Span::millis(15))).await;
        }
        self.board.borrow_mut().finished += 1;
    }

    fn root(&self) -> Who {
        Who::root(self.who)
    }

    fn now(&self) -> u64 {
        self.board.borrow().clock.now().0
    }

    fn note(&self, begin: u64, raw: Raw) {
        let end = Some(self.now());
        self.board.borrow_mut().raw.push(Call { who: self.who, begin, end, raw });
    }

    /// Nobody knows whether this was done.
    fn begun(&self, begin: u64, raw: Raw) {
        self.board.borrow_mut().raw.push(Call { who: self.who, begin, end: None, raw });
    }

    /// A change has ended. One that has failed with its mount may still take effect.
    fn ended(&self, begin: u64, told: Option<Told>, raw: impl FnOnce(Told) -> Raw) {
        match told {
            Some(told) => self.note(begin, raw(told)),
            None => self.begun(begin, raw(Told::Done)),
        }
    }

    /// A call may fail so only where the daemon has died.
    fn fail(&self, what: &str, errno: Errno) {
        if self.is_dead.get() {
            return;
        }
        self.board.borrow_mut().wrong.get_or_insert(format!("{what}: {errno}"));
    }

    /// How a change ended; nothing where it failed as it may not.
    fn told<T>(&self, what: &str, answer: &Result<T, Errno>) -> Option<Told> {
        match answer {
            Ok(_) => Some(Told::Done),
            Err(Errno::EEXIST) => Some(Told::Taken),
            Err(Errno::ENOENT | Errno::ESTALE) => Some(Told::Absent),
            Err(errno) => {
                self.fail(what, *errno);
                None
            }
        }
    }

    async fn create(&self, place: u8, mode: u32) {
        let (begin, ids) = (self.now(), RefCell::new(Vec::new()));
        let who = || {
            let id = self.board.borrow_mut().next_id();
            ids.borrow_mut().push(id);
            Who { uid: FIRST_OWNER + id, gid: FIRST_OWNER + id, thread: self.who }
        };
        let made = self.kernel.create(who, &path_of(self.round, place), mode).await;
        if let Ok(stat) = &made {
            self.board.borrow_mut().saw(stat.ino, stat.uid);
        }
        let call = |id, told| NamesCall::Create { place, id, mode, told };
        let (told, mut ids) = (self.told("create", &made), ids.take());
        // made, but taken away by another mount before its maker could open it anew
        let last = ids.pop_if(|_| told != Some(Told::Absent));
        for id in ids {
            self.begun(begin, Raw::Known(call(id, Told::Done)));
        }
        if let Some(id) = last {
            self.ended(begin, told, |told| Raw::Known(call(id, told)));
        }
    }

    async fn unlink(&self, place: u8) {
        let begin = self.now();
        let answer = self.kernel.unlink(self.root(), &path_of(self.round, place)).await;
        let told = self.told("unlink", &answer);
        self.ended(begin, told, |told| Raw::Known(NamesCall::Unlink { place, told }));
    }

    async fn rename(&self, from: u8, to: u8, how: u64) {
        let (how, flags) = match how {
            0 => (RenameHow::Keep, NOREPLACE),
            1 => (RenameHow::Exchange, EXCHANGE),
            _ => (RenameHow::Replace, 0),
        };
        let (begin, paths) = (self.now(), [from, to].map(|place| path_of(self.round, place)));
        let answer = self.kernel.rename(self.root(), &paths[0], &paths[1], flags).await;
        if answer == Ok(true) {
            return; // it looked at both names one after the other, and did nothing
        }
        let told = self.told("rename", &answer);
        self.ended(begin, told, |told| Raw::Known(NamesCall::Rename { from, to, how, told }));
    }

    /// The inode of a place, where there is one.
    async fn find(&self, place: u8) -> Option<Found> {
        let begin = self.now();
        match self.kernel.path(self.root(), &path_of(self.round, place)).await {
            Ok(found) => {
                self.board.borrow_mut().saw(found.ino(), found.owner());
                self.note(begin, Raw::Find(place, Some(found.ino())));
                Some(found)
            }
            Err(Errno::ENOENT) => {
                self.note(begin, Raw::Find(place, None));
                None
            }
            Err(errno) => {
                self.fail("a path", errno);
                None
            }
        }
    }

    async fn link(&self, from: u8, to: u8) {
        let Some(found) = self.find(from).await else { return };
        let begin = self.now();
        let answer = self.kernel.link(self.root(), &found, &path_of(self.round, to)).await;
        let told = self.told("link", &answer);
        self.ended(begin, told, |told| Raw::Link(found.ino(), to, told));
    }

    async fn chmod(&self, place: u8, mode: u32) {
        let Some(found) = self.find(place).await else { return };
        let begin = self.now();
        let answer = self.kernel.chmod(self.root(), &found, mode).await;
        let told = self.told("chmod", &answer);
        self.ended(begin, told, |told| Raw::Chmod(found.ino(), mode, told));
    }

    async fn stat(&self, place: u8) {
        let Some(found) = self.find(place).await else { return };
        let begin = self.now();
        let answer = self.kernel.stat(self.root(), &found).await;
        match answer {
            Ok(stat) => {
                self.board.borrow_mut().saw(stat.ino, stat.uid);
                self.note(begin, Raw::Stat(found.ino(), Some(seen(&stat))));
            }
            Err(Errno::ENOENT | Errno::ESTALE) => self.note(begin, Raw::Stat(found.ino(), None)),
            Err(errno) => self.fail("stat", errno),
        }
    }

    async fn dir(&self, dir: usize) -> Option<Found> {
        let found = self.kernel.path(self.root(), &dir_path(self.round, dir)).await;
        found.inspect_err(|errno| self.fail("a directory's path", *errno)).ok()
    }

    async fn taken(&self, dir: usize) {
        let Some(found) = self.dir(dir).await else { return };
        let begin = self.now();
        match self.kernel.stat(self.root(), &found).await {
            Ok(stat) => {
                self.note(begin, Raw::Known(NamesCall::Taken { dir, found: stat.size }));
            }
            Err(errno) => self.fail("stat of a directory", errno),
        }
    }

    /// Lists a directory, and again after a pause without another open.
    async fn list(&self, dir: usize, pause: Option<Span>) {
        let Some(found) = self.dir(dir).await else { return };
        let begin = self.now();
        let Some(pause) = pause else {
            let listed = self.kernel.list(self.root(), &found).await;
            return self.listed(dir, begin, listed);
        };
        let open = match self.kernel.opendir(self.root(), &found).await {
            Ok(open) => open,
            Err(errno) => return self.fail("opendir", errno),
        };
        self.listed(dir, begin, self.kernel.read_from_start(self.root(), &open).await);
        self.env.sleep(pause).await;
        let begin = self.now();
        self.listed(dir, begin, self.kernel.read_from_start(self.root(), &open).await);
        if let Err(errno) = self.kernel.closedir(self.root(), &open).await {
            self.fail("closedir", errno);
        }
    }

    fn listed(&self, dir: usize, begin: u64, listed: Result<Listed, Errno>) {
        match listed {
            Ok(pages) => {
                // what comes with a later page is of a later moment
                let [listed] = &pages[..] else { return };
                let first = dir as u8 * PLACES;
                let place = |name: &[u8]| first + name.len().trailing_zeros() as u8;
                let found = listed.iter().map(|(name, ino)| (place(name), *ino)).collect();
                self.note(begin, Raw::List(dir, found));
            }
            Err(errno) => self.fail("a listing", errno),
        }
    }
}
