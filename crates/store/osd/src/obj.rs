//! Objects: sparse files without names, by FID (base and stripe).

use std::collections::BinaryHeap;

use bytes::Bytes;
use env::LocalFuture;
use types::{Errno, Extent, Fid, Timespec};

/// Room in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub bytes: u64,
    pub bytes_free: u64,
    /// Objects or inodes in all.
    pub files: u64,
    pub files_free: u64,
}

/// What an object tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjAttr {
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    pub mtime: Timespec,
    pub atime: Timespec,
    pub ctime: Timespec,
}

/// How data should move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// Through the page cache; large aligned writes may go around it.
    #[default]
    Auto,
    /// Around the page cache where alignment allows.
    Direct,
    /// As `Auto`, but a large read of a large object leaves nothing in the page cache that was not
    /// there before.
    Stream {
        /// Size of the largest object that is not large, bytes.
        above: u64,
    },
}

/// What to do with a range of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Give it room; `grow`: the object ends behind it then, if it ended before. Made if it is not
    /// there.
    Reserve {
        /// Set the size.
        grow: bool,
    },
    /// Give its room back; it reads as zeros then. A missing object stays missing.
    Punch,
    /// It reads as zeros and has room. Made if it is not there.
    Zero {
        /// Set the size.
        grow: bool,
    },
}

/// What to look for in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// A byte that was written; a store may take more for written than was.
    Data,
    /// A byte that reads as zero because nothing was written; the end of the object is one.
    Hole,
}

/// What a seek found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where; `None` where nothing follows: behind the end there is neither data nor hole.
    pub offset: Option<u64>,
    /// Bytes of the object.
    pub size: u64,
}

/// Objects of one OST. Calls on different objects run in parallel; the caller orders calls on one
/// object by its locks.
pub trait ObjStore {
    /// At most `len` bytes from `offset`; short at the end of the object; `None` where there is no
    /// object.
    fn read(
        &self,
        object: Fid,
        offset: u64,
        len: usize,
        mode: IoMode,
    ) -> LocalFuture<'_, Result<Option<Bytes>, Errno>>;
    /// Writes all of `data` at `offset`, making the object if it is not there; not durable before
    /// [`ObjStore::sync`].
    fn write(
        &self,
        object: Fid,
        offset: u64,
        data: Bytes,
        mode: IoMode,
    ) -> LocalFuture<'_, Result<ObjAttr, Errno>>;
    /// Sets the size. A missing object is made only with `create`, else `None`.
    fn truncate(
        &self,
        object: Fid,
        size: u64,
        create: bool,
    ) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>>;
    /// Allocates, punches or zeroes `length` bytes (not zero) from `offset`; `None` where there is
    /// no object to punch. A failure may have allocated a part; the size is as before then.
    fn allocate(
        &self,
        object: Fid,
        what: Allocate,
        offset: u64,
        length: u64,
    ) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>>;
    /// First data or hole at or behind `offset`; `None` where there is no object.
    fn seek(
        &self,
        object: Fid,
        what: Seek,
        offset: u64,
    ) -> LocalFuture<'_, Result<Option<Found>, Errno>>;
    /// Attributes; `None` where there is no object.
    fn attr(&self, object: Fid) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>>;
    /// Removes the object; says whether it was there.
    fn destroy(&self, object: Fid) -> LocalFuture<'_, Result<bool, Errno>>;
    /// Makes every change made before this call durable. An error means that data may be lost: the
    /// instance ends.
    fn sync(&self) -> LocalFuture<'_, Result<(), Errno>>;
    /// The first `max` objects from `from` on, in the order of their FIDs: fewer only where there
    /// are no more. Visits every object, and holds `max` of them in memory.
    fn list(&self, from: Fid, max: usize) -> LocalFuture<'_, Result<Vec<Fid>, Errno>>;
    /// Where on the device `range` of the object begins, bytes, reckoned back from what of it is
    /// stored first; `None` where nothing of it is stored or the store cannot tell. A hint for the
    /// order of reads: it may be out of date.
    fn locate(&self, object: Fid, range: Extent) -> LocalFuture<'_, Result<Option<u64>, Errno>>;
    fn space(&self) -> LocalFuture<'_, Result<Space, Errno>>;
}

/// The lowest objects from one on, of those that are offered in any order.
#[derive(Debug)]
pub struct Lowest {
    from: Fid,
    max: usize,
    kept: BinaryHeap<Fid>,
}

impl Lowest {
    /// The first `max` from `from` on.
    #[must_use]
    pub fn new(from: Fid, max: usize) -> Lowest {
        assert!(max > 0, "a listing of nothing says nothing");
        Lowest { from, max, kept: BinaryHeap::new() }
    }

    /// There is this one.
    pub fn offer(&mut self, object: Fid) {
        if object < self.from {
            return;
        }
        if self.kept.len() < self.max {
            self.kept.push(object);
        } else if self.kept.peek().is_some_and(|highest| object < *highest) {
            self.kept.pop();
            self.kept.push(object);
        }
    }

    /// In order.
    #[must_use]
    pub fn into_sorted(self) -> Vec<Fid> {
        self.kept.into_sorted_vec()
    }
}
