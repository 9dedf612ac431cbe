//! The environment in simulation: any number of nodes in one thread, on virtual time, from a seed.
//!
//! ```
//! use env_sim::{Sim, SimConfig};
//! let sim = Sim::new(17, SimConfig::default());
//! let node = sim.node("mds1", "10.0.0.1@tcp".parse::<types::Nid>().expect("a NID"));
//! let env = node.env();
//! let slept = sim.block_on(&node, async move {
//!     env.sleep(types::Span::secs(3600)).await;
//!     "an hour in no time"
//! });
//! assert_eq!(slept, "an hour in no time");
//! ```
//!
//! Invariants
//! - The same seed and the same calls give the same run; [`Control::trace_hash`] is a witness of
//!   it.
//! - A task belongs to the node whose [`Env`] spawned it and dies with it, between two polls.
//! - Messages cross a link as encoded bytes.
//! - A panic of any task, an error-level event or a run that is stuck ends the run with the seed in
//!   the message.
//!
//! Faults are described in [`Faults`]. Nodes are killed with [`NodeHandle::kill`] and start again
//! with the next [`NodeHandle::env`].

mod executor;
mod faults;
mod listen;
mod net;
mod rng;
mod watch;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::rc::Rc;

use env::{Env, EnvBody, Link, Listener, LocalFuture, NetCounters, Task};
use types::{Instant, Nid, NidAddr, Span, Timespec};

pub use faults::{Cut, FaultCounts, Faults};
pub use rng::Rng;

use executor::{Executor, Sleep, Step};
use net::{Net, NodeState};
use watch::{Watch, WatchSubscriber};

/// What a simulated world is like.
#[derive(Clone, Copy, Debug)]
pub struct SimConfig {
    /// Shortest time of a message on its way.
    pub delay_min: Span,
    /// Longest one, without faults.
    pub delay_max: Span,
    /// Bandwidth of each link.
    pub bytes_per_sec: u64,
    /// Shortest time of a poll, above zero. No other task of any node runs meanwhile: so many polls
    /// a second are the limit of the whole world.
    pub poll_min: Span,
    /// Longest one.
    pub poll_max: Span,
    /// Wall clock at the start, seconds since 1970.
    pub wall_start_sec: i64,
    /// An error-level event ends the run.
    pub fail_on_error: bool,
    /// Polls after which a run counts as going in circles.
    pub polls_max: u64,
    /// Prints events up to this level to stderr, with virtual time and node.
    pub print: Option<tracing::Level>,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            delay_min: Span::micros(20),
            delay_max: Span::micros(200),
            bytes_per_sec: 2_000_000_000,
            poll_min: Span(100),
            poll_max: Span(2_000),
            wall_start_sec: 1_700_000_000,
            fail_on_error: true,
            polls_max: 2_000_000_000,
            print: None,
        }
    }
}

const MILLION: i128 = 1_000_000;

struct World {
    seed: u64,
    executor: Rc<Executor>,
    net: Rc<Net>,
    rng: RefCell<Rng>,
    stopped: Cell<bool>,
}

/// A simulated world. Dropping it drops everything in it.
pub struct Sim {
    control: Control,
}

/// Handle by which tests and nemeses steer a world, from inside of it too.
#[derive(Clone)]
pub struct Control(Rc<World>);

impl std::ops::Deref for Sim {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Sim {
    /// A world without nodes.
    #[must_use]
    pub fn new(seed: u64, config: SimConfig) -> Sim {
        let mut rng = Rng::new(seed);
        let watch = Watch::new(config.print);
        let poll_takes = (config.poll_min, config.poll_max);
        let executor = Rc::new(Executor::new(seed, rng.fork(), poll_takes, watch));
        let net = Rc::new(Net::new(executor.clone(), config, rng.fork()));
        let world =
            World { seed, executor, net, rng: RefCell::new(rng), stopped: Cell::new(false) };
        Sim { control: Control(Rc::new(world)) }
    }

    /// The handle for tasks inside.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Runs until `done` says so (true), or `limit` has passed, or nothing can happen any more.
    pub fn run_until(&self, limit: Span, mut done: impl FnMut() -> bool) -> bool {
        let world = &self.control.0;
        let until = world.executor.now() + limit;
        let _events =
            tracing::subscriber::set_default(WatchSubscriber(world.executor.watch.clone()));
        loop {
            if done() {
                return true;
            }
            let step = world.executor.step(until);
            self.check();
            if step != Step::Ran || world.executor.now() > until {
                return done();
            }
        }
    }

