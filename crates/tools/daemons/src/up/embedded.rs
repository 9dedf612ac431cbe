//! The servers of an `up` in this process, on a thread of their own or, with `--executors`, on
//! several. Each thread has a node: an address, an endpoint, targets.
//!
//! A target whose storage failed takes its node with it. The node restarts as a process would, and
//! clients replay. Nodes of other threads go on. A target that fails again and again is given up,
//! and its node restarts without it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Polling, Poll};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use env::{Env, LocalFuture};
use tokio::sync::watch;
use types::{ClientId, Instant, NidAddr, Span, TargetId, TargetKind};

use super::address::Block;
use super::options::Options;
use super::place::Place;
use super::plan;
use super::shares::{Share, shares};
use crate::machine::MachineOptions;
use crate::server::patience::start;
use crate::server::{Among, Awaited, Culprit, Ended, Server, ServerOptions, Trust};
use crate::targets::{self, TargetDir};

/// Pause before a node is started again.
const PAUSE: Span = Span::millis(200);
/// A stop that takes longer is given up: clients replay changes that were not durable.
const STOP_MAX: Span = Span::secs(30);
const MINUTE: Span = Span::secs(60);
/// How long one of several nodes waits to hear of all targets where one was given up. Without that,
/// there is no bound: a large target takes minutes to check its records.
const READY_WAIT: Span = Span::secs(20);

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
    /// A thread has given up a target.
    has_given_up: Arc<AtomicBool>,
}

/// Why a life of the node ended.
struct Failed {
    culprit: Option<TargetId>,
    /// Another start does not help.
    is_final: bool,
    error: anyhow::Error,
}

/// An executor thread.
struct Member {
    life: watch::Receiver<Life>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

pub(super) struct Embedded {
    members: Vec<Member>,
}

impl Embedded {
    /// Starts a thread for each executor.
    pub(super) fn start(
        options: &Options,
        place: &Place,
        block: &Block,
        dead: &[ClientId],
    ) -> Result<Embedded> {
        let shares = shares(&place.targets, options.executors, block);
        let at: Vec<NidAddr> = shares.iter().map(|share| share.at).collect();
        let has_given_up = Arc::default();
        let mut members = Vec::new();
        for (share, among) in shares.into_iter().zip(Among::all(&at)) {
            let server = server_options(options, place, block, dead, (&share, among))?;
            members.push(Member::start(options, place, server, share.targets, &has_given_up)?);
        }
        Ok(Embedded { members })
    }

    /// All targets are served and registered.
    pub(super) async fn ready(&self) -> Result<()> {
        for member in &self.members {
            member.ready().await?;
        }
        Ok(())
    }

    /// Completes with the reason when nothing can be mounted.
    pub(super) async fn hopeless(&self) -> String {
        let mut all: Vec<LocalFuture<'_, String>> = Vec::new();
        for member in &self.members {
            all.push(Box::pin(member.hopeless()));
        }
        let first = |cx: &mut Polling<'_>| {
            let mut polled = all.iter_mut().map(|one| one.as_mut().poll(cx));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        };
        std::future::poll_fn(first).await
    }

    /// Commits and ends.
    pub(super) async fn stop(self) {
        for member in &self.members {
            member.stop.send_replace(true);
        }
        for member in self.members {
            member.ended().await;
        }
    }
}

fn server_options(
    options: &Options,
    place: &Place,
    block: &Block,
    dead: &[ClientId],
    (share, among): (&Share, Among),
) -> Result<ServerOptions> {
    let executors = u32::try_from(among.others.len() + 1).expect("one for each target at most");
    let machine = MachineOptions { executors, ..options.machine.clone() }.on_this_machine()?;
    Ok(ServerOptions {
        dirs: share.targets.iter().map(|target| target.dir.clone()).collect(),
        listen: share.at,
        mgs: vec![block.mgs()],
        abort_recovery: false,
        trust: Trust::Whole,
        dead_clients: dead.to_vec(),
        no_permanent: false,
        machine,
        metrics: options.metrics_port.map(|port| SocketAddr::from((share.at.nid.addr(), port))),
        commit_interval: Span::millis(options.commit_interval_ms),
        devices: options.devices.clone(),
        awaited: awaited(&place.targets),
        among,
    })
}

