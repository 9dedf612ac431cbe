//! Objects in memory: the page cache of the machine, its durable image, and the changes between the
//! two.

use std::collections::BTreeMap;

use bytes::Bytes;
use env::{Env, LocalFuture};
use types::{Errno, Extent, Fid, Span, SplitMix64, Timespec};

use super::{Deed, MemDisk};
use crate::{Allocate, Found, IoMode, Lowest, ObjAttr, ObjStore, Seek, Space};

/// Unit in which a write is torn, and in which space is given out.
const BLOCK: u64 = 4_096;
/// Room of an object on the device, as [`ObjStore::locate`] tells it.
const OBJECT_ROOM_BITS: u32 = 30;
/// Largest object: what a file offset can express.
const SIZE_MAX: u64 = i64::MAX as u64;

#[derive(Clone, Default)]
struct Object {
    size: u64,
    /// Each without zeros behind its last byte: many objects of a byte fit into the memory.
    blocks: BTreeMap<u64, Vec<u8>>,
    mtime: Timespec,
    atime: Timespec,
    ctime: Timespec,
}

impl Object {
    fn attr(&self) -> ObjAttr {
        let blocks = self.blocks.len() as u64 * (BLOCK / 512);
        ObjAttr { size: self.size, blocks, mtime: self.mtime, atime: self.atime, ctime: self.ctime }
    }

    fn read(&self, offset: u64, len: usize) -> Bytes {
        let end = self.size.min(offset.saturating_add(len as u64));
        if offset >= end {
            return Bytes::new();
        }
        let mut out = vec![0; usize::try_from(end - offset).expect("at most len")];
        for (index, block) in self.blocks.range(offset / BLOCK..=(end - 1) / BLOCK) {
            let start = index * BLOCK;
            let from = offset.max(start);
            let to = end.min(start + BLOCK);
            let (at, in_block) = ((from - offset) as usize, (from - start) as usize);
            let known = block.get(in_block..).unwrap_or_default();
            let count = known.len().min((to - from) as usize);
            out[at..at + count].copy_from_slice(&known[..count]);
        }
        Bytes::from(out)
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for (start, piece) in pieces(offset, data) {
            let block = self.blocks.entry(start / BLOCK).or_default();
            let at = (start % BLOCK) as usize;
            block.resize(block.len().max(at + piece.len()), 0);
            block[at..at + piece.len()].copy_from_slice(piece);
            self.size = self.size.max(start + piece.len() as u64);
        }
    }

    fn allocate(&mut self, what: Allocate, offset: u64, length: u64) {
        let end = offset + length;
        if !matches!(what, Allocate::Reserve { .. }) {
            self.zero(offset, end);
        }
        if what == Allocate::Punch {
            self.blocks.retain(|index, _| index * BLOCK < offset || (index + 1) * BLOCK > end);
            return;
        }
        for index in offset / BLOCK..end.div_ceil(BLOCK) {
            self.blocks.entry(index).or_default();
        }
        if matches!(what, Allocate::Reserve { grow: true } | Allocate::Zero { grow: true }) {
            self.size = self.size.max(end);
        }
    }

    fn zero(&mut self, start: u64, end: u64) {
        for (index, block) in self.blocks.range_mut(start / BLOCK..end.div_ceil(BLOCK)) {
            let from = start.saturating_sub(index * BLOCK) as usize;
            let to = (end - index * BLOCK).min(block.len() as u64) as usize;
            block[from.min(to)..to].fill(0);
        }
    }

    fn seek(&self, what: Seek, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let first = offset / BLOCK;
        let index = match what {
            Seek::Data => self.blocks.range(first..).next().map(|(index, _)| *index)?,
            Seek::Hole => {
                (first..).find(|index| !self.blocks.contains_key(index)).expect("blocks are finite")
            }
        };
        let found = (index * BLOCK).max(offset);
        match what {
            Seek::Data => (found < self.size).then_some(found),
            Seek::Hole => Some(found.min(self.size)),
        }
    }

