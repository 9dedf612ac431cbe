//! `lfs migrate -m`: moves the names of directories to other MDTs, with all directories below them.
//!
//! The MDTs move the names in the background ([`lmv::MIGRATE`]). This command walks the tree. It
//! begins each directory before it lists it, so that new directories in it are on their new MDT
//! already. It waits for it later. If the command ends early, the directories that it has begun go
//! on, the others stay, and the next run continues.

use std::collections::{BTreeSet, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ctl::progress::{Progress, Unit};
use ctl::{Ask, Reply, Space};
use layout::dir::{Asked, BY_SPACE, COUNT_ALL, HASH_KIND, Stripes};
use types::Errno;

use super::{ASKED_EVERY, ASKED_FIRST, COMMAND};
use crate::failure::First;
use crate::lfs::setdirstripe::{Absent, Parts, check_mdt, named};
use crate::mountpoint::{self, Mount};
use crate::{Failed, lmv, out};

/// Directories that move at once. A small one takes some 10 ms, most of it waiting.
const MOVING_MAX: usize = 16;
/// When no name has moved for this long, MDTs that are away are looked for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where names are to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Goal {
    asked: Asked,
    /// Without one, a striped directory keeps its hash.
    has_hash: bool,
}

impl Goal {
    /// What the options say; else what is wrong with them.
    pub(super) fn of(mdts: &[u32], count: Option<u32>, hash: Option<u32>) -> Result<Goal, String> {
        let mut asked = Parts::on(mdts, count, hash).asked(false)?;
        if !asked.is_striped() {
            // a count of one would make the directory plain; a list of one MDT is obeyed
            asked = Asked { count: 1, index: BY_SPACE, mdts: mdts.to_vec(), ..asked };
        }
        Ok(Goal { asked, has_hash: hash.is_some() })
    }

    /// What the MDT of a directory with this striping is asked for.
    fn asked(&self, before: Option<&Stripes>) -> Asked {
        let kept = before.filter(|_| !self.has_hash).map(|stripes| stripes.hash & HASH_KIND);
        Asked { hash: kept.unwrap_or(self.asked.hash), ..self.asked.clone() }
    }

    /// Whether names that move go there.
    fn is_of(&self, stripes: &Stripes) -> bool {
        let on: Vec<u32> = stripes.shards.iter().map(|shard| shard.mdt_index()).collect();
        let Asked { count, index, mdts, .. } = &self.asked;
        if !mdts.is_empty() {
            return *mdts == on;
        }
        let is_first = on.first().map(|mdt| mdt.cast_signed()) == Some(*index);
        is_first && (*count == COUNT_ALL || on.len() == *count as usize)
    }

