//! `lfs setdirstripe` of a directory that exists: its names move to other MDTs, and inodes stay.

use std::path::Path;
use std::time::Duration;

use ctl::progress::{Progress, Unit};
use layout::dir::{Asked, BY_SPACE, COUNT_ALL, HASH_OVERSTRIPED};
use types::Errno;

use super::{Absent, Args, check_dir, check_mdts, failure};
use crate::{Failed, lmv, mountpoint, out};

/// Between questions how far it is.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Whether the command is about the names of a directory that exists: a count or a list of MDTs is
/// given. `lfs mkdir` makes new ones only.
pub(super) fn is_meant(path: &Path, args: &Args, command: &str) -> bool {
    let may_be = !command.ends_with("mkdir") && args.parts.spreads();
    may_be && (args.wait || std::fs::metadata(path).is_ok_and(|found| found.is_dir()))
}

/// What makes no sense for names that move, in words.
pub(super) fn check(args: &Args, command: &str) -> Result<(), String> {
    let moves = !command.ends_with("mkdir") && args.parts.spreads();
    match args.wait && !moves {
        true => Err("--wait is for names that move: lfs setdirstripe -c N --wait DIR".to_owned()),
        false => Ok(()),
    }
}

/// Begins to move names, and waits for the end if that is wanted.
pub(super) fn run(path: &Path, args: &Args, asked: &Asked, command: &str) -> Result<(), Failed> {
    let waits = args.wait;
    check_dir(path, command)?;
    if args.mode.is_some() || (!asked.is_striped() && asked.index != BY_SPACE) {
        let text = format!(
            "{command}: '{}' exists and stays on its MDT with its permissions: only its names move (-c N)",
            path.display()
        );
        return Err(Failed::new(Errno::EEXIST.raw(), text));
    }
    let mount = mountpoint::of(path, command)?;
    check_mdts(&mount, asked, Absent::MayNot, command)?;
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, lmv::STRIPES, &asked.encode(), flags)
        .map_err(|error| refused(path, Errno::from_io(&error.into()), command))?;
    if !waits {
        if is_moving(path, command)? {
            out::line(begun(path, asked));
        }
        return Ok(());
    }
    let shown = path.display().to_string();
    let progress = Progress::new(&shown, Unit::Count("names"));
    while is_moving(path, command)? {
        let (moved, left) = lmv::moves(path).unwrap_or_default();
        progress.show(moved, moved.saturating_add(left), "");
        std::thread::sleep(ASKED_EVERY);
    }
    Ok(())
}

fn is_moving(path: &Path, command: &str) -> Result<bool, Failed> {
    let stripes = lmv::stripes(path, command)?;
    Ok(stripes.is_some_and(|stripes| stripes.leaving.is_some()))
}

fn begun(path: &Path, asked: &Asked) -> String {
    let to = match asked.count {
        _ if asked.on_each().is_some() => "all MDTs".to_owned(),
        COUNT_ALL => "all MDTs".to_owned(),
        0 | 1 => "one MDT".to_owned(),
        count if asked.hash & HASH_OVERSTRIPED != 0 => format!("{count} shards"),
        count => format!("{count} MDTs"),
    };
    let shown = path.display();
    format!(
        "{shown}: names move to {to} in the background, inodes stay; lfs getdirstripe -H {shown} shows 'migrating' until the end"
    )
}

fn refused(path: &Path, errno: Errno, command: &str) -> Failed {
    match errno {
        Errno::EBUSY => {
            let shown = path.display();
            let text = format!(
                "{command}: '{shown}': its names move already; wait until lfs getdirstripe -H {shown} does not show 'migrating'"
            );
            Failed::new(errno.raw(), text)
        }
        errno => failure(command, path, errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_mdts_is_told() {
        let line = |count| begun(Path::new("d"), &Asked { count, ..Asked::default() });
        assert!(line(4).starts_with("d: names move to 4 MDTs in the background"));
        assert!(line(1).contains("to one MDT") && line(COUNT_ALL).contains("to all MDTs"));
    }
}
