//! From a path to the mount that it is in, and to the daemon that serves the mount.

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use daemons::{ctl, rundir};
use types::Errno;

use crate::Failed;

/// A mount of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Mount point.
    pub(crate) dir: PathBuf,
    /// Device number that its files show.
    pub(crate) device: (u32, u32),
    /// File system.
    pub(crate) fsname: String,
}

/// All mounts of ours, in the order of the kernel's table.
pub(crate) fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// The mount that `path` is in, or the first one without a path.
pub(crate) fn of(path: Option<&Path>, command: &str) -> Result<Mount, Failed> {
    let mounts = all().map_err(|error| Failed::io(&error, command, "/proc/self/mountinfo"))?;
    let Some(path) = path else {
        let none = || Failed::new(Errno::ENODEV.raw(), format!("{command}: no Nacre file system is mounted here"));
        return mounts.into_iter().next().ok_or_else(none);
    };
    let shown = path.display().to_string();
    let device = fs::metadata(path).map_err(|error| Failed::io(&error, command, &shown))?.dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let found = mounts.into_iter().rev().find(|mount| mount.device == device);
    found.ok_or_else(|| Failed::of(Errno::ENOTTY, command, &format!("'{shown}' is not in a Nacre file system")))
}

/// Asks the daemon of a mount.
pub(crate) fn ask(mount: &Mount, question: &ctl::Ask, command: &str) -> Result<ctl::Reply, Failed> {
    let gone = || {
        let text = format!("{command}: {}: the daemon of this mount is not to be found in {}", mount.dir.display(), run_dir());
        Failed::new(Errno::ENOTCONN.raw(), text)
    };
    let socket = rundir::of_device(mount.device).ok_or_else(gone)?;
    ctl::ask::ask(&socket, question).map_err(|error| Failed::new(error.errno(), format!("{command}: {error}")))
}

fn run_dir() -> String {
    rundir::path().map_or_else(|_| "the run directory".into(), |path| path.display().to_string())
}

/// `path` as the file system knows it: symbolic links resolved by the kernel up to the last part, mount point taken off.
pub(crate) fn inside(mount: &Mount, path: &Path, command: &str) -> Result<String, Failed> {
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
    let below = whole.strip_prefix(&mount.dir).map_err(|_| Failed::of(Errno::EXDEV, command, &shown))?;
    let text = below.to_str().ok_or_else(|| Failed::of(Errno::EINVAL, command, &shown))?;
    Ok(format!("/{text}"))
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 0:44 / /mnt/nacre rw - fuse.nacre 127.0.0.2@tcp:/testfs rw`: type and source follow the lone dash.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    if *fields.get(dash + 1)? != daemons::FUSE_TYPE.as_bytes() {
        return None;
    }
    let source = String::from_utf8(unescape(fields.get(dash + 2)?)).ok()?;
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    Some(Mount {
        dir: PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.get(4)?))),
        device: (major.parse().ok()?, minor.parse().ok()?),
        fsname: source.rsplit_once(":/").map_or_else(|| source.clone(), |(_, fsname)| fsname.to_owned()),
    })
}

/// Blanks stand as `\040` in the table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field.get(at + 1..at + 4).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match (field[at], octal) {
            (b'\\', Some(digits)) => {
                out.push(digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// A mount point shown where a path is wanted.
pub(crate) fn show(dir: &Path) -> String {
    String::from_utf8_lossy(dir.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_names_our_mounts() {
        let table = format!(
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
             36 22 0:44 / /mnt/a\\040b rw,nosuid shared:9 - {} 127.0.0.2@tcp:/testfs rw,user_id=0\n",
            daemons::FUSE_TYPE
        );
        let expected = Mount { dir: "/mnt/a b".into(), device: (0, 44), fsname: "testfs".into() };
        assert_eq!(parse(table.as_bytes()), [expected]);
    }
}