    /// The MDT, if it is one.
    pub(super) fn only(&self) -> Option<u32> {
        match self.asked.mdts[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// `MDT0001`, `MDT0000, MDT0002`, `4 MDTs from MDT0000 on`.
    pub(super) fn shown(&self) -> String {
        let Asked { count, index, mdts, .. } = &self.asked;
        let listed: Vec<String> = mdts.iter().map(|mdt| format!("MDT{mdt:04x}")).collect();
        match (listed.is_empty(), *count) {
            (false, _) => listed.join(", "),
            (true, COUNT_ALL) => format!("all MDTs from MDT{index:04x} on"),
            (true, count) => format!("{count} MDTs from MDT{index:04x} on"),
        }
    }

    /// The MDTs that are named exist, answer, and take new directories.
    fn check(&self, spaces: &[Space], fsname: &str) -> Result<(), Failed> {
        let wrong = |(errno, text): (Errno, String)| {
            Failed::new(errno.raw(), format!("error: {COMMAND}: {text}"))
        };
        named(&self.asked).into_iter().try_for_each(|index| {
            check_mdt(index, spaces, Absent::MayNot, fsname).map_err(wrong)?;
            match mdt(spaces, index).filter(|space| space.letters.contains(['S', 'I'])) {
                None => Ok(()),
                Some(full) => {
                    let text = format!("{} is full: name another MDT", full.target.name);
                    Err(wrong((Errno::ENOSPC, text)))
                }
            }
        })
    }
}

fn mdt(spaces: &[Space], index: u32) -> Option<&Space> {
    spaces.iter().find(|space| space.target.kind == "MDT" && space.target.index == index)
}

/// Moves the names of these directories; `alone`: not of those below them.
pub(super) fn run(
    paths: &[PathBuf],
    goal: &Goal,
    alone: bool,
    verbose: bool,
) -> Result<(), Failed> {
    let mut first = First::default();
    let progress = Progress::new(COMMAND, Unit::Count("names"));
    for path in paths {
        let mut walk = Walk::new(path, goal, &progress, verbose);
        if let Err(failed) = walk.run(alone, &mut first) {
            progress.erase();
            first.note(&failed);
        }
    }
    first.end()
}

/// Moves the names of one tree, and prints nothing.
pub(super) fn settle(
    path: &Path,
    goal: &Goal,
    alone: bool,
    progress: &Progress,
    first: &mut First,
) -> Result<(), Failed> {
    let mut walk = Walk::new(path, goal, progress, false);
    walk.is_silent = true;
    walk.run(alone, first)
}

/// A directory whose names move.
struct Moving {
    path: PathBuf,
    /// Of its striping when they began.
    version: u32,
}

/// What was found of a directory.
enum Begun {
    Moves(u32),
    IsThere,
}

/// One tree.
struct Walk<'a> {
    top: &'a Path,
    goal: &'a Goal,
    progress: &'a Progress,
    verbose: bool,
    /// Not even that there is nothing to do is printed.
    is_silent: bool,
    moving: VecDeque<Moving>,
    /// Directories whose names have moved.
    moved: u64,
    /// MDTs that were said to be away.
    away: BTreeSet<String>,
}

impl<'a> Walk<'a> {
    fn new(top: &'a Path, goal: &'a Goal, progress: &'a Progress, verbose: bool) -> Walk<'a> {
        let (moving, away) = (VecDeque::new(), BTreeSet::new());
        Walk { top, goal, progress, verbose, is_silent: false, moving, moved: 0, away }
    }

    /// Failures of single directories are noted, and the others go on.
    fn run(&mut self, alone: bool, first: &mut First) -> Result<(), Failed> {
        let mount = mountpoint::near(self.top, COMMAND)?;
        self.goal.check(&spaces(&mount)?, mount.fsname())?;
        let found = std::fs::metadata(self.top).map_err(|error| io(self.top, &error))?;
        if !found.is_dir() {
            let text = format!(
                "error: {COMMAND}: '{}' is not a directory: name one; -m moves the names of directories, and files stay where they are",
                self.top.display()
            );
            return Err(Failed::new(Errno::ENOTDIR.raw(), text));
        }
        let mut rest = vec![self.top.to_owned()];
        while let Some(dir) = rest.pop() {
            let done = self.begin(&dir, &mount).and_then(|()| match alone {
                true => Ok(Vec::new()),
                false => subdirectories(&dir, found.dev()).map_err(|error| io(&dir, &error)),
            });
            match done {
                Ok(below) => rest.extend(below),
                Err(failed) if dir == self.top || is_of_goal(&failed) => return Err(failed),
                Err(failed) if is_gone(&failed) => {} // it was removed or renamed meanwhile
                Err(failed) => {
                    self.progress.erase();
                    first.note(&failed);
                }
            }
        }
        while let Some(one) = self.moving.pop_front() {
            self.wait(&one, &mount)?;
        }
        if self.moved == 0 && !self.verbose && !self.is_silent {
            out::line(self.there(self.top));
        }
        Ok(())
    }

    fn there(&self, dir: &Path) -> String {
        format!("{}: all names are on {} already", dir.display(), self.goal.shown())
    }

    /// Has the names of one directory move. Waits for others if there are many, and for an earlier
    /// move of the same names to other MDTs.
    fn begin(&mut self, dir: &Path, mount: &Mount) -> Result<(), Failed> {
        while self.moving.len() >= MOVING_MAX {
            let one = self.moving.pop_front().expect("there are many");
            self.wait(&one, mount)?;
        }
        let begun = loop {
            let before = lmv::stripes(dir, COMMAND)?;
            if let Some(stripes) = before.as_ref().filter(|stripes| stripes.leaving.is_some()) {
                if self.goal.is_of(stripes) {
                    break Begun::Moves(stripes.version); // an earlier run began it
                }
                let other = Moving { path: dir.to_owned(), version: stripes.version };
                self.until_moved(&other, mount)?;
                continue;
            }
            let flags = rustix::fs::XattrFlags::empty();
            let value = self.goal.asked(before.as_ref()).encode();
            match rustix::fs::setxattr(dir, lmv::MIGRATE, &value, flags) {
                Err(rustix::io::Errno::BUSY) => {
                    std::thread::sleep(ASKED_FIRST); // another caller was faster
                    continue;
                }
                Err(rustix::io::Errno::NODEV) if self.is_left_away(before.as_ref(), mount)? => {
                    std::thread::sleep(ASKED_EVERY);
                    continue;
                }
                set => set.map_err(|error| refused(dir, Errno::from_io(&error.into())))?,
            }
            let after = lmv::stripes(dir, COMMAND)?;
            break match after == before {
                true => Begun::IsThere,
                false => Begun::Moves(after.map_or(0, |stripes| stripes.version)),
            };
        };
        match begun {
            Begun::Moves(version) => {
                self.moving.push_back(Moving { path: dir.to_owned(), version });
            }
            Begun::IsThere if self.verbose => {
                self.progress.erase();
                out::line(self.there(dir));
            }
            Begun::IsThere => {}
        }
        assert!(self.moving.len() <= MOVING_MAX, "directories that move are bounded");
        Ok(())
    }

    fn wait(&mut self, one: &Moving, mount: &Mount) -> Result<(), Failed> {
        match self.until_moved(one, mount) {
            Err(failed) if is_gone(&failed) => {}
            done => done?,
        }
        self.moved += 1;
        if self.verbose {
            self.progress.erase();
            out::line(format!("{}: names moved to {}", one.path.display(), self.goal.shown()));
        }
        Ok(())
    }

    fn until_moved(&mut self, one: &Moving, mount: &Mount) -> Result<(), Failed> {
        self.progress.begin(&one.path.display().to_string(), Unit::Count("names"));
        let began = Instant::now();
        let (mut seen, mut since) = (None, began);
        loop {
            let stripes = lmv::stripes(&one.path, COMMAND)?;
            let is_it = |stripes: &Stripes| stripes.version == one.version;
            let moving = stripes.filter(|stripes| stripes.leaving.is_some() && is_it(stripes));
            let Some(stripes) = moving else { return Ok(()) };
            let (moved, left) = lmv::moves(&one.path).unwrap_or_default();
            let note = format!("{} directories done", self.moved);
            self.progress.show(moved, moved.saturating_add(left), &note);
            if seen.replace((moved, left)) != Some((moved, left)) {
                since = Instant::now();
            } else if since.elapsed() > PATIENCE {
                self.say_away(&stripes, mount)?;
                since = Instant::now();
            }
            let is_young = began.elapsed() < ASKED_EVERY;
            std::thread::sleep(if is_young { ASKED_FIRST } else { ASKED_EVERY });
        }
    }

    /// Whether an MDT is away that the names of a directory are to leave. It is waited for, because
    /// other MDTs are not to blame. An MDT of the goal that is away is refused by name.
    fn is_left_away(&mut self, before: Option<&Stripes>, mount: &Mount) -> Result<bool, Failed> {
        let spaces = spaces(mount)?;
        self.goal.check(&spaces, mount.fsname())?;
        let Some(stripes) = before else { return Ok(false) };
        let mut left = stripes.places().filter_map(|shard| mdt(&spaces, shard.mdt_index()));
        if !left.any(is_away) {
            return Ok(false);
        }
        self.say_away(stripes, mount)?;
        Ok(true)
    }

    /// Says once which MDTs the names wait for. They move on when these return.
    fn say_away(&mut self, stripes: &Stripes, mount: &Mount) -> Result<(), Failed> {
        let spaces = spaces(mount)?;
        let of: BTreeSet<u32> = stripes.places().map(|shard| shard.mdt_index()).collect();
        for space in of.iter().filter_map(|index| mdt(&spaces, *index)).filter(|one| is_away(one)) {
            let target = &space.target;
            if self.away.insert(target.name.clone()) {
                self.progress.erase();
                ctl::say!(
                    "{COMMAND}: names wait for {}, which is away ({})",
                    target.name,
                    target.state
                );
            }
        }
        Ok(())
    }
}

fn is_away(space: &Space) -> bool {
    space.space.is_none() && space.target.state != "FULL"
}

fn spaces(mount: &Mount) -> Result<Vec<Space>, Failed> {
    match mountpoint::ask(mount, &Ask::Df, COMMAND)? {
        Reply::Spaces(spaces) => Ok(spaces),
        _ => Err(Failed::of(Errno::EPROTO, COMMAND, "the daemon of the mount")),
    }
}

/// Of the same file system, the last name first.
fn subdirectories(dir: &Path, device: u64) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        // another file system may be mounted on it; a directory that is gone needs no move
        if entry.metadata().is_ok_and(|stat| stat.dev() == device) {
            found.push(entry.path());
        }
    }
    found.sort_unstable_by(|one, other| other.cmp(one));
    Ok(found)
}

