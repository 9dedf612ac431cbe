//! Records in memory: the committed image on the disk, the running image in the process.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use env::{Env, LocalFuture};
use tokio::sync::Notify;

use super::{Deed, MemDisk};
use crate::{
    BEHIND_COMMIT_BYTES_MAX, KeyRange, MetaStore, RANGE_RECORDS_MAX, Space, StoreError, Table,
    View, WriteSet,
};

/// What a pair costs besides its bytes.
const PAIR_OVERHEAD_BYTES: u64 = 32;
/// What an ordinary operation adds at most: a create adds some 600 bytes.
const ORDINARY_BYTES: u64 = 1 << 10;

/// One image of all tables.
#[derive(Clone, Default)]
pub(super) struct Records {
    pairs: BTreeMap<(Table, Vec<u8>), Vec<u8>>,
    bytes: u64,
    /// Those that cannot be given out, until they are replaced or removed.
    damaged: BTreeSet<(Table, Vec<u8>)>,
}

fn cost(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64 + PAIR_OVERHEAD_BYTES
}

impl Records {
    fn set(&mut self, table: Table, key: &[u8], value: Option<&Vec<u8>>) {
        self.damaged.remove(&(table, key.to_vec()));
        let before = match value {
            Some(value) => {
                self.bytes += cost(key, value);
                self.pairs.insert((table, key.to_vec()), value.clone())
            }
            None => self.pairs.remove(&(table, key.to_vec())),
        };
        if let Some(before) = before {
            self.bytes -= cost(key, &before);
        }
    }

    /// Exactly these.
    pub(super) fn of<'a>(all: impl Iterator<Item = (Table, &'a [u8], &'a [u8])>) -> Records {
        let mut records = Records::default();
        all.for_each(|(table, key, value)| records.set(table, key, Some(&value.to_vec())));
        records
    }

    /// Damaged where `other` is.
    pub(super) fn damaged_like(mut self, other: &Records) -> Records {
        other.damaged.iter().for_each(|(table, key)| self.damage(*table, key));
        self
    }

    /// The record is damaged from now on, if it is there.
    pub(super) fn damage(&mut self, table: Table, key: &[u8]) {
        let key = (table, key.to_vec());
        if self.pairs.contains_key(&key) {
            self.damaged.insert(key);
        }
    }

    /// No record is damaged any more.
    pub(super) fn mend(&mut self) {
        self.damaged.clear();
    }

    /// An error where the record is damaged. It is logged.
    fn whole(&self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        if self.damaged.is_empty() || !self.damaged.contains(&(table, key.to_vec())) {
            return Ok(());
        }
        let error = StoreError::Damaged { table, key: key.to_vec() };
        tracing::error!(%error, "its callers get EIO");
        Err(error)
    }

    pub(super) fn table(&self, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
        let pairs = self.pairs.range((table, Vec::new())..).take_while(|((at, _), _)| *at == table);
        pairs.map(|((_, key), value)| (key.clone(), value.clone())).collect()
    }

    /// How many keys of a table `is_counted` accepts.
    pub(super) fn count(&self, table: Table, is_counted: impl Fn(&[u8]) -> bool) -> usize {
        let pairs = self.pairs.range((table, Vec::new())..).take_while(|((at, _), _)| *at == table);
        pairs.filter(|((_, key), _)| is_counted(key)).count()
    }

    /// Keys of the records in the ranges of `set`.
    fn keys_in(&self, set: &WriteSet) -> BTreeSet<(Table, Vec<u8>)> {
        let mut keys = BTreeSet::new();
        for KeyRange { table, from, to } in &set.ranges {
            let pairs = self.pairs.range((*table, from.clone())..(*table, to.clone()));
            keys.extend(pairs.map(|(key, _)| key.clone()));
        }
        assert!(keys.len() <= RANGE_RECORDS_MAX, "the ranges of a set hold few records");
        keys
    }

    /// Bytes that it would hold with `set` applied.
    fn bytes_with(&self, set: &WriteSet) -> u64 {
        let gone = self.keys_in(set);
        let mut last: BTreeMap<(Table, &[u8]), Option<&Vec<u8>>> = BTreeMap::new();
        for (table, key) in &gone {
            last.insert((*table, key), None);
        }
        for (table, key, value) in &set.changes {
            last.insert((*table, key), value.as_ref());
        }
        let mut bytes = self.bytes;
        for ((table, key), value) in last {
            bytes += value.map_or(0, |value| cost(key, value));
            if let Some(before) = self.pairs.get(&(table, key.to_vec())) {
                bytes -= cost(key, before);
            }
        }
        bytes
    }
}

