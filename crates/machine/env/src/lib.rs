//! The operating system as Nacre sees it: clock, tasks, randomness, the network and the CPU
//! partitions.
//!
//! [`Env`] is one cheap handle, cloned freely and passed down; its two bodies are `env-os` (tokio,
//! real sockets) and `env-sim` (virtual time from a seed). Everything belongs to **one executor
//! thread**: futures, links and timers are not `Send` and stay where they were made. Code above
//! knows neither body.

#![warn(missing_docs)]

mod buffer;
mod bulk;
mod cpt;
mod credits;
mod join;
mod link;
mod traffic;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use futures_lite::future::or;
use types::{Instant, Nid, NidAddr, Span, Timespec};

pub use buffer::{BUFFER_ALIGN, Buffer, BufferPool};
pub use bulk::{BulkTable, BulkTicket};
pub use cpt::{
    Arrival, CPTS_MAX, CptError, CptSettings, CptTable, Cpu, CpuPattern, DISTANCE_LOCAL,
    DISTANCE_REMOTE, PatternFault, Portal, PortalRotor, Topology, parse_list,
};
pub use credits::{Credits, Level, share_of_cpt};
pub use futures_lite::future::yield_now;
pub use join::{join_all, join_bounded};
pub use link::{Link, LinkDown, LinkRecv, LinkRx, LinkSend, LinkTx, Listen, Listener};
pub use traffic::{NetCounters, Traffic};

/// A boxed future of this executor.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a body provides; everybody else calls the methods of [`Env`].
pub trait EnvBody {
    /// Time of a clock that never goes back.
    fn now(&self) -> Instant;
    /// Wall-clock time, for file times only.
    fn wall(&self) -> Timespec;
    /// Completes at `until`, at once if that has passed.
    fn sleep_until(&self, until: Instant) -> LocalFuture<'static, ()>;
    /// Runs `future` on this executor. `name` tells who it is in traces.
    fn spawn(&self, name: &'static str, future: LocalFuture<'static, ()>) -> Task;
    /// 64 random bits, from the seed in simulation.
    fn random(&self) -> u64;
    /// Connects to `to`, from the address of `from` where given. The whole pair: HELLO is done when
    /// it returns.
    fn connect(&self, from: Option<Nid>, to: NidAddr) -> LocalFuture<'static, io::Result<Link>>;
    /// Accepts links at `at`; port 0 draws one, which the listener tells.
    fn listen(&self, at: NidAddr) -> LocalFuture<'static, io::Result<Listener>>;
    /// What the links made from this body have carried.
    fn net_counters(&self) -> NetCounters;
    /// Fills buffers for bulk data with this byte before data are read into them, from now on;
    /// `None` does not. A body that delivers only buffers made for the data need do nothing.
    fn poison_bulk(&self, poison: Option<u8>);
}

/// Handle to the environment.
#[derive(Clone)]
pub struct Env(Rc<dyn EnvBody>);

impl Env {
    /// The handle of an operating system or of a simulation.
    #[must_use]
    pub fn new(body: Rc<dyn EnvBody>) -> Env {
        Env(body)
    }

    /// Time of a clock that never goes back.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.now()
    }

    /// Wall-clock time, for file times only.
    #[must_use]
    pub fn wall(&self) -> Timespec {
        self.0.wall()
    }

    /// Completes after `span`.
    pub fn sleep(&self, span: Span) -> LocalFuture<'static, ()> {
        self.0.sleep_until(self.now() + span)
    }

    /// Completes at `until`.
    pub fn sleep_until(&self, until: Instant) -> LocalFuture<'static, ()> {
        self.0.sleep_until(until)
    }

    /// Runs `future` on this executor.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + 'static) -> Task {
        self.0.spawn(name, Box::pin(future))
    }

    /// 64 random bits.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.0.random()
    }

    /// Opens a link to `to`; fails while the peer does not listen.
    pub fn connect(
        &self,
        from: Option<Nid>,
        to: NidAddr,
    ) -> LocalFuture<'static, io::Result<Link>> {
        self.0.connect(from, to)
    }

    /// What this node's links have carried.
    #[must_use]
    pub fn net_counters(&self) -> NetCounters {
        self.0.net_counters()
    }

    /// Fills buffers for bulk data with this byte before data are read into them, until it is told
    /// `None`: bytes that never arrived are then seen by whoever checks the data.
    pub fn poison_bulk(&self, poison: Option<u8>) {
        self.0.poison_bulk(poison);
    }

    /// Accepts links at `at`.
    pub fn listen(&self, at: NidAddr) -> LocalFuture<'static, io::Result<Listener>> {
        self.0.listen(at)
    }

    /// `future`, or nothing if `until` comes first.
    pub async fn timeout_at<T>(
        &self,
        until: Instant,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let late = async {
            self.sleep_until(until).await; // made when `future` has been asked once
            None
        };
        or(async { Some(future.await) }, late).await
    }

    /// `future`, or nothing if it takes longer than `span`.
    pub async fn timeout<T>(&self, span: Span, future: impl Future<Output = T>) -> Option<T> {
        self.timeout_at(self.now() + span, future).await
    }
}

/// A spawned task. Dropping it lets the task run on.
#[derive(Clone)]
pub struct Task(Rc<dyn Fn()>);

impl Task {
    /// A handle whose `abort` calls `abort`.
    #[must_use]
    pub fn new(abort: Rc<dyn Fn()>) -> Task {
        Task(abort)
    }

    /// Drops the task's future at its next await point.
    pub fn abort(&self) {
        (self.0)();
    }
}
