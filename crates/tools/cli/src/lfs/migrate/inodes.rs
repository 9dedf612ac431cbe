//! `lfs migrate -m MDT --inodes`: the inodes of a tree move, too, and get other numbers.
//!
//! ```text
//! names of all directories go to the MDT ([`super::names`])
//! each file goes there, and then its directory
//! names again: on the MDT of its names, a directory needs no shard
//! ```
//! Bytes that are at an MDT move with their inode: they go to an OST before, and to the new MDT
//! afterwards. Files in a directory are made on the MDT of its names, so nothing new stays behind.
//! All state is in the tree: a second run moves what is left, such as files that were open.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctl::progress::{Progress, Unit};
use layout::dir::Asked;
use rustix::fs::XattrFlags;
use types::Errno;

use super::names::{self, Goal, io, is_gone, is_of_goal, shown};
use super::{Args, COMMAND, by_way_of_osts};
use crate::failure::First;
use crate::{Failed, lmv, out};

/// Attempts to move what is in use: a program may close it soon.
const BUSY_TRIES: u32 = 5;
/// Pause between them.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Files that move at once: each waits for commits, of OSTs and of MDTs.
const MOVING_MAX: usize = 32;

/// Moves these trees, or with `-d` these directories and the files in them.
pub(super) fn run(paths: &[PathBuf], goal: &Goal, args: &Args) -> Result<(), Failed> {
    let Some(mdt) = goal.only() else {
        let text = format!("error: {COMMAND}: --inodes moves to one MDT: name one with -m");
        return Err(Failed::new(Errno::EINVAL.raw(), text));
    };
    let value = Asked { index: mdt.cast_signed(), ..Asked::default() }.encode();
    let progress = Progress::new(COMMAND, Unit::Count("inodes"));
    let (progress, first) = (&progress, First::default());
    let mut moves = Moves { goal, value, args, progress, tried: 0, first };
    for path in paths {
        if let Err(failed) = moves.tree(path) {
            progress.erase();
            moves.first.note(&failed);
        }
    }
    moves.first.end()
}

/// One step over a tree.
enum Step {
    /// What is in the directory comes first.
    Enter(PathBuf),
    Move(Found),
}

/// A file or directory, with its number before.
struct Found {
    path: PathBuf,
    number: u64,
}

struct Moves<'a> {
    goal: &'a Goal,
    value: Vec<u8>,
    args: &'a Args,
    progress: &'a Progress,
    tried: u64,
    first: First,
}

