//! Objects as files: names, descriptors, and the system calls on them. Everything here may run on
//! any thread.
//!
//! An object is `objects/dNN/SEQ-OID-STRIPE` (hex), in one of 32 directories.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use env::{BUFFER_ALIGN, BufferPool};
use osd::{IoMode, Lowest, ObjAttr};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use tokio::sync::oneshot;
use types::{Errno, Fid, Timespec};

use super::flight::Flight;
use crate::DiskError;

/// Directories over which objects are spread.
pub(crate) const DIRS: usize = 32;
/// Writes from this size on go around the page cache if they are aligned.
pub(crate) const DIRECT_BYTES_MIN: usize = 1 << 20;
/// Bytes of buffers that a store keeps for the next transfer: what 16 threads have at once, and 64
/// small ones of the ring.
const BUFFERS_BYTES_MAX: usize = 16 * (4 << 20) + 64 * (64 << 10);
/// Reads from this size on use kept buffers.
const POOLED_BYTES_MIN: usize = 256 << 10;

/// `RWF_DONTCACHE` (Linux 6.14): pages that a read brought in go when it has copied them.
const RWF_DONTCACHE: i32 = 0x80;

const _: () = assert!(DIRS <= 32, "a word has a bit for each directory");

pub(crate) struct Object {
    pub(crate) fid: Fid,
    pub(super) file: File,
    // a second description, for O_DIRECT; none where the file system has none
    direct: OnceLock<Option<File>>,
}

/// What happened to an object since the last sync.
#[derive(Clone)]
pub(crate) struct Dirty {
    pub(crate) object: Arc<Object>,
    /// Its size was set: `fdatasync` alone need not keep that.
    pub(crate) resized: bool,
}

/// Everything that the next sync has to make durable.
#[derive(Default)]
pub(crate) struct DirtySet {
    pub(crate) objects: HashMap<Fid, Dirty>,
    /// A bit for each directory.
    pub(crate) dirs: u32,
    /// More objects than are worth single calls: the whole file system is synced, and `objects` is
    /// empty.
    pub(crate) all: bool,
}

/// Dirty objects from which on one `syncfs` replaces the single calls; each of them keeps a
/// descriptor open.
const DIRTY_OBJECTS_MAX: usize = 256;

struct Cache {
    objects: HashMap<Fid, (Arc<Object>, u64)>,
    clock: u64,
    max: usize,
    // a descriptor that was opened before one of these may be of a file that is gone: it is not
    // kept
    destroys: u64,
}

/// The files of one store.
pub(crate) struct Files {
    pub(crate) root: OwnedFd,
    dirs: Vec<OwnedFd>,
    cache: Mutex<Cache>,
    dirty: Mutex<DirtySet>,
    pub(crate) buffers: BufferPool,
    /// The kernel or the file system below knows no [`RWF_DONTCACHE`].
    keeps_pages: AtomicBool,
}

pub(super) fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

fn last_errno() -> Errno {
    Errno::from_io(&std::io::Error::last_os_error())
}

/// Name of a directory of objects.
pub(crate) fn dir_name(index: usize) -> String {
    format!("d{index:02}")
}

fn dir_of(fid: Fid) -> usize {
    (fid.oid.wrapping_add(fid.ver).wrapping_add(fid.seq as u32) as usize) % DIRS
}

fn name_of(fid: Fid) -> CString {
    CString::new(format!("{:x}-{:x}-{:x}", fid.seq, fid.oid, fid.ver))
        .expect("hex digits have no NUL")
}

fn fid_of(name: &str) -> Option<Fid> {
    let mut parts = name.split('-');
    let mut next = || u64::from_str_radix(parts.next()?, 16).ok();
    let fid =
        Fid { seq: next()?, oid: u32::try_from(next()?).ok()?, ver: u32::try_from(next()?).ok()? };
    (parts.next().is_none() && name_of(fid).to_bytes() == name.as_bytes()).then_some(fid)
}

