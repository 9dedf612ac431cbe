//! Names of a directory that the kernel keeps, as in `fs/fuse/readdir.c`. They come from answers
//! to handles that were opened with `FOPEN_CACHE_DIR`.
//!
//! The kernel also drops them when it sees another time of a change, or has changed a name itself.
//! This model does not, because nothing may depend on it.

/// A name, as a listing tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: u64,
    /// The place behind it.
    pub(crate) off: u64,
}

/// `fi->rdc`, and the pages that it counts.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    entries: Vec<Entry>,
    /// Where the next entry belongs.
    pos: u64,
    /// The end was told.
    is_whole: bool,
    /// Pages were dropped.
    is_missing: bool,
}

impl Kept {
    /// `invalidate_inode_pages2`. What is missing is noticed when it is read.
    pub(crate) fn drop_pages(&mut self) {
        self.is_missing |= !self.entries.is_empty();
    }

    /// The names behind a place, if they are to be read from here (`fuse_readdir_cached`).
    pub(crate) fn read(&mut self, offset: u64) -> Option<&[Entry]> {
        if self.is_whole && self.is_missing {
            *self = Kept::default();
        }
        if !self.is_whole {
            return None;
        }
        if offset == 0 {
            return Some(&self.entries);
        }
        let at = self.entries.iter().position(|entry| entry.off == offset)?;
        Some(&self.entries[at + 1..])
    }

    /// `fuse_add_dirent_to_cache` of an entry that was told behind a place.
    pub(crate) fn add(&mut self, offset: u64, entry: &Entry) {
        if !self.is_whole && self.pos == offset {
            self.pos = entry.off;
            self.entries.push(entry.clone());
        }
    }

    /// `fuse_readdir_cache_end`.
    pub(crate) fn end(&mut self, offset: u64) {
        self.is_whole |= self.pos == offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(off: u64) -> Entry {
        Entry { name: vec![b'a'], ino: off, off }
    }

    fn told(offs: &[u64]) -> Kept {
        let mut kept = Kept::default();
        let mut before = 0;
        for off in offs {
            kept.add(before, &entry(*off));
            before = *off;
        }
        kept
    }

    #[test]
    fn names_are_read_when_their_end_was_told() {
        let mut kept = told(&[1, 2, 7]);
        assert_eq!(kept.read(0), None);
        kept.add(2, &entry(7));
        kept.end(2);
        assert_eq!(kept.read(0), None, "that is not the end of what is here");
        kept.end(7);
        assert_eq!(kept.read(0).map(<[Entry]>::len), Some(3));
        assert_eq!(kept.read(2), Some(&[entry(7)][..]));
        assert_eq!(kept.read(7), Some(&[][..]));
        assert_eq!(kept.read(5), None);
    }

    #[test]
    fn names_that_were_dropped_are_told_again() {
        let mut kept = told(&[1, 2]);
        kept.drop_pages();
        kept.add(2, &entry(3));
        kept.end(3);
        assert_eq!(kept.read(0), None, "a part is missing");
        kept.add(0, &entry(9));
        kept.end(9);
        assert_eq!(kept.read(0), Some(&[entry(9)][..]));
    }
}
