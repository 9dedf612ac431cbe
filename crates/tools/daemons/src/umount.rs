//! `nacre umount`: takes a mount away and waits for its daemon, so that everything acknowledged has
//! been handed over.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ctl::{Ask, Reply, ask, mounts, rundir};
use rustix::mount::UnmountFlags;

#[derive(Clone, Debug)]
pub struct Options {
    pub dir: PathBuf,
    /// Do not wait for servers that are away.
    pub force: bool,
    /// Take it out of sight at once.
    pub lazy: bool,
}

/// How long a daemon may take to hand over what it holds before `umount` says that it is still at
/// it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Unmounts and waits.
pub fn run(options: &Options) -> Result<()> {
    let dir = resolve(&options.dir)?;
    let mount =
        mounts::at(&dir)?.with_context(|| format!("{} is no Nacre mount", dir.display()))?;
    let pid = daemon_of(&mount);
    detach(&dir, options)?;
    match pid {
        Some(pid) if !options.lazy && !is_still_mounted(mount.device) => {
            wait_for(pid, &dir, options.force)
        }
        _ => Ok(()),
    }
}

/// Elsewhere, by a bind mount: the daemon lives on.
fn is_still_mounted(device: (u32, u32)) -> bool {
    mounts::all().is_ok_and(|all| all.iter().any(|other| other.device == device))
}

/// Without asking the mount itself, whose daemon may be dead: its parent is resolved, its own name
/// is taken as it is.
pub(crate) fn resolve(dir: &std::path::Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    Ok(parent.canonicalize().map(|parent| parent.join(name)).unwrap_or(absolute))
}

fn daemon_of(mount: &mounts::Mount) -> Option<u32> {
    let socket = rundir::of_device(mount.device)?;
    match ask::ask(&socket, &Ask::Who) {
        Ok(Reply::Who(who)) => Some(who.pid),
        _ => None,
    }
}

fn detach(dir: &std::path::Path, options: &Options) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(fusedev::unmount_detached(dir)?);
    }
    let mut flags = UnmountFlags::empty();
    flags.set(UnmountFlags::DETACH, options.lazy || options.force);
    flags.set(UnmountFlags::FORCE, options.force);
    match rustix::mount::unmount(dir, flags) {
        Err(rustix::io::Errno::BUSY) => {
            bail!("{} is in use (-l takes it out of sight now)", dir.display())
        }
        other => other.with_context(|| dir.display().to_string()),
    }
}

/// `up` is no daemon of one mount: it lives on, so the mount's own end counts, not the process's.
fn wait_for(pid: u32, dir: &std::path::Path, force: bool) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while is_daemon_of_mount(pid) {
        if force {
            return kill(pid);
        }
        if Instant::now() > until {
            bail!(
                "{}: unmounted, but its daemon {pid} still waits for servers (-f gives up what they have not confirmed)",
                dir.display()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether the process still has a client's socket in the run directory.
fn is_daemon_of_mount(pid: u32) -> bool {
    let prefix = format!("{pid}-client");
    rundir::daemons().iter().any(|socket| {
        socket.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    })
}

fn kill(pid: u32) -> Result<()> {
    let raw = i32::try_from(pid).context("a process id fits 31 bits")?;
    let pid = rustix::process::Pid::from_raw(raw).context("a process id is not zero")?;
    match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