const OPEN: OFlags =
    OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NOATIME).union(OFlags::NOFOLLOW);

impl DirtySet {
    /// What a process may leave behind that was killed: names that came or went without a sync.
    /// Whoever replays such a create or destroy finds it done, and it is not noted again.
    fn left_behind() -> DirtySet {
        DirtySet { dirs: u32::MAX, ..DirtySet::default() }
    }
}

impl Files {
    pub(crate) fn open(dir: &Path, objects_max: usize) -> Result<Files, DiskError> {
        let path = dir.join("objects");
        let open_dir = |path: &Path| -> Result<OwnedFd, DiskError> {
            File::open(path).map(OwnedFd::from).map_err(DiskError::io(path, "cannot be opened"))
        };
        let mut dirs = Vec::with_capacity(DIRS);
        for index in 0..DIRS {
            let path = path.join(dir_name(index));
            std::fs::create_dir_all(&path).map_err(DiskError::io(&path, "cannot be made"))?;
            dirs.push(open_dir(&path)?);
        }
        let root = open_dir(&path)?;
        crate::durable::sync_dir(&path)?;
        crate::durable::sync_dir(dir)?;
        let cache =
            Cache { objects: HashMap::new(), clock: 0, max: objects_max.max(8), destroys: 0 };
        Ok(Files {
            root,
            dirs,
            cache: Mutex::new(cache),
            dirty: Mutex::new(DirtySet::left_behind()),
            buffers: BufferPool::new(BUFFERS_BYTES_MAX),
            keeps_pages: AtomicBool::new(false),
        })
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dirty(&self) -> MutexGuard<'_, DirtySet> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open object without any wait: from the cache, or by a lookup that the kernel answers
    /// from its own. `EAGAIN` where that is not known.
    pub(crate) fn find_now(&self, fid: Fid) -> Result<Option<Arc<Object>>, Errno> {
        let destroys = match self.cache().look(fid) {
            Ok(object) => return Ok(Some(object)),
            Err(destroys) => destroys,
        };
        let opened = rustix::fs::openat2(
            &self.dirs[dir_of(fid)],
            name_of(fid),
            OPEN,
            Mode::empty(),
            ResolveFlags::CACHED,
        );
        match opened {
            Ok(fd) => Ok(Some(self.remember(fid, fd, destroys))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            // Before Linux 5.12, or no memory of the name, or anything else: the blocking call will
            // say what it is.
            Err(_) => Err(Errno::EAGAIN),
        }
    }

    /// An open object; made with `create`.
    pub(crate) fn find(&self, fid: Fid, create: bool) -> Result<Option<Arc<Object>>, Errno> {
        let destroys = match self.cache().look(fid) {
            Ok(object) => return Ok(Some(object)),
            Err(destroys) => destroys,
        };
        let open = |flags| {
            self.retry(|| {
                rustix::fs::openat(
                    &self.dirs[dir_of(fid)],
                    name_of(fid),
                    flags,
                    Mode::RUSR | Mode::WUSR,
                )
            })
        };
        if create {
            // mostly it is new: its directory is searched once, as it is made
            match open(OPEN | OFlags::CREATE | OFlags::EXCL) {
                Ok(fd) => {
                    self.dirty().dirs |= 1 << dir_of(fid);
                    return Ok(Some(self.remember(fid, fd, destroys)));
                }
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error),
            }
        }
        match open(OPEN) {
            Ok(fd) => Ok(Some(self.remember(fid, fd, destroys))),
            Err(Errno::ENOENT) if !create => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Out of descriptors: lets half of the kept ones go and tries once more.
    fn retry<T>(&self, call: impl Fn() -> Result<T, rustix::io::Errno>) -> Result<T, Errno> {
        match call() {
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                self.cache().shrink(2);
                call().map_err(errno)
            }
            other => other.map_err(errno),
        }
    }

    fn remember(&self, fid: Fid, fd: OwnedFd, destroys: u64) -> Arc<Object> {
        let object = Arc::new(Object { fid, file: fd.into(), direct: OnceLock::new() });
        let mut cache = self.cache();
        if cache.destroys == destroys { cache.insert(object) } else { object }
    }

    fn direct<'a>(&self, object: &'a Object) -> Option<BorrowedFd<'a>> {
        let open = || {
            let flags = OPEN | OFlags::DIRECT;
            let fd = rustix::fs::openat(
                &self.dirs[dir_of(object.fid)],
                name_of(object.fid),
                flags,
                Mode::empty(),
            );
            fd.ok().map(File::from)
        };
        object.direct.get_or_init(open).as_ref().map(AsFd::as_fd)
    }