    /// Runs for `span` of virtual time.
    pub fn run_for(&self, span: Span) {
        let until = self.now() + span;
        self.run_until(span, || false);
        if self.now() < until {
            self.control.0.executor.set_now(until);
        }
    }

    /// Runs until no task is ready and no timer is set; false if `limit` passed before.
    pub fn run_until_idle(&self, limit: Span) -> bool {
        let world = &self.control.0;
        let until = world.executor.now() + limit;
        let _events =
            tracing::subscriber::set_default(WatchSubscriber(world.executor.watch.clone()));
        loop {
            let step = world.executor.step(until);
            self.check();
            match step {
                Step::Idle => return true,
                Step::Limit => return false,
                Step::Ran if world.executor.now() > until => return false,
                Step::Ran => {}
            }
        }
    }

    /// Runs `future` as a task of `node` until it has finished. Panics if that cannot happen any
    /// more.
    pub fn block_on<T: 'static>(
        &self,
        node: &NodeHandle,
        future: impl Future<Output = T> + 'static,
    ) -> T {
        let out = self.block_on_for(node, Span::secs(365 * 86_400), future);
        out.unwrap_or_else(|| self.stuck("a future that is waited for never finishes"))
    }

    /// Runs `future` as a task of `node`; nothing if it has not finished within `limit` of virtual
    /// time.
    pub fn block_on_for<T: 'static>(
        &self,
        node: &NodeHandle,
        limit: Span,
        future: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let slot = Rc::new(RefCell::new(None));
        let fill = slot.clone();
        let task = node.env().spawn("block_on", async move {
            let value = future.await;
            *fill.borrow_mut() = Some(value);
        });
        self.run_until(limit, || slot.borrow().is_some());
        task.abort();
        slot.take()
    }

    /// Ends the run with the seed and what is still alive.
    pub fn stuck(&self, what: &str) -> ! {
        panic!(
            "seed {}: {what} (at {} ns; alive: {})",
            self.control.0.seed,
            self.now().0,
            self.control.0.executor.describe_tasks()
        );
    }

    fn check(&self) {
        let world = &self.control.0;
        if world.net.config.fail_on_error && world.executor.watch.error_count() > 0 {
            panic!("seed {}: an error-level event: {}", world.seed, self.errors().join("; "));
        }
        if world.executor.polls() > world.net.config.polls_max {
            self.stuck("the run goes in circles");
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let world = &self.control.0;
        world.stopped.set(true);
        world.executor.clear();
        let listeners = std::mem::take(&mut *world.net.listeners.borrow_mut());
        drop(listeners);
    }
}

impl Control {
    /// A new node. Its NID is its address; names are for people.
    ///
    /// # Panics
    /// If another node has the NID.
    #[must_use]
    pub fn node(&self, name: &str, nid: Nid) -> NodeHandle {
        let index = self.0.executor.add_node(name);
        let before = self.0.net.nids.borrow_mut().insert(nid, index);
        assert!(before.is_none(), "a NID belongs to one node");
        let state = NodeState {
            nid,
            incarnation: 1,
            up: true,
            clock_skew_ns: 0,
            drift_ppm: 0,
            stood: Span::ZERO,
            pauses: 0,
            lag: Span::ZERO,
            frozen: false,
            sends_left: None,
            arrivals_left: None,
            traffic: Rc::default(),
        };
        self.0.net.nodes.borrow_mut().push(state);
        NodeHandle { world: self.0.clone(), index, nid, name: name.into() }
    }

    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.executor.now()
    }

    /// A stream of random numbers for whoever steers, apart from that of the nodes.
    #[must_use]
    pub fn rng(&self) -> Rng {
        self.0.rng.borrow_mut().fork()
    }

    /// Switches the faults of the network from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.0.net.faults.set(faults);
    }

    /// Lets nothing pass from one node to another, or between them.
    pub fn partition(&self, from: &NodeHandle, to: &NodeHandle, cut: Cut) {
        self.0.net.cut(from.index, to.index, cut);
    }

    /// Ends the partitions between two nodes.
    pub fn heal(&self, one: &NodeHandle, other: &NodeHandle) {
        self.0.net.heal(one.index, other.index);
    }

    /// Ends all partitions.
    pub fn heal_all(&self) {
        self.0.net.heal_all();
    }

    /// Resets all links between two nodes.
    pub fn reset_links(&self, one: &NodeHandle, other: &NodeHandle) {
        self.0.net.reset_between(one.index, other.index);
    }

    /// What was done to the nodes so far.
    #[must_use]
    pub fn faults(&self) -> FaultCounts {
        self.0.net.counts.get()
    }

    /// Mixes every poll and every message so far: equal for equal runs.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.0.executor.hash()
    }

    /// Polls of tasks so far.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.0.executor.polls()
    }

    /// Prints a line about what is done to the world, where events of level info are printed.
    pub fn narrate(&self, what: &str) {
        if self.0.executor.watch.prints(tracing::Level::INFO) {
            let now = self.now().0;
            eprintln!(
                "{:>5}.{:06} NEMESIS {what}",
                now / 1_000_000_000,
                now % 1_000_000_000 / 1_000
            );
        }
    }

    /// Error-level events so far.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        self.0.executor.watch.errors()
    }

    /// Tasks that are alive, by node and name.
    #[must_use]
    pub fn describe_tasks(&self) -> String {
        self.0.executor.describe_tasks()
    }
}