    fn truncate(&mut self, size: u64) {
        self.blocks.retain(|index, _| index * BLOCK < size);
        if let Some(block) = self.blocks.get_mut(&(size / BLOCK)) {
            block.truncate((size % BLOCK) as usize);
        }
        self.size = size;
    }
}

/// `data` at `offset`, cut at block boundaries.
fn pieces(offset: u64, mut data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = offset;
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let len = data.len().min((BLOCK - at % BLOCK) as usize);
        let (piece, rest) = data.split_at(len);
        let start = at;
        (data, at) = (rest, at + len as u64);
        Some((start, piece))
    })
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, data: Bytes, time: Timespec },
    Truncate { size: u64, time: Timespec },
    Allocate { what: Allocate, offset: u64, length: u64, time: Timespec },
    Destroy,
}

impl Change {
    fn apply(&self, object: &mut Option<Object>) {
        match self {
            Change::Write { offset, data, time } => {
                let object = object.get_or_insert_default();
                object.write(*offset, data);
                (object.mtime, object.ctime) = (*time, *time);
            }
            Change::Truncate { size, time } => {
                let object = object.get_or_insert_default();
                object.truncate(*size);
                (object.mtime, object.ctime) = (*time, *time);
            }
            Change::Allocate { what, offset, length, time } => {
                let object = object.get_or_insert_default();
                object.allocate(*what, *offset, *length);
                (object.mtime, object.ctime) = (*time, *time);
            }
            Change::Destroy => *object = None,
        }
    }

    /// As a disk may have it after the power went: some blocks of a write, a truncation or a
    /// removal or not.
    fn apply_torn(&self, object: &mut Option<Object>, keep: u64, chance: &mut SplitMix64) {
        let mut kept = || chance.bits() % 100 < keep;
        match self {
            Change::Write { offset, data, time } => {
                for (start, piece) in pieces(*offset, data) {
                    if kept() {
                        let object = object.get_or_insert_default();
                        object.write(start, piece);
                        (object.mtime, object.ctime) = (*time, *time);
                    }
                }
            }
            Change::Truncate { .. } | Change::Allocate { .. } | Change::Destroy => {
                if kept() {
                    self.apply(object);
                }
            }
        }
    }
}

#[derive(Default)]
struct Slot {
    cached: Option<Object>,
    durable: Option<Object>,
    unsynced: Vec<Change>,
}

/// All objects of a machine.
#[derive(Default)]
pub(super) struct Objects {
    slots: BTreeMap<Fid, Slot>,
    bytes: u64,
    count: u64,
}

impl Objects {
    fn cached(&self, fid: Fid) -> Option<&Object> {
        self.slots.get(&fid)?.cached.as_ref()
    }

    fn change(&mut self, fid: Fid, change: Change) {
        let slot = self.slots.entry(fid).or_default();
        let before = slot.cached.as_ref().map(|object| object.blocks.len() as u64 * BLOCK);
        change.apply(&mut slot.cached);
        let after = slot.cached.as_ref().map(|object| object.blocks.len() as u64 * BLOCK);
        slot.unsynced.push(change);
        self.bytes = self.bytes + after.unwrap_or(0) - before.unwrap_or(0);
        self.count = self.count + u64::from(after.is_some()) - u64::from(before.is_some());
    }

    pub(super) fn fids(&self) -> Vec<Fid> {
        self.slots.iter().filter(|(_, slot)| slot.cached.is_some()).map(|(fid, _)| *fid).collect()
    }

    pub(super) fn count(&self) -> usize {
        usize::try_from(self.count).expect("all of them are in memory")
    }

    pub(super) fn unsynced(&self) -> usize {
        self.slots.values().filter(|slot| !slot.unsynced.is_empty()).count()
    }

