//! Records on `osd-disk`, beside memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use env::LocalFuture;
use osd::mem::MemMeta;
use osd::{MetaStore, Space, StoreError, Table, View, WriteSet};
use osd_disk::DiskMeta;

use super::Dir;

type Key = (Table, Vec<u8>);
type Image = BTreeMap<Key, Vec<u8>>;

/// What is durable, as far as anybody was told, and what was applied since.
#[derive(Default)]
pub(super) struct History {
    durable: Image,
    applied: VecDeque<WriteSet>,
    /// Sets that `durable` has.
    durable_count: u64,
}

impl History {
    pub(super) fn durable(&self) -> impl Iterator<Item = (Table, &[u8], &[u8])> {
        self.durable.iter().map(|((table, key), value)| (*table, &key[..], &value[..]))
    }

    fn apply(&mut self, set: WriteSet) {
        self.applied.push_back(set);
    }

    /// Number of all sets so far.
    fn count(&self) -> u64 {
        self.durable_count + self.applied.len() as u64
    }

    /// The first `count` sets are durable.
    fn told(&mut self, count: u64) {
        while self.durable_count < count {
            self.next(|_, _| ());
        }
    }

    /// One set more is durable; each change of it is told. False where there is none.
    fn next(&mut self, mut each: impl FnMut(&Key, Option<&Vec<u8>>)) -> bool {
        let Some(set) = self.applied.pop_front() else { return false };
        self.durable_count += 1;
        for range in set.ranges {
            let keys = self.durable.range((range.table, range.from)..(range.table, range.to));
            let keys: Vec<Key> = keys.map(|(key, _)| key.clone()).collect();
            for key in keys {
                each(&key, None);
                self.durable.remove(&key);
            }
        }
        for (table, key, value) in set.changes {
            let key = (table, key);
            each(&key, value.as_ref());
            match value {
                Some(value) => drop(self.durable.insert(key, value)),
                None => drop(self.durable.remove(&key)),
            }
        }
        true
    }

    /// What `disk` has after a crash is durable from now on: it must be the state after some set
    /// since those of which it was told.
    pub(super) fn settle(&mut self, disk: &dyn MetaStore) -> Result<(), String> {
        let found = image(disk).map_err(|error| error.to_string())?;
        let keys: BTreeSet<&Key> = found.keys().chain(self.durable.keys()).collect();
        let mut different: BTreeSet<Key> = keys
            .into_iter()
            .filter(|key| found.get(*key) != self.durable.get(*key))
            .cloned()
            .collect();
        let (before, least) = (self.applied.len(), different.len());
        while !different.is_empty() {
            let is_more = self.next(|key, value| {
                if found.get(key) == value {
                    different.remove(key);
                } else {
                    different.insert(key.clone());
                }
            });
            if !is_more {
                return Err(format!(
                    "the records are none of the {before} states since the last commit: {least} \
                     differ from the first, {} from the last, {:?}",
                    different.len(),
                    different.first()
                ));
            }
        }
        self.applied.clear();
        Ok(())
    }
}

fn image(disk: &dyn MetaStore) -> Result<Image, StoreError> {
    let (view, mut image) = (disk.running()?, Image::new());
    for table in Table::ALL {
        view.scan(table, &[], &mut |key, value| {
            image.insert((table, key.to_vec()), value.to_vec());
            true
        })?;
    }
    Ok(image)
}

/// Records of one process.
pub(super) struct TwinRecords {
    mem: Rc<MemMeta>,
    dir: Rc<Dir>,
}

impl TwinRecords {
    pub(super) fn new(mem: Rc<MemMeta>, dir: Rc<Dir>) -> TwinRecords {
        TwinRecords { mem, dir }
    }
}

struct TwinView<'a> {
    mem: Box<dyn View + 'a>,
    disk: Rc<DiskMeta>,
}

impl View for TwinView<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let (expected, found) = (self.mem.get(table, key)?, self.disk.running()?.get(table, key)?);
        assert!(found == expected, "{table:?} {key:x?}: {found:x?} instead of {expected:x?}");
        Ok(found)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let (mut seen, mut more) = (VecDeque::new(), true);
        self.disk.running()?.scan(table, from, &mut |key, value| {
            seen.push_back((key.to_vec(), value.to_vec()));
            more = visit(key, value);
            more
        })?;
        let what = "a scan shows what there is, in order";
        self.mem.scan(table, from, &mut |key, value| {
            let Some((found, at_it)) = seen.pop_front() else { panic!("{table:?}: {what}") };
            assert!(found == key && at_it == value, "{table:?} {key:x?}: {what}");
            more || !seen.is_empty()
        })?;
        assert!(seen.is_empty(), "{table:?}: {what}");
        Ok(())
    }
}

impl MetaStore for TwinRecords {
    fn ready(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {
            self.mem.ready().await;
            if let Ok(disk) = self.dir.records() {
                disk.ready().await;
            }
        })
    }

    fn running(&self) -> Result<Box<dyn View + '_>, StoreError> {
        let disk = self.dir.records()?;
        disk.running()?;
        Ok(Box::new(TwinView { mem: self.mem.running()?, disk }))
    }

    fn apply(&self, set: &WriteSet) -> Result<(), StoreError> {
        self.mem.admits(set)?;
        self.dir.records()?.apply(set)?;
        self.dir.history.borrow_mut().apply(set.clone());
        self.mem.apply(set)
    }

    fn dirty_bytes(&self) -> u64 {
        self.dir.records().map_or(0, |disk| disk.dirty_bytes())
    }

    fn commit(&self) -> LocalFuture<'_, Result<(), StoreError>> {
        let count = self.dir.history.borrow().count();
        Box::pin(async move {
            let disk = self.dir.records()?;
            disk.commit().await?;
            drop(disk);
            self.mem.commit().await?;
            self.dir.history.borrow_mut().told(count);
            Ok(())
        })
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.mem.space()
    }

    fn is_full(&self) -> Result<bool, StoreError> {
        self.mem.is_full()
    }
}
