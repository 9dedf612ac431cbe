//! Directories and shards of this MDT whose names are to move, as far as memory knows them. The
//! store has a key for each of them, so that a restart goes on ([`crate::background::moves`]).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use osd::{StoreError, Table, View};
use tokio::sync::Notify;
use types::Fid;
use wire::updates::Place;

use crate::keys;
use crate::limits::{ABSENT_NAMES_MAX, WATCHED_MAX};

/// How far the names of one directory or shard are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Names that are left, once they were counted.
    pub(crate) left: Option<u64>,
    /// Names that have moved in this run.
    pub(crate) moved: u64,
    /// The same of the other old shards of a directory, as far as is known: left and moved.
    pub(crate) elsewhere: (u64, u64),
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    dirs: BTreeMap<Fid, Progress>,
    /// Directories and shards that are to be counted, and whether they have grown.
    looks: BTreeMap<Fid, bool>,
    /// Those that were counted: bytes of names from which on, and down to which, they are again.
    watched: BTreeMap<Fid, (u64, u64)>,
    /// Names that are neither in a new shard of this MDT, which comes first, nor in the shard that
    /// they would leave. Each move of names makes shards on one side or the other, under FIDs that
    /// no other move has. So what is known of a pair of shards stays true.
    absent: BTreeSet<(Fid, Place)>,
    /// There is something to move, or the instance is over.
    pub(crate) wanted: Rc<Notify>,
}

impl Moves {
    /// As the store has them.
    ///
    /// # Errors
    /// What the store answers.
    pub(crate) fn open(view: &dyn View) -> Result<Moves, StoreError> {
        let mut moves = Moves::default();
        view.scan_within((Table::Meta, keys::META_MOVE), keys::META_MOVE, &mut |key, _| {
            let dir = Fid::from_key(&key[keys::META_MOVE.len()..]);
            moves.dirs.extend(dir.map(|dir| (dir, Progress::default())));
            true
        })?;
        Ok(moves)
    }

    /// Names of `dir` are to move from now on, or no more.
    pub(crate) fn set(&mut self, dir: Fid, is_on: bool) {
        if is_on {
            self.dirs.insert(dir, Progress::default());
            self.wanted.notify_one();
        } else {
            self.dirs.remove(&dir);
        }
    }

    /// A directory or shard has so many bytes of names, and may have too many or too few names.
    pub(crate) fn resized(&mut self, dir: Fid, bytes: u64, has_grown: bool) {
        let is_due = self.watched.get(&dir).is_none_or(|(low, high)| match has_grown {
            true => bytes >= *high,
            false => bytes <= *low,
        });
        if is_due && !self.dirs.contains_key(&dir) {
            self.looks.insert(dir, has_grown);
            self.wanted.notify_one();
        }
    }

    /// A name was not in the shard that it would leave, and never comes to be there.
    pub(crate) fn found_absent(&mut self, left: (Fid, Place)) {
        if self.absent.len() >= ABSENT_NAMES_MAX {
            self.absent.clear();
        }
        self.absent.insert(left);
    }

    /// Whether it is known that a name is not in the shard that it would leave.
    pub(crate) fn is_absent(&self, left: &(Fid, Place)) -> bool {
        self.absent.contains(left)
    }

    /// One that is to be counted, and whether it has grown.
    pub(crate) fn next_look(&mut self) -> Option<(Fid, bool)> {
        self.looks.pop_first()
    }

    /// It has so many names in so many bytes. It is counted again when half of what is missing to
    /// `most` names has come, or half of the names have gone. One that has them and is not split is
    /// counted again when it has grown by half.
    pub(crate) fn looked(&mut self, dir: Fid, names: u64, bytes: u64, most: u64) {
        if self.watched.len() >= WATCHED_MAX {
            self.watched.clear();
        }
        let of_name = (bytes / names.max(1)).max(1);
        let missing = if names < most { most - names } else { names };
        let missing = (missing / 2).max(1);
        let high = bytes.saturating_add(missing.saturating_mul(of_name));
        assert!(bytes <= high, "a directory is counted again when it has grown");
        self.watched.insert(dir, (bytes / 2, high));
        assert!(self.watched.len() <= WATCHED_MAX, "the table is bounded");
    }

