//! Changes that are applied and not yet in LMDB's pages.
//!
//! Some records change many times between two commits: the inode of a directory in which files are
//! made, a client's reply record, the last transno. Others (fresh inodes, layouts, back-links) come
//! in an order that spreads over many pages, and share pages once they are sorted. Such changes
//! gather here, one for each key. They go into the pages in key order when there are
//! [`GATHERED_MAX`] of them, before a commit, and when room is short.
//!
//! Invariants
//! - A change here is newer than the pages.
//! - Room is promised for the most that all of these changes can dirty: [`Gathered::pages`].

use osd::Table;
use queues::FixedMap;

/// Changes gathered at most. Each is promised room for what it dirties at worst, about ten pages:
/// together 20 MiB that are allocated ahead of their use.
pub(super) const GATHERED_MAX: usize = 512;
/// Longer values go into the pages at once: their need of room is another one.
pub(super) const VALUE_BYTES_MAX: usize = 1_024;

type Changes = FixedMap<Vec<u8>, Option<Vec<u8>>>;

pub(super) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

#[derive(Default)]
pub(super) struct Gathered {
    tables: [Changes; Table::ALL.len()],
    count: usize,
    bytes: usize,
    pages: usize,
}

impl Gathered {
    /// Whether changes of this table may wait: it is read by key, and scanned seldom.
    pub(super) fn takes(table: Table, value: Option<&[u8]>) -> bool {
        let gathers = matches!(
            table,
            Table::Meta
                | Table::Replies
                | Table::Inodes
                | Table::Links
                | Table::Layouts
                | Table::Objects
        );
        gathers && value.is_none_or(|value| value.len() <= VALUE_BYTES_MAX)
    }

    /// Takes a change in, which may dirty so many pages.
    pub(super) fn insert(&mut self, table: Table, key: &[u8], value: Option<&[u8]>, pages: usize) {
        let changes = &mut self.tables[table as usize];
        match (changes.get_mut(key), value) {
            (Some(Some(old)), Some(value)) => {
                self.bytes = self.bytes - old.len() + value.len();
                old.clear();
                old.extend_from_slice(value);
            }
            (Some(old), value) => {
                self.bytes =
                    self.bytes - old.as_ref().map_or(0, Vec::len) + value.map_or(0, <[u8]>::len);
                *old = value.map(<[u8]>::to_vec);
            }
            (None, value) => {
                changes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
                self.count += 1;
                self.bytes += key.len() + value.map_or(0, <[u8]>::len);
                self.pages += pages;
            }
        }
    }

    /// A change of this key goes into the pages directly: what stands here is old.
    pub(super) fn overtaken(&mut self, table: Table, key: &[u8]) {
        if let Some(old) = self.tables[table as usize].remove(key) {
            self.count -= 1;
            self.bytes -= key.len() + old.map_or(0, |value| value.len());
            // its pages stay promised until everything is written
        }
    }

    /// The change of this key, if one stands here: its value, or that it is gone.
    pub(super) fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.tables[table as usize].get(key).map(Option::as_deref)
    }

    /// Changes of a table from `from` on, with keys that begin with `prefix`, in the order of their
    /// keys. Most scans are of few records, so what is behind these is not sorted.
    pub(super) fn sorted(&self, table: Table, prefix: &[u8], from: &[u8]) -> Vec<Change<'_>> {
        let changes =
            self.tables[table as usize].iter().map(|(key, value)| (&key[..], value.as_deref()));
        let mut sorted: Vec<_> =
            changes.filter(|(key, _)| key.starts_with(prefix) && *key >= from).collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        sorted
    }

    /// Everything was written.
    pub(super) fn clear(&mut self) {
        self.tables.iter_mut().for_each(Changes::clear);
        (self.count, self.bytes, self.pages) = (0, 0, 0);
    }

    /// Keys that stand here.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most pages that writing all of it dirties.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_gathered_once_with_its_newest_value() {
        let mut gathered = Gathered::default();
        gathered.insert(Table::Inodes, b"a", Some(b"one"), 9);
        gathered.insert(Table::Inodes, b"a", Some(b"three"), 9);
        assert_eq!((gathered.len(), gathered.bytes(), gathered.pages()), (1, 6, 9));
        assert_eq!(gathered.get(Table::Inodes, b"a"), Some(Some(&b"three"[..])));
        gathered.insert(Table::Inodes, b"a", None, 9);
        assert_eq!((gathered.get(Table::Inodes, b"a"), gathered.bytes()), (Some(None), 1));
        assert_eq!(gathered.get(Table::Links, b"a"), None);
        gathered.insert(Table::Inodes, b"a", Some(b"x"), 9);
        gathered.overtaken(Table::Inodes, b"a");
        assert_eq!(
            (gathered.len(), gathered.bytes(), gathered.get(Table::Inodes, b"a")),
            (0, 0, None)
        );
    }

    #[test]
    fn entries_and_large_values_do_not_wait() {
        assert!(!Gathered::takes(Table::Dirents, None), "directories are scanned with each lookup");
        assert!(!Gathered::takes(Table::Layouts, Some(&[0; VALUE_BYTES_MAX + 1])));
        assert!(Gathered::takes(Table::Layouts, Some(&[0; VALUE_BYTES_MAX])));
    }
}
