//! Room for records: ensures that a commit never runs out of space.
//!
//! `data.mdb` is allocated ahead, so writing a dirty page never needs a block. Its length is the
//! allocated size, because it has no holes. An operation is taken only if the most that it can
//! dirty fits into the allocated, unused pages. Otherwise the store returns `Full` before anything
//! is changed. The last [`Room::reserve`] pages are for operations that remove something.
//!
//! LMDB takes pages from the list of free pages first. Pages that transaction N frees can be taken
//! by N + 2. If the file cannot grow any more, the free pages are counted after each commit. In the
//! reserve a transaction may dirty a third of it, so two more fit until its pages come back. So
//! removing works on a full store for ever, if the caller commits and tries again after `Full`.

use std::fs::File;
use std::os::fd::AsRawFd;

use super::lmdb::{Env, LmdbError, Txn};

/// Allocated ahead of what is used, bytes: what a transaction dirties between two commits. Where
/// one needs more, it waits until the next piece is allocated, about a millisecond.
const AHEAD_BYTES_MAX: usize = 16 << 20;
/// On a small disk a 64th of it, so that objects beside the records keep their room.
const AHEAD_SHARE: usize = 64;
/// Kept for what a commit itself takes: roots of tables and the list of freed pages (8 bytes each).
const MARGIN_PAGES: usize = 64;
/// Pages of the reserve: a third of it takes any single operation.
const RESERVE_PAGES_MIN: usize = 512;
const RESERVE_PAGES_MAX: usize = 2_048;
/// A 16th of the store or of its disk, between these.
const RESERVE_SHARE: usize = 16;

/// Room of a store, between its transactions and during one.
pub(crate) struct Room {
    file: File,
    page_bytes: usize,
    map_pages: usize,
    ahead_pages: usize,
    allocated_pages: usize,
    reserve: usize,
    can_grow: bool,
    // pages that this transaction may take at most: behind the end, and free ones if they were
    // counted
    begin: usize,
}

/// Whether a set of changes can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admits {
    Yes,
    No,
    /// That is known once the first so many bytes of the file are allocated.
    After(u64),
}

/// What a set of changes takes at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    pub(crate) pages: usize,
    /// Those of them that must lie side by side.
    pub(crate) side_by_side: usize,
    /// The set removes something.
    pub(crate) frees: bool,
}

impl Room {
    /// Of the store whose data is `file`, on a disk of `disk_bytes`.
    pub(crate) fn new(
        file: File,
        page_bytes: usize,
        map_bytes: u64,
        disk_bytes: u64,
    ) -> std::io::Result<Room> {
        let pages = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX) / page_bytes;
        let (map_pages, some_pages) = (pages(map_bytes), pages(map_bytes.min(disk_bytes)));
        let ahead_pages =
            (some_pages / AHEAD_SHARE).clamp(MARGIN_PAGES, AHEAD_BYTES_MAX / page_bytes);
        let reserve = (some_pages / RESERVE_SHARE).clamp(RESERVE_PAGES_MIN, RESERVE_PAGES_MAX);
        let mut room = Room {
            file,
            page_bytes,
            map_pages,
            ahead_pages,
            allocated_pages: 0,
            reserve,
            can_grow: true,
            begin: 0,
        };
        // A copied file may have holes: fill them once.
        let len = room.file.metadata()?.len();
        if len > 0 && !allocate(&room.file, len)? {
            room.can_grow = false;
        }
        room.read_len()?;
        Ok(room)
    }

    fn read_len(&mut self) -> std::io::Result<()> {
        self.allocated_pages =
            (self.file.metadata()?.len() as usize / self.page_bytes).min(self.map_pages);
        Ok(())
    }

    /// Allocates so that `pages` lie behind page `next`, as far as the map and the disk allow.
    fn grow(&mut self, next: usize, pages: usize) -> std::io::Result<()> {
        let want = (next + pages).min(self.map_pages);
        if want > self.allocated_pages {
            self.can_grow = allocate(&self.file, (want * self.page_bytes) as u64)?;
            self.read_len()?;
        }
        self.can_grow &= self.allocated_pages < self.map_pages;
        Ok(())
    }

    /// Begins the next transaction with room in front of it.
    pub(crate) fn begin(&mut self, env: Env) -> Result<Txn, LmdbError> {
        let free = env.free_pages();
        let txn = env.begin()?;
        let next = txn.next_page();
        if self.allocated_pages < next + self.ahead_pages + self.reserve {
            self.can_grow = true; // space may have come back meanwhile
            self.grow(next, 2 * self.ahead_pages + self.reserve).map_err(os_error)?;
        }
        self.begin = self.allocated_pages.saturating_sub(next) + free?;
        Ok(txn)
    }

    /// Whether `need` can be taken by `txn`, which has changed `dirty` pages.
    pub(crate) fn admits(&self, txn: &Txn, dirty: usize, need: Need) -> Admits {
        let next = txn.next_page();
        let ample = need.pages + MARGIN_PAGES + self.reserve;
        if self.allocated_pages >= next + ample {
            return Admits::Yes;
        }
        let want = (next + ample + self.ahead_pages).min(self.map_pages);
        if self.can_grow && want > self.allocated_pages {
            return Admits::After((want * self.page_bytes) as u64);
        }
        let left = self.begin.saturating_sub(dirty);
        let behind = self.allocated_pages.saturating_sub(next);
        if need.side_by_side > 0 && behind < need.side_by_side + MARGIN_PAGES {
            return Admits::No;
        }
        let fits_reserve = need.frees
            && left >= need.pages + MARGIN_PAGES
            && dirty + need.pages <= self.reserve / 3;
        if left >= ample || fits_reserve { Admits::Yes } else { Admits::No }
    }

    /// More of the file is allocated than when this transaction began, or there was no `space`.
    pub(crate) fn grown(&mut self, space: bool) -> std::io::Result<()> {
        let before = self.allocated_pages;
        self.read_len()?;
        self.begin += self.allocated_pages.saturating_sub(before);
        self.can_grow = space && self.allocated_pages < self.map_pages;
        Ok(())
    }

    /// Allocates the first `bytes` of the file, as far as there is space.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<(), LmdbError> {
        allocate(&self.file, bytes).and_then(|space| self.grown(space)).map_err(os_error)
    }

    /// The file, for who allocates more of it.
    pub(crate) fn file(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// Bytes in all, and bytes that ordinary operations may still take where the disk has
    /// `disk_free` more.
    pub(crate) fn bytes(&self, dirty: usize, disk_free: u64) -> (u64, u64) {
        let page = self.page_bytes as u64;
        let have = self.begin.saturating_sub(dirty) as u64 * page;
        let more =
            (self.map_pages.saturating_sub(self.allocated_pages) as u64 * page).min(disk_free);
        let kept = (self.reserve + MARGIN_PAGES) as u64 * page;
        (self.map_pages as u64 * page, (have + more).saturating_sub(kept))
    }
}

/// Allocates the first `bytes` of `file`. Says whether there was space; other failures are errors.
pub(super) fn allocate(file: &File, bytes: u64) -> std::io::Result<bool> {
    let bytes =
        libc::off_t::try_from(bytes).map_err(|_| std::io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: a plain system call on a descriptor that we own.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) } {
        0 => Ok(true),
        _ => match std::io::Error::last_os_error() {
            error
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
                ) =>
            {
                Ok(false)
            }
            error => Err(error),
        },
    }
}

fn os_error(error: std::io::Error) -> LmdbError {
    LmdbError(error.raw_os_error().unwrap_or(libc::EIO))
}