    /// All of them, in the order of their FIDs.
    pub(crate) fn all(&self) -> Vec<(Fid, Progress)> {
        self.dirs.iter().map(|(dir, progress)| (*dir, *progress)).collect()
    }

    /// How far one of them is.
    pub(crate) fn of(&self, dir: Fid) -> Option<Progress> {
        self.dirs.get(&dir).copied()
    }

    /// So many names have left `dir`.
    pub(crate) fn moved(&mut self, dir: Fid, names: u64) {
        if let Some(progress) = self.dirs.get_mut(&dir) {
            progress.moved += names;
            progress.left = progress.left.map(|left| left.saturating_sub(names));
        }
    }

    /// Names that are left in these shards, and that have moved, as far as they were counted.
    pub(crate) fn sum<'a>(&self, shards: impl Iterator<Item = &'a Fid>) -> (u64, u64) {
        shards.filter_map(|shard| self.of(*shard)).fold((0, 0), |(left, moved), one| {
            (left.saturating_add(one.left.unwrap_or(0)), moved.saturating_add(one.moved))
        })
    }

    /// So many names of the other old shards of `dir` are left, and so many have moved.
    pub(crate) fn heard(&mut self, dir: Fid, left: u64, moved: u64) {
        if let Some(progress) = self.dirs.get_mut(&dir) {
            progress.elsewhere = (left, moved);
        }
    }

    /// So many names were in `dir` when `moved` of them had left it.
    pub(crate) fn counted(&mut self, dir: Fid, names: u64, moved: u64) {
        if let Some(progress) = self.dirs.get_mut(&dir) {
            progress.left = Some(names.saturating_sub(progress.moved - moved.min(progress.moved)));
        }
    }
}

#[cfg(test)]
mod tests {
    use osd::{MetaStore, WriteSet};

    use super::*;
    use crate::tests::store::TestStore;

    #[test]
    fn a_directory_is_counted_again_when_it_has_changed_a_lot() {
        let (mut moves, dir) = (Moves::default(), Fid::new(9, 1));
        moves.resized(dir, 100, true);
        assert_eq!((moves.next_look(), moves.next_look()), (Some((dir, true)), None));
        moves.looked(dir, 10, 100, 30); // ten names of ten bytes, twenty are missing
        let mut is_due = |bytes, has_grown| {
            moves.resized(dir, bytes, has_grown);
            moves.next_look().is_some()
        };
        assert!(!is_due(199, true) && is_due(200, true));
        assert!(!is_due(51, false) && is_due(50, false));
        moves.looked(dir, 40, 400, 30); // it stays as it is
        moves.resized(dir, 599, true);
        assert_eq!(moves.next_look(), None);
        moves.resized(dir, 600, true);
        assert_eq!(moves.next_look(), Some((dir, true)));
    }

    #[test]
    fn a_restart_knows_what_is_to_move() {
        let (meta, dir) = (TestStore::default(), Fid::new(9, 1));
        let mut set = WriteSet::new();
        set.put(Table::Meta, keys::moves(dir), []);
        meta.apply(&set).expect("room");
        let mut moves = Moves::open(&*meta.running().expect("ready")).expect("reads");
        assert_eq!(moves.all(), [(dir, Progress::default())]);
        moves.moved(dir, 3);
        moves.counted(dir, 10, 1);
        assert_eq!(moves.of(dir), Some(Progress { left: Some(8), moved: 3, elsewhere: (0, 0) }));
        moves.moved(dir, 8);
        moves.heard(dir, 7, 9);
        let progress = Progress { left: Some(0), moved: 11, elsewhere: (7, 9) };
        assert_eq!(moves.of(dir), Some(progress));
        assert_eq!(moves.sum([dir, Fid::new(9, 2)].iter()), (0, 11));
        moves.set(dir, false);
        assert_eq!(moves.all(), []);
    }
}
