//! `nacre serve`: targets in a process of their own.
//!
//! It prints one line to stdout per target once the MGS knows the target, `NAME ADDRESS`. The
//! parent process may wait for these lines. systemd is notified when all targets have registered
//! (`ready`). If the parent is `up`, lines that begin with `RECOVERY` report recoveries that wait.
//! SIGTERM and SIGINT commit and end with 0. When the storage of every target has failed, the
//! process ends with [`STORAGE_FAILED`].
//!
//! Each address to listen at has an executor thread, and a target belongs to one of them
//! (`several`). The first one is the main thread, so a process with one address has one thread.

mod ready;
mod several;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};
use env::Env;
use tracing::level_filters::LevelFilter;
use types::{ClientId, NidAddr, Span};

use self::ready::Ready;
use self::several::Others;
use crate::executors::{Assign, Listen};
use crate::log;
use crate::machine::MachineOptions;
use crate::pretend::Pretend;
pub use crate::server::Awaited;
use crate::server::{Ended, Server, ServerOptions, Trust, patience};
use crate::signals::Signals;

/// Exit status when the storage of every target has failed (EX_TEMPFAIL: the supervisor starts the
/// process again). While one target is served, the process goes on.
pub const STORAGE_FAILED: u8 = 75;

/// Begins a line to `up` about a recovery.
pub(crate) const RECOVERY: &str = "recovery: ";

/// Exit status when the MGS refused a target: another start does not help.
pub const REFUSED: u8 = 1;

/// A stop that takes longer than this ends without ceremony: clients replay what was not committed.
const STOP_MAX: Span = Span::secs(30);

/// What to serve and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Targets, or directories of targets.
    pub dirs: Vec<PathBuf>,
    /// One or more; each has an executor thread of its own.
    pub listen: Vec<Listen>,
    /// Which executor serves a target; targets without such a word go round robin.
    pub assign: Vec<Assign>,
    /// Where the MGS is, if not where the superblocks say.
    pub mgs: Vec<NidAddr>,
    /// Accept plaintext on addresses that are not loopback.
    pub insecure: bool,
    /// Wait for no client of an earlier run.
    pub abort_recovery: bool,
    /// Take over no permanent parameter.
    pub no_permanent: bool,
    /// CPU partitions, their use, credits.
    pub machine: MachineOptions,
    /// Where to log; to stderr without it.
    pub log: Option<PathBuf>,
    /// Where to answer Prometheus.
    pub metrics: Option<SocketAddr>,
    /// What to take storage for that is not what it was.
    pub trust: Trust,
    /// Clients of an earlier run that are known to be dead.
    pub dead_clients: Vec<ClientId>,
    /// Acknowledged changes are durable after so many milliseconds at the latest.
    pub commit_interval_ms: u64,
    /// Devices that targets pretend to be on.
    pub devices: Vec<Pretend>,
    /// An MDT tells that it serves only when it knows so many targets.
    pub awaited: Awaited,
    /// End when the parent process ends.
    pub die_with_parent: bool,
    /// Tell the parent for whom recoveries wait.
    pub tell_recovery: bool,
}

/// Serves until a signal; the exit status.
pub fn run(options: &Options) -> Result<u8> {
    let format = options.machine.log_format;
    match &options.log {
        Some(path) => log::init_file(LevelFilter::INFO, format, path, true)?,
        None => log::init(LevelFilter::INFO, format),
    }
    if options.die_with_parent {
        die_with_parent()?;
    }
    crate::lst::raise_descriptors();
    let is_child = options.tell_recovery;
    let mut all = several::executors(options)?.into_iter();
    let ready = Ready::new(all.len());
    let first = all.next().context("no address to listen at")?;
    let others = Others::start(all, is_child, &ready)?;
    env_os::run(first.config, |env| async move {
        serve(&env, &first.options, is_child, &ready, others).await
    })
}

/// The node of an executor, with everything that it says and answers besides Prometheus.
async fn begin(
    env: &Env,
    options: &ServerOptions,
    is_child: bool,
    ready: &Ready,
) -> Result<Rc<Server>> {
    let server = if is_child {
        patience::start(env, options).await?
    } else {
        Server::start(env, options).await?
    };
    let label = server.names().first().cloned().unwrap_or_default();
    if let Err(error) = server.control(&label) {
        tracing::warn!("no control socket: {error:#}"); // lctl will not find us; the data path does not need it
    }
    if is_child {
        server.tell_recoveries(|line| tell_parent(&format!("{RECOVERY}{line}")));
    }
    let (registering, ready) = (server.clone(), ready.clone());
    env.spawn("ready", async move {
        registering.registered().await;
        tell_ready(&registering);
        ready.one_registered();
    });
    Ok(server)
}

/// Serves on the first executor, which hears signals and ends the process for all.
async fn serve(
    env: &Env,
    options: &ServerOptions,
    is_child: bool,
    ready: &Ready,
    mut others: Others,
) -> Result<u8> {
    let mut signals = Signals::new()?;
    let server = match begin(env, options, is_child, ready).await {
        Ok(server) => server,
        Err(error) => {
            env.timeout(STOP_MAX, others.stop()).await;
            return Err(error);
        }
    };
    if !is_child {
        ready.notify_systemd(env);
    }
    others.watch(env, &server);
    server.serve_metrics(others.scrapes()).await;
    tokio::select! {
        biased;
        signal = signals.next() => {
            tracing::info!("{signal}: stopping");
            ensure!(
                stop(env, &server, &mut others).await,
                "not stopped within {} s",
                STOP_MAX.as_secs_f64()
            );
            Ok(0)
        }
        failure = others.not_started() => {
            stop(env, &server, &mut others).await;
            Err(anyhow!(failure))
        }
        reason = others.ended() => {
            ctl::say!("nacre serve: {reason}");
            if let Ended::Storage(..) = reason {
                return Ok(STORAGE_FAILED);
            }
            // the other targets have done nothing wrong
            if !stop(env, &server, &mut others).await {
                tracing::error!("not stopped within {} s", STOP_MAX.as_secs_f64());
            }
            Ok(REFUSED)
        }
    }
}

/// Ends all executors, each of which commits everything. Whether they were in time.
async fn stop(env: &Env, server: &Server, others: &mut Others) -> bool {
    others.tell_to_stop();
    let all = async {
        server.stop().await;
        others.stop().await;
    };
    env.timeout(STOP_MAX, all).await.is_some()
}

fn tell_ready(server: &Server) {
    server.names().iter().for_each(|name| tell_parent(&format!("{name} {}", server.addr())));
}

/// A line to who started us; nobody need listen.
fn tell_parent(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// SIGTERM when the parent goes. It may have gone already: then we are an orphan now.
fn die_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    ensure!(
        rustix::process::getppid().is_some_and(|parent| !parent.is_init()),
        "the parent process is gone"
    );
    Ok(())
}
