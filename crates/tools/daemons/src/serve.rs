//! `nacre serve`: targets in a process of their own.
//!
//! It prints one line to stdout per target once the MGS knows the target, `NAME ADDRESS`. The
//! parent process may wait for these lines. If the parent is `up`, lines that begin with `RECOVERY`
//! report recoveries that wait. SIGTERM and SIGINT commit and end with 0. When the storage of every
//! target has failed, the process ends with [`STORAGE_FAILED`].

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use env_os::OsConfig;
use tracing::level_filters::LevelFilter;
use types::{ClientId, NidAddr, Span};

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
    pub listen: NidAddr,
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
    let machine = options.machine.on_this_machine()?;
    let config = OsConfig { insecure: options.insecure, ..machine.os_config() };
    let server = ServerOptions {
        dirs: options.dirs.clone(),
        listen: options.listen,
        mgs: options.mgs.clone(),
        abort_recovery: options.abort_recovery,
        trust: options.trust,
        dead_clients: options.dead_clients.clone(),
        no_permanent: options.no_permanent,
        machine,
        metrics: options.metrics,
        commit_interval: Span::millis(options.commit_interval_ms),
        devices: options.devices.clone(),
        awaited: options.awaited,
    };
    let is_child = options.tell_recovery;
    env_os::run(config, |env| async move { serve(&env, &server, is_child).await })
}

async fn serve(env: &env::Env, options: &ServerOptions, is_child: bool) -> Result<u8> {
    let mut signals = Signals::new()?;
    let server = if is_child {
        patience::start(env, options).await?
    } else {
        Server::start(env, options).await?
    };
    let label = server.names().first().cloned().unwrap_or_default();
    if let Err(error) = server.control(&label) {
        tracing::warn!("no control socket: {error:#}"); // lctl will not find us; the data path does not need it
    }
    server.serve_metrics().await;
    if is_child {
        server.tell_recoveries(|line| tell_parent(&format!("{RECOVERY}{line}")));
    }
    let ready = server.clone();
    env.spawn("ready", async move {
        ready.registered().await;
        tell_ready(&ready);
    });
    tokio::select! {
        biased;
        signal = signals.next() => {
            tracing::info!("{signal}: stopping");
            let stopped = env.timeout(STOP_MAX, server.stop()).await;
            ensure!(stopped.is_some(), "not stopped within {} s", STOP_MAX.as_secs_f64());
            Ok(0)
        }
        reason = server.ended() => {
            ctl::say!("nacre serve: {reason}");
            if let Ended::Storage(..) = reason {
                return Ok(STORAGE_FAILED);
            }
            // the other targets have done nothing wrong
            if env.timeout(STOP_MAX, server.stop()).await.is_none() {
                tracing::error!("not stopped within {} s", STOP_MAX.as_secs_f64());
            }
            Ok(REFUSED)
        }
    }
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
