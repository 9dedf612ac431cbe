//! `lfs mkdir`, which Lustre also calls `lfs setdirstripe`: makes directories on MDTs of the
//! caller's choice, and says where new subdirectories of existing ones go. It prints nothing on
//! success. `lfs setdirstripe` of a directory that exists moves its names to other MDTs.

mod parts;
mod restripe;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ctl::{Ask, RawPath, Reply, Space};
use layout::dir;
use types::Errno;

pub(super) use self::parts::{Parts, count as mdt_count, hash, mdts_in};
use super::setstripe::{closed, umask};
use crate::failure::First;
use crate::mountpoint::Mount;
use crate::{Failed, lmv, mountpoint};

/// Permissions of a new directory, before the umask.
const MODE_DEFAULT: u32 = 0o777;

/// Arguments of `lfs mkdir` and `lfs setdirstripe`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without -c and -i a new directory is plain, and its MDT is chosen by free space and inodes.\nA default with a count makes every new directory below a change on that many MDTs. Use it only\nabove directories that will be huge.\n\nExamples:\n  lfs mkdir -i 2 work                  a directory on MDT0002\n  lfs mkdir -c 4 -i 0,1,2,3 big        names spread over four MDTs, the first one has its attributes\n  lfs mkdir -c -1 everywhere           names spread over all MDTs\n  lfs setdirstripe -D -c 1 -i -1 work  new directories in work go where room is\n  lfs setdirstripe -d work             back to the MDT of work\n  lfs setdirstripe -c 4 --wait work    the names of an existing directory move to four MDTs\n  lfs setdirstripe -c 1 work           they move back in the background"
)]
pub(super) struct Args {
    #[command(flatten)]
    parts: Parts,
    /// Set the default of existing directories for new subdirectories.
    #[arg(short = 'D', long, conflicts_with = "mode")]
    default: bool,
    /// Remove the default of existing directories.
    #[arg(
        short = 'd',
        long,
        conflicts_with_all = ["mode", "count", "overcount", "index", "hash", "max_inherit", "max_inherit_rr"]
    )]
    delete: bool,
    /// Permissions of new directories, octal; the umask is not applied to them.
    #[arg(
        short = 'o',
        visible_short_alias = 'm',
        long,
        value_name = "MODE",
        value_parser = parts::mode
    )]
    mode: Option<u32>,
    /// Wait until the names of an existing directory have moved.
    #[arg(short = 'w', long, conflicts_with_all = ["default", "delete", "mode"])]
    wait: bool,
    /// Directories to make; with -D or -d, existing ones. The names of a directory that exists move
    /// to other MDTs (setdirstripe).
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Runs under the name by which it was called.
pub(super) fn run(args: &Args, command: &str) -> Result<(), Failed> {
    let wrong = |text: String| Failed::new(Errno::EINVAL.raw(), format!("{command}: {text}"));
    let asked = args.parts.asked(args.default).map_err(wrong)?;
    restripe::check(args, command).map_err(wrong)?;
    let mut first = First::default();
    for path in &args.paths {
        let done = match (args.delete, args.default) {
            (true, _) => remove(path, command),
            (_, true) => set(path, &asked, command),
            _ if restripe::is_meant(path, args, command) => {
                restripe::run(path, args, &asked, command)
            }
            _ => make(path, args, &asked, command),
        };
        if let Err(failed) = done {
            first.note(&failed);
        }
    }
    first.end()
}

fn failure(command: &str, path: &Path, errno: Errno) -> Failed {
    Failed::of(errno, command, &format!("dirstripe error on '{}'", path.display()))
}

fn remove(path: &Path, command: &str) -> Result<(), Failed> {
    check_dir(path, command)?;
    match rustix::fs::removexattr(path, lmv::DEFAULT) {
        Ok(()) | Err(rustix::io::Errno::NODATA) => Ok(()), // there was none
        Err(error) => Err(failure(command, path, Errno::from_io(&error.into()))),
    }
}

fn set(path: &Path, asked: &dir::Asked, command: &str) -> Result<(), Failed> {
    check_dir(path, command)?;
    let mount = mountpoint::of(path, command)?;
    check_mdts(&mount, asked, Absent::May, command)?;
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, lmv::DEFAULT, &asked.encode(), flags)
        .map_err(|error| failure(command, path, Errno::from_io(&error.into())))
}

fn check_dir(path: &Path, command: &str) -> Result<(), Failed> {
    let found =
        std::fs::metadata(path).map_err(|error| failure(command, path, Failed::number(&error)))?;
    if found.is_dir() { Ok(()) } else { Err(failure(command, path, Errno::ENOTDIR)) }
}

