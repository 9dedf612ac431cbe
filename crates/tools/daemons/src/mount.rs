//! `nacre mount`: a client and its FUSE mount, in a daemon of their own.
//!
//! The command starts itself again in the background (`--foreground --daemon`) and waits for the
//! line `ready`. So the file system is usable when the command returns. The daemon logs to a file
//! of its own. It ends with status 0 when the mount is removed or on SIGTERM. Before that it waits
//! until the servers have made everything durable, or until `unmount_wait` is over. A second
//! process guards the mount: it ends the connection to the kernel when the daemon has died
//! ([`guard`]).

mod flags;
pub(crate) mod kept;
mod leaving;
pub(crate) mod logs;
mod migrations;
mod options;
mod params;
pub mod remount;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ctl::background::{self, First};
use ctl::{mounts, rundir};
use env_os::OsConfig;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tracing::level_filters::LevelFilter;

pub use self::options::{MountOptions, Options};

use self::kept::Kept;
use crate::signals::Signals;
use crate::{format, log, umount};

/// The subcommand by which a daemon starts the guard of its mount.
pub const GUARD: &str = "mount-guard";
/// Lines of a daemon's log that are shown when it does not start.
const LOG_LINES_SHOWN: usize = 10;
/// How long a mount may take before the command says for what it waits.
const QUIET_FOR: Duration = Duration::from_secs(3);

/// Mounts; returns when the mount is usable, or in the foreground when it is gone.
pub fn run(options: &Options) -> Result<()> {
    options.check_plaintext()?;
    let mut options = options.clone();
    options.dir = usable_dir(&options.dir)?;
    if !options.daemon {
        tell_hidden(&options.dir);
    }
    if options.foreground { foreground(&options) } else { start_daemon(&options) }
}

/// Ends the connection of a daemon's mount when the daemon has died.
pub fn guard() -> Result<()> {
    Ok(fusedev::run_guard()?)
}

/// The mount point, absolute. A mount whose daemon was killed may be there: it is replaced when the
/// new one can be made ([`replace_dead`]).
pub(crate) fn usable_dir(dir: &Path) -> Result<PathBuf> {
    let named = umount::resolve(dir)?;
    let whole = match named.canonicalize() {
        Ok(whole) => whole,
        Err(_) if is_dead(&named)? => named,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("the mount point {0} does not exist: mkdir -p {0}", named.display())
        }
        Err(error) => return Err(error).with_context(|| named.display().to_string()),
    };
    if is_dead(&whole)? {
        return Ok(whole);
    }
    ensure!(whole.is_dir(), "the mount point {} is not a directory: name one", whole.display());
    if let Some(mount) = mounts::at(&whole)? {
        bail!(
            "{0}: {1} is mounted here already: unmount it (nacre umount {0}), or mount elsewhere",
            whole.display(),
            mount.source
        );
    }
    Ok(whole)
}

/// What a mount hides is not lost, and easily thought to be.
pub(crate) fn tell_hidden(dir: &Path) {
    let is_mount = mounts::at(dir).is_ok_and(|mount| mount.is_some());
    let is_empty = std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
    if !is_mount && !is_empty {
        ctl::say!("nacre: {} is not empty: the mount hides its files", dir.display());
    }
}

/// Whether a mount is at this place whose daemon is gone. `statfs` asks the daemon: for attributes
/// the kernel may not need one. Any other error is of a mount that lives, and stays.
fn is_dead(dir: &Path) -> Result<bool> {
    let mount = mounts::at(dir)?.filter(|mount| rundir::of_device(mount.device).is_none());
    let ended = [Errno::NOTCONN, Errno::CONNABORTED];
    let asked = mount.map(|_| rustix::fs::statvfs(dir));
    Ok(asked.is_some_and(|answer| answer.is_err_and(|error| ended.contains(&error))))
}

/// Takes dead mounts away, right before the new mount. Until now paths have led to none of the
/// files below. Between the two they do: `fusermount3` refuses a place that answers ENOTCONN, and a
/// place that is covered cannot be unmounted by its path.
pub(crate) fn replace_dead(dir: &Path) -> Result<()> {
    while is_dead(dir)? {
        fusedev::unmount_detached(dir)
            .with_context(|| format!("{}: a dead mount stays", dir.display()))?;
    }
    Ok(())
}