impl Member {
    fn start(
        options: &Options,
        place: &Place,
        server: ServerOptions,
        targets: Vec<TargetDir>,
        has_given_up: &Arc<AtomicBool>,
    ) -> Result<Member> {
        let config = server.machine.os_config();
        let name = match server.among.index {
            0 => "servers".to_owned(),
            index => format!("servers-{index}"),
        };
        let (life_tx, life) = watch::channel(Life::Starting);
        let (stop, stopped) = watch::channel(false);
        let (is_new, has_given_up) = (place.is_new, Arc::clone(has_given_up));
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
                has_given_up,
            };
            thread.live(stopped).await;
        };
        let thread = env_os::spawn_thread(&name, config, main).context("the servers' thread")?;
        Ok(Member { life, stop, thread: Some(thread) })
    }

    async fn ready(&self) -> Result<()> {
        let mut life = self.life.clone();
        let now = life.wait_for(|life| *life != Life::Starting).await;
        match now.map(|life| life.clone()) {
            Ok(Life::Hopeless(reason)) => Err(anyhow!(reason)),
            Ok(_) => Ok(()),
            Err(_) => Err(anyhow!("the servers' thread ended")),
        }
    }

    async fn hopeless(&self) -> String {
        let mut life = self.life.clone();
        match life.wait_for(|life| matches!(life, Life::Hopeless(_))).await.map(|life| life.clone())
        {
            Ok(Life::Hopeless(reason)) => reason,
            Ok(_) => unreachable!("waited for the other state"),
            Err(_) => std::future::pending().await,
        }
    }

    /// Completes when the thread is done.
    async fn ended(mut self) {
        while self.life.changed().await.is_ok() {} // closed: the thread is done
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has ended the process already
        }
    }
}

impl Thread {
    /// Boots the node, again if it must be, until it is told to stop.
    async fn live(mut self, mut stop: watch::Receiver<bool>) {
        while let Err(mut failed) =
            once(&self.env, &self.options, (&self.life, &self.has_given_up), &mut stop).await
        {
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
                self.life.send_replace(Life::Ready); // nothing of it is waited for
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
        self.has_given_up.store(true, Ordering::Relaxed);
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
    (life, has_given_up): (&watch::Sender<Life>, &AtomicBool),
    stop: &mut watch::Receiver<bool>,
) -> Result<(), Failed> {
    let server = start(env, options).await.map_err(|error| Failed {
        culprit: error.downcast_ref::<Culprit>().map(|culprit| culprit.target),
        is_final: false,
        error,
    })?;
    if let Err(error) = server.control(&label(&server, options)) {
        tracing::warn!("no control socket: {error:#}");
    }
    server.serve_metrics(Vec::new()).await;
    server.tell_recoveries(|line| ctl::say!("nacre up: {line}"));
    let has_others = !options.among.others.is_empty();
    let ended = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => None,
        reason = server.ended() => Some(reason),
        reason = server.degraded() => Some(reason), // all start again: nobody else restarts it
        () = serve(env, &server, has_others, (life, has_given_up)) => {
            unreachable!("serves until it is told otherwise")
        }
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

/// The first executor is known as the `up`, another one by its first target.
fn label(server: &Server, options: &ServerOptions) -> String {
    let first = server.names().into_iter().next().filter(|_| options.among.index > 0);
    first.unwrap_or_else(|| "up".to_owned())
}

/// Ready when all targets are registered and known. If one is given up, an MDT of another node may
/// wait in vain to hear of it. It is ready all the same: the mount says whether it serves.
async fn serve(
    env: &Env,
    server: &Server,
    has_others: bool,
    (life, has_given_up): (&watch::Sender<Life>, &AtomicBool),
) {
    let is_in_vain = || has_others && has_given_up.load(Ordering::Relaxed);
    while env.timeout(READY_WAIT, server.registered()).await.is_none() && !is_in_vain() {}
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
