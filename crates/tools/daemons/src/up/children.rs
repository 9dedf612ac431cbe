//! The servers of an `up --separate`: each is a direct child, restarted when it dies.
//!
//! A child lives in a process group of its own, so that Ctrl-C reaches `up` alone and the mount
//! ends first. A child ends by itself when `up` dies. Pauses between starts grow from 0.2 to 5 s,
//! and are short again after a child has lived for a while. After [`Options::crashes_max`] crashes
//! within a minute a child is given up, and `up` shows the end of its log. The others go on.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result};
use ctl::background::log_tail;
use env::Env;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use types::{ClientId, Instant, NidAddr, Span, TargetId};

use super::address::Block;
use super::options::Options;
use super::place::Place;
use super::plan;
use crate::pretend::Pretend;
use crate::serve::RECOVERY;
use crate::server::Awaited;
use crate::targets::TargetDir;

const PAUSE_MIN: Span = Span::millis(200);
const PAUSE_MAX: Span = Span::secs(5);
/// A child that has lived for so long starts with the short pause again: it came up and served, so
/// this is no loop at start (a start takes some 20 ms), and every pause is one that applications
/// see.
const HEALTHY: Span = Span::millis(500);
const MINUTE: Span = Span::secs(60);
/// A child that does not end by itself for so long is killed; clients replay what it had not
/// committed.
const STOP_MAX: Span = Span::secs(30);
/// Lines of a log that are shown.
const LOG_LINES: usize = 20;
/// How often `up` says for which children it waits before the first mount. A large target takes
/// minutes to check its records.
const READY_SAID_EVERY: Span = Span::secs(20);

/// What all children share.
struct Shared {
    env: Env,
    crashes_max: usize,
    /// Why nothing can be mounted.
    hopeless: watch::Sender<Option<String>>,
    is_new: bool,
    /// Children that have not been there yet.
    waiting: watch::Sender<BTreeSet<String>>,
    has_given_up: Cell<bool>,
    stopping: watch::Sender<bool>,
    alive: watch::Sender<usize>,
}

impl Shared {
    /// A child is waited for no longer.
    fn note_ready(&self, server: &Server) {
        server.was_ready.set(true);
        self.waiting.send_if_modified(|waiting| waiting.remove(&server.name));
    }
}

/// One server's process, started as often as it must be.
struct Server {
    name: String,
    target: TargetId,
    dir: PathBuf,
    listen: NidAddr,
    mgs: NidAddr,
    log: PathBuf,
    pid: PathBuf,
    dead: Vec<ClientId>,
    commit_interval_ms: u64,
    devices: Vec<Pretend>,
    awaited: Awaited,
    machine: Vec<String>,
    metrics: Option<SocketAddr>,
    was_ready: Cell<bool>,
}

pub(super) struct Children {
    shared: Rc<Shared>,
}

impl Children {
    /// Starts one process per target.
    pub(super) fn start(
        env: &Env,
        options: &Options,
        place: &Place,
        block: &Block,
        dead: &[ClientId],
    ) -> Children {
        let count = place.targets.len();
        let names: BTreeSet<String> = place.targets.iter().map(TargetDir::name).collect();
        let shared = Rc::new(Shared {
            env: env.clone(),
            crashes_max: options.crashes_max as usize,
            hopeless: watch::channel(None).0,
            is_new: place.is_new,
            waiting: watch::channel(names).0,
            has_given_up: Cell::new(false),
            stopping: watch::channel(false).0,
            alive: watch::channel(count).0,
        });
        for target in &place.targets {
            let name = target.name();
            let server = Server {
                target: target.superblock.target,
                dir: target.dir.clone(),
                listen: block.of(target.superblock.target),
                mgs: block.mgs(),
                log: place.log(&name),
                pid: place.pid(&name),
                dead: dead.to_vec(),
                commit_interval_ms: options.commit_interval_ms,
                devices: options.devices.clone(),
                awaited: Awaited { mdts: place.mdts(), osts: place.osts() },
                machine: options.machine.to_args(),
                metrics: options
                    .metrics_port
                    .map(|port| (block.of(target.superblock.target).nid.addr(), port).into()),
                was_ready: Cell::new(false),
                name,
            };
            let shared = shared.clone();
            env.spawn("supervise", async move {
                keep(&shared, Rc::new(server)).await;
                shared.alive.send_modify(|alive| *alive -= 1);
            });
        }
        Children { shared }
    }

    /// All targets that are not given up are served and registered. If one is given up, an MDT may
    /// wait in vain to hear of it, and is not waited for: the mount says whether it serves.
    pub(super) async fn ready(&self) {
        let Shared { env, waiting, has_given_up, .. } = &*self.shared;
        let mut waiting = waiting.subscribe();
        loop {
            let all = waiting.wait_for(BTreeSet::is_empty);
            if env.timeout(READY_SAID_EVERY, all).await.is_some() || has_given_up.get() {
                return;
            }
            ctl::say!("nacre up: {}", awaits(&waiting.borrow()));
        }
    }

    /// Completes when a child is given up without which nothing can be mounted.
    pub(super) async fn hopeless(&self) -> String {
        let mut hopeless = self.shared.hopeless.subscribe();
        let reason = hopeless
            .wait_for(Option::is_some)
            .await
            .map(|reason| reason.clone().unwrap_or_default());
        reason.unwrap_or_default()
    }

