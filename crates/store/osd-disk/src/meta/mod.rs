//! Records in LMDB, used as one running write transaction (`docs/design/store.md`).
//!
//! Operations change the running transaction on the executor's thread, without a hand-over, in
//! about 2 us each. A commit moves the transaction to a thread of its own (module `commit`). That
//! thread writes its pages into the page cache and gives the next transaction back at once. This
//! takes a few milliseconds, in which the store is `Busy`. Then the thread waits for the disk,
//! while reads and changes continue in the next transaction. Commits run one after the other, in
//! order. Each covers everything that was applied before it began, and calls of `commit` that it
//! covers share it.
//!
//! Changes of records that change often, or that are better sorted, wait outside LMDB's pages for a
//! moment (module `gathered`).
//!
//! A failed put or commit ends the store. Everything since the last commit is lost, and every later
//! call returns an error.
//!
//! On disk: `records/data.mdb` (LMDB's own format) has one table for each [`Table`], named by its
//! number. `records/root` says which part of it is durable (module `root`). `records/lock` is held
//! with `flock`.

mod allocate;
mod check;
mod commit;
mod copy;
mod gathered;
mod handed;
mod lmdb;
mod ranges;
mod room;
mod root;
mod scrub;
#[cfg(test)]
mod shuttled;
mod sums;
mod sync;
mod tear;
mod told;
mod upgrade;
mod walk;

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use env::LocalFuture;
use osd::{BEHIND_COMMIT_BYTES_MAX, MetaStore, Space, StoreError, Table, View, WriteSet};

use crate::{DiskError, Statvfs};
use allocate::{Allocated, Allocator};
use commit::Committer;
use copy::Copying;
use gathered::{GATHERED_MAX, Gathered};
use lmdb::{Dbi, LmdbError, Txn};
use ranges::Removed;
use room::{Admits, Need, Room};
use root::RootFile;
use scrub::Scrubber;
use sums::Sums;

pub use commit::{BeforeSync, Inline};
pub use copy::{CopyError, CopyProgress};
pub use scrub::{Scrub, ScrubPhase, ScrubState};
pub use tear::tear_records;

/// Tables that the environment has room for; LMDB's cost is a few words each.
const TABLES_MAX: u32 = 16;
/// The map of the largest store: only addresses, nothing is allocated for it.
const MAP_BYTES_MAX: u64 = 1 << 40;
/// The smallest store: its reserve is a quarter of it then.
const MAP_BYTES_MIN: u64 = 8 << 20;
/// What one file costs in records, roughly: tells free inodes from free bytes.
const FILE_BYTES: u64 = 1_024;

/// Changes of an ordinary operation at most: a create has a dozen.
const ORDINARY_CHANGES: usize = 16;

/// What an entry of a page takes besides key and value, at most.
const ENTRY_BYTES: usize = 32;

const _: () = assert!(Table::ALL.len() + upgrade::TABLES <= TABLES_MAX as usize);

/// How to open [`DiskMeta`].
#[derive(Clone, Debug, Default)]
pub struct MetaOptions {
    /// Bytes that records may take at most, rounded up to 8 MiB; default: min(1 TiB, 4 times the
    /// disk).
    pub map_bytes: Option<u64>,
    /// Called before each sync.
    pub before_sync: BeforeSync,
    /// How all pages are looked at again while the store is open.
    pub scrub: Scrub,
}

/// The running transaction and the room around it: what moves to the commit thread and back.
struct Running {
    txn: Txn,
    room: Room,
    depth: usize, // of the deepest table when it began
    large: usize, // pages of large values, beyond the first of each
    gathered: Gathered,
    sums: Sums,
    stored: Vec<u8>, // what is put into a page, for the moment
}

enum State {
    Running(Box<Running>),
    /// The commit thread writes it out.
    Writing,
    Failed(String),
}