    pub(super) fn power_cut(&mut self, seed: u64) {
        let mut chance = SplitMix64::new(seed); // the disk's own, not the run's
        // some power cuts come right after a writeback and some long before one
        let keep = chance.bits() % 101;
        for slot in self.slots.values_mut() {
            for change in std::mem::take(&mut slot.unsynced) {
                change.apply_torn(&mut slot.durable, keep, &mut chance);
            }
            slot.cached = slot.durable.clone();
        }
        self.slots.retain(|_, slot| slot.cached.is_some());
        self.count = self.slots.len() as u64;
        self.bytes = self
            .slots
            .values()
            .filter_map(|slot| slot.cached.as_ref())
            .map(|o| o.blocks.len() as u64 * BLOCK)
            .sum();
    }

    /// What is not synced now, to be made durable by [`Objects::synced`].
    fn unsynced_counts(&self) -> Vec<(Fid, usize)> {
        let dirty = self.slots.iter().filter(|(_, slot)| !slot.unsynced.is_empty());
        dirty.map(|(fid, slot)| (*fid, slot.unsynced.len())).collect()
    }

    fn synced(&mut self, counts: &[(Fid, usize)]) {
        for (fid, count) in counts {
            let Some(slot) = self.slots.get_mut(fid) else { continue };
            // another sync may have been faster
            let count = (*count).min(slot.unsynced.len());
            for change in slot.unsynced.drain(..count) {
                change.apply(&mut slot.durable);
            }
            if slot.cached.is_none() && slot.durable.is_none() && slot.unsynced.is_empty() {
                self.slots.remove(fid);
            }
        }
    }
}

/// Objects of one process, over the [`MemDisk`] of its machine.
#[derive(Clone)]
pub struct MemObjects {
    env: Env,
    disk: MemDisk,
}

impl MemObjects {
    /// Opens the objects of `disk`.
    #[must_use]
    pub fn open(env: &Env, disk: &MemDisk) -> MemObjects {
        MemObjects { env: env.clone(), disk: disk.clone() }
    }

    async fn pause(&self) {
        self.env
            .sleep(self.disk.takes(self.env.random(), Span::ZERO, self.disk.0.config.io_max))
            .await;
    }

    /// `ENOSPC` before anything is changed; counts as if every touched block were new.
    fn room(&self, fid: Fid, len: u64) -> Result<(), Errno> {
        let objects = self.disk.0.objects.borrow();
        let config = &self.disk.0.config;
        let is_new = objects.cached(fid).is_none();
        let full = self.disk.0.full.get()
            || objects.bytes + (len.div_ceil(BLOCK) + 1) * BLOCK
                > self.disk.0.object_bytes_max.get();
        if (len > 0 && full) || (is_new && objects.count >= config.objects_max) {
            Err(Errno::ENOSPC)
        } else {
            Ok(())
        }
    }

    fn attr_now(&self, fid: Fid) -> Option<ObjAttr> {
        self.disk.0.objects.borrow().cached(fid).map(Object::attr)
    }
}

