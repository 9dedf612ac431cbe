//! `nacre umount`: removes a mount and waits for its daemon, so that all acknowledged work is
//! durable.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ctl::ask::{self, AskError};
use ctl::{Ask, Leaving, Reply, everywhere, mounts, rundir};
use rustix::mount::UnmountFlags;

/// How often it looks whether a daemon that is about to end has gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long a daemon that was told to give up may take to hang up.
const END_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Options {
    pub dir: PathBuf,
    /// Give up what its servers have not made durable.
    pub force: bool,
    /// Take it out of sight at once.
    pub lazy: bool,
}

/// Unmounts, and waits until the daemon has ended.
pub fn run(options: &Options) -> Result<()> {
    let dir = resolve(&options.dir)?;
    let is_there = || {
        dir.symlink_metadata()
            .map_or_else(|error| error.to_string(), |_| "not a Nacre mount".to_owned())
            + ": nacre status lists the mounts"
    };
    let mount = mounts::at(&dir)?.with_context(|| format!("{}: {}", dir.display(), is_there()))?;
    let daemon = Daemon::of(&mount);
    detach(&dir, options)?;
    match daemon {
        Some(daemon) if !options.lazy && !is_still_mounted(mount.device) => {
            if options.force {
                daemon.give_up()
            } else {
                daemon.wait(&dir)
            }
        }
        _ => Ok(()),
    }
}

/// Who serves a mount. Also `up`, which lives on for a moment: the mount's end counts.
struct Daemon {
    pid: u32,
    socket: PathBuf,
    /// It does not answer.
    is_silent: bool,
}

impl Daemon {
    fn of(mount: &mounts::Mount) -> Option<Daemon> {
        // the link goes with the mount
        let socket = rundir::of_device(mount.device)?.canonicalize().ok()?;
        match ask::ask_within(&socket, &Ask::Who, everywhere::patience()) {
            Ok(Reply::Who(who)) => Some(Daemon { pid: who.pid, socket, is_silent: false }),
            // it stands still: its socket says who it is
            Err(AskError::Silent(wait)) => {
                let everywhere::Daemon { pid, .. } = everywhere::Daemon::of(socket.clone());
                ctl::say!(
                    "nacre umount: the daemon of {} (process {pid}) has not answered for {} s",
                    mount.dir.display(),
                    wait.as_secs()
                );
                Some(Daemon { pid, socket, is_silent: true })
            }
            _ => None,
        }
    }

    /// Until it has gone; says for what it waits whenever that changes. Interrupting this leaves
    /// the daemon at it.
    fn wait(&self, dir: &Path) -> Result<()> {
        let mut said = Vec::new();
        let mut given_up = Vec::new();
        while rundir::is_alive(&self.socket) {
            match ask::ask(&self.socket, &Ask::Leaving) {
                Ok(Reply::Leaving(Leaving::Waits(waits))) if waits != said => {
                    waits.iter().for_each(|of| ctl::say!("nacre umount: waiting for {of}"));
                    said = waits;
                }
                Ok(Reply::Leaving(Leaving::Ended(lines))) => {
                    given_up = lines;
                    std::thread::sleep(LOOK_EVERY);
                }
                Ok(_) => {}
                // it ends, or has no time for us
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
        say_given_up(&given_up);
        ensure!(
            given_up.is_empty(),
            "{}: unmounted, but its servers were away for too long: work that they have not confirmed was given up",
            dir.display()
        );
        Ok(())
    }

    /// A daemon that does not answer is killed.
    fn give_up(&self) -> Result<()> {
        if self.is_silent {
            return kill(self.pid);
        }
        match ask::ask(&self.socket, &Ask::GiveUp) {
            Ok(Reply::Leaving(Leaving::Ended(lines))) => say_given_up(&lines),
            _ if rundir::is_alive(&self.socket) => return kill(self.pid),
            _ => return Ok(()),
        }
        let until = Instant::now() + END_MAX;
        while rundir::is_alive(&self.socket) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        if rundir::is_alive(&self.socket) { kill(self.pid) } else { Ok(()) }
    }
}

fn say_given_up(lines: &[String]) {
    lines.iter().for_each(|line| ctl::say!("nacre umount: given up: {line}"));
}

/// Elsewhere, by a bind mount: the daemon lives on.
fn is_still_mounted(device: (u32, u32)) -> bool {
    mounts::all().is_ok_and(|all| all.iter().any(|other| other.device == device))
}

/// Without asking the mount itself, whose daemon may be dead: its parent is resolved, its own name
/// is taken as it is.
pub(crate) fn resolve(dir: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    Ok(parent.canonicalize().map(|parent| parent.join(name)).unwrap_or(absolute))
}

/// The way out of a mount that is in use.
const BUSY: &str = "end the programs that use it (fuser -m), or unmount with -l";

fn detach(dir: &Path, options: &Options) -> Result<()> {
    let is_lazy = options.lazy || options.force;
    if !rustix::process::geteuid().is_root() {
        return fusedev::unmount_by_helper(dir, is_lazy).with_context(|| match is_lazy {
            true => dir.display().to_string(),
            false => format!("{} is still mounted: {BUSY}", dir.display()),
        });
    }
    let mut flags = UnmountFlags::empty();
    flags.set(UnmountFlags::DETACH, is_lazy);
    flags.set(UnmountFlags::FORCE, options.force);
    match rustix::mount::unmount(dir, flags) {
        Err(rustix::io::Errno::BUSY) => bail!("{} is in use: {BUSY}", dir.display()),
        other => other.with_context(|| dir.display().to_string()),
    }
}

fn kill(pid: u32) -> Result<()> {
    let raw = i32::try_from(pid).context("a process id fits 31 bits")?;
    let pid = rustix::process::Pid::from_raw(raw).context("a process id is not zero")?;
    match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