/// Records of one process, over the [`MemDisk`] of its machine.
#[derive(Clone)]
pub struct MemMeta(Rc<Inner>);

pub(super) struct Inner {
    env: Env,
    disk: MemDisk,
    opening: u64,
    pub(super) running: RefCell<Records>,
    /// Applied since the last commit began.
    log: RefCell<WriteSet>,
    dirty: Cell<u64>,
    begun: Cell<u64>,   // commits begun
    durable: Cell<u64>, // those of them that have ended: at most one less
    failed: RefCell<Option<StoreError>>,
    settled: Notify,
}

impl MemMeta {
    /// Opens the records of `disk`, as the last commit left them. Whoever had them open before is
    /// cut off.
    #[must_use]
    pub fn open(env: &Env, disk: &MemDisk) -> MemMeta {
        let opening = disk.0.opened.get() + 1;
        disk.0.opened.set(opening);
        disk.0.record_bytes.set(disk.0.records.borrow().bytes);
        let inner = Rc::new(Inner {
            env: env.clone(),
            disk: disk.clone(),
            opening,
            running: RefCell::new(disk.0.records.borrow().clone()),
            log: RefCell::default(),
            dirty: Cell::new(0),
            begun: Cell::new(0),
            durable: Cell::new(0),
            failed: RefCell::new(None),
            settled: Notify::new(),
        });
        *disk.0.meta.borrow_mut() = Rc::downgrade(&inner);
        MemMeta(inner)
    }

    /// What [`MetaStore::apply`] would say of `set`, which is not applied.
    pub fn admits(&self, set: &WriteSet) -> Result<(), StoreError> {
        self.0.check()?;
        if self.0.is_busy() {
            return Err(StoreError::Busy);
        }
        self.0.room(set)
    }
}

impl Inner {
    fn check(&self) -> Result<(), StoreError> {
        if let Some(error) = &*self.failed.borrow() {
            return Err(error.clone());
        }
        if self.disk.0.opened.get() != self.opening {
            return Err(StoreError::Failed("the store was opened by another process".into()));
        }
        Ok(())
    }

    fn is_committing(&self) -> bool {
        self.begun.get() > self.durable.get()
    }

    fn is_busy(&self) -> bool {
        self.is_committing() && self.dirty.get() >= BEHIND_COMMIT_BYTES_MAX
    }

    fn room(&self, set: &WriteSet) -> Result<(), StoreError> {
        let config = &self.disk.0.config;
        let running = self.running.borrow();
        let after = running.bytes_with(set);
        let reserve = if set.frees_space() { 0 } else { config.record_reserve_bytes };
        let most = self.disk.0.record_bytes_max.get();
        if after > running.bytes && after > most.saturating_sub(reserve) {
            return Err(StoreError::Full);
        }
        Ok(())
    }

    async fn ready(&self) {
        while self.is_busy() {
            self.settled.notified().await;
        }
    }

    /// Waits until commit number `wanted` has ended; begins it when its turn has come.
    async fn durable(self: &Rc<Self>, wanted: u64) -> Result<(), StoreError> {
        while self.durable.get() < wanted {
            self.check()?;
            if !self.is_committing() {
                self.begin_commit();
            }
            self.settled.notified().await;
        }
        self.check()
    }

