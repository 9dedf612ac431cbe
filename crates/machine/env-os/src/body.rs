//! `env::EnvBody`: clocks, tasks, randomness, and the choice of the LND for a link.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use env::{EnvBody, Link, Listener, LocalFuture, NetCounters, Task};
use rustix::time::{ClockId, clock_gettime};
use types::{Instant, Net, Nid, NidAddr, Timespec};

use crate::executor::{now, spawn};
use crate::lnd::Lnd;
use crate::rng::Rng;
use crate::{delay, lo, tcp};

pub(crate) struct OsBody {
    config: Rc<Lnd>,
    rng: Rng,
}

impl OsBody {
    pub(crate) fn new(config: Rc<Lnd>) -> OsBody {
        OsBody { config, rng: Rng::from_os() }
    }

    fn is_lo(&self, at: NidAddr) -> bool {
        at.nid.net().lnd == Net::LO.lnd || self.config.lo_alias.contains(&at)
    }
}

impl EnvBody for OsBody {
    fn now(&self) -> Instant {
        now()
    }

    fn wall(&self) -> Timespec {
        let time = clock_gettime(ClockId::Realtime);
        Timespec::new(
            time.tv_sec,
            u32::try_from(time.tv_nsec).expect("the kernel keeps nanoseconds below a second"),
        )
    }

    fn sleep_until(&self, until: Instant) -> LocalFuture<'static, ()> {
        let span = until - now();
        if span.0 == 0 {
            return Box::pin(std::future::ready(()));
        }
        Box::pin(tokio::time::sleep(Duration::from_nanos(span.0)))
    }

    fn spawn(&self, _name: &'static str, future: LocalFuture<'static, ()>) -> Task {
        let handle = spawn(future);
        Task::new(Rc::new(move || handle.abort()))
    }

    fn random(&self) -> u64 {
        self.rng.next()
    }

    fn connect(&self, from: Option<Nid>, to: NidAddr) -> LocalFuture<'static, io::Result<Link>> {
        let config = Rc::clone(&self.config);
        if self.is_lo(to) {
            let link = lo::connect(&config, from, to);
            let link = link.and_then(|link| delay::delayed(&config, link));
            return Box::pin(std::future::ready(link));
        }
        Box::pin(async move { delay::delayed(&config, tcp::connect(&config, from, to).await?) })
    }

    fn listen(&self, at: NidAddr) -> LocalFuture<'static, io::Result<Listener>> {
        let config = Rc::clone(&self.config);
        let listener =
            if self.is_lo(at) { lo::listen(&config, at) } else { tcp::listen(&config, at) };
        let listener = listener.map(|listener| delay::listener(&config, listener));
        Box::pin(std::future::ready(listener))
    }

    fn net_counters(&self) -> NetCounters {
        self.config.traffic.counters()
    }

    fn poison_bulk(&self, poison: Option<u8>) {
        self.config.traffic.set_poison(poison);
    }
}
