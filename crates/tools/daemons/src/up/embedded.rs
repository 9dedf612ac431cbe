//! The servers of an `up` in this process, on a thread of their own.
//!
//! A target whose storage failed takes the node with it. The node restarts as a process would, and
//! clients replay. A target that fails again and again is given up, and the node restarts without
//! it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use env::Env;
use tokio::sync::watch;
use types::{ClientId, Instant, Span, TargetId, TargetKind};

use super::address::{Block, MGS};
use super::options::Options;
use super::place::Place;
use super::plan;
use crate::server::patience::start;
use crate::server::{Awaited, Culprit, Ended, Server, ServerOptions, Trust};
use crate::targets::{self, TargetDir};

/// Pause before a node boots again.
const PAUSE: Span = Span::millis(200);
/// A stop that takes longer is given up: clients replay changes that were not durable.
const STOP_MAX: Span = Span::secs(30);
const MINUTE: Span = Span::secs(60);

/// How the thread is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Life {
    Starting,
    Ready,
    /// Nothing can be mounted.
    Hopeless(String),
}

/// What the servers' thread does and remembers.
struct Thread {
    env: Env,
    options: ServerOptions,
    targets: Vec<TargetDir>,
    crashes_max: usize,
    is_new: bool,
    life: watch::Sender<Life>,
    /// When a target ended the node; none where it was no target's fault.
    failures: BTreeMap<Option<TargetId>, VecDeque<Instant>>,
}

/// Why a life of the node ended.
struct Failed {
    culprit: Option<TargetId>,
    /// Another start does not help.
    is_final: bool,
    error: anyhow::Error,
}

pub(super) struct Embedded {
    life: watch::Receiver<Life>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Starts the thread.
    pub(super) fn start(
        options: &Options,
        place: &Place,
        block: &Block,
        dead: &[ClientId],
    ) -> Result<Embedded> {
        let machine = options.machine.on_this_machine()?;
        let config = machine.os_config();
        let server = ServerOptions {
            dirs: place.targets.iter().map(|target| target.dir.clone()).collect(),
            listen: block.mgs(),
            mgs: vec![block.mgs()],
            abort_recovery: false,
            trust: Trust::Whole,
            dead_clients: dead.to_vec(),
            no_permanent: false,
            machine,
            metrics: options.metrics_port.map(|port| SocketAddr::from((block.ip(MGS), port))),
            commit_interval: Span::millis(options.commit_interval_ms),
            devices: options.devices.clone(),
            awaited: awaited(&place.targets),
        };
        let (life_tx, life) = watch::channel(Life::Starting);
        let (stop, stopped) = watch::channel(false);
        let (targets, is_new) = (place.targets.clone(), place.is_new);
        let crashes_max = options.crashes_max as usize;
        let main = move |env: Env| async move {
            let failures = BTreeMap::new();
            let thread = Thread {
                env,
                options: server,
                targets,
                crashes_max,
                is_new,
                life: life_tx,
                failures,
            };
            thread.live(stopped).await;
        };
        let thread =
            env_os::spawn_thread("servers", config, main).context("the servers' thread")?;
        Ok(Embedded { life, stop, thread: Some(thread) })
    }

    /// All targets are served and registered.
    pub(super) async fn ready(&self) -> Result<()> {
        let mut life = self.life.clone();
        let now = life.wait_for(|life| *life != Life::Starting).await;
        match now.map(|life| life.clone()) {
            Ok(Life::Hopeless(reason)) => Err(anyhow!(reason)),
            Ok(_) => Ok(()),
            Err(_) => Err(anyhow!("the servers' thread ended")),
        }
    }

    /// Completes with the reason when nothing can be mounted.
    pub(super) async fn hopeless(&self) -> String {
        let mut life = self.life.clone();
        match life.wait_for(|life| matches!(life, Life::Hopeless(_))).await.map(|life| life.clone())
        {
            Ok(Life::Hopeless(reason)) => reason,
            Ok(_) => unreachable!("waited for the other state"),
            Err(_) => std::future::pending().await,
        }
    }

    /// Commits and ends.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.life.changed().await.is_ok() {} // closed: the thread is done
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has ended the process already
        }
    }
}

impl Thread {
    /// Boots the node, again if it must be, until it is told to stop.
    async fn live(mut self, mut stop: watch::Receiver<bool>) {
        while let Err(mut failed) = once(&self.env, &self.options, &self.life, &mut stop).await {
            failed.culprit = failed.culprit.or_else(|| self.unreadable());
            tracing::error!("servers: {:#}", failed.error);
            if *self.life.borrow() == Life::Starting && !self.may_start_without(&failed) {
                self.life.send_replace(Life::Hopeless(format!("servers: {:#}", failed.error)));
                return;
            }
            match self.gives_up_on(&failed) {
                Some(target) => self.give_up(target, &failed.error),
                None => {
                    ctl::say!("nacre up: servers stopped: {:#}; starting them again", failed.error)
                }
            }
            if self.options.dirs.is_empty() {
                let _ = stop.wait_for(|stop| *stop).await; // `up` has gone: we go too
                return;
            }
            self.env.sleep(PAUSE).await;
        }
    }

