//! The implementation in memory: a target's storage on a simulated machine.
//!
//! A [`MemDisk`] is the storage of one machine and outlives the processes on it. [`MemMeta`] and
//! [`MemObjects`] are one process's opening of it:
//! - A **killed process** loses the running image of its records. They are then exactly those of
//!   the last commit; a commit under way has happened or not. The page cache of the objects belongs
//!   to the machine and stays.
//! - After a **power cut** ([`MemDisk::power_cut`]) a random part of the writes to objects since
//!   the last sync is there, torn at 4 KiB. This is the harshest disk that keeps its promises.

mod meta;
mod object;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use types::{Fid, Span};

use crate::Table;

pub use meta::MemMeta;
pub use object::MemObjects;

use meta::Records;
use object::Objects;

/// What a simulated disk is like.
#[derive(Clone, Copy, Debug)]
pub struct MemDiskConfig {
    pub record_bytes: u64,
    /// The part of it that only sets which free space may use.
    pub record_reserve_bytes: u64,
    pub object_bytes: u64,
    pub objects_max: u64,
    /// Shortest time of a commit or sync.
    pub commit_min: Span,
    /// Longest time of a commit or sync.
    pub commit_max: Span,
    /// Longest time of another call on objects.
    pub io_max: Span,
}

impl Default for MemDiskConfig {
    fn default() -> MemDiskConfig {
        MemDiskConfig {
            record_bytes: 1 << 30,
            record_reserve_bytes: 1 << 20,
            object_bytes: 1 << 40,
            objects_max: 1 << 32,
            commit_min: Span::micros(200),
            commit_max: Span::millis(20),
            io_max: Span::micros(300),
        }
    }
}

/// What a store does and may be its machine's last deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A set of records was applied.
    Apply,
    /// A commit of records or a sync of objects has ended, and nobody knows yet.
    Commit,
}

/// Called after a deed was done so many more times.
struct Trap {
    deed: Deed,
    left: u64,
    spring: Box<dyn FnOnce()>,
}

struct DiskState {
    config: MemDiskConfig,
    records: RefCell<Records>,
    objects: RefCell<Objects>,
    /// Counts openings: an older one is a stale twin and is refused.
    opened: Cell<u64>,
    fail_commit: Cell<bool>,
    fail_sync: Cell<bool>,
    fail_reads: Cell<u32>,
    full: Cell<bool>,
    /// Objects take no more than this.
    object_bytes_max: Cell<u64>,
    /// Bytes of records that the process which has them open sees.
    record_bytes: Cell<u64>,
    /// Records take no more than this.
    record_bytes_max: Cell<u64>,
    /// Each commit, sync and call on objects takes up to so much longer.
    slow: Cell<Span>,
    trap: RefCell<Option<Trap>>,
    /// The records of the process that has them open.
    meta: RefCell<Weak<meta::Inner>>,
}

/// The storage of one machine, shared by whatever is started on it.
#[derive(Clone)]
pub struct MemDisk(Rc<DiskState>);

impl MemDisk {
    #[must_use]
    pub fn new(config: MemDiskConfig) -> MemDisk {
        assert!(config.commit_min <= config.commit_max, "a range is not empty");
        MemDisk(Rc::new(DiskState {
            config,
            records: RefCell::default(),
            objects: RefCell::default(),
            opened: Cell::new(0),
            fail_commit: Cell::new(false),
            fail_sync: Cell::new(false),
            fail_reads: Cell::new(0),
            full: Cell::new(false),
            object_bytes_max: Cell::new(config.object_bytes),
            record_bytes: Cell::new(0),
            record_bytes_max: Cell::new(config.record_bytes),
            slow: Cell::new(Span::ZERO),
            trap: RefCell::default(),
            meta: RefCell::default(),
        }))
    }

    /// The power goes: a part of what was not synced is lost, chosen by `seed`. Whatever ran on the
    /// machine is dead.
    pub fn power_cut(&self, seed: u64) {
        self.0.opened.set(self.0.opened.get() + 1);
        self.0.objects.borrow_mut().power_cut(seed);
    }

    /// The next commit of records fails, and whether it became durable is left open.
    pub fn fail_next_commit(&self) {
        self.0.fail_commit.set(true);
    }

    /// The next sync of objects fails.
    pub fn fail_next_sync(&self) {
        self.0.fail_sync.set(true);
    }

    /// The next so many reads of objects fail.
    pub fn fail_reads(&self, count: u32) {
        self.0.fail_reads.set(count);
    }