fn foreground(options: &Options) -> Result<()> {
    let format = options.machine.log_format;
    match &options.log {
        Some(path) if options.daemon => log::init_file(LevelFilter::INFO, format, path, true)?,
        _ => log::init(LevelFilter::INFO, format),
    }
    if options.daemon {
        // a leader of its group already: then it has no terminal to leave
        let _ = rustix::process::setsid();
    }
    let machine = options.machine.on_this_machine()?;
    let config = OsConfig { insecure: options.mount.insecure, ..machine.os_config() };
    env_os::run(config, |env| async move {
        let mut signals = Signals::new()?;
        let launcher = Launcher::of(options)?;
        let id = types::ClientId(format::random_uuid()?);
        let kept = tokio::select! {
            biased;
            signal = signals.next() => bail!("{signal} before the mount was there"),
            () = launcher.gone() => bail!("the command that started the mount was interrupted"),
            kept = Kept::start(&env, options, &machine, id) => kept?,
        };
        tracing::info!("{} is mounted at {}", options.source(), options.dir.display());
        tell_ready();
        tokio::select! {
            biased;
            signal = signals.next() => tracing::info!("{signal}: unmounting"),
            () = kept.ended() => tracing::info!("unmounted"),
        }
        let _logged = kept.stop(signals.next(), |line| tracing::info!("{line}")).await;
        Ok(())
    })
}

/// The command that has started this daemon and waits for its mount: the other end of stdout.
struct Launcher(Option<pipe::Sender>);

impl Launcher {
    /// None where this is no daemon.
    fn of(options: &Options) -> Result<Launcher> {
        if !options.daemon {
            return Ok(Launcher(None));
        }
        let stdout = std::io::stdout().as_fd().try_clone_to_owned().context("stdout")?;
        Ok(Launcher(pipe::Sender::from_owned_fd(stdout).ok())) // started by hand: no pipe
    }

    /// Completes when it ends before the mount is there.
    async fn gone(&self) {
        let Some(pipe) = &self.0 else { return std::future::pending().await };
        while let Ok(ready) = pipe.ready(Interest::ERROR).await {
            if ready.is_error() || ready.is_write_closed() {
                return;
            }
        }
    }
}

/// Whoever waits for it reads one line; nobody need.
fn tell_ready() {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(b"ready\n").and_then(|()| out.flush());
}

fn start_daemon(options: &Options) -> Result<()> {
    let log = match &options.log {
        Some(path) => path.clone(),
        None => {
            let dir = rundir::path()?;
            logs::sweep(&dir).with_context(|| dir.display().to_string())?;
            logs::path(&dir, &options.dir)
        }
    };
    let before = std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
    let log = std::path::absolute(log)?;
    let file = OpenOptions::new().create(true).append(true).open(&log);
    let file = file.with_context(|| log.display().to_string())?;
    logs::keep(&file);
    let _patient = Patience::new(waiting(options.source(), log.clone(), before));
    match background::start(&arguments(options, &log), file)? {
        First::Line(line) if line.trim_end() == "ready" => Ok(()),
        First::Line(line) => bail!("not mounted: the daemon says {line:?}"),
        First::Ended(status) => bail!(
            "not mounted: the daemon ended ({status}):\n{}",
            background::log_tail(&log, before, LOG_LINES_SHOWN).trim_end()
        ),
    }
}

/// For what a mount waits: the last that its daemon has logged since `from`.
fn waiting(source: String, log: PathBuf, from: u64) -> impl FnOnce() -> String + Send + 'static {
    move || {
        let last = background::log_tail(&log, from, 1);
        if last.is_empty() {
            let log = log.display();
            return format!(
                "nacre mount: no answer from {source} so far; waiting ({log} says more)"
            );
        }
        format!(
            "nacre mount: waiting for {source} ({} says more):\n{}",
            log.display(),
            last.trim_end()
        )
    }
}

/// Prints a text unless it is dropped soon.
struct Patience {
    _alive: mpsc::Sender<()>,
}

impl Patience {
    fn new(text: impl FnOnce() -> String + Send + 'static) -> Patience {
        let (alive, dropped) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if dropped.recv_timeout(QUIET_FOR) == Err(RecvTimeoutError::Timeout) {
                ctl::say!("{}", text());
            }
        });
        Patience { _alive: alive }
    }
}

fn arguments(options: &Options, log: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        vec!["mount".into(), options.source().into(), options.dir.clone().into()];
    arguments.extend(["--foreground".into(), "--daemon".into(), "--log".into(), log.into()]);
    if !options.text.is_empty() {
        arguments.extend(["-o".into(), options.text.clone().into()]);
    }
    arguments.extend(options.machine.to_args().into_iter().map(OsString::from));
    if let Some(at) = options.metrics {
        arguments.extend(["--metrics".into(), at.to_string().into()]);
    }
    arguments
}
