//! Ranges of records that go with one item of a set.
//!
//! They go from LMDB's pages. So changes that have gathered go into the pages first where a range
//! is of a table that gathers.

use osd::{KeyRange, RANGE_RECORDS_MAX, WriteSet};

use super::gathered::Gathered;
use super::lmdb::{Dbi, LmdbError};
use super::running::{Removed, Running};

impl Running {
    /// The most pages that the ranges of `set` dirty: those of each record, or all of the table.
    pub(super) fn range_pages(
        &mut self,
        set: &WriteSet,
        tables: &[Dbi],
    ) -> Result<usize, LmdbError> {
        if set.ranges.iter().any(|range| Gathered::takes(range.table, None)) {
            self.write_gathered(tables)?;
        }
        let (mut pages, mut records) = (0, 0);
        for KeyRange { table, from, to } in &set.ranges {
            let (dbi, mut count) = (tables[*table as usize], 0);
            self.txn.scan(dbi, from, &mut |key, _| {
                let is_in = key < &to[..];
                count += usize::from(is_in);
                is_in && count <= RANGE_RECORDS_MAX
            })?;
            records += count;
            if count > 0 {
                let each = self.pages_per_change();
                pages += (count * each).min(self.txn.stat(dbi)?.tree_pages + each);
            }
        }
        assert!(records <= RANGE_RECORDS_MAX, "the ranges of a set hold few records");
        Ok(pages)
    }

    /// Removes the records of all ranges. Room is taken for that.
    pub(super) fn remove_ranges(
        &mut self,
        set: &WriteSet,
        tables: &[Dbi],
    ) -> Result<Removed, LmdbError> {
        let mut removed = Removed::new();
        if set.ranges.is_empty() {
            return Ok(removed);
        }
        if set.ranges.iter().any(|range| Gathered::takes(range.table, None)) {
            self.write_gathered(tables)?;
        }
        for KeyRange { table, from, to } in &set.ranges {
            let dbi = tables[*table as usize];
            self.txn.delete_range(dbi, (from, to), &mut |key| {
                removed.push((*table, key.to_vec()));
            })?;
        }
        Ok(removed)
    }
}