/// Records of one target. See the module's head.
pub struct DiskMeta {
    state: RefCell<State>,
    scrubber: Scrubber,
    committer: Committer,
    allocator: Allocator,
    allocating: Cell<bool>, // it was asked, and has not answered
    begun: Cell<u64>,       // commits begun
    durable: Cell<u64>,     // those of them that have ended: at most one less
    tables: [Dbi; Table::ALL.len()],
    page_bytes: usize,
    scans: Cell<u32>,
    copying: RefCell<Option<Copying>>, // while a copy is made
    is_copied: Arc<AtomicBool>,
    dir: PathBuf,
    statvfs: Statvfs,
    _lock: File,
}

impl DiskMeta {
    /// Opens the records below `dir`, a target's directory; makes them if they are not there.
    pub fn open(dir: &Path, options: &MetaOptions) -> Result<Rc<DiskMeta>, DiskError> {
        DiskMeta::open_with(dir, options, None)
    }

    /// The same without threads, for simulations: every call is made on the caller's, commits are
    /// tasks of its executor, and nothing is scrubbed.
    pub fn open_inline(
        dir: &Path,
        options: &MetaOptions,
        inline: Inline,
    ) -> Result<Rc<DiskMeta>, DiskError> {
        DiskMeta::open_with(dir, options, Some(inline))
    }

    fn open_with(
        dir: &Path,
        options: &MetaOptions,
        inline: Option<Inline>,
    ) -> Result<Rc<DiskMeta>, DiskError> {
        let is_inline = inline.is_some();
        let dir = dir.join("records");
        std::fs::create_dir_all(&dir).map_err(DiskError::io(&dir, "cannot be made"))?;
        let lock = crate::superblock::lock_file(&dir.join("lock"), &dir)?;
        crate::superblock::sync_dir(dir.parent().unwrap_or(&dir))?;
        let statvfs = match is_inline {
            true => Statvfs::inline(&dir),
            false => Statvfs::start(&dir).map_err(DiskError::io(&dir, "statvfs"))?,
        };
        let disk_space = statvfs.get().map_err(DiskError::io(&dir, "statvfs"))?;
        let disk_bytes = disk_space.bytes;
        let map_bytes =
            options.map_bytes.unwrap_or(disk_bytes.saturating_mul(4).min(MAP_BYTES_MAX));
        let map_bytes = map_bytes.max(MAP_BYTES_MIN).next_multiple_of(1 << 20);
        let records =
            |why: LmdbError| DiskError::Records { path: dir.clone(), why: why.to_string() };
        let map = usize::try_from(map_bytes).unwrap_or(usize::MAX);
        let mut root = RootFile::open(&dir)?;
        check::all(&root, &dir).map_err(|why| DiskError::Records { path: dir.clone(), why })?;
        let mut txn =
            lmdb::Env::open(&dir, map, TABLES_MAX).map_err(records)?.begin().map_err(records)?;
        let mut tables = [0; Table::ALL.len()];
        for (slot, table) in tables.iter_mut().zip(Table::ALL) {
            *slot = txn.table(&format!("t{}", table as u8)).map_err(records)?;
        }
        let page_bytes = txn.stat(tables[0]).map_err(records)?.page_bytes;
        let data = dir.join("data.mdb");
        let file = OpenOptions::new()
            .write(true)
            .open(&data)
            .map_err(DiskError::io(&data, "cannot be opened"))?;
        let room = Room::new(file, page_bytes, map_bytes, disk_bytes)
            .map_err(DiskError::io(&data, "cannot be allocated"))?;
        let sums = upgrade::found(&mut txn, &tables).map_err(records)?;
        let file = room.file().map_err(DiskError::io(&data, "cannot be opened"))?;
        let running = Running::new(txn, room, sums);
        let running = running
            .write_out(&tables)
            .and_then(|next| root.sync().map(|()| next))
            .and_then(|next| upgrade::run(next, &tables, page_bytes, &mut root))
            .map_err(|why| DiskError::Records { path: dir.clone(), why })?;
        let reader = root.reader().map_err(DiskError::io(&dir, "cannot be read"))?;
        let committer = Committer::start(tables, root, options.before_sync.clone(), inline)
            .map_err(DiskError::io(&dir, "commit thread"))?;
        let allocator = Allocator::start(file, committer.told(), is_inline)
            .map_err(DiskError::io(&dir, "allocation thread"))?;
        let scrubber = match is_inline {
            true => Scrubber::off(options.scrub),
            false => {
                let (phase, reports) = (committer.phase(), committer.reports());
                Scrubber::start(options.scrub, reader, phase, dir.clone(), reports)
                    .map_err(DiskError::io(&dir, "scrub thread"))?
            }
        };
        Ok(Rc::new(DiskMeta {
            state: RefCell::new(State::Running(running)),
            scrubber,
            committer,
            allocator,
            allocating: Cell::new(false),
            begun: Cell::new(0),
            durable: Cell::new(0),
            tables,
            page_bytes,
            scans: Cell::new(0),
            copying: RefCell::new(None),
            is_copied: Arc::default(),
            dir,
            statvfs,
            _lock: lock,
        }))
    }

