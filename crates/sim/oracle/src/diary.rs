//! The permitted contents of a file that one user writes, reads and syncs while servers lose
//! acknowledged work.
//!
//! - Each page holds its last write whose loss is excluded, or a later one. Content that was
//!   overwritten and synced over never comes back.
//! - An fsync that returns 0 excludes losses, because a loss is reported to each handle once. It
//!   covers every write that was acknowledged while its handle was open, since that handle's last
//!   fsync.
//! - A call that fails excludes nothing. Its effect may or may not have happened.
//!
//! Pure: the caller reports its answers.

use std::collections::BTreeMap;

/// Number of a write, never zero, as its bytes tell it.
pub type WriteId = u32;

#[derive(Clone, Debug, Default)]
struct Page {
    /// In the order in which they were begun.
    writes: Vec<WriteId>,
    /// So many of them are not to be lost: the page holds the last of these, or a later one.
    floor: usize,
}

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub struct Diary {
    pages: BTreeMap<usize, Page>,
    /// Of each open handle: what it has to be told if it is lost, by page, as how many writes.
    handles: BTreeMap<u32, BTreeMap<usize, usize>>,
}

/// A write that is under way.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Begun {
    page: usize,
    count: usize,
}

impl Diary {
    /// A handle is there, or was opened anew.
    pub fn opened(&mut self, handle: u32) {
        self.handles.insert(handle, BTreeMap::new());
    }

    /// A handle is gone.
    pub fn closed(&mut self, handle: u32) {
        self.handles.remove(&handle);
    }

    /// A write begins: it may be seen from now on.
    pub fn begins(&mut self, page: usize, id: WriteId) -> Begun {
        assert!(id != 0, "zero is what was never written");
        let writes = &mut self.pages.entry(page).or_default().writes;
        writes.push(id);
        Begun { page, count: writes.len() }
    }

    /// It was acknowledged.
    pub fn acknowledged(&mut self, write: Begun) {
        for owed in self.handles.values_mut() {
            owed.insert(write.page, write.count);
        }
    }

    /// An fsync of `handle` was answered, with or without an error; says for which pages.
    pub fn synced(&mut self, handle: u32, is_done: bool) -> Vec<usize> {
        let owed = self.handles.get_mut(&handle).map(std::mem::take).unwrap_or_default();
        let pages = owed.keys().copied().collect();
        if is_done {
            for (page, count) in owed {
                let floor = &mut self.pages.get_mut(&page).expect("it was written").floor;
                *floor = count.max(*floor);
            }
        }
        pages
    }

    /// What was read of a page: the write, or zero.
    ///
    /// # Errors
    /// In words, where the page cannot hold that.
    pub fn read(&self, page: usize, found: WriteId) -> Result<(), String> {
        let Some(Page { writes, floor }) = self.pages.get(&page) else {
            return if found == 0 { Ok(()) } else { Err(format!("page {page} was never written")) };
        };
        let place = match found {
            0 => Some(0),
            _ => writes.iter().position(|id| *id == found).map(|index| index + 1),
        };
        if place.is_some_and(|place| place >= *floor) {
            return Ok(());
        }
        Err(format!(
            "page {page} holds write {found}; {:?} was synced, and then written were {:?}",
            floor.checked_sub(1).map(|last| writes[last]),
            &writes[*floor..]
        ))
    }

    /// Pages that were written.
    pub fn pages(&self) -> impl Iterator<Item = usize> {
        self.pages.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two handles; page 0 has write 1, synced by both, and write 2, acknowledged.
    fn written() -> Diary {
        let mut diary = Diary::default();
        diary.opened(0);
        diary.opened(1);
        let first = diary.begins(0, 1);
        diary.acknowledged(first);
        let _pages = diary.synced(0, true);
        let _pages = diary.synced(1, true);
        let second = diary.begins(0, 2);
        diary.acknowledged(second);
        diary
    }

    #[test]
    fn what_was_synced_stays_and_what_was_not_may_go() {
        let diary = written();
        for found in [1, 2] {
            assert_eq!(diary.read(0, found), Ok(()));
        }
        for found in [0, 3] {
            assert!(diary.read(0, found).is_err(), "{found}");
        }
        assert!(diary.read(1, 0).is_ok() && diary.read(1, 1).is_err());
    }

    #[test]
    fn an_fsync_that_answers_nothing_is_held_to_it_whoever_was_told_before() {
        let mut diary = written();
        let _pages = diary.synced(0, false);
        assert_eq!(diary.read(0, 1), Ok(()), "one handle was told");
        let _pages = diary.synced(0, true);
        assert_eq!(diary.read(0, 1), Ok(()), "it was told once");
        let _pages = diary.synced(1, true);
        assert!(diary.read(0, 1).is_err(), "the other one was not");
    }

    #[test]
    fn a_write_that_failed_may_be_there_until_a_later_one_is_synced() {
        let mut diary = written();
        let _failed = diary.begins(0, 3);
        let _pages = diary.synced(0, true);
        assert!(diary.read(0, 2).is_ok() && diary.read(0, 3).is_ok() && diary.read(0, 1).is_err());
        let later = diary.begins(0, 4);
        diary.acknowledged(later);
        let _pages = diary.synced(0, true);
        assert!(diary.read(0, 3).is_err(), "it was withdrawn");
    }

    #[test]
    fn a_handle_answers_for_what_was_done_while_it_was_open() {
        let mut diary = written();
        diary.closed(0);
        diary.opened(0);
        let _pages = diary.synced(0, true);
        assert_eq!(diary.read(0, 1), Ok(()));
    }
}