/// A node of the world.
#[derive(Clone)]
pub struct NodeHandle {
    world: Rc<World>,
    index: usize,
    nid: Nid,
    name: Rc<str>,
}

impl NodeHandle {
    /// The environment of what runs here. After a kill this starts the node again, with nothing
    /// running on it.
    #[must_use]
    pub fn env(&self) -> Env {
        let incarnation = {
            let mut nodes = self.world.net.nodes.borrow_mut();
            nodes[self.index].up = true;
            nodes[self.index].incarnation
        };
        Env::new(Rc::new(NodeEnv { world: self.world.clone(), node: self.index, incarnation }))
    }

    #[must_use]
    pub fn nid(&self) -> Nid {
        self.nid
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kills it, by a seeded choice as a process dies (peers see their links end soon) or as a
    /// machine does (they find out late, or when they talk to the node once it is up again).
    pub fn kill(&self) {
        let machine = self.world.net.rng.borrow_mut().chance(400_000);
        self.kill_as(machine);
    }

    /// Kills the process, or with `machine` the whole machine.
    pub fn kill_as(&self, machine: bool) {
        self.world.net.count(|counts| counts.kills += 1);
        {
            let mut nodes = self.world.net.nodes.borrow_mut();
            nodes[self.index].incarnation += 1;
            nodes[self.index].up = !machine;
            let node = &mut nodes[self.index];
            (node.frozen, node.sends_left, node.arrivals_left) = (false, None, None);
        }
        self.resume();
        self.world.net.kill_links(self.index, machine);
        self.world.net.kill_listeners(self.index);
        self.world.executor.abort_node(self.index);
    }

    /// It stops for good in the middle of what it does: nothing runs on it and nothing that it
    /// sends from now on arrives, until it is killed.
    pub fn freeze(&self) {
        self.world.net.freeze(self.index);
    }

    /// Freezes it right after it has sent so many more messages; never without a number.
    pub fn freeze_after_sends(&self, count: Option<u64>) {
        self.world.net.nodes.borrow_mut()[self.index].sends_left = count;
    }

    /// Freezes it when so many more messages have come to it, which it has not seen then; never
    /// without a number.
    pub fn freeze_after_arrivals(&self, count: Option<u64>) {
        self.world.net.nodes.borrow_mut()[self.index].arrivals_left = count;
    }

    /// Whether it has stopped for good and waits to be killed.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.world.net.nodes.borrow()[self.index].frozen
    }

    /// Nothing runs on it for `span`, as in a process that is stopped; what arrives waits, and
    /// clocks go on.
    pub fn pause(&self, span: Span) {
        self.stop(span, Span::ZERO);
    }

    /// The same of a machine that is suspended or stopped: its clocks stand still too. Sleeps that
    /// began before end as if the clocks had gone on.
    pub fn stand_still(&self, span: Span) {
        self.stop(span, span);
    }

    /// Nothing runs on it for `span`, and then its clocks are behind by `lost`.
    fn stop(&self, span: Span, lost: Span) {
        self.world.net.count(|counts| counts.pauses += 1);
        let number = {
            let mut nodes = self.world.net.nodes.borrow_mut();
            nodes[self.index].pauses += 1;
            nodes[self.index].pauses
        };
        self.world.executor.pause(self.index);
        let node = self.clone();
        let resume = move || {
            let mut nodes = node.world.net.nodes.borrow_mut();
            let state = &mut nodes[node.index];
            if state.pauses != number {
                return;
            }
            state.stood = Span(state.stood.0 + lost.0);
            drop(nodes);
            node.world.executor.resume(node.index);
        };
        let at = self.world.executor.now() + span;
        self.world.executor.add_timer(at, executor::Event::Call(Box::new(resume)));
    }