pub(super) fn io(path: &Path, error: &std::io::Error) -> Failed {
    Failed::io(error, &format!("error: {COMMAND}"), &format!("'{}'", path.display()))
}

/// Whether no other directory could go there either.
pub(super) fn is_of_goal(failed: &Failed) -> bool {
    let all = [Errno::ENODEV, Errno::ENOTCONN, Errno::ENOSPC, Errno::EREMOTEIO, Errno::EPERM];
    all.iter().any(|errno| i32::from(failed.status) == errno.raw())
}

/// Whether there is no such directory any more.
pub(super) fn is_gone(failed: &Failed) -> bool {
    let gone = [Errno::ENOENT, Errno::ENOTDIR, Errno::ESTALE];
    gone.iter().any(|errno| i32::from(failed.status) == errno.raw())
}

fn refused(dir: &Path, errno: Errno) -> Failed {
    let why = match errno {
        Errno::EPERM => {
            "only root moves names to other MDTs, and only with mdt.*.enable_remote_dir=1"
        }
        Errno::EINVAL => "the root of a file system stays on its MDT: name the directories in it",
        Errno::ENODEV => "an MDT that is named does not answer",
        Errno::ENOSPC => "an MDT that is named is full",
        Errno::EREMOTEIO => "an MDT that is named gets no new directories",
        Errno::E2BIG => "too many shards, or too large access lists",
        Errno::EOPNOTSUPP => "its MDT is of a version that moves no names",
        errno => return Failed::of(errno, &format!("error: {COMMAND}"), &shown(dir)),
    };
    Failed::new(errno.raw(), format!("error: {COMMAND}: {}: {why}", shown(dir)))
}