impl ObjStore for MemObjects {
    fn read(
        &self,
        fid: Fid,
        offset: u64,
        len: usize,
        _mode: IoMode,
    ) -> LocalFuture<'_, Result<Option<Bytes>, Errno>> {
        Box::pin(async move {
            self.pause().await;
            let fails = self.disk.0.fail_reads.get();
            if fails > 0 {
                self.disk.0.fail_reads.set(fails - 1);
                return Err(Errno::EIO);
            }
            Ok(self.disk.0.objects.borrow().cached(fid).map(|object| object.read(offset, len)))
        })
    }

    fn write(
        &self,
        fid: Fid,
        offset: u64,
        data: Bytes,
        _mode: IoMode,
    ) -> LocalFuture<'_, Result<ObjAttr, Errno>> {
        Box::pin(async move {
            self.pause().await;
            let len = data.len() as u64;
            if offset.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
                return Err(Errno::EFBIG);
            }
            self.room(fid, len)?;
            let change = Change::Write { offset, data, time: self.env.wall() };
            self.disk.0.objects.borrow_mut().change(fid, change);
            Ok(self.attr_now(fid).expect("it was just written"))
        })
    }

    fn truncate(
        &self,
        fid: Fid,
        size: u64,
        create: bool,
    ) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>> {
        Box::pin(async move {
            self.pause().await;
            if size > SIZE_MAX {
                return Err(Errno::EFBIG);
            }
            if self.attr_now(fid).is_none() && !create {
                return Ok(None);
            }
            self.room(fid, 0)?;
            let change = Change::Truncate { size, time: self.env.wall() };
            self.disk.0.objects.borrow_mut().change(fid, change);
            Ok(self.attr_now(fid))
        })
    }

    fn allocate(
        &self,
        fid: Fid,
        what: Allocate,
        offset: u64,
        length: u64,
    ) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>> {
        Box::pin(async move {
            self.pause().await;
            if offset.checked_add(length).is_none_or(|end| end > SIZE_MAX) {
                return Err(Errno::EFBIG);
            }
            if what == Allocate::Punch && self.attr_now(fid).is_none() {
                return Ok(None);
            }
            if what != Allocate::Punch {
                self.room(fid, length)?;
            }
            let change = Change::Allocate { what, offset, length, time: self.env.wall() };
            self.disk.0.objects.borrow_mut().change(fid, change);
            Ok(self.attr_now(fid))
        })
    }

    fn seek(
        &self,
        fid: Fid,
        what: Seek,
        offset: u64,
    ) -> LocalFuture<'_, Result<Option<Found>, Errno>> {
        Box::pin(async move {
            self.pause().await;
            let objects = self.disk.0.objects.borrow();
            Ok(objects
                .cached(fid)
                .map(|object| Found { offset: object.seek(what, offset), size: object.size }))
        })
    }

    fn attr(&self, fid: Fid) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>> {
        Box::pin(async move {
            self.pause().await;
            Ok(self.attr_now(fid))
        })
    }

    fn destroy(&self, fid: Fid) -> LocalFuture<'_, Result<bool, Errno>> {
        Box::pin(async move {
            self.pause().await;
            if self.attr_now(fid).is_none() {
                return Ok(false);
            }
            self.disk.0.objects.borrow_mut().change(fid, Change::Destroy);
            Ok(true)
        })
    }

    fn sync(&self) -> LocalFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            let counts = self.disk.0.objects.borrow().unsynced_counts();
            let config = &self.disk.0.config;
            self.env
                .sleep(self.disk.takes(self.env.random(), config.commit_min, config.commit_max))
                .await;
            if self.disk.0.fail_sync.replace(false) {
                return Err(Errno::EIO);
            }
            self.disk.0.objects.borrow_mut().synced(&counts);
            self.disk.did(Deed::Commit);
            Ok(())
        })
    }

    fn list(&self, from: Fid, max: usize) -> LocalFuture<'_, Result<Vec<Fid>, Errno>> {
        Box::pin(async move {
            self.pause().await;
            let objects = self.disk.0.objects.borrow();
            let there = objects.slots.iter().filter(|(_, slot)| slot.cached.is_some());
            let mut lowest = Lowest::new(from, max);
            there.for_each(|(fid, _)| lowest.offer(*fid));
            Ok(lowest.into_sorted())
        })
    }

    /// As if every object lay in one piece, in the order of their numbers.
    fn locate(&self, fid: Fid, range: Extent) -> LocalFuture<'_, Result<Option<u64>, Errno>> {
        Box::pin(async move {
            self.pause().await;
            let stored = self.attr_now(fid).is_some_and(|attr| range.start() < attr.size);
            Ok(stored.then(|| (u64::from(fid.oid) << OBJECT_ROOM_BITS).wrapping_add(range.start())))
        })
    }

    fn space(&self) -> LocalFuture<'_, Result<Space, Errno>> {
        Box::pin(async move {
            self.pause().await;
            let (objects, config) = (self.disk.0.objects.borrow(), &self.disk.0.config);
            let bytes = self.disk.0.object_bytes_max.get();
            Ok(Space {
                bytes,
                bytes_free: bytes.saturating_sub(objects.bytes),
                files: config.objects_max,
                files_free: config.objects_max.saturating_sub(objects.count),
            })
        })
    }
}