    /// Ends all of them and waits.
    pub(super) async fn stop(self) {
        self.shared.stopping.send_replace(true);
        let mut alive = self.shared.alive.subscribe();
        let _ = alive.wait_for(|alive| *alive == 0).await; // the sender is ours
    }
}

fn awaits(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    format!("waiting for {} to serve (large targets check their records first)", names.join(", "))
}

async fn keep(shared: &Rc<Shared>, server: Rc<Server>) {
    let mut stopping = shared.stopping.subscribe();
    let mut crashes: VecDeque<Instant> = VecDeque::new();
    let mut pause = PAUSE_MIN;
    loop {
        let started = shared.env.now();
        let end = match live(shared, &server, &mut stopping).await {
            Ok(None) => return,
            Ok(Some(status)) => status.to_string(),
            Err(error) => format!("{error:#}"),
        };
        let now = shared.env.now();
        crashes.push_back(now);
        crashes.retain(|at| now - *at < MINUTE);
        if crashes.len() >= shared.crashes_max {
            return give_up(shared, &server, &end, crashes.len());
        }
        if now - started >= HEALTHY {
            pause = PAUSE_MIN;
        }
        let line =
            format!("{} died ({end}); starting it again in {} s", server.name, pause.as_secs_f64());
        tracing::warn!("{line}");
        ctl::say!("nacre up: {line}");
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = shared.env.sleep(pause) => {}
        }
        pause = Span(pause.0.saturating_mul(2).min(PAUSE_MAX.0));
    }
}

fn give_up(shared: &Shared, server: &Server, end: &str, crashes: usize) {
    let Server { name, log, .. } = server;
    let tail = log_tail(log, 0, LOG_LINES);
    let text = format!(
        "{name} died ({end}) for the {crashes}th time within a minute and is given up; the end of {}:\n{tail}",
        log.display()
    );
    if shared.is_new || plan::is_needed_to_mount(server.target) {
        shared.hopeless.send_replace(Some(text.trim_end().to_owned()));
    }
    super::tell_given_up(text.trim_end());
    shared.has_given_up.set(true);
    shared.note_ready(server);
}

/// One life of a child: how it ended, or nothing when it was told to.
async fn live(
    shared: &Rc<Shared>,
    server: &Rc<Server>,
    stopping: &mut watch::Receiver<bool>,
) -> Result<Option<ExitStatus>> {
    let mut child = spawn(server)?;
    listen(shared, server, &mut child);
    let _ = std::fs::write(&server.pid, format!("{}\n", child.id().unwrap_or(0))); // a convenience, no more
    let ended = tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => {
            end(&shared.env, &mut child).await;
            Ok(None)
        }
        status = child.wait() => Ok(Some(status?)),
    };
    let _ = std::fs::remove_file(&server.pid);
    ended
}

fn spawn(server: &Server) -> Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(&server.log);
    let log = log.with_context(|| server.log.display().to_string())?;
    let mut command = Command::new(own_executable());
    command
        .arg0("nacre")
        .arg("serve")
        .arg(&server.dir)
        .arg("--die-with-parent")
        .arg("--tell-recovery");
    command
        .arg("--listen")
        .arg(server.listen.to_string())
        .arg("--mgsnode")
        .arg(server.mgs.to_string());
    command.arg("--commit-interval-ms").arg(server.commit_interval_ms.to_string());
    for device in &server.devices {
        command.arg("--device").arg(device.to_string());
    }
    command.arg("--mdts-awaited").arg(server.awaited.mdts.to_string());
    command.arg("--osts-awaited").arg(server.awaited.osts.to_string());
    command.args(&server.machine);
    command.arg("--log").arg(&server.log);
    if let Some(at) = server.metrics {
        command.arg("--metrics").arg(at.to_string());
    }
    for client in &server.dead {
        command.arg("--dead-client").arg(format!("{client:x}"));
    }
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true);
    command.spawn().context("cannot be started")
}

/// The file itself where it still is; a rebuilt one has another identity, so then the running
/// image.
fn own_executable() -> PathBuf {
    let exe = std::env::current_exe().ok().filter(|path| path.exists());
    exe.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// The child's line on stdout says that it serves; others, that a recovery waits.
fn listen(shared: &Rc<Shared>, server: &Rc<Server>, child: &mut Child) {
    let Some(out) = child.stdout.take() else { return };
    let (shared2, server, pid) = (shared.clone(), server.clone(), child.id().unwrap_or(0));
    shared.env.spawn("child-ready", async move {
        let mut lines = BufReader::new(out).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(news) = line.strip_prefix(RECOVERY) {
                ctl::say!("nacre up: {news}");
                continue;
            }
            tracing::info!("{line} serves, process {pid}");
            if server.was_ready.get() {
                ctl::say!("nacre up: {} is back (process {pid})", server.name);
            }
            shared2.note_ready(&server);
        }
    });
}

async fn end(env: &Env, child: &mut Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process(pid, Signal::TERM); // it has gone: the wait tells
    }
    if env.timeout(STOP_MAX, child.wait()).await.is_none() {
        let _ = child.kill().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_children_that_are_waited_for_are_named() {
        let names = ["testfs-OST0001", "testfs-MDT0000"].map(str::to_owned);
        let said = awaits(&names.into());
        assert!(said.starts_with("waiting for testfs-MDT0000, testfs-OST0001 to serve"), "{said}");
    }
}
