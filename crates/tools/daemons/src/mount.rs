//! `nacre mount`: a client and its FUSE mount, in a daemon of their own.
//!
//! The command starts itself again in the background (`--foreground --daemon`) and waits for the
//! line `ready`, so that whoever comes after it finds the file system usable. The daemon logs to a
//! file of its own. It ends, with status 0, when the mount is taken away or on SIGTERM, after
//! the servers have made everything durable, or `unmount_wait` is over.

mod flags;
pub(crate) mod kept;
mod leaving;
mod options;
mod params;
pub mod remount;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ctl::background::{self, First};
use ctl::{mounts, rundir};
use env_os::OsConfig;
use tracing::level_filters::LevelFilter;

pub use self::options::{MountOptions, Options};

use self::kept::Kept;
use crate::signals::Signals;
use crate::{format, log, umount};

/// Lines of a daemon's log that are shown when it does not start.
const LOG_LINES_SHOWN: usize = 10;

/// Mounts; returns when the mount is usable, or in the foreground when it is gone.
pub fn run(options: &Options) -> Result<()> {
    let mut options = options.clone();
    options.dir = usable_dir(&options.dir)?;
    if options.foreground { foreground(&options) } else { start_daemon(&options) }
}

/// The mount point, absolute. A mount whose daemon was killed may be there: it is replaced when the
/// new one can be made ([`replace_dead`]).
pub(crate) fn usable_dir(dir: &Path) -> Result<PathBuf> {
    let named = umount::resolve(dir)?;
    let whole = match named.canonicalize() {
        Ok(whole) => whole,
        Err(_) if is_dead(&named)? => named,
        Err(error) => return Err(error).with_context(|| named.display().to_string()),
    };
    if is_dead(&whole)? {
        return Ok(whole);
    }
    ensure!(whole.is_dir(), "{}: Not a directory", whole.display());
    if let Some(mount) = mounts::at(&whole)? {
        bail!("{}: {} is mounted here already", whole.display(), mount.source);
    }
    Ok(whole)
}

/// Whether a mount is at this place whose daemon is gone.
fn is_dead(dir: &Path) -> Result<bool> {
    let mount = mounts::at(dir)?.filter(|mount| rundir::of_device(mount.device).is_none());
    Ok(mount.is_some() && std::fs::metadata(dir).is_err())
}

/// Takes dead mounts away. Right before the new mount: until then paths lead to none, and never to
/// the directory below.
pub(crate) fn replace_dead(dir: &Path) -> Result<()> {
    while is_dead(dir)? {
        fusedev::unmount_detached(dir)
            .with_context(|| format!("{}: a dead mount stays", dir.display()))?;
    }
    Ok(())
}

fn foreground(options: &Options) -> Result<()> {
    log::init(LevelFilter::INFO);
    if options.daemon {
        // a leader of its group already: then it has no terminal to leave
        let _ = rustix::process::setsid();
    }
    let machine = options.machine.on_this_machine()?;
    let config = OsConfig { insecure: options.mount.insecure, ..machine.os_config() };
    env_os::run(config, |env| async move {
        let mut signals = Signals::new()?;
        let id = types::ClientId(format::random_uuid()?);
        let kept = tokio::select! {
            biased;
            signal = signals.next() => bail!("{signal} before the mount was there"),
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

/// Whoever waits for it reads one line; nobody need.
fn tell_ready() {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(b"ready\n").and_then(|()| out.flush());
}

fn start_daemon(options: &Options) -> Result<()> {
    let log = match &options.log {
        Some(path) => path.clone(),
        None => default_log(options)?,
    };
    let before = std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
    let file = OpenOptions::new().create(true).append(true).open(&log);
    let file = file.with_context(|| log.display().to_string())?;
    match background::start(&arguments(options), file)? {
        First::Line(line) if line.trim_end() == "ready" => Ok(()),
        First::Line(line) => bail!("not mounted: the daemon says {line:?}"),
        First::Ended(status) => bail!(
            "not mounted: the daemon ended ({status})\n{}",
            background::log_tail(&log, before, LOG_LINES_SHOWN)
        ),
    }
}

fn default_log(options: &Options) -> Result<PathBuf> {
    let place: String = options.dir.display().to_string().trim_matches('/').replace('/', "-");
    Ok(rundir::path()?.join(format!("mount-{place}.log")))
}

fn arguments(options: &Options) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        vec!["mount".into(), options.source().into(), options.dir.clone().into()];
    arguments.extend(["--foreground".into(), "--daemon".into()]);
    if !options.text.is_empty() {
        arguments.extend(["-o".into(), options.text.clone().into()]);
    }
    arguments.extend(options.machine.to_args().into_iter().map(OsString::from));
    if let Some(at) = options.metrics {
        arguments.extend(["--metrics".into(), at.to_string().into()]);
    }
    arguments
}