    /// A target that cannot even be recognised.
    fn unreadable(&self) -> Option<TargetId> {
        let is_lost = |found: &&TargetDir| !matches!(targets::open(&found.dir), Ok(Some(_)));
        self.targets.iter().find(is_lost).map(|found| found.superblock.target)
    }

    /// Whether the file system may be mounted without who failed.
    fn may_start_without(&self, failed: &Failed) -> bool {
        !self.is_new && failed.culprit.is_some_and(|target| !plan::is_needed_to_mount(target))
    }

    /// The target that has failed too often; at the first start, or where the MGS refuses it, once
    /// is enough.
    fn gives_up_on(&mut self, failed: &Failed) -> Option<TargetId> {
        let now = self.env.now();
        let failures = self.failures.entry(failed.culprit).or_default();
        failures.push_back(now);
        failures.retain(|at| now - *at < MINUTE);
        let too_often = failures.len() >= self.crashes_max;
        let at_once = failed.is_final || *self.life.borrow() == Life::Starting;
        failed.culprit.filter(|_| too_often || at_once)
    }

    fn give_up(&mut self, target: TargetId, error: &anyhow::Error) {
        let is_it = |found: &TargetDir| found.superblock.target == target;
        let name = self.targets.iter().find(|found| is_it(found)).map(TargetDir::name);
        self.targets.retain(|found| !is_it(found));
        self.options.dirs = self.targets.iter().map(|found| found.dir.clone()).collect();
        self.options.awaited = awaited(&self.targets);
        super::tell_given_up(&format!("{} is given up: {error:#}", name.unwrap_or_default()));
    }
}

/// The targets that an MDT has to know before it is ready: those that are served here. One that is
/// given up may never have registered.
fn awaited(targets: &[TargetDir]) -> Awaited {
    let count = |kind: TargetKind| {
        let those = targets.iter().filter(|found| found.superblock.target.kind == kind);
        u32::try_from(those.count()).expect("targets are bounded")
    };
    Awaited { mdts: count(TargetKind::Mdt), osts: count(TargetKind::Ost) }
}

/// One life of the node; an error when it must boot again.
async fn once(
    env: &Env,
    options: &ServerOptions,
    life: &watch::Sender<Life>,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), Failed> {
    let server = start(env, options).await.map_err(|error| Failed {
        culprit: error.downcast_ref::<Culprit>().map(|culprit| culprit.target),
        is_final: false,
        error,
    })?;
    if let Err(error) = server.control("up") {
        tracing::warn!("no control socket: {error:#}");
    }
    server.serve_metrics().await;
    server.tell_recoveries(|line| ctl::say!("nacre up: {line}"));
    let ended = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => None,
        reason = server.ended() => Some(reason),
        reason = server.degraded() => Some(reason), // all start again: nobody else restarts it
        () = serve(&server, life) => unreachable!("serves until it is told otherwise"),
    };
    let Some(ended) = ended else {
        if env.timeout(STOP_MAX, server.stop()).await.is_none() {
            tracing::error!("servers: not stopped within {} s", STOP_MAX.as_secs_f64());
        }
        return Ok(());
    };
    if env.timeout(STOP_MAX, server.abandon()).await.is_none() {
        tracing::error!("servers: not abandoned within {} s", STOP_MAX.as_secs_f64());
    }
    let is_final = matches!(ended, Ended::Refused(..));
    Err(Failed { culprit: Some(ended.culprit()), is_final, error: anyhow!(ended.to_string()) })
}

async fn serve(server: &Server, life: &watch::Sender<Life>) {
    server.registered().await;
    life.send_replace(Life::Ready);
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use osd_disk::Superblock;
    use types::{FsName, Timespec};

    use super::*;

    #[test]
    fn a_target_that_is_given_up_is_not_awaited() {
        let fsname: FsName = "testfs".parse().expect("a name");
        let found = |target| TargetDir {
            dir: "/d".into(),
            superblock: Superblock::new(fsname, target, 1, Vec::new(), Timespec::default()),
        };
        let mut targets: Vec<TargetDir> =
            [TargetId::MGT, TargetId::mdt(0), TargetId::ost(0), TargetId::ost(1)].map(found).into();
        assert_eq!(awaited(&targets), Awaited { mdts: 1, osts: 2 });
        targets.pop();
        assert_eq!(awaited(&targets), Awaited { mdts: 1, osts: 1 });
    }
}