    /// Notes that `object` was changed. After the change, never before: a sync in between would
    /// miss it.
    pub(super) fn note(&self, object: &Arc<Object>, resized: bool) {
        let mut dirty = self.dirty();
        if dirty.all {
            return;
        }
        let new = Dirty { object: object.clone(), resized };
        dirty.objects.entry(object.fid).and_modify(|old| old.resized |= resized).or_insert(new);
        if dirty.objects.len() > DIRTY_OBJECTS_MAX {
            dirty.objects.clear();
            dirty.all = true;
        }
    }

    /// Whether the next sync has something to do for `fid`.
    #[cfg(test)]
    pub(super) fn has_dirty(&self, fid: Fid) -> bool {
        self.dirty().objects.contains_key(&fid)
    }

    /// Hands over what is to be synced; what changes from now on is for the next time.
    pub(crate) fn take_dirty(&self) -> DirtySet {
        std::mem::take(&mut *self.dirty())
    }

    /// Writes all of `data`.
    pub(crate) fn write(
        &self,
        object: &Arc<Object>,
        offset: u64,
        data: &Bytes,
        mode: IoMode,
    ) -> Result<ObjAttr, Errno> {
        let written = match mode {
            _ if !goes_direct(offset, data.len(), mode) => {
                write_all(object.file.as_fd(), offset, data)
            }
            _ => self.write_direct(object, offset, data),
        };
        self.note(object, false); // a failed write may have changed something too
        written?;
        object.attr()
    }

    /// Gives `data` room in the object, answers, and writes it then. Where no room can be given
    /// beforehand, the answer comes after the write and tells its outcome.
    pub(super) fn write_behind(
        &self,
        fid: Fid,
        offset: u64,
        data: &Bytes,
        mode: IoMode,
        flight: &Flight,
        answer: oneshot::Sender<Result<ObjAttr, Errno>>,
    ) {
        let found = self.find(fid, true).map(|object| object.expect("find makes the object"));
        let roomy =
            found.as_ref().is_ok_and(|object| object.make_room(offset, data.len() as u64).is_ok());
        let attr = found.as_ref().map_err(|error| *error).and_then(|object| object.attr());
        let (Ok(object), Ok(attr), true) = (&found, attr, roomy) else {
            let _nobody_waits =
                answer.send(found.and_then(|object| self.write(&object, offset, data, mode)));
            return;
        };
        let _nobody_waits = answer.send(Ok(attr));
        if let Err(error) = self.write(object, offset, data, mode) {
            flight.lose(error);
        }
    }

    fn write_direct(&self, object: &Object, offset: u64, data: &Bytes) -> Result<(), Errno> {
        let Some(fd) = self.direct(object) else {
            return write_all(object.file.as_fd(), offset, data);
        };
        let written = if (data.as_ptr() as usize).is_multiple_of(BUFFER_ALIGN) {
            write_all(fd, offset, data)
        } else {
            let mut aligned = self.buffers.take(data.len());
            aligned.extend(data);
            write_all(fd, offset, aligned.as_ref())
        };
        match written {
            // The device wants another alignment: its pages are as good.
            Err(Errno::EINVAL) => write_all(object.file.as_fd(), offset, data),
            other => other,
        }
    }

