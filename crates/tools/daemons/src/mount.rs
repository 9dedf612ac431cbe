//! `nacre mount`: a client and its FUSE mount, in a daemon of their own.
//!
//! The command starts itself again in the background (`--foreground --daemon`) and waits for the
//! line `ready`, so that whoever comes after it finds the file system usable. The daemon logs to a
//! file of its own. It ends, with status 0, when the mount is taken away or on SIGTERM, after
//! everything acknowledged has been handed to the servers.

mod flags;
pub(crate) mod kept;
mod options;
mod params;
pub mod remount;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use env_os::OsConfig;
use tracing::level_filters::LevelFilter;

pub use self::options::{MountOptions, Options};

use self::kept::Kept;
use crate::signals::Signals;
use crate::{format, log, mounts, rundir};

/// Lines of a daemon's log that are shown when it does not start.
const LOG_LINES_SHOWN: usize = 10;

/// Mounts; returns when the mount is usable, or in the foreground when it is gone.
pub fn run(options: &Options) -> Result<()> {
    let mut options = options.clone();
    options.dir = usable_dir(&options.dir)?;
    if options.foreground { foreground(&options) } else { background(&options) }
}

/// The mount point, absolute. What a daemon that was killed left there is taken away.
pub(crate) fn usable_dir(dir: &Path) -> Result<PathBuf> {
    let named = std::path::absolute(dir)?;
    let stale = |path: &Path| {
        mounts::at(path).ok().flatten().filter(|mount| rundir::of_device(mount.device).is_none())
    };
    if stale(&named).is_some() && std::fs::metadata(&named).is_err() {
        fusedev::unmount_detached(&named)
            .with_context(|| format!("{}: a stale mount stays", named.display()))?;
    }
    let whole = named.canonicalize().with_context(|| named.display().to_string())?;
    ensure!(whole.is_dir(), "{}: Not a directory", whole.display());
    if let Some(mount) = mounts::at(&whole)? {
        bail!("{}: {} is mounted here already", whole.display(), mount.source);
    }
    Ok(whole)
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
        kept.stop().await;
        Ok(())
    })
}

/// Whoever waits for it reads one line; nobody need.
fn tell_ready() {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(b"ready\n").and_then(|()| out.flush());
}

fn background(options: &Options) -> Result<()> {
    let log = match &options.log {
        Some(path) => path.clone(),
        None => default_log(options)?,
    };
    let before = std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
    let mut child = start_daemon(options, &log)?;
    let out = child.stdout.take().context("the daemon's stdout is a pipe")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).context("the daemon's first line")?;
    if line.trim_end() == "ready" {
        return Ok(());
    }
    let status = child.wait().context("the daemon's end")?;
    bail!("not mounted: the daemon ended ({status})\n{}", log_tail(&log, before, LOG_LINES_SHOWN))
}

fn default_log(options: &Options) -> Result<PathBuf> {
    let place: String = options.dir.display().to_string().trim_matches('/').replace('/', "-");
    Ok(rundir::path()?.join(format!("mount-{place}.log")))
}

fn start_daemon(options: &Options, log: &Path) -> Result<Child> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| log.display().to_string())?;
    let exe = std::env::current_exe().context("own executable")?;
    let mut command = Command::new(exe);
    command
        .arg0("nacre")
        .arg("mount")
        .arg(options.source())
        .arg(&options.dir)
        .args(["--foreground", "--daemon"]);
    if !options.text.is_empty() {
        command.args(["-o", &options.text]);
    }
    command.args(options.machine.to_args());
    if let Some(at) = options.metrics {
        command.arg("--metrics").arg(at.to_string());
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    command.spawn().context("the daemon does not start")
}

/// The last lines of a log, at most what stands behind `from`, without reading all of it.
pub(crate) fn log_tail(path: &Path, from: u64, lines: usize) -> String {
    const BYTES: u64 = 16 << 10;
    let read = || -> std::io::Result<String> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = std::fs::File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(BYTES).max(from)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| format!("  {line}\n")).collect()
}