    /// How all pages are looked at again.
    #[must_use]
    pub fn scrub(&self) -> Scrub {
        self.scrubber.options()
    }

    /// Sets that; it holds from the next pages on.
    pub fn set_scrub(&self, scrub: Scrub) {
        self.scrubber.set(scrub);
    }

    /// How far that is.
    #[must_use]
    pub fn scrub_state(&self) -> ScrubState {
        self.scrubber.state()
    }

    fn dbi(&self, table: Table) -> Dbi {
        self.tables[table as usize]
    }

    /// A commit has begun and its end is not known here.
    fn is_committing(&self) -> bool {
        self.begun.get() > self.durable.get()
    }

    /// Takes over what the commit thread has finished.
    fn settle(&self) {
        if self.scans.get() > 0 {
            return; // the state is in use
        }
        if let Some(why) = self.committer.damage() {
            *self.state.borrow_mut() = State::Failed(why);
        }
        if let Some(allocated) = self.committer.allocation() {
            self.grown(allocated);
        }
        if !self.is_committing() {
            return;
        }
        let (written, synced) = self.committer.finished();
        match written {
            None => {}
            Some(Ok(running)) => {
                let mut state = self.state.borrow_mut();
                if matches!(*state, State::Writing) {
                    *state = State::Running(running);
                }
            }
            Some(Err(why)) => *self.state.borrow_mut() = State::Failed(why),
        }
        match synced {
            None => {}
            Some(Ok(())) => self.durable.set(self.begun.get()),
            Some(Err(why)) => *self.state.borrow_mut() = State::Failed(why),
        }
    }

    /// An allocation has ended. Where the transaction is away, the next one counts what there is.
    fn grown(&self, allocated: Allocated) {
        self.allocating.set(false);
        let mut state = self.state.borrow_mut();
        let State::Running(running) = &mut *state else { return };
        let grown = allocated
            .and_then(|space| running.room.grown(space).map_err(|error| error.to_string()));
        if let Err(why) = grown {
            *state = State::Failed(format!("{}: {why}", self.dir.display()));
        }
    }

    /// Whether changes must wait: the running transaction is away or waits for room, or too much
    /// has come behind the commit under way.
    fn is_busy(&self) -> bool {
        match &*self.state.borrow() {
            State::Running(running) => {
                self.allocating.get()
                    || self.is_committing()
                        && running.dirty_bytes(self.page_bytes) >= BEHIND_COMMIT_BYTES_MAX
            }
            State::Writing => true,
            State::Failed(_) => false,
        }
    }