    /// What the page cache has of the range; `EAGAIN` where that is not all there is.
    pub(crate) fn read_now(
        &self,
        object: &Object,
        offset: u64,
        len: usize,
        mode: IoMode,
    ) -> Result<Bytes, Errno> {
        if !object.streams(offset, len, mode) {
            return self.read_with(object, offset, len, libc::RWF_NOWAIT);
        }
        match self.read_dropping(object, offset, len, libc::RWF_NOWAIT) {
            Some(read) => read,
            None => Err(Errno::EAGAIN), // a direct read, which waits
        }
    }

    /// A read that leaves nothing in the page cache; none where the kernel cannot do that.
    fn read_dropping(
        &self,
        object: &Object,
        offset: u64,
        len: usize,
        flags: i32,
    ) -> Option<Result<Bytes, Errno>> {
        if self.keeps_pages.load(Ordering::Relaxed) {
            return None;
        }
        match self.read_with(object, offset, len, flags | RWF_DONTCACHE) {
            Err(Errno::EOPNOTSUPP) => {
                self.keeps_pages.store(true, Ordering::Relaxed);
                None
            }
            read => Some(read),
        }
    }

    /// Reads the range, short at the end of the object.
    pub(crate) fn read(
        &self,
        object: &Object,
        offset: u64,
        len: usize,
        mode: IoMode,
    ) -> Result<Bytes, Errno> {
        let streams = object.streams(offset, len, mode);
        if streams && let Some(read) = self.read_dropping(object, offset, len, 0) {
            return read;
        }
        if streams || mode == IoMode::Direct && goes_direct(offset, len, mode) {
            match self.read_direct(object, offset, len) {
                Err(Errno::EINVAL | Errno::EOPNOTSUPP) => {}
                other => return other,
            }
        }
        self.read_with(object, offset, len, 0)
    }

    fn read_direct(&self, object: &Object, offset: u64, len: usize) -> Result<Bytes, Errno> {
        let Some(fd) = self.direct(object) else { return Err(Errno::EOPNOTSUPP) };
        let mut buffer = self.buffers.take(len);
        let count = read_at(fd, offset, &mut buffer.spare()[..len], 0, BUFFER_ALIGN)?;
        buffer.filled(count);
        Ok(buffer.freeze())
    }

    fn read_with(
        &self,
        object: &Object,
        offset: u64,
        len: usize,
        flags: i32,
    ) -> Result<Bytes, Errno> {
        let len = object.available(offset, len)?;
        if len == 0 {
            return Ok(Bytes::new());
        }
        if len >= POOLED_BYTES_MIN {
            let mut buffer = self.buffers.take(len);
            let spare = &mut buffer.spare()[..len];
            let count = read_at(object.file.as_fd(), offset, spare, flags, 1)?;
            buffer.filled(count);
            return Ok(buffer.freeze());
        }
        let mut buffer: Vec<u8> = Vec::with_capacity(len);
        // SAFETY: the vector has room for `len` bytes, and as many as were read are filled.
        unsafe {
            let count = read_into(object.file.as_fd(), offset, buffer.as_mut_ptr(), len, flags, 1)?;
            buffer.set_len(count);
        }
        Ok(Bytes::from(buffer))
    }

    pub(crate) fn truncate(&self, object: &Arc<Object>, size: u64) -> Result<ObjAttr, Errno> {
        let done = rustix::fs::ftruncate(&object.file, size).map_err(errno);
        self.note(object, true);
        done?;
        object.attr()
    }

    pub(crate) fn destroy(&self, fid: Fid) -> Result<bool, Errno> {
        let removed = rustix::fs::unlinkat(&self.dirs[dir_of(fid)], name_of(fid), AtFlags::empty());
        self.cache().forget(fid);
        match removed {
            Ok(()) => {
                let mut dirty = self.dirty();
                dirty.objects.remove(&fid);
                dirty.dirs |= 1 << dir_of(fid);
                Ok(true)
            }
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(errno(error)),
        }
    }