    /// Begins a commit of everything applied so far. It goes on when the caller loses interest.
    fn begin_commit(self: &Rc<Self>) {
        assert!(!self.is_committing(), "commits come one after the other");
        self.begun.set(self.begun.get() + 1);
        self.dirty.set(0);
        let under_way = UnderWay { inner: self.clone(), log: self.log.take(), done: false };
        let inner = self.clone();
        self.env.spawn("mem commit", async move {
            let config = &inner.disk.0.config;
            inner
                .env
                .sleep(inner.disk.takes(inner.env.random(), config.commit_min, config.commit_max))
                .await;
            under_way.finish();
            inner.durable.set(inner.begun.get());
            inner.settled.notify_waiters();
        });
    }
}

/// A commit under way. Dropped before its end (the process was killed) it has happened or not,
/// never by half.
struct UnderWay {
    inner: Rc<Inner>,
    log: WriteSet,
    done: bool,
}

impl UnderWay {
    fn finish(mut self) {
        self.done = true;
        let inner = self.inner.clone();
        if inner.disk.0.opened.get() != inner.opening {
            return;
        }
        if inner.disk.0.fail_commit.replace(false) {
            *inner.failed.borrow_mut() = Some(StoreError::Failed("commit failed: injected".into()));
            if inner.env.random() & 1 == 0 {
                return;
            }
        }
        self.install();
        inner.disk.did(Deed::Commit);
    }

    fn install(&mut self) {
        let mut records = self.inner.disk.0.records.borrow_mut();
        for (table, key, value) in self.log.changes.drain(..) {
            records.set(table, &key, value.as_ref());
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.done
            && self.inner.disk.0.opened.get() == self.inner.opening
            && self.inner.env.random() & 1 == 0
        {
            self.install();
        }
    }
}

struct Running<'a>(&'a Inner);

impl View for Running<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.check()?;
        let running = self.0.running.borrow();
        running.whole(table, key)?;
        Ok(running.pairs.get(&(table, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.0.check()?;
        let running = self.0.running.borrow();
        for ((at, key), value) in
            running.pairs.range((Bound::Included((table, from.to_vec())), Bound::Unbounded))
        {
            if *at != table {
                break;
            }
            running.whole(table, key)?;
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

impl MetaStore for MemMeta {
    fn ready(&self) -> LocalFuture<'_, ()> {
        Box::pin(self.0.ready())
    }

    fn running(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.0.check()?;
        Ok(Box::new(Running(&self.0)))
    }

    fn apply(&self, set: &WriteSet) -> Result<(), StoreError> {
        self.admits(set)?;
        let mut running = self.0.running.borrow_mut();
        let mut log = self.0.log.borrow_mut();
        // the log has the records of ranges one by one, because it holds many sets in order
        for (table, key) in running.keys_in(set) {
            running.set(table, &key, None);
            log.changes.push((table, key, None));
        }
        for (table, key, value) in &set.changes {
            running.set(*table, key, value.as_ref());
        }
        log.changes.extend(set.changes.iter().cloned());
        drop(log);
        self.0.dirty.set(self.0.dirty.get() + set.bytes() as u64);
        self.0.disk.0.record_bytes.set(running.bytes);
        drop(running);
        self.0.disk.did(Deed::Apply);
        Ok(())
    }

    fn dirty_bytes(&self) -> u64 {
        self.0.dirty.get()
    }

    fn commit(&self) -> LocalFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.0.check()?;
            let is_clean = self.0.log.borrow().changes.is_empty();
            self.0.durable(self.0.begun.get() + u64::from(!is_clean)).await
        })
    }

    fn space(&self) -> Result<Space, StoreError> {
        let bytes = self.0.disk.0.record_bytes_max.get();
        let used = self.0.running.borrow().bytes;
        let files = bytes / 1_024;
        let used_files = self
            .0
            .running
            .borrow()
            .pairs
            .range((Table::Inodes, Vec::new())..(Table::Dirents, Vec::new()))
            .count();
        Ok(Space {
            bytes,
            bytes_free: bytes.saturating_sub(used),
            files,
            files_free: files.saturating_sub(used_files as u64),
        })
    }

    fn is_full(&self) -> Result<bool, StoreError> {
        self.0.check()?;
        let disk = &self.0.disk.0;
        let most = disk.record_bytes_max.get().saturating_sub(disk.config.record_reserve_bytes);
        Ok(self.0.running.borrow().bytes + ORDINARY_BYTES > most)
    }
}
