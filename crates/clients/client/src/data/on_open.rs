//! Read-on-open: the reply to an open brings all bytes of a small file at the MDT, and reads of the
//! file need no request.
//!
//! ```text
//! open --reply: bytes, grant of the attributes--> kept --read--> answered from here
//!                       recall, end of the lease, last close, own open for writing --> dropped
//! ```
//! `grants` decides whether the bytes are still those of the file. This file keeps them, within
//! [`FILES_BYTES_MAX`] for all files. The bytes that were read least recently go first.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Extent, Fid};

use crate::client::{Client, Inner};
use crate::file::Open;
use crate::flags;

/// Bytes of one file: as many as a reply carries without a bulk phase.
pub(crate) const FILE_BYTES_MAX: u32 = wire::INLINE_BYTES_DEFAULT;

/// Bytes of all files: 4,096 files of 4 KiB that are open at a time, as a build has them.
const FILES_BYTES_MAX: usize = 16 << 20;

const _: () = assert!(FILE_BYTES_MAX as usize <= FILES_BYTES_MAX);

/// Reads of files whose first bytes are at the MDT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnOpenStats {
    /// Answered with bytes that came with an open.
    pub hits: u64,
    /// Asked of a target.
    pub misses: u64,
    /// Bytes that are kept now.
    pub bytes: usize,
}

/// Bytes of files that are open.
#[derive(Default)]
pub(crate) struct OnOpen {
    files: BTreeMap<Fid, Kept>,
    /// The files by use, the least recent first.
    uses: BTreeMap<u64, Fid>,
    last_use: u64,
    stats: OnOpenStats,
}

struct Kept {
    bytes: Bytes,
    /// Of the attributes that came with them.
    version: u64,
    used: u64,
}

impl OnOpen {
    /// All bytes of a file whose attributes have this version.
    pub(crate) fn keep(&mut self, fid: Fid, version: u64, bytes: Bytes) {
        self.forget(fid);
        if bytes.len() > FILE_BYTES_MAX as usize {
            return;
        }
        self.stats.bytes += bytes.len();
        self.last_use += 1;
        self.uses.insert(self.last_use, fid);
        self.files.insert(fid, Kept { bytes, version, used: self.last_use });
        while self.stats.bytes > FILES_BYTES_MAX {
            let (_, oldest) = self.uses.pop_first().expect("what is kept has a use");
            self.forget(oldest);
        }
    }

    /// The bytes of a file whose attributes have this version now.
    pub(crate) fn get(&mut self, fid: Fid, version: u64) -> Option<Bytes> {
        let kept = self.files.get_mut(&fid).filter(|kept| kept.version == version)?;
        self.uses.remove(&kept.used);
        self.last_use += 1;
        kept.used = self.last_use;
        self.uses.insert(self.last_use, fid);
        Some(kept.bytes.clone())
    }

    /// The bytes that came last, whether they are true or not.
    pub(crate) fn last(&self, fid: Fid) -> Option<Bytes> {
        self.files.get(&fid).map(|kept| kept.bytes.clone())
    }