pub(super) fn shown(dir: &Path) -> String {
    format!("'{}'", dir.display())
}

#[cfg(test)]
mod tests {
    use ctl::{Room, Target};
    use layout::dir::{HASH_CRUSH2, HASH_FIXED, HASH_FNV_1A_64};
    use types::{FID_FIRST_NORMAL_SEQ, FID_SEQUENCES_PER_MDT_BITS, Fid};

    use super::*;

    fn striping(mdts: &[u32]) -> Stripes {
        let on = |mdt: &u32| {
            Fid::new(FID_FIRST_NORMAL_SEQ + (u64::from(*mdt) << FID_SEQUENCES_PER_MDT_BITS), 7)
        };
        let (hash, shards) = (HASH_FNV_1A_64 | HASH_FIXED, mdts.iter().map(on).collect());
        Stripes { hash, version: 1, master: 0, shards, leaving: None }
    }

    fn goal(mdts: &[u32], count: Option<u32>) -> Goal {
        Goal::of(mdts, count, None).expect("it makes sense")
    }

    #[test]
    fn one_mdt_is_a_list_and_several_are_a_list_or_a_count() {
        assert_eq!(goal(&[2], None).asked.mdts, [2]);
        assert_eq!(goal(&[2], Some(1)), goal(&[2], None));
        assert_eq!(goal(&[2], Some(0)), goal(&[2], None));
        assert_eq!((goal(&[2], None).only(), goal(&[2], Some(3)).only()), (Some(2), None));
        let listed = goal(&[3, 1], Some(2)).asked;
        assert_eq!((listed.count, &listed.mdts[..]), (2, &[3, 1][..]));
        let counted = goal(&[3], Some(4)).asked;
        assert_eq!((counted.count, counted.index, counted.mdts), (4, 3, vec![]));
        let refused = Goal::of(&[0, 1], Some(3), None).expect_err("another count");
        assert_eq!(refused, "stripe count 3 doesn't match the number of MDTs: 2");
        assert!(Goal::of(&[1, 1], None, None).is_err());
        let words = [goal(&[10], None), goal(&[0, 2], None), goal(&[1], Some(COUNT_ALL))];
        let words = words.map(|goal| goal.shown());
        assert_eq!(words, ["MDT000a", "MDT0000, MDT0002", "all MDTs from MDT0001 on"]);
    }