    /// Makes the names of directory `index` durable.
    pub(crate) fn sync_dir(&self, index: usize) -> Result<(), Errno> {
        rustix::fs::fsync(&self.dirs[index]).map_err(errno)
    }

    /// Makes everything of the file system durable. The descriptor is as old as the store: it sees
    /// every failure.
    pub(crate) fn sync_all(&self) -> Result<(), Errno> {
        rustix::fs::syncfs(&self.root).map_err(errno)
    }

    pub(crate) fn list(&self, from: Fid, max: usize) -> Result<Vec<Fid>, Errno> {
        let mut lowest = Lowest::new(from, max);
        for dir in &self.dirs {
            for entry in rustix::fs::Dir::read_from(dir).map_err(errno)? {
                let entry = entry.map_err(errno)?;
                if let Some(fid) = entry.file_name().to_str().ok().and_then(fid_of) {
                    lowest.offer(fid);
                }
            }
        }
        Ok(lowest.into_sorted())
    }
}

impl Object {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether a read leaves nothing in the page cache.
    fn streams(&self, offset: u64, len: usize, mode: IoMode) -> bool {
        let IoMode::Stream { above } = mode else { return false };
        goes_direct(offset, len, mode) && self.attr().is_ok_and(|attr| attr.size > above)
    }

    /// How many of `len` bytes from `offset` there are.
    pub(super) fn available(&self, offset: u64, len: usize) -> Result<usize, Errno> {
        let behind = self.attr()?.size.saturating_sub(offset);
        Ok(usize::try_from(behind).map_or(len, |behind| behind.min(len)))
    }

    /// Its file for direct transfers, if they have been made before.
    pub(super) fn direct_now(&self) -> Option<BorrowedFd<'_>> {
        self.direct.get()?.as_ref().map(AsFd::as_fd)
    }

    /// Its attributes; answered by the kernel from memory, because it is open.
    pub(crate) fn attr(&self) -> Result<ObjAttr, Errno> {
        let stat = rustix::fs::fstat(&self.file).map_err(errno)?;
        let time = |sec: i64, nsec: u64| Timespec::new(sec, u32::try_from(nsec).unwrap_or(0));
        Ok(ObjAttr {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            atime: time(stat.st_atime, stat.st_atime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        })
    }
}

impl Dirty {
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        let file = &self.object.file;
        if self.resized { rustix::fs::fsync(file) } else { rustix::fs::fdatasync(file) }
            .map_err(errno)
    }
}

impl Cache {
    /// The object, or the count of destroys before which it was not here.
    fn look(&mut self, fid: Fid) -> Result<Arc<Object>, u64> {
        self.find(fid).ok_or(self.destroys)
    }

    fn forget(&mut self, fid: Fid) {
        self.objects.remove(&fid);
        self.destroys += 1;
    }

    fn find(&mut self, fid: Fid) -> Option<Arc<Object>> {
        self.clock += 1;
        let (object, used) = self.objects.get_mut(&fid)?;
        *used = self.clock;
        Some(object.clone())
    }

    /// Keeps `object`, or gives the one that another thread has opened meanwhile.
    fn insert(&mut self, object: Arc<Object>) -> Arc<Object> {
        if let Some(other) = self.find(object.fid) {
            return other;
        }
        if self.objects.len() >= self.max {
            self.shrink(8);
        }
        self.objects.insert(object.fid, (object.clone(), self.clock));
        object
    }

    /// Lets the least recently used go, one of `parts`: rarely, so that no order has to be kept on
    /// each use.
    fn shrink(&mut self, parts: usize) {
        let mut used: Vec<u64> = self.objects.values().map(|(_, used)| *used).collect();
        if used.is_empty() {
            return;
        }
        let middle = used.len() / parts;
        let (_, oldest, _) = used.select_nth_unstable(middle);
        let oldest = *oldest;
        self.objects.retain(|_, (_, used)| *used > oldest);
    }
}