    /// Ready once changes are taken.
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.settle();
            if !self.is_busy() {
                return Poll::Ready(());
            }
            if self.committer.wakes(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Ready once commit number `wanted` has ended; begins it when its turn has come.
    fn poll_durable(&self, wanted: u64, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        loop {
            self.settle();
            if let State::Failed(why) = &*self.state.borrow() {
                return Poll::Ready(Err(StoreError::Failed(why.clone())));
            }
            if self.durable.get() >= wanted {
                return Poll::Ready(Ok(()));
            }
            if !self.is_committing() {
                self.begin_commit();
            } else if self.committer.wakes(cx) {
                return Poll::Pending;
            }
        }
    }

    fn with<T>(
        &self,
        read: impl FnOnce(&Running) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.settle();
        match &*self.state.borrow() {
            State::Running(running) => {
                read(running).inspect_err(|error| self.tell_of_damage(error))
            }
            State::Writing => Err(StoreError::Busy),
            State::Failed(why) => Err(StoreError::Failed(why.clone())),
        }
    }

    fn tell_of_damage(&self, error: &StoreError) {
        if let StoreError::Damaged { .. } = error {
            tracing::error!(records = %self.dir.display(), %error, "its callers get EIO");
        }
    }

    /// Number of the commit after which everything is durable that is applied now.
    fn covering_commit(&self) -> u64 {
        match &*self.state.borrow() {
            State::Running(running) if !running.is_clean() => self.begun.get() + 1,
            _ => self.begun.get(),
        }
    }

    /// Sends the running transaction to be committed.
    fn begin_commit(&self) {
        assert_eq!(self.scans.get(), 0, "a commit does not begin inside a scan");
        assert!(!self.is_committing(), "commits come one after the other");
        let mut state = self.state.borrow_mut();
        match std::mem::replace(&mut *state, State::Writing) {
            State::Running(running) => {
                self.begun.set(self.begun.get() + 1);
                if !self.committer.begin(running) {
                    *state = State::Failed("the commit thread is gone".to_owned());
                }
            }
            other => *state = other,
        }
    }
}

impl Running {
    fn new(txn: Txn, room: Room, sums: Sums) -> Running {
        let (gathered, stored) = (Gathered::default(), Vec::new());
        Running { txn, room, depth: 0, large: 0, gathered, sums, stored }
    }

    /// Pages changed since the last commit.
    fn dirty_pages(&self) -> usize {
        self.txn.dirty_entries() + self.large
    }

    /// Bytes changed since the last commit, roughly.
    fn dirty_bytes(&self, page_bytes: usize) -> u64 {
        (self.dirty_pages() * page_bytes + self.gathered.bytes()) as u64
    }

    fn is_clean(&self) -> bool {
        self.dirty_pages() == 0 && self.gathered.len() == 0
    }

    /// The value of `key` in the running image.
    fn get(&self, table: Table, dbi: Dbi, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        if let Some(value) = self.gathered.get(table, key) {
            return Ok(value);
        }
        let Some(stored) = self.txn.get(dbi, key)? else { return Ok(None) };
        match self.sums.value(table, key, stored) {
            None => Err(StoreError::Damaged { table, key: key.to_vec() }),
            value => Ok(value),
        }
    }

