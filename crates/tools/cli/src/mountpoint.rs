//! Maps a path to its mount and to the daemon that serves the mount.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use ctl::ask::AskError;
use ctl::everywhere::{self, Daemon};
use ctl::{RawPath, rundir};
use types::Errno;

use crate::Failed;

pub(crate) use ctl::mounts::{Mount, all};

/// How long daemons that ask their servers are waited for at least, all at once. Each waits 5 s for
/// a server that has stopped.
const SERVERS_PATIENCE: Duration = Duration::from_secs(10);

/// Every mount of this machine. It is a failure if there is none.
pub(crate) fn every(command: &str) -> Result<Vec<Mount>, Failed> {
    let mounts = known(command)?;
    if mounts.is_empty() {
        let text = format!("{command}: no Nacre file system is mounted here (nacre mount --help)");
        return Err(Failed::new(Errno::ENODEV.raw(), text));
    }
    Ok(mounts)
}

fn known(command: &str) -> Result<Vec<Mount>, Failed> {
    all().map_err(|error| Failed::io(&error, command, "/proc/self/mountinfo"))
}

/// The mount that `path` is in.
pub(crate) fn of(path: &Path, command: &str) -> Result<Mount, Failed> {
    let mounts = known(command)?;
    let shown = path.display().to_string();
    let device = fs::metadata(path).map_err(|error| Failed::path(&error, command, path))?.dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let found = mounts.into_iter().rev().find(|mount| mount.device == device);
    found.ok_or_else(|| {
        let text = format!(
            "{command}: '{shown}' is not in a Nacre file system: {}; nacre status lists the mounts",
            Errno::ENOTTY
        );
        Failed::new(Errno::ENOTTY.raw(), text)
    })
}

/// The same by the path's words where they lead into a mount: no file of it is touched, whose
/// server may be away.
pub(crate) fn near(path: &Path, command: &str) -> Result<Mount, Failed> {
    let whole = std::path::absolute(path).ok();
    let found = whole.and_then(|whole| above(all().ok()?, &whole));
    found.map_or_else(|| of(path, command), Ok)
}

/// The mount near `path`, or every mount without a path.
pub(crate) fn near_or_every(path: Option<&Path>, command: &str) -> Result<Vec<Mount>, Failed> {
    match path {
        Some(path) => Ok(vec![near(path, command)?]),
        None => every(command),
    }
}

/// The innermost mount that has this path.
fn above(mounts: Vec<Mount>, path: &Path) -> Option<Mount> {
    let is_plain = !path.components().any(|part| part == std::path::Component::ParentDir);
    let has = |mount: &Mount| is_plain && path.starts_with(&mount.dir);
    mounts.into_iter().filter(has).max_by_key(|mount| mount.dir.components().count())
}

/// Asks the daemon of a mount.
pub(crate) fn ask(mount: &Mount, question: &ctl::Ask, command: &str) -> Result<ctl::Reply, Failed> {
    through(mount, command, |socket| ctl::ask::ask(socket, question))
}

/// How long to wait for these daemons: a single one may think, because it keeps nothing back.
pub(crate) fn patience_for(mounts: &[Mount], several: Duration) -> Duration {
    if mounts.len() == 1 { several.max(ctl::ask::PATIENCE) } else { several }
}

/// How long to wait for daemons that ask their servers.
pub(crate) fn servers_patience() -> Duration {
    everywhere::patience().max(SERVERS_PATIENCE)
}

/// Asks the daemons of these mounts at once: one that hangs delays no answer but its own.
pub(crate) fn ask_each(
    mounts: &[Mount],
    question: &ctl::Ask,
    patience: Duration,
    command: &str,
) -> Vec<Result<ctl::Reply, Failed>> {
    let ask = |mount: &Mount| {
        through(mount, command, |socket| ctl::ask::ask_within(socket, question, patience))
    };
    let ask = &ask;
    std::thread::scope(|scope| {
        let asked: Vec<_> = mounts.iter().map(|mount| scope.spawn(move || ask(mount))).collect();
        let panicked = || Failed::of(Errno::EIO, command, "a thread panicked");
        asked.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(panicked()))).collect()
    })
}

/// Lets `ask` ask the daemon of a mount. One that does not answer is named.
fn through(
    mount: &Mount,
    command: &str,
    ask: impl FnOnce(&Path) -> Result<ctl::Reply, AskError>,
) -> Result<ctl::Reply, Failed> {
    let dir = mount.dir.display();
    let gone = || {
        let text = format!(
            "{command}: {dir}: the daemon of this mount is not in {}: it was killed, or NACRE_RUN differs",
            run_dir()
        );
        Failed::new(Errno::ENOTCONN.raw(), text)
    };
    let socket = rundir::of_device(mount.device).ok_or_else(gone)?;
    ask(&socket).map_err(|error| {
        let text = match &error {
            AskError::Refused(failure) => format!("{command}: {}", failure.text),
            AskError::Io(_) | AskError::Silent(_) => {
                // the socket has the daemon's name, the link to it that of the device
                let daemon = Daemon::of(fs::canonicalize(&socket).unwrap_or(socket));
                format!("{command}: {dir}: {daemon}: {error}")
            }
        };
        Failed::new(error.errno(), text)
    })
}

fn run_dir() -> String {
    rundir::path().map_or_else(|_| "the run directory".into(), |path| path.display().to_string())
}

/// `path` as the file system knows it: symbolic links resolved by the kernel up to the last part,
/// mount point taken off.
pub(crate) fn inside(mount: &Mount, path: &Path, command: &str) -> Result<RawPath, Failed> {
    let shown = path.display().to_string();
    let fail = |error: io::Error| Failed::io(&error, command, &shown);
    let is_link = fs::symlink_metadata(path).map_err(fail)?.is_symlink();
    let whole = match (is_link, path.parent(), path.file_name()) {
        (true, Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            fs::canonicalize(parent).map_err(fail)?.join(name)
        }
        _ => fs::canonicalize(path).map_err(fail)?,
    };
    let below =
        whole.strip_prefix(&mount.dir).map_err(|_| Failed::of(Errno::EXDEV, command, &shown))?;
    Ok(RawPath([&b"/"[..], below.as_os_str().as_bytes()].concat()))
}

/// A mount point shown where a path is wanted.
pub(crate) fn show(dir: &Path) -> String {
    String::from_utf8_lossy(dir.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_its_mount_by_its_words() {
        let mount = |dir: &str| Mount {
            dir: dir.into(),
            device: (0, 44),
            source: "127.0.0.2@tcp:/testfs".into(),
            options: Vec::new(),
        };
        let of = |path: &str| {
            let found = above(vec![mount("/mnt/a"), mount("/mnt/a/b")], Path::new(path));
            found.map(|mount| mount.dir.display().to_string())
        };
        assert_eq!(of("/mnt/a").as_deref(), Some("/mnt/a"));
        assert_eq!(of("/mnt/a/x/y").as_deref(), Some("/mnt/a"));
        assert_eq!(of("/mnt/a/b/c").as_deref(), Some("/mnt/a/b"));
        assert_eq!(of("/mnt/ab"), None);
        assert_eq!(of("/mnt/a/../c"), None);
    }
}
