//! Objects as files, with a thread pool for calls that block (`docs/design/store.md`).
//!
//! Where a call runs
//! - A read that the page cache can answer is answered on the executor's thread, without a
//!   hand-over (`RWF_NOWAIT`, and a lookup with `RESOLVE_CACHED`). The executor hands small misses
//!   to the kernel ([`ring`]), and others to the pool.
//! - A small buffered write goes to the page cache on the executor's thread, if the kernel has the
//!   object's name in memory. A hand-over would cost ten times the write. Such a write can block
//!   when the kernel throttles writers or the journal is full, so each one is timed. A slow one
//!   sends small writes to the pool for a while ([`pace`]).
//! - Small direct reads and writes of an object that is open for them use the ring too. The
//!   submission is timed likewise. Without io_uring, the pool does all of this.
//! - Aligned reads of 1 MiB and more use the page cache and leave nothing there, if
//!   `IoMode::Stream` calls the object large (`RWF_DONTCACHE`). Before Linux 6.14 they go around
//!   the page cache, from the pool.
//! - Aligned writes of 1 MiB and more go around the page cache, from the pool, out of aligned
//!   buffers. They are answered when the file has room for them ([`flight`]).
//! - `fstat` of an open object is answered by the kernel from memory.
//! - Everything else (new objects, truncate, allocate, destroy, list, sync, room) goes to the pool.
//!
//! Durability: a change is noted once it was made. `sync` takes the noted changes. It calls
//! `fdatasync` on each object (`fsync` after a truncate) and `fsync` on each directory in which a
//! name came or went, in parallel. The first sync covers all directories, for what a killed process
//! left. With many dirty objects, one `syncfs` does it all. After a failed sync every later call
//! fails, because data may be lost: the instance ends.

mod extents;
mod files;
mod flight;
#[cfg(test)]
mod flight_tests;
mod pace;
mod pool;
mod range;
mod ring;
#[cfg(test)]
mod shuttled;
mod sync;