/// The kernel's mkdir cannot say where. The mount's daemon is asked, and the servers check that the
/// caller may.
fn make(path: &Path, args: &Args, asked: &dir::Asked, command: &str) -> Result<(), Failed> {
    let name = path.file_name().ok_or_else(|| failure(command, path, Errno::EINVAL))?;
    let name = RawPath(name.as_bytes().to_vec());
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let mount = mountpoint::of(parent, command)?;
    check_mdts(&mount, asked, Absent::MayNot, command)?;
    let dir = mountpoint::inside(&mount, parent, command)?;
    let (mode, umask) = args.mode.map_or_else(|| (MODE_DEFAULT, umask()), |mode| (mode, 0));
    let ask = Ask::Mkdir { dir, name, mode, umask, striping: asked.encode() };
    match mountpoint::ask(&mount, &ask, command) {
        Ok(_) => Ok(()),
        Err(failed) if i32::from(failed.status) == Errno::EEXIST.raw() => {
            Err(failure(command, path, Errno::EEXIST))
        }
        Err(failed) => {
            Err(Failed { text: format!("{}: '{}'", failed.text, path.display()), ..failed })
        }
    }
}

/// Whether an MDT that is named may be away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    May,
    MayNot,
}

/// The MDTs that are named exist, and answer if they must. A call would wait for one that is away.
fn check_mdts(
    mount: &Mount,
    asked: &dir::Asked,
    absent: Absent,
    command: &str,
) -> Result<(), Failed> {
    let named = named(asked);
    if named.is_empty() {
        return Ok(());
    }
    let Reply::Spaces(spaces) = mountpoint::ask(mount, &Ask::Df, command)? else {
        return Ok(());
    };
    named
        .iter()
        .try_for_each(|index| check_mdt(*index, &spaces, absent, mount.fsname()))
        .map_err(|(errno, text)| Failed::new(errno.raw(), format!("{command}: {text}")))
}

/// The MDTs that are named.
pub(super) fn named(asked: &dir::Asked) -> Vec<u32> {
    let first = u32::try_from(asked.index).ok().filter(|_| asked.mdts.is_empty());
    first.into_iter().chain(asked.mdts.iter().copied()).collect()
}

/// An MDT that does not answer in time over a sound connection is slow, and not away.
pub(super) fn check_mdt(
    index: u32,
    spaces: &[Space],
    absent: Absent,
    fsname: &str,
) -> Result<(), (Errno, String)> {
    let is_it = |space: &&Space| space.target.kind == "MDT" && space.target.index == index;
    match spaces.iter().find(is_it) {
        None => Err((
            Errno::ENODEV,
            format!("MDT index {index} does not exist in {fsname}: see lfs mdts"),
        )),
        Some(Space { target, space: None, .. })
            if absent == Absent::MayNot && target.state != "FULL" =>
        {
            Err((Errno::ENOTCONN, format!("{} is away ({})", target.name, target.state)))
        }
        Some(Space { target, letters, .. }) => match closed(letters) {
            Some(param) if absent == Absent::MayNot => {
                let name = &target.name;
                let way = format!("name another MDT, or set mdt.{name}.{param}=0");
                Err((Errno::EREMOTEIO, format!("{name} gets no new directories: {way}")))
            }
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use ctl::{Room, Target};

    use super::*;
    use crate::testing::parse;

    #[test]
    fn an_mdt_that_is_not_there_or_away_is_named() {
        let space = |index, state: &str, space| Space {
            target: Target {
                kind: "MDT".into(),
                index,
                name: format!("testfs-MDT{index:04x}"),
                state: state.into(),
                is_active: true,
                nid: String::new(),
            },
            space,
            letters: String::new(),
        };
        let spaces = [
            space(0, "FULL", Some(Room::default())),
            space(1, "FULL", None),
            space(2, "DISCONN", None),
            Space { letters: "N".into(), ..space(4, "FULL", Some(Room::default())) },
        ];
        let check = |index, absent| {
            check_mdt(index, &spaces, absent, "testfs").map_err(|(errno, text)| (errno.raw(), text))
        };
        assert_eq!(check(0, Absent::MayNot), Ok(()));
        assert_eq!(check(1, Absent::MayNot), Ok(()), "it is slow");
        let away = "testfs-MDT0002 is away (DISCONN)".to_owned();
        assert_eq!(check(2, Absent::MayNot), Err((Errno::ENOTCONN.raw(), away)));
        assert_eq!(check(2, Absent::May), Ok(()));
        let closed = "testfs-MDT0004 gets no new directories: name another MDT, or set \
            mdt.testfs-MDT0004.no_create=0";
        assert_eq!(check(4, Absent::MayNot), Err((Errno::EREMOTEIO.raw(), closed.to_owned())));
        assert_eq!(check(4, Absent::May), Ok(()), "a default may name it");
        let unknown = "MDT index 3 does not exist in testfs: see lfs mdts".to_owned();
        for absent in [Absent::May, Absent::MayNot] {
            assert_eq!(check(3, absent), Err((Errno::ENODEV.raw(), unknown.clone())));
        }
    }

    #[test]
    fn a_default_is_removed_whole_and_has_no_mode() {
        let refused = |line: &str| parse::<Args>(line.split_whitespace()).is_err();
        assert!(refused("mkdir -d -c 2 d") && refused("mkdir -D -o 700 d") && refused("mkdir"));
        let args: Args = parse("mkdir -m 2750 d e".split_whitespace()).expect("fits");
        assert_eq!((args.mode, args.paths.len()), (Some(0o2750), 2));
        let args: Args = parse("setdirstripe -D -d d".split_whitespace()).expect("fits");
        assert!(args.delete);
    }
}