    /// Calls `spring` right after the `count`th `deed` from now on, in place of what was to be
    /// called before.
    pub fn spring_after(&self, deed: Deed, count: u64, spring: impl FnOnce() + 'static) {
        assert!(count > 0, "what was done already cannot be waited for");
        *self.0.trap.borrow_mut() = Some(Trap { deed, left: count, spring: Box::new(spring) });
    }

    /// Nothing is called any more.
    pub fn disarm(&self) {
        self.0.trap.borrow_mut().take();
    }

    fn did(&self, deed: Deed) {
        let sprung = {
            let mut trap = self.0.trap.borrow_mut();
            let waits = trap.as_mut().filter(|trap| trap.deed == deed);
            let is_over = waits.is_some_and(|trap| {
                trap.left -= 1;
                trap.left == 0
            });
            if is_over { trap.take() } else { None }
        };
        if let Some(trap) = sprung {
            (trap.spring)();
        }
    }

    /// No object may grow, or may again.
    pub fn set_full(&self, full: bool) {
        self.0.full.set(full);
    }

    /// The disk has room for so many bytes of objects, and says so.
    pub fn set_object_bytes(&self, bytes: u64) {
        self.0.object_bytes_max.set(bytes);
    }

    /// Records take no more than they do now, or may grow again. Sets that free space still have
    /// their reserve.
    pub fn set_records_full(&self, full: bool) {
        let config = &self.0.config;
        let now = self.0.record_bytes.get() + config.record_reserve_bytes;
        self.0.record_bytes_max.set(if full { now } else { config.record_bytes });
    }

    /// The value of this record changes by itself: it cannot be given out from now on, and is
    /// whole again when it is replaced.
    pub fn damage_record(&self, table: Table, key: &[u8]) {
        self.each_image(|records| records.damage(table, key));
    }

    /// No record is damaged any more.
    pub fn mend_records(&self) {
        self.each_image(Records::mend);
    }

    fn each_image(&self, change: impl Fn(&mut Records)) {
        change(&mut self.0.records.borrow_mut());
        if let Some(meta) = self.0.meta.borrow().upgrade() {
            change(&mut meta.running.borrow_mut());
        }
    }

    /// Each commit, sync and call on objects takes up to so much longer from now on.
    pub fn set_slow(&self, most: Span) {
        self.0.slow.set(most);
    }

    /// How long the next work of this sort takes, by 64 random bits.
    fn takes(&self, bits: u64, low: Span, high: Span) -> Span {
        span_between(bits, low, Span(high.0 + self.0.slow.get().0))
    }

    /// Failures that were ordered and have not come do not come any more.
    pub fn cure(&self) {
        self.0.fail_commit.set(false);
        self.0.fail_sync.set(false);
        self.0.fail_reads.set(0);
        self.0.full.set(false);
        self.set_records_full(false);
        self.mend_records();
        self.0.slow.set(Span::ZERO);
    }

    /// Objects that are there, for the tests' search for leaks.
    #[must_use]
    pub fn objects(&self) -> Vec<Fid> {
        self.0.objects.borrow().fids()
    }

    /// How many there are, for a test that asks again and again.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.0.objects.borrow().count()
    }

    /// How many durable records of a table have a key that `is_counted` accepts.
    #[must_use]
    pub fn count_records(&self, table: Table, is_counted: impl Fn(&[u8]) -> bool) -> usize {
        self.0.records.borrow().count(table, is_counted)
    }

    /// Durable records of a table.
    #[must_use]
    pub fn records(&self, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.0.records.borrow().table(table)
    }

    /// Its durable records are these from now on. Nobody has them open.
    pub fn replace_records<'a>(&self, all: impl Iterator<Item = (Table, &'a [u8], &'a [u8])>) {
        let mut records = self.0.records.borrow_mut();
        *records = Records::of(all).damaged_like(&records);
    }

    /// Objects with changes that no sync has made durable.
    #[must_use]
    pub fn unsynced_objects(&self) -> usize {
        self.0.objects.borrow().unsynced()
    }
}

impl Default for MemDisk {
    fn default() -> MemDisk {
        MemDisk::new(MemDiskConfig::default())
    }
}

/// `low..=high` by 64 random bits.
fn span_between(bits: u64, low: Span, high: Span) -> Span {
    Span(low.0 + bits % (high.0 - low.0 + 1))
}

#[cfg(test)]
mod tests;
