//! The running transaction: reads, changes, and the room that they take.

use osd::{StoreError, Table, WriteSet};

use super::gathered::{GATHERED_MAX, Gathered};
use super::lmdb::{Dbi, LmdbError, Txn};
use super::room::{Admits, Need, Room};
use super::sums::Sums;

/// What an entry of a page takes besides key and value, at most.
const ENTRY_BYTES: usize = 32;

/// Table and key of each record that went with a range.
pub(super) type Removed = Vec<(Table, Vec<u8>)>;

/// The running transaction and the room around it: what moves to the commit thread and back.
pub(super) struct Running {
    pub(super) txn: Txn,
    pub(super) room: Room,
    depth: usize, // of the deepest table when it began
    large: usize, // pages of large values, beyond the first of each
    pub(super) gathered: Gathered,
    pub(super) sums: Sums,
    pub(super) stored: Vec<u8>, // what is put into a page, for the moment
}

impl Running {
    pub(super) fn new(txn: Txn, room: Room, sums: Sums) -> Running {
        let (gathered, stored) = (Gathered::default(), Vec::new());
        Running { txn, room, depth: 0, large: 0, gathered, sums, stored }
    }

    /// Pages changed since the last commit.
    pub(super) fn dirty_pages(&self) -> usize {
        self.txn.dirty_entries() + self.large
    }

    /// Bytes changed since the last commit, roughly.
    pub(super) fn dirty_bytes(&self, page_bytes: usize) -> u64 {
        (self.dirty_pages() * page_bytes + self.gathered.bytes()) as u64
    }

    pub(super) fn is_clean(&self) -> bool {
        self.dirty_pages() == 0 && self.gathered.len() == 0
    }

    /// The value of `key` in the running image.
    pub(super) fn get(
        &self,
        table: Table,
        dbi: Dbi,
        key: &[u8],
    ) -> Result<Option<&[u8]>, StoreError> {
        if let Some(value) = self.gathered.get(table, key) {
            return Ok(value);
        }
        let Some(stored) = self.txn.get(dbi, key)? else { return Ok(None) };
        match self.sums.value(table, key, stored) {
            None => Err(StoreError::Damaged { table, key: key.to_vec() }),
            value => Ok(value),
        }
    }

    /// Visits pairs of the running image from `from` on, with keys that begin with `prefix`.
    pub(super) fn scan(
        &self,
        (table, dbi): (Table, Dbi),
        (prefix, from): (&[u8], &[u8]),
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let mut newer = self.gathered.sorted(table, prefix, from).into_iter().peekable();
        let (mut more, mut damaged) = (true, None);
        self.txn.scan(dbi, from, &mut |key, stored| {
            if !key.starts_with(prefix) {
                return false; // what has gathered is before it, and comes below
            }
            while more && let Some((at, change)) = newer.next_if(|(at, _)| *at <= key) {
                more = change.is_none_or(|value| visit(at, value));
                if at == key {
                    return more;
                }
            }
            match self.sums.value(table, key, stored) {
                Some(value) => more = more && visit(key, value),
                None if more => (more, damaged) = (false, Some(key.to_vec())),
                None => {}
            }
            more
        })?;
        if let Some(key) = damaged {
            return Err(StoreError::Damaged { table, key });
        }
        while more && let Some((at, change)) = newer.next() {
            more = change.is_none_or(|value| visit(at, value));
        }
        Ok(())
    }

    /// Carries out what [`Running::admit`] has taken room for. Returns what went with ranges.
    pub(super) fn change(
        &mut self,
        set: &WriteSet,
        tables: &[Dbi],
        page_bytes: usize,
    ) -> Result<Removed, LmdbError> {
        let removed = self.remove_ranges(set, tables)?;
        let pages = self.pages_per_change();
        for (table, key, value) in &set.changes {
            let value = value.as_deref();
            if Gathered::takes(*table, value) {
                let large = value.map_or(0, |value| {
                    usize::from(key.len() + value.len() + ENTRY_BYTES > page_bytes / 2)
                });
                self.gathered.insert(*table, key, value, pages + large);
                continue;
            }
            self.gathered.overtaken(*table, key);
            match value {
                Some(value) => {
                    self.sums.store(*table, key, value, &mut self.stored);
                    self.txn.put(tables[*table as usize], key, &self.stored)?;
                }
                None => self.txn.delete(tables[*table as usize], key)?,
            }
        }
        if self.gathered.len() >= GATHERED_MAX {
            self.write_gathered(tables)?;
        }
        Ok(removed)
    }