    /// Visits pairs of the running image from `from` on.
    fn scan(
        &self,
        table: Table,
        dbi: Dbi,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let mut newer = self.gathered.sorted(table, from).into_iter().peekable();
        let (mut more, mut damaged) = (true, None);
        self.txn.scan(dbi, from, &mut |key, stored| {
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
    fn change(
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
    fn write_gathered(&mut self, tables: &[Dbi]) -> Result<(), LmdbError> {
        if self.gathered.pages() == 0 {
            return Ok(());
        }
        for (table, dbi) in Table::ALL.iter().zip(tables) {
            let changes = self.gathered.sorted(*table, &[]);
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
    fn write_out(mut self, tables: &[Dbi]) -> Result<Box<Running>, String> {
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
    fn admit(
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
    fn admit_at_once(
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

    fn pages_per_change(&self) -> usize {
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

struct RunningView<'a>(&'a DiskMeta);

impl View for RunningView<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let dbi = self.0.dbi(table);
        self.0.scrubber.shared().called();
        self.0.with(|running| Ok(running.get(table, dbi, key)?.map(<[u8]>::to_vec)))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.0.settle();
        self.0.scrubber.shared().called();
        let _inside = Inside::new(&self.0.scans);
        self.0.with(|running| running.scan(table, self.0.dbi(table), from, visit))
    }
}

/// Counts scans, so that nothing is changed under a cursor.
struct Inside<'a>(&'a Cell<u32>);

impl<'a> Inside<'a> {
    fn new(count: &'a Cell<u32>) -> Inside<'a> {
        count.set(count.get() + 1);
        Inside(count)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl MetaStore for DiskMeta {
    fn ready(&self) -> LocalFuture<'_, ()> {
        Box::pin(std::future::poll_fn(|cx| self.poll_ready(cx)))
    }

    fn running(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.with(|_| Ok(()))?;
        Ok(Box::new(RunningView(self)))
    }

    fn apply(&self, set: &WriteSet) -> Result<(), StoreError> {
        assert_eq!(self.scans.get(), 0, "nothing is changed inside a scan");
        self.scrubber.shared().called();
        self.settle();
        if self.is_busy() {
            return Err(StoreError::Busy);
        }
        let mut state = self.state.borrow_mut();
        let running = match &mut *state {
            State::Running(running) => running,
            State::Writing => return Err(StoreError::Busy),
            State::Failed(why) => return Err(StoreError::Failed(why.clone())),
        };
        let mut removed = Removed::new();
        let applied = running.admit(set, &self.tables, self.page_bytes).and_then(|admitted| {
            if admitted == Admits::Yes {
                removed = running.change(set, &self.tables, self.page_bytes)?;
            }
            Ok(admitted)
        });
        match applied {
            Ok(Admits::Yes) => {
                if let Some(copying) = &mut *self.copying.borrow_mut() {
                    copying.note(&removed, set);
                }
                Ok(())
            }
            Ok(Admits::No) => Err(StoreError::Full),
            Ok(Admits::After(bytes)) => {
                self.allocating.set(true);
                self.allocator.ask(bytes);
                Err(StoreError::Busy)
            }
            Err(why) => {
                let why = format!("{}: a change: {why}", self.dir.display());
                *state = State::Failed(why.clone());
                Err(StoreError::Failed(why))
            }
        }
    }

    fn dirty_bytes(&self) -> u64 {
        self.with(|running| Ok(running.dirty_bytes(self.page_bytes))).unwrap_or(0)
    }

    fn commit(&self) -> LocalFuture<'_, Result<(), StoreError>> {
        self.settle();
        let wanted = self.covering_commit();
        if self.durable.get() < wanted && !self.is_committing() {
            self.begin_commit();
        }
        Box::pin(std::future::poll_fn(move |cx| self.poll_durable(wanted, cx)))
    }

    fn space(&self) -> Result<Space, StoreError> {
        let failed = |error: std::io::Error| {
            StoreError::Failed(format!("{}: statvfs: {error}", self.dir.display()))
        };
        let disk = self.statvfs.get().map_err(failed)?;
        let inodes = self.dbi(Table::Inodes);
        let (bytes, bytes_free, files) = self.with(|running| {
            let (bytes, free) = running
                .room
                .bytes(running.dirty_pages() + running.gathered.pages(), disk.bytes_free);
            Ok((bytes, free, running.txn.stat(inodes)?.entries))
        })?;
        let bytes = bytes.min(disk.bytes);
        let files_free = bytes_free / FILE_BYTES;
        Ok(Space { bytes, bytes_free, files: files + files_free, files_free })
    }

    fn is_full(&self) -> Result<bool, StoreError> {
        self.with(|running| {
            let ordinary = ORDINARY_CHANGES * running.pages_per_change();
            let need = Need { pages: ordinary + running.gathered.pages(), ..Need::default() };
            Ok(running.room.admits(&running.txn, running.dirty_pages(), need) == Admits::No)
        })
    }
}

#[cfg(test)]
mod tests;