    #[test]
    fn a_move_to_the_same_mdts_is_known_and_a_hash_is_kept() {
        assert!(goal(&[2], None).is_of(&striping(&[2])));
        assert!(!goal(&[2], None).is_of(&striping(&[2, 0])));
        assert!(goal(&[2], Some(3)).is_of(&striping(&[2, 0, 1])));
        assert!(!goal(&[2], Some(3)).is_of(&striping(&[2, 0])));
        assert!(goal(&[2], Some(COUNT_ALL)).is_of(&striping(&[2, 0])));
        assert!(!goal(&[0, 2], None).is_of(&striping(&[2, 0])), "in order");
        let two = goal(&[0, 1], None);
        assert_eq!(two.asked(None).hash, HASH_CRUSH2);
        assert_eq!(two.asked(Some(&striping(&[2, 0]))).hash, HASH_FNV_1A_64);
        let said = Goal::of(&[0, 1], None, Some(HASH_CRUSH2)).expect("a hash");
        assert_eq!(said.asked(Some(&striping(&[2, 0]))).hash, HASH_CRUSH2);
    }

    #[test]
    fn a_target_that_is_unknown_away_closed_or_full_is_named() {
        let space = |index, state: &str, room, letters: &str| Space {
            target: Target {
                kind: "MDT".into(),
                index,
                name: format!("testfs-MDT{index:04x}"),
                state: state.into(),
                is_active: true,
                nid: String::new(),
            },
            space: room,
            letters: letters.into(),
        };
        let room = Some(Room::default());
        let spaces = [
            space(0, "FULL", room, ""),
            space(1, "DISCONN", None, ""),
            space(2, "FULL", room, "N"),
            space(3, "FULL", room, "I"),
        ];
        let refused = |mdt| goal(&[mdt], None).check(&spaces, "testfs").expect_err("refused");
        assert_eq!(goal(&[0], None).check(&spaces, "testfs"), Ok(()));
        for (mdt, errno, words) in [
            (1, Errno::ENOTCONN, "testfs-MDT0001 is away (DISCONN)"),
            (2, Errno::EREMOTEIO, "set mdt.testfs-MDT0002.no_create=0"),
            (3, Errno::ENOSPC, "testfs-MDT0003 is full: name another MDT"),
            (4, Errno::ENODEV, "MDT index 4 does not exist in testfs"),
        ] {
            let failed = refused(mdt);
            assert_eq!(i32::from(failed.status), errno.raw(), "{failed:?}");
            assert!(failed.text.contains(words), "{failed:?}");
            assert!(is_of_goal(&failed) && !is_gone(&failed));
        }
    }
}