    /// Ends its pause; one that is frozen stays so.
    pub fn resume(&self) {
        if !self.is_frozen() {
            self.world.executor.resume(self.index);
        }
    }

    /// What it sends and is sent from now on takes so much longer.
    pub fn set_lag(&self, lag: Span) {
        self.world.net.nodes.borrow_mut()[self.index].lag = lag;
    }

    /// Lets its clocks run faster (or slower) by so many millionths, from the world's start on.
    pub fn drift_clock(&self, ppm: i32) {
        self.world.net.nodes.borrow_mut()[self.index].drift_ppm = ppm;
    }

    /// Sets its wall clock ahead (or behind) by so many nanoseconds.
    pub fn skew_clock(&self, ns: i64) {
        self.world.net.nodes.borrow_mut()[self.index].clock_skew_ns = ns;
    }
}

struct NodeEnv {
    world: Rc<World>,
    node: usize,
    incarnation: u64,
}

impl NodeEnv {
    /// How its clock runs: so many nanoseconds in a million of the world's.
    fn rate(&self) -> u128 {
        let ppm = i128::from(self.world.net.nodes.borrow()[self.node].drift_ppm);
        u128::try_from(MILLION + ppm).expect("clocks run forwards")
    }

    /// For how long it has stood still.
    fn stood(&self) -> Span {
        self.world.net.nodes.borrow()[self.node].stood
    }

    fn is_alive(&self) -> bool {
        !self.world.stopped.get()
            && self.world.net.nodes.borrow()[self.node].incarnation == self.incarnation
    }
}

impl EnvBody for NodeEnv {
    fn now(&self) -> Instant {
        let now = u128::from(self.world.executor.now().0) * self.rate() / MILLION as u128;
        let now = u64::try_from(now).expect("a run does not take centuries");
        Instant(now.saturating_sub(self.stood().0))
    }

    fn wall(&self) -> Timespec {
        let skew = self.world.net.nodes.borrow()[self.node].clock_skew_ns;
        let ns = i128::from(self.now().0)
            + i128::from(skew)
            + i128::from(self.world.net.config.wall_start_sec) * 1_000_000_000;
        let sec =
            i64::try_from(ns.div_euclid(1_000_000_000)).expect("a wall clock stays near our age");
        let nsec = u32::try_from(ns.rem_euclid(1_000_000_000)).expect("below a second");
        Timespec::new(sec, nsec)
    }

    fn sleep_until(&self, until: Instant) -> LocalFuture<'static, ()> {
        let until = u128::from(until.0) + u128::from(self.stood().0);
        let until = (until * MILLION as u128).div_ceil(self.rate());
        let until = Instant(u64::try_from(until).unwrap_or(u64::MAX));
        Box::pin(Sleep::new(self.world.executor.clone(), until))
    }

    fn spawn(&self, name: &'static str, future: LocalFuture<'static, ()>) -> Task {
        if !self.is_alive() {
            return Task::new(Rc::new(|| {}));
        }
        let id = self.world.executor.spawn(self.node, name, future);
        let executor = Rc::downgrade(&self.world.executor);
        Task::new(Rc::new(move || {
            if let Some(executor) = executor.upgrade() {
                executor.abort(id);
            }
        }))
    }

    fn random(&self) -> u64 {
        self.world.rng.borrow_mut().bits()
    }

    fn connect(&self, from: Option<Nid>, to: NidAddr) -> LocalFuture<'static, io::Result<Link>> {
        if !self.is_alive() {
            return Box::pin(async { Err(io::ErrorKind::NotConnected.into()) });
        }
        self.world.net.connect(self.node, from, to)
    }

    fn listen(&self, at: NidAddr) -> LocalFuture<'static, io::Result<Listener>> {
        let listener = if self.is_alive() {
            self.world.net.listen(self.node, at)
        } else {
            Err(io::ErrorKind::NotConnected.into())
        };
        Box::pin(async move { listener })
    }

    fn net_counters(&self) -> NetCounters {
        self.world.net.nodes.borrow()[self.node].traffic.counters()
    }

    fn poison_bulk(&self, _poison: Option<u8>) {} // what is delivered was made for the frame
}