    /// What has gathered goes into the pages.
    pub(super) fn write_gathered(&mut self, tables: &[Dbi]) -> Result<(), LmdbError> {
        if self.gathered.pages() == 0 {
            return Ok(());
        }
        for (table, dbi) in Table::ALL.iter().zip(tables) {
            let changes = self.gathered.sorted(*table, &[], &[]);
            if !changes.is_empty() {
                let sums = &self.sums;
                let store = |key: &[u8], value: &[u8], out: &mut Vec<u8>| {
                    sums.store(*table, key, value, out);
                };
                self.txn.write_sorted(*dbi, &changes, store)?;
            }
        }
        self.gathered.clear();
        Ok(())
    }

    /// Written out, not yet durable, and the next one begun.
    pub(super) fn write_out(mut self, tables: &[Dbi]) -> Result<Box<Running>, String> {
        self.write_gathered(tables).map_err(|why| format!("commit: {why}"))?;
        let Running { txn, mut room, sums, .. } = self;
        let next = || -> Result<Box<Running>, LmdbError> {
            let txn = room.begin(txn.commit()?)?;
            let mut depth = 0;
            for table in tables {
                depth = depth.max(txn.stat(*table)?.depth);
            }
            Ok(Box::new(Running { depth, ..Running::new(txn, room, sums) }))
        };
        next().map_err(|why| format!("commit: {why}"))
    }

    /// Takes room for `set`, or says that there is none, or none yet.
    pub(super) fn admit(
        &mut self,
        set: &WriteSet,
        tables: &[Dbi],
        page_bytes: usize,
    ) -> Result<Admits, LmdbError> {
        let mut need = self.need(set, page_bytes);
        need.pages += self.range_pages(set, tables)?;
        let promised = self.gathered.pages();
        let together = Need { pages: need.pages + promised, ..need };
        let mut admitted = self.room.admits(&self.txn, self.dirty_pages(), together);
        if admitted == Admits::No && promised > 0 {
            // it takes less than was promised
            self.write_gathered(tables)?;
            admitted = self.room.admits(&self.txn, self.dirty_pages(), need);
        }
        if admitted == Admits::No && need.frees {
            let by_table = self.need_by_table(set, tables, need.side_by_side)?;
            need.pages = need.pages.min(by_table + self.range_pages(set, tables)?);
            admitted = self.room.admits(&self.txn, self.dirty_pages(), need);
        }
        if admitted == Admits::Yes {
            self.large += need.side_by_side;
        }
        Ok(admitted)
    }

    /// The same before the store is served: what has to be allocated for it is waited for here.
    pub(super) fn admit_at_once(
        &mut self,
        set: &WriteSet,
        tables: &[Dbi],
        page_bytes: usize,
    ) -> Result<bool, LmdbError> {
        loop {
            match self.admit(set, tables, page_bytes)? {
                Admits::After(bytes) => self.room.allocate(bytes)?,
                admitted => return Ok(admitted == Admits::Yes),
            }
        }
    }

    /// As [`Running::need`], for a set with many changes of a small table: they cannot dirty more
    /// pages than it has, and what its puts may split.
    fn need_by_table(
        &self,
        set: &WriteSet,
        tables: &[Dbi],
        large: usize,
    ) -> Result<usize, LmdbError> {
        let mut pages = large;
        for (table, dbi) in Table::ALL.iter().zip(tables) {
            let (mut puts, mut all) = (0, 0);
            for (_, _, value) in set.changes.iter().filter(|(of, _, _)| of == table) {
                all += 1;
                puts += usize::from(value.is_some());
            }
            if all > 0 {
                let stat = self.txn.stat(*dbi)?;
                let splits = puts * (stat.depth + 2);
                pages += (all * (2 * stat.depth + 3)).min(stat.tree_pages + splits);
            }
        }
        Ok(pages)
    }

    pub(super) fn pages_per_change(&self) -> usize {
        2 * (self.depth + 1) + 1
    }

    /// The most that `set` can dirty: in each table the way from the root to a leaf, split or
    /// merged at each level.
    fn need(&self, set: &WriteSet, page_bytes: usize) -> Need {
        let mut need = Need {
            pages: set.changes.len() * self.pages_per_change(),
            side_by_side: 0,
            frees: set.frees_space(),
        };
        for (_, key, value) in &set.changes {
            let bytes = key.len() + value.as_ref().map_or(0, Vec::len) + ENTRY_BYTES;
            if bytes > page_bytes / 2 {
                let pages = bytes.div_ceil(page_bytes);
                need.pages += pages;
                need.side_by_side += if pages > 1 { pages } else { 0 };
            }
        }
        need
    }
}