use std::cell::{Cell, OnceCell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use env::LocalFuture;
use osd::{Allocate, Found, IoMode, ObjAttr, ObjStore, Seek, Space};
use types::{Errno, Extent, Fid};

use crate::DiskError;
use extents::Extents;
use files::{DIRECT_BYTES_MIN, Files, Object, goes_direct};
pub(crate) use files::{DIRS, dir_name};
use flight::Flights;
use pace::Pace;
use pool::Pool;
use ring::{RING_BYTES_MAX, Ring};

/// Buffered writes up to this size are made at once.
const INLINE_WRITE_BYTES_MAX: usize = 64 << 10;
/// Threads for calls that block, however many requests there may be at once: each may have 4 MiB
/// under way.
const THREADS_MAX: usize = 128;
/// Objects that one sync flushes at once.
const SYNCS_AT_ONCE: usize = 16;
/// Threads that look up where objects lie. A lookup reads metadata once per run of extents.
const PLACE_THREADS: usize = 1;
/// Share of the process's descriptors that one store may keep: several targets and their links live
/// in one process.
const FDS_SHARE: u64 = 8;

/// How to open [`DiskObjects`].
#[derive(Clone, Debug)]
pub struct ObjOptions {
    /// Threads for calls that block, before [`DiskObjects::follow`] says how many requests there
    /// are at once; without any they are made on the caller's thread.
    pub threads: usize,
    /// Descriptors held open at most (`object_fds_max`); lowered to an eighth of what the process
    /// may have.
    pub fds_max: usize,
    /// Small transfers under way at once by io_uring, at most 4,096; 0 leaves them all to the
    /// threads. One more is made by the threads, which follow the requests that are served.
    pub ring_ops_max: u32,
}

impl ObjOptions {
    /// Every call is made at once, on the caller's thread: for simulations.
    #[must_use]
    pub fn inline() -> ObjOptions {
        ObjOptions { threads: 0, ring_ops_max: 0, ..ObjOptions::default() }
    }
}

impl Default for ObjOptions {
    fn default() -> ObjOptions {
        ObjOptions { threads: 16, fds_max: 4_096, ring_ops_max: 64 }
    }
}

/// Objects of one target. See the module's head.
pub struct DiskObjects {
    files: Arc<Files>,
    /// Made when it is first wanted; none where the kernel offers none.
    ring: OnceCell<Option<Ring>>,
    ring_ops_max: u32,
    pool: Pool,
    /// Threads that are there from the beginning.
    threads: usize,
    /// Requests that are served at once.
    depth: RefCell<Option<Rc<dyn Fn() -> usize>>>,
    /// Lookups of where objects lie: they order the transfers that `pool` makes, so they do not
    /// wait behind them.
    places: Pool,
    flights: Arc<Flights>,
    syncing: tokio::sync::Mutex<()>,
    failed: Cell<Option<Errno>>,
    pace: Rc<Pace>,
    extents: RefCell<Extents>,
    /// The file system below tells no addresses.
    unmapped: Cell<bool>,
}

impl DiskObjects {
    /// Opens the objects below `dir`, a target's directory; makes the directories if they are not
    /// there.
    pub fn open(dir: &Path, options: &ObjOptions) -> Result<Rc<DiskObjects>, DiskError> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
            .current
            .unwrap_or(u64::MAX);
        let fds_max = options.fds_max.min(usize::try_from(limit / FDS_SHARE).unwrap_or(usize::MAX));
        let files = Files::open(dir, fds_max / 2)?; // an object may have two descriptors
        let pool = Pool::new(options.threads).map_err(DiskError::io(dir, "disk threads"))?;
        let places = Pool::new(options.threads.min(PLACE_THREADS));
        let places = places.map_err(DiskError::io(dir, "disk threads"))?;
        Ok(Rc::new(DiskObjects {
            files: Arc::new(files),
            ring: OnceCell::new(),
            ring_ops_max: options.ring_ops_max,
            pool,
            threads: options.threads,
            depth: RefCell::default(),
            places,
            flights: Arc::default(),
            syncing: tokio::sync::Mutex::new(()),
            failed: Cell::new(None),
            pace: Rc::default(),
            extents: RefCell::default(),
            unmapped: Cell::new(false),
        }))
    }

    /// So many requests are served at once, by `depth` of the moment: as many transfers can wait
    /// for the device, so that what waits for its turn waits where policies see it.
    pub fn follow(&self, depth: impl Fn() -> usize + 'static) {
        *self.depth.borrow_mut() = Some(Rc::new(depth));
    }

    /// Transfers that can wait for the device at once.
    fn depth(&self) -> usize {
        let depth = self.depth.borrow().clone();
        match depth.map_or(0, |depth| depth().min(THREADS_MAX)) {
            0 => self.threads, // nobody says
            depth => depth,
        }
    }

    /// Large writes under way at once: half of that, so that reads find a thread.
    fn flights_max(&self) -> usize {
        (self.depth() / 2).max(1)
    }

    /// The threads, as many as there may be now.
    fn pool(&self) -> &Pool {
        self.pool.set_most(self.depth().max(self.threads));
        &self.pool
    }

    fn check(&self) -> Result<(), Errno> {
        self.failed.get().map_or_else(|| self.flights.lost(), Err)
    }

    /// Checked at the beginning of a call on `[offset, offset + len)`: that the store works, and
    /// nothing is under way there.
    async fn enter(&self, object: Fid, offset: u64, len: u64) -> Result<(), Errno> {
        self.flights.clear(object, offset, offset.saturating_add(len)).await;
        self.check()
    }

    async fn write_large(
        &self,
        object: Fid,
        offset: u64,
        data: Bytes,
        mode: IoMode,
    ) -> Result<ObjAttr, Errno> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        let flight = self.flights.begin(object, offset, end, self.flights_max()).await;
        self.check()?;
        let (answer, answered) = tokio::sync::oneshot::channel();
        let files = self.files.clone();
        self.pool().post(move || files.write_behind(object, offset, &data, mode, &flight, answer));
        answered.await.unwrap_or(Err(Errno::EIO))
    }

    /// The ring for a transfer of `len` bytes, if it may make that now.
    fn ring_for(&self, len: usize) -> Option<&Ring> {
        if len > RING_BYTES_MAX || !self.pace.is_fast() {
            return None;
        }
        self.ring.get_or_init(|| Ring::start(&self.files, &self.pace, self.ring_ops_max)).as_ref()
    }

    /// A small direct read without a thread; none where the pool must do it.
    async fn read_direct(&self, open: &Arc<Object>, offset: u64, len: usize) -> Option<Bytes> {
        let ring = self.ring_for(len).filter(|_| goes_direct(offset, len, IoMode::Direct))?;
        ring.read_direct(open, offset, len).await
    }

    /// A small direct write likewise.
    async fn write_direct(
        &self,
        object: Fid,
        offset: u64,
        data: &Bytes,
    ) -> Option<Result<ObjAttr, Errno>> {
        let ring = self
            .ring_for(data.len())
            .filter(|_| goes_direct(offset, data.len(), IoMode::Direct))?;
        let open = self.files.find_now(object).ok()??;
        ring.write_direct(&open, offset, data).await.map(|()| open.attr())
    }

    /// What the page cache has of an open object, or a small read that fills it; none where the
    /// pool must do it.
    async fn read_cached(
        &self,
        open: &Arc<Object>,
        offset: u64,
        len: usize,
        mode: IoMode,
    ) -> Result<Option<Bytes>, Errno> {
        match self.files.read_now(open, offset, len, mode) {
            Ok(data) => return Ok(Some(data)),
            Err(Errno::EAGAIN) => {}
            Err(Errno::EOPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error),
        }
        let Some(ring) = self.ring_for(len) else { return Ok(None) };
        Ok(match open.available(offset, len)? {
            0 => Some(Bytes::new()),
            len => ring.read_cached(open, offset, len).await,
        })
    }

    async fn on_pool<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Files) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        let files = self.files.clone();
        self.pool().run(move || call(&files)).await
    }

    async fn sync_dirty(&self) -> Result<(), Errno> {
        let _one_at_a_time = self.syncing.lock().await;
        self.flights.all().await?;
        self.check()?;
        let dirty = self.files.take_dirty();
        if dirty.all {
            return self.on_pool(Files::sync_all).await;
        }
        // Data first, then names: both in parallel among themselves.
        let mut waits = Vec::new();
        let left = Arc::new(std::sync::Mutex::new(dirty.objects.into_values().collect::<Vec<_>>()));
        let count = left.lock().map_or(0, |left| left.len());
        for _ in 0..count.min(SYNCS_AT_ONCE) {
            let (done, wait) = tokio::sync::oneshot::channel();
            let left = left.clone();
            let next = move || left.lock().unwrap_or_else(PoisonError::into_inner).pop();
            self.pool.post(move || {
                let outcome = std::iter::from_fn(next).try_for_each(|object| object.sync());
                let _nobody_waits = done.send(outcome);
            });
            waits.push(wait);
        }
        let mut outcome = Ok(());
        for wait in waits {
            outcome = outcome.and(wait.await.unwrap_or(Err(Errno::EIO)));
        }
        outcome?;
        if dirty.dirs != 0 {
            self.on_pool(move |files| {
                (0..DIRS)
                    .filter(|index| dirty.dirs & (1 << index) != 0)
                    .try_for_each(|index| files.sync_dir(index))
            })
            .await?;
        }
        Ok(())
    }
}

