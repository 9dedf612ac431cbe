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
mod copying;
mod gathered;
mod handed;
mod lmdb;
mod ranges;
mod room;
mod root;
mod running;
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
use allocate::Allocator;
use commit::Committer;
use copying::Copying;
use lmdb::{Dbi, LmdbError};
use room::{Admits, Need, Room};
use root::RootFile;
use running::{Removed, Running};
use scrub::Scrubber;
use told::Allocated;

pub use commit::{BeforeSync, Inline};
pub use copy::CopyError;
pub use copying::CopyProgress;
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

const _: () = assert!(Table::ALL.len() + sums::TABLES <= TABLES_MAX as usize);

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
        crate::durable::sync_dir(dir.parent().unwrap_or(&dir))?;
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
        self.scan_within((table, &[]), from, visit)
    }

    fn scan_within(
        &self,
        (table, prefix): (Table, &[u8]),
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        assert!(from.starts_with(prefix), "it begins among those keys");
        self.0.settle();
        self.0.scrubber.shared().called();
        let _inside = Inside::new(&self.0.scans);
        let table = (table, self.0.dbi(table));
        self.0.with(|running| running.scan(table, (prefix, from), visit))
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
