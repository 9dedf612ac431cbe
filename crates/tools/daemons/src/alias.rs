//! An environment that knows which addresses are inside this process. Links to them use `lo`
//! instead of TCP.
//!
//! A server listens on both. If a client in the same process gets the server's TCP address from the
//! configuration, this table maps it to the `lo` listener.

use std::io;
use std::rc::Rc;

use env::{Env, EnvBody, Link, Listener, LocalFuture, NetCounters, Task};
use types::{Instant, Nid, NidAddr, Timespec};

struct Alias {
    inner: Env,
    inside: Vec<(NidAddr, NidAddr)>,
}

/// `env`, but connecting to the first address of a pair goes to the second.
pub(crate) fn with_aliases(env: &Env, inside: Vec<(NidAddr, NidAddr)>) -> Env {
    Env::new(Rc::new(Alias { inner: env.clone(), inside }))
}

impl EnvBody for Alias {
    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn wall(&self) -> Timespec {
        self.inner.wall()
    }

    fn sleep_until(&self, until: Instant) -> LocalFuture<'static, ()> {
        self.inner.sleep_until(until)
    }

    fn spawn(&self, name: &'static str, future: LocalFuture<'static, ()>) -> Task {
        self.inner.spawn(name, future)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn connect(&self, from: Option<Nid>, to: NidAddr) -> LocalFuture<'static, io::Result<Link>> {
        match self.inside.iter().find(|(outside, _)| *outside == to) {
            Some((_, lo)) => self.inner.connect(None, *lo),
            None => self.inner.connect(from, to),
        }
    }

    fn listen(&self, at: NidAddr) -> LocalFuture<'static, io::Result<Listener>> {
        self.inner.listen(at)
    }

    fn net_counters(&self) -> NetCounters {
        self.inner.net_counters()
    }

    fn poison_bulk(&self, poison: Option<u8>) {
        self.inner.poison_bulk(poison);
    }
}