    pub(crate) fn forget(&mut self, fid: Fid) {
        if let Some(kept) = self.files.remove(&fid) {
            self.uses.remove(&kept.used);
            self.stats.bytes -= kept.bytes.len();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.files.clear();
        self.uses.clear();
        self.stats.bytes = 0;
    }

    /// A read was answered from here, or not.
    pub(crate) fn count(&mut self, is_hit: bool) {
        self.stats.hits += u64::from(is_hit);
        self.stats.misses += u64::from(!is_hit);
    }

    pub(crate) fn stats(&self) -> OnOpenStats {
        self.stats
    }
}

/// What `extent` has of the file's bytes, if they came with an open and are certain.
pub(super) fn read(open: &Open, extent: Extent) -> Option<Vec<Bytes>> {
    let inner = &open.inner;
    if open.flags & flags::O_DIRECT != 0 || !inner.read_on_open.get() {
        return None;
    }
    let grants = inner.grants.of(open.inode.fid);
    let bytes = grants.bytes_of(open.inode.fid);
    if bytes.is_some() || open.inode.layout().is_some_and(|layout| layout.is_at_mdt()) {
        grants.count_read(bytes.is_some());
    }
    let piece = cut(&bytes?, extent);
    planted::reached("client: a read was answered by an open");
    Some(if piece.is_empty() { Vec::new() } else { vec![piece] })
}

/// The part of a whole file that is within `extent`.
fn cut(bytes: &Bytes, extent: Extent) -> Bytes {
    let within = |at: u64| usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
    bytes.slice(within(extent.start())..within(extent.end()))
}

impl Inner {
    /// Bytes that the reply to an open may bring.
    pub(crate) fn room_on_open(&self, fid: Fid, open_flags: u32) -> u32 {
        let reads = !flags::can_write(open_flags)
            && open_flags & (flags::O_TRUNC | flags::O_DIRECT) == 0
            && self.read_on_open.get();
        let is_written = || self.inodes.get(fid).is_some_and(|inode| inode.has_writers());
        if !reads || self.grants.of(fid).is_known_otherwise(fid) || is_written() {
            return 0;
        }
        FILE_BYTES_MAX
    }
}

impl Client {
    /// Whether opens bring the bytes of small files at the MDT.
    #[must_use]
    pub fn read_on_open(&self) -> bool {
        self.0.read_on_open.get()
    }

    /// Whether they do from now on.
    pub fn set_read_on_open(&self, is_on: bool) {
        self.0.read_on_open.set(is_on);
        if !is_on {
            self.0.grants.forget_all_bytes();
        }
    }

    /// What that was good for.
    #[must_use]
    pub fn on_open_stats(&self) -> OnOpenStats {
        self.0.grants.on_open_stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(oid: u32) -> Fid {
        Fid::new(0x400, oid)
    }

    fn bytes(len: usize) -> Bytes {
        Bytes::from(vec![7; len])
    }

    #[test]
    fn bytes_of_another_version_are_not_those_of_the_file() {
        let mut kept = OnOpen::default();
        kept.keep(fid(1), 5, bytes(10));
        assert_eq!((kept.get(fid(1), 5), kept.get(fid(1), 6)), (Some(bytes(10)), None));
        kept.keep(fid(1), 6, bytes(3));
        assert_eq!((kept.get(fid(1), 5), kept.get(fid(1), 6)), (None, Some(bytes(3))));
        assert_eq!((kept.stats().bytes, kept.uses.len()), (3, 1));
        kept.forget(fid(1));
        kept.forget(fid(1));
        assert_eq!((kept.last(fid(1)), kept.stats().bytes, kept.uses.len()), (None, 0, 0));
    }

    #[test]
    fn what_was_read_least_recently_goes_first() {
        let mut kept = OnOpen::default();
        let file = FILE_BYTES_MAX as usize;
        let most = (FILES_BYTES_MAX / file) as u32;
        (0..most).for_each(|oid| kept.keep(fid(oid), 1, bytes(file)));
        assert_eq!(kept.stats().bytes, FILES_BYTES_MAX);
        assert!(kept.get(fid(0), 1).is_some());
        kept.keep(fid(most), 1, bytes(1));
        let has = |oid| kept.last(fid(oid)).is_some();
        assert_eq!((has(0), has(1), has(2), has(most)), (true, false, true, true));
        assert_eq!(kept.stats().bytes, FILES_BYTES_MAX - file + 1);
        kept.keep(fid(0), 1, bytes(file + 1));
        assert_eq!(kept.last(fid(0)), None, "no reply brings this many");
        kept.clear();
        assert_eq!((kept.stats().bytes, kept.uses.len()), (0, 0));
    }

    #[test]
    fn a_read_gets_what_the_file_has_of_it() {
        let file = Bytes::from_static(b"0123456789");
        let read = |start, end| cut(&file, Extent::new(start, end).expect("not empty"));
        assert_eq!((&read(0, 4)[..], &read(8, 4_096)[..]), (&b"0123"[..], &b"89"[..]));
        assert!(read(10, 11).is_empty() && read(u64::MAX - 1, u64::MAX).is_empty());
    }
}
