//! Lost work of a mount, and how much of it each handle has heard of.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use types::Fid;

use super::errseq::ErrSeq;
use crate::limits::LOST_FILES_MAX;

/// What an open file or directory has heard of lost work.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    file: Cell<u64>,
    rest: Cell<u64>,
}

/// What of this mount is lost.
#[derive(Default)]
pub(crate) struct Losses {
    files: RefCell<BTreeMap<Fid, ErrSeq>>,
    /// Of files that found no place in `files`: concerns every handle.
    rest: Cell<ErrSeq>,
    mount: Cell<ErrSeq>,
    /// What `sync` has told.
    synced: Cell<u64>,
    drawn: Cell<u64>,
    /// Changes so far.
    pub(super) count: Cell<u64>,
}

impl Losses {
    /// For a handle that is opened now.
    pub(crate) fn listen(&self, fid: Fid) -> Heard {
        let file = self.files.borrow().get(&fid).map_or(0, |seq| seq.sample());
        Heard { file: Cell::new(file), rest: Cell::new(self.rest.get().sample()) }
    }

    /// Whether the handle has something to hear: for a close, which may be one of several.
    pub(crate) fn is_news(&self, fid: Fid, heard: &Heard) -> bool {
        let of_file =
            self.files.borrow().get(&fid).is_some_and(|seq| seq.is_news(heard.file.get()));
        of_file || self.rest.get().is_news(heard.rest.get())
    }

    /// The handle hears of it: for fsync. Says whether it was news.
    pub(crate) fn hear(&self, fid: Fid, heard: &Heard) -> bool {
        let mut files = self.files.borrow_mut();
        let of_file = files.get_mut(&fid).is_some_and(|seq| seq.hear(&heard.file));
        hear(&self.rest, &heard.rest) || of_file
    }

    /// The same for the whole mount.
    pub(crate) fn hear_all(&self) -> bool {
        hear(&self.mount, &self.synced)
    }

    pub(super) fn note(&self, fid: Fid) {
        let number = self.drawn.get() + 1;
        self.drawn.set(number);
        note(&self.mount, number);
        let mut files = self.files.borrow_mut();
        if files.len() >= LOST_FILES_MAX && !files.contains_key(&fid) {
            note(&self.rest, number);
        } else {
            files.entry(fid).or_default().note(number);
        }
    }

    /// What is lost of shards is lost of their directory, though it was not known whose they are.
    pub(crate) fn join(&self, dir: Fid, shards: impl Iterator<Item = Fid>) {
        let mut files = self.files.borrow_mut();
        let mut is_lost = false;
        for shard in shards.filter(|shard| *shard != dir) {
            is_lost |= files.remove(&shard).is_some();
        }
        if is_lost {
            let number = self.drawn.get() + 1;
            self.drawn.set(number);
            files.entry(dir).or_default().note(number);
        }
    }

    /// Nobody hears of the file's lost work any more.
    pub(crate) fn forget(&self, fid: Fid) {
        self.files.borrow_mut().remove(&fid);
    }

    /// No handle of the file is open any more.
    pub(crate) fn closed(&self, fid: Fid) {
        let mut files = self.files.borrow_mut();
        if files.get(&fid).is_some_and(|seq| seq.is_seen()) {
            files.remove(&fid);
        }
    }
}

fn note(seq: &Cell<ErrSeq>, number: u64) {
    let mut noted = seq.get();
    noted.note(number);
    seq.set(noted);
}

fn hear(seq: &Cell<ErrSeq>, since: &Cell<u64>) -> bool {
    let mut told = seq.get();
    let is_news = told.hear(since);
    seq.set(told);
    is_news
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid { seq: 1, oid: 2, ver: 0 };
    const OTHER: Fid = Fid { seq: 1, oid: 3, ver: 0 };

    #[test]
    fn a_handle_hears_of_its_own_file_only() {
        let losses = Losses::default();
        let (mine, other) = (losses.listen(FILE), losses.listen(OTHER));
        losses.note(FILE);
        assert!(losses.is_news(FILE, &mine) && losses.is_news(FILE, &mine));
        assert!(losses.hear(FILE, &mine) && !losses.hear(FILE, &mine));
        assert!(!losses.hear(OTHER, &other) && !losses.is_news(OTHER, &other));
        assert!(losses.hear_all() && !losses.hear_all());
    }

    #[test]
    fn a_file_that_is_closed_is_remembered_until_somebody_has_heard() {
        let losses = Losses::default();
        losses.note(FILE);
        losses.closed(FILE);
        let late = losses.listen(FILE);
        assert!(losses.hear(FILE, &late));
        losses.closed(FILE);
        assert!(losses.files.borrow().is_empty());
        let dir = losses.listen(FILE);
        losses.note(FILE);
        assert!(losses.hear(FILE, &dir));
    }

    #[test]
    fn a_directory_hears_of_shards_that_were_not_known_to_be_its_own() {
        let losses = Losses::default();
        let (dir, shards) = (FILE, [FILE, OTHER]);
        let early = losses.listen(dir);
        losses.note(OTHER);
        let late = losses.listen(dir);
        losses.join(dir, shards.into_iter());
        assert!(losses.hear(dir, &early) && losses.hear(dir, &late));
        losses.join(dir, shards.into_iter());
        assert!(!losses.hear(dir, &early) && !losses.hear(dir, &late));
        assert!(losses.hear_all() && !losses.hear_all(), "it is lost once");
    }

    #[test]
    fn beyond_its_bound_every_handle_hears() {
        let losses = Losses::default();
        let mine = losses.listen(FILE);
        (0..=LOST_FILES_MAX as u32).for_each(|oid| losses.note(Fid::new(9, oid)));
        assert!(losses.hear(FILE, &mine) && !losses.hear(FILE, &mine));
    }
}
