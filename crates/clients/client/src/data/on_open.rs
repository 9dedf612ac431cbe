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
use types::Fid;

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
}
