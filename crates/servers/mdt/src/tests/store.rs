//! A store for tests: two images, commits at once, a bound that makes it full.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use env::LocalFuture;
use osd::{MetaStore, Space, StoreError, Table, View, WriteSet};

pub(crate) type Image = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

#[derive(Default)]
pub(crate) struct TestStore {
    pub(super) running: RefCell<Image>,
    pub(super) committed: RefCell<Image>,
    dirty: Cell<u64>,
    pub(super) commits: Cell<u64>,
    pub(super) full: Cell<bool>,
    /// A record that cannot be read.
    pub(crate) damaged: RefCell<Option<(Table, Vec<u8>)>>,
}

impl TestStore {
    /// What a crash leaves.
    pub(super) fn crash(&self) {
        *self.running.borrow_mut() = self.committed.borrow().clone();
        self.dirty.set(0);
    }

    /// All pairs of a table.
    pub(crate) fn table(&self, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
        let image = self.running.borrow();
        image
            .iter()
            .filter(|((at, _), _)| *at == table)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    }

    fn check(&self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        match &*self.damaged.borrow() {
            Some((at, damaged)) if (*at, &damaged[..]) == (table, key) => {
                Err(StoreError::Damaged { table, key: key.to_vec() })
            }
            _ => Ok(()),
        }
    }

    /// Every breach of what must hold, in words.
    pub(super) fn fsck(&self) -> Vec<String> {
        crate::fsck::fsck(&Running(self)).expect("a test store can be read")
    }
}

struct Running<'a>(&'a TestStore);

impl View for Running<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.check(table, key)?;
        Ok(self.0.running.borrow().get(&(table, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        for ((at, key), value) in self.0.running.borrow().range((table, from.to_vec())..) {
            if *at != table {
                break;
            }
            self.0.check(table, key)?;
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

impl MetaStore for TestStore {
    fn ready(&self) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn running(&self) -> Result<Box<dyn View + '_>, StoreError> {
        Ok(Box::new(Running(self)))
    }

    fn apply(&self, set: &WriteSet) -> Result<(), StoreError> {
        if self.full.get() && !set.frees_space() {
            return Err(StoreError::Full);
        }
        let mut image = self.running.borrow_mut();
        image.retain(|(table, key), _| !set.ranges.iter().any(|range| range.holds(*table, key)));
        for (table, key, value) in &set.changes {
            match value {
                Some(value) => image.insert((*table, key.clone()), value.clone()),
                None => image.remove(&(*table, key.clone())),
            };
        }
        self.dirty.set(self.dirty.get() + set.bytes() as u64);
        Ok(())
    }

    fn dirty_bytes(&self) -> u64 {
        self.dirty.get()
    }

    fn commit(&self) -> LocalFuture<'_, Result<(), StoreError>> {
        *self.committed.borrow_mut() = self.running.borrow().clone();
        self.dirty.set(0);
        self.commits.set(self.commits.get() + 1);
        Box::pin(std::future::ready(Ok(())))
    }

    fn space(&self) -> Result<Space, StoreError> {
        Ok(Space::default())
    }

    fn is_full(&self) -> Result<bool, StoreError> {
        Ok(self.full.get())
    }
}