impl ObjStore for DiskObjects {
    fn read(
        &self,
        object: Fid,
        offset: u64,
        len: usize,
        mode: IoMode,
    ) -> LocalFuture<'_, Result<Option<Bytes>, Errno>> {
        Box::pin(async move {
            self.enter(object, offset, len as u64).await?;
            let found = self.files.find_now(object);
            let data = match (mode, found) {
                (_, Ok(None)) => return Ok(None),
                (IoMode::Direct, Ok(Some(open))) => self.read_direct(&open, offset, len).await,
                (_, Ok(Some(open))) => self.read_cached(&open, offset, len, mode).await?,
                (_, Err(_)) => None,
            };
            if data.is_some() {
                return Ok(data);
            }
            self.on_pool(move |files| match files.find(object, false)? {
                Some(open) => files.read(&open, offset, len, mode).map(Some),
                None => Ok(None),
            })
            .await
        })
    }

    fn write(
        &self,
        object: Fid,
        offset: u64,
        data: Bytes,
        mode: IoMode,
    ) -> LocalFuture<'_, Result<ObjAttr, Errno>> {
        Box::pin(async move {
            if data.len() >= DIRECT_BYTES_MIN && goes_direct(offset, data.len(), mode) {
                return self.write_large(object, offset, data, mode).await;
            }
            self.enter(object, offset, data.len() as u64).await?;
            let small =
                data.len() <= INLINE_WRITE_BYTES_MAX && !goes_direct(offset, data.len(), mode);
            if small
                && self.pace.is_fast()
                && let Ok(Some(open)) = self.files.find_now(object)
            {
                return self.pace.watch(|| self.files.write(&open, offset, &data, mode));
            }
            if mode == IoMode::Direct
                && let Some(written) = self.write_direct(object, offset, &data).await
            {
                return written;
            }
            self.on_pool(move |files| {
                let open = files.find(object, true)?.expect("find makes the object");
                files.write(&open, offset, &data, mode)
            })
            .await
        })
    }

    fn truncate(
        &self,
        object: Fid,
        size: u64,
        create: bool,
    ) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>> {
        Box::pin(async move {
            self.enter(object, 0, u64::MAX).await?;
            self.extents.borrow_mut().forget(object);
            self.on_pool(move |files| match files.find(object, create)? {
                Some(open) => files.truncate(&open, size).map(Some),
                None => Ok(None),
            })
            .await
        })
    }

    fn allocate(
        &self,
        object: Fid,
        what: Allocate,
        offset: u64,
        length: u64,
    ) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>> {
        Box::pin(async move {
            self.enter(object, 0, u64::MAX).await?;
            self.extents.borrow_mut().forget(object);
            self.on_pool(move |files| match files.find(object, what != Allocate::Punch)? {
                Some(open) => files.allocate(&open, what, offset, length).map(Some),
                None => Ok(None),
            })
            .await
        })
    }

    fn seek(
        &self,
        object: Fid,
        what: Seek,
        offset: u64,
    ) -> LocalFuture<'_, Result<Option<Found>, Errno>> {
        Box::pin(async move {
            self.enter(object, 0, u64::MAX).await?;
            self.on_pool(move |files| {
                files.find(object, false)?.map(|open| open.seek(what, offset)).transpose()
            })
            .await
        })
    }

    fn attr(&self, object: Fid) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>> {
        Box::pin(async move {
            self.check()?;
            match self.files.find_now(object) {
                Ok(open) => open.map(|open| open.attr()).transpose(),
                Err(_) => {
                    self.on_pool(move |files| {
                        files.find(object, false)?.map(|open| open.attr()).transpose()
                    })
                    .await
                }
            }
        })
    }

    fn destroy(&self, object: Fid) -> LocalFuture<'_, Result<bool, Errno>> {
        Box::pin(async move {
            self.enter(object, 0, u64::MAX).await?;
            self.extents.borrow_mut().forget(object);
            if let Ok(None) = self.files.find_now(object) {
                return Ok(false);
            }
            self.on_pool(move |files| files.destroy(object)).await
        })
    }

    fn sync(&self) -> LocalFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            let synced = self.sync_dirty().await;
            if let Err(error) = synced {
                self.failed.set(Some(error));
            }
            synced
        })
    }

    fn list(&self, from: Fid, max: usize) -> LocalFuture<'_, Result<Vec<Fid>, Errno>> {
        Box::pin(async move {
            self.check()?;
            self.on_pool(move |files| files.list(from, max)).await
        })
    }

    fn locate(&self, object: Fid, range: Extent) -> LocalFuture<'_, Result<Option<u64>, Errno>> {
        Box::pin(async move {
            self.check()?;
            let known = self.extents.borrow().place(object, range);
            if known.is_some() || self.unmapped.get() {
                return Ok(known);
            }
            let files = self.files.clone();
            let asked = self.places.run(move || match files.find(object, false)? {
                Some(open) => extents::ask(open.fd(), range.start()),
                None => Ok(Vec::new()),
            });
            match asked.await {
                Ok(pieces) => {
                    let found = extents::place(&pieces, range);
                    self.extents.borrow_mut().learn(object, pieces);
                    Ok(found)
                }
                Err(Errno::EOPNOTSUPP | Errno::ENOTTY) => {
                    self.unmapped.set(true);
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })
    }

    fn space(&self) -> LocalFuture<'_, Result<Space, Errno>> {
        Box::pin(async move {
            self.check()?;
            self.on_pool(|files| {
                let stat = rustix::fs::fstatvfs(&files.root).map_err(files::errno)?;
                Ok(crate::statvfs::space(&stat))
            })
            .await
        })
    }
}

#[cfg(test)]
mod tests;