impl Moves<'_> {
    /// Failures of single files are noted, and the others go on.
    fn tree(&mut self, top: &Path) -> Result<(), Failed> {
        let found = std::fs::symlink_metadata(top).map_err(|error| io(top, &error))?;
        if !found.is_dir() {
            return self.all(&[Found { path: top.to_owned(), number: found.ino() }]);
        }
        names::settle(top, self.goal, self.args.directory, self.progress, &mut self.first)?;
        let mut rest = vec![Step::Enter(top.to_owned())];
        while let Some(step) = rest.pop() {
            match step {
                Step::Enter(dir) => match self.enter(&dir, found.dev(), &mut rest) {
                    Ok(files) => self.all(&files)?,
                    Err(failed) => self.note(&failed)?,
                },
                Step::Move(dir) => self.all(&[dir])?,
            }
        }
        names::settle(top, self.goal, self.args.directory, self.progress, &mut self.first)
    }

    /// The files in a directory. It moves after all that is in it.
    fn enter(&self, dir: &Path, device: u64, rest: &mut Vec<Step>) -> Result<Vec<Found>, Failed> {
        let number = std::fs::symlink_metadata(dir).map_err(|error| io(dir, &error))?.ino();
        rest.push(Step::Move(Found { path: dir.to_owned(), number }));
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(|error| io(dir, &error))? {
            let entry = entry.map_err(|error| io(dir, &error))?;
            // another file system may be mounted on it; what is gone needs no move
            let found = entry.metadata();
            let Some(found) = found.ok().filter(|found| found.dev() == device) else { continue };
            match found.is_dir() {
                true if self.args.directory => {}
                true => rest.push(Step::Enter(entry.path())),
                false => files.push(Found { path: entry.path(), number: found.ino() }),
            }
        }
        Ok(files)
    }

    /// Moves inodes side by side.
    fn all(&mut self, inodes: &[Found]) -> Result<(), Failed> {
        for some in inodes.chunks(MOVING_MAX) {
            let value = &self.value[..];
            let done: Vec<Result<(), Errno>> = std::thread::scope(|scope| {
                let begun = some.iter().map(|one| scope.spawn(move || attempt(&one.path, value)));
                let tasks: Vec<_> = begun.collect();
                let ended = tasks.into_iter().map(|task| task.join());
                ended.map(|done| done.unwrap_or(Err(Errno::EIO))).collect()
            });
            for (one, done) in some.iter().zip(done) {
                if let Err(failed) = self.end(one, done) {
                    self.note(&failed)?;
                }
            }
        }
        Ok(())
    }

    /// What became of a move. Bytes at an MDT move before, one file at a time.
    fn end(&mut self, one: &Found, done: Result<(), Errno>) -> Result<(), Failed> {
        let Found { path, number } = one;
        if done == Err(Errno::EXDEV) {
            let mut again = || attempt(path, &self.value).map_err(|errno| refused(path, errno));
            by_way_of_osts(path, self.args, self.progress, &mut again)?;
        } else {
            done.map_err(|errno| refused(path, errno))?;
        }
        let now = std::fs::symlink_metadata(path).map(|found| found.ino());
        if self.args.verbose && now.is_ok_and(|now| now != *number) {
            self.progress.erase();
            out::line(format!("{}: moved to {}", path.display(), self.goal.shown()));
        }
        self.tried += 1;
        self.progress.show(self.tried, 0, "");
        Ok(())
    }

    /// A failure of one file, unless all others would fail as well.
    fn note(&mut self, failed: &Failed) -> Result<(), Failed> {
        if is_of_goal(failed) {
            return Err(failed.clone());
        }
        if !is_gone(failed) {
            self.progress.erase();
            self.first.note(failed);
        }
        Ok(()) // otherwise it was removed or renamed meanwhile
    }
}

/// Has its MDT move an inode. A program that uses it may close it soon.
fn attempt(path: &Path, value: &[u8]) -> Result<(), Errno> {
    let mut tries = 1;
    loop {
        let flags = XattrFlags::empty();
        match rustix::fs::lsetxattr(path, lmv::INODE_MIGRATE, value, flags) {
            Err(rustix::io::Errno::BUSY) if tries < BUSY_TRIES => {
                tries += 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            done => return done.map_err(|error| Errno::from_io(&error.into())),
        }
    }
}

fn refused(path: &Path, errno: Errno) -> Failed {
    let why = match errno {
        Errno::EBUSY => "a program has it open, or its bytes or names move",
        Errno::EXDEV => "its first bytes are at its MDT and stay there",
        Errno::ENOTEMPTY => "some of its names are on another MDT: run the command again",
        Errno::EMLINK => "two of its names are in one directory, whose names do not move",
        Errno::EPERM => {
            "only root moves inodes to other MDTs, and only with mdt.*.enable_remote_dir=1"
        }
        Errno::EINVAL => {
            "the root of a file system stays on its MDT, and so do files on OSTs of older versions"
        }
        Errno::ENODEV => "the MDT that is named does not answer",
        Errno::ENOSPC => "the MDT that is named is full",
        Errno::EREMOTEIO => "the MDT that is named gets no new directories",
        Errno::EOPNOTSUPP => "its MDT is of a version that moves no inodes",
        errno => return Failed::of(errno, &format!("error: {COMMAND}"), &shown(path)),
    };
    Failed::new(errno.raw(), format!("error: {COMMAND}: {}: {why}", shown(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_named_with_the_reason() {
        let of = |errno| refused(Path::new("a/f"), errno).text;
        assert!(of(Errno::EBUSY).starts_with("error: lfs migrate: 'a/f': a program has it open"));
        assert!(of(Errno::EXDEV).ends_with("stay there"));
        assert_eq!(of(Errno::EIO), "error: lfs migrate: 'a/f': Input/output error");
    }
}