/// Whether a write goes around the page cache.
pub(crate) fn goes_direct(offset: u64, len: usize, mode: IoMode) -> bool {
    let least = match mode {
        IoMode::Auto | IoMode::Stream { .. } => DIRECT_BYTES_MIN,
        IoMode::Direct => BUFFER_ALIGN,
    };
    len >= least && len.is_multiple_of(BUFFER_ALIGN) && offset.is_multiple_of(BUFFER_ALIGN as u64)
}

fn file_offset(offset: u64, len: usize) -> Result<libc::off_t, Errno> {
    let end = offset.checked_add(len as u64).ok_or(Errno::EFBIG)?;
    libc::off_t::try_from(end).map_err(|_| Errno::EFBIG)?;
    Ok(offset.cast_signed())
}

fn write_all(fd: BorrowedFd<'_>, offset: u64, data: &[u8]) -> Result<(), Errno> {
    let mut at = file_offset(offset, data.len())?;
    let mut rest = data;
    while !rest.is_empty() {
        // SAFETY: the slice is valid for its length.
        match unsafe { libc::pwrite(fd.as_raw_fd(), rest.as_ptr().cast(), rest.len(), at) } {
            0 => return Err(Errno::EIO),
            -1 if last_errno() == Errno::EINTR => {}
            -1 => return Err(last_errno()),
            count => {
                rest = &rest[count.cast_unsigned()..];
                at += count as libc::off_t;
            }
        }
    }
    Ok(())
}

/// Reads into `to`; how much was there.
fn read_at(
    fd: BorrowedFd<'_>,
    offset: u64,
    to: &mut [u8],
    flags: i32,
    step: usize,
) -> Result<usize, Errno> {
    // SAFETY: a slice is valid for writes of its length.
    unsafe { read_into(fd, offset, to.as_mut_ptr(), to.len(), flags, step) }
}

/// Reads up to `len` bytes, fewer only at the end of the file, which a count that is no multiple of
/// `step` shows.
///
/// # Safety
/// `to` is valid for writes of `len` bytes.
unsafe fn read_into(
    fd: BorrowedFd<'_>,
    offset: u64,
    to: *mut u8,
    len: usize,
    flags: i32,
    step: usize,
) -> Result<usize, Errno> {
    let start = file_offset(offset, len)?;
    let mut done = 0;
    while done < len {
        // SAFETY: `done` is at most `len`, for which the caller answers.
        let piece = libc::iovec { iov_base: unsafe { to.add(done) }.cast(), iov_len: len - done };
        // SAFETY: one piece of memory that is valid for writes.
        match unsafe {
            libc::preadv2(fd.as_raw_fd(), &piece, 1, start + done as libc::off_t, flags)
        } {
            0 => break,
            -1 if last_errno() == Errno::EINTR => {}
            -1 => return Err(last_errno()),
            count => done += count.cast_unsigned(),
        }
        if !done.is_multiple_of(step) {
            break; // the end of the file; asking again from here would not suit O_DIRECT
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_go_there_and_back_and_nothing_else_is_one() {
        let fid = Fid { seq: 0x2_0000_0401, oid: 7, ver: 3 };
        assert_eq!(fid_of("200000401-7-3"), Some(fid));
        for name in
            [".", "..", "200000401-7", "200000401-07-3", "x-1-1", "1-2-3-4", "1-100000000-0"]
        {
            assert_eq!(fid_of(name), None, "{name}");
        }
    }

    #[test]
    fn large_aligned_writes_go_direct() {
        let mib = 1 << 20;
        assert!(goes_direct(0, mib, IoMode::Auto) && goes_direct(4_096, mib, IoMode::Auto));
        assert!(!goes_direct(1, mib, IoMode::Auto) && !goes_direct(0, mib + 1, IoMode::Auto));
        assert!(!goes_direct(0, 4_096, IoMode::Auto) && goes_direct(0, 4_096, IoMode::Direct));
    }
}
