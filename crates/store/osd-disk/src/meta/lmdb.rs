//! The few calls of LMDB that the store makes, with ownership that makes them sound.
//!
//! [`Env`] and [`Txn`] are one token that changes shape. `Env::begin` gives the token away for a
//! write transaction, and `Txn::commit` gives it back. So there is never more than one transaction,
//! and never two threads in one environment. LMDB's own locks would ensure no more than that, so
//! they are off (`MDB_NOLOCK`). A `flock` keeps other processes out. Without these locks a
//! transaction is not tied to the thread that began it, so it can be committed on another one.
//!
//! Never `WRITEMAP`, because a full disk would be SIGBUS. With `NOSYNC`, LMDB's root pages name the
//! transactions that were written out. Module `root` names the durable ones.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

use lmdb_master_sys as ffi;

pub(crate) type Dbi = ffi::MDB_dbi;

/// LMDB's table of free pages.
const FREE_DBI: Dbi = 0;

/// What LMDB answered, as its number; the text names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LmdbError(pub(crate) c_int);

impl std::fmt::Display for LmdbError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: mdb_strerror takes any number and returns a NUL-terminated static or thread-local
        // text.
        let text = unsafe { std::ffi::CStr::from_ptr(ffi::mdb_strerror(self.0)) };
        write!(f, "{}", text.to_string_lossy())
    }
}

impl From<LmdbError> for osd::StoreError {
    fn from(error: LmdbError) -> osd::StoreError {
        osd::StoreError::Failed(error.to_string())
    }
}

fn check(code: c_int) -> Result<(), LmdbError> {
    if code == 0 { Ok(()) } else { Err(LmdbError(code)) }
}

/// An open environment without a transaction.
pub(crate) struct Env {
    raw: NonNull<ffi::MDB_env>,
}

// SAFETY: LMDB keeps nothing per thread with MDB_NOLOCK and MDB_NOTLS; the token is owned by one
// thread at a time and moves between threads by channels that order memory.
unsafe impl Send for Env {}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: the handle came from mdb_env_create, and a transaction would own this token:
        // there is none.
        unsafe { ffi::mdb_env_close(self.raw.as_ptr()) }
    }
}

impl Env {
    /// Opens `dir`; the caller holds its lock.
    pub(crate) fn open(dir: &Path, map_bytes: usize, tables_max: u32) -> Result<Env, LmdbError> {
        let path = CString::new(dir.as_os_str().as_bytes()).map_err(|_| LmdbError(libc::EINVAL))?;
        let mut raw = ptr::null_mut();
        // SAFETY: out-pointer to a local.
        check(unsafe { ffi::mdb_env_create(&mut raw) })?;
        let env =
            Env { raw: NonNull::new(raw).expect("mdb_env_create gives a handle with success") };
        let raw = env.raw.as_ptr();
        // SAFETY: a fresh handle, set up before it is opened as LMDB asks; the path outlives the
        // call.
        unsafe {
            check(ffi::mdb_env_set_mapsize(raw, map_bytes))?;
            check(ffi::mdb_env_set_maxdbs(raw, tables_max))?;
            let flags = ffi::MDB_NOLOCK | ffi::MDB_NOTLS | ffi::MDB_NOSYNC;
            check(ffi::mdb_env_open(raw, path.as_ptr(), flags, 0o600))?;
        }
        let mut flags: c_uint = 0;
        // SAFETY: an open handle and an out-pointer to a local.
        check(unsafe { ffi::mdb_env_get_flags(raw, &mut flags) })?;
        assert_eq!(flags & ffi::MDB_WRITEMAP, 0, "a full disk would be SIGBUS");
        Ok(env)
    }

    /// Begins the write transaction.
    pub(crate) fn begin(self) -> Result<Txn, LmdbError> {
        let mut raw = ptr::null_mut();
        // SAFETY: an open handle without a transaction: we own the token.
        check(unsafe { ffi::mdb_txn_begin(self.raw.as_ptr(), ptr::null_mut(), 0, &mut raw) })?;
        let txn = Txn {
            raw: Some(NonNull::new(raw).expect("mdb_txn_begin gives a transaction")),
            env: Some(self),
        };
        if txn.layout_is_known() { Ok(txn) } else { Err(LmdbError(ffi::MDB_VERSION_MISMATCH)) }
    }

    /// Pages that the next transaction may take from the list of free ones: those freed before the
    /// last commit.
    pub(crate) fn free_pages(&self) -> Result<usize, LmdbError> {
        let mut raw = ptr::null_mut();
        let mut pages = 0;
        // SAFETY: a read transaction beside no other; the cursor and then the transaction end in
        // this function, and what the cursor shows is read before. A record of FREE_DBI is a
        // transaction number and a list of page numbers that begins with its count.
        unsafe {
            check(ffi::mdb_txn_begin(
                self.raw.as_ptr(),
                ptr::null_mut(),
                ffi::MDB_RDONLY,
                &mut raw,
            ))?;
            let last = ffi::mdb_txn_id(raw);
            let mut cursor = ptr::null_mut();
            let mut code = ffi::mdb_cursor_open(raw, FREE_DBI, &mut cursor);
            if code == 0 {
                let (mut key, mut value) = (empty(), empty());
                code = ffi::mdb_cursor_get(cursor, &mut key, &mut value, ffi::MDB_FIRST);
                while code == 0 && key.mv_data.cast::<usize>().read_unaligned() < last {
                    pages += value.mv_data.cast::<usize>().read_unaligned();
                    code = ffi::mdb_cursor_get(cursor, &mut key, &mut value, ffi::MDB_NEXT);
                }
                ffi::mdb_cursor_close(cursor);
            }
            ffi::mdb_txn_abort(raw);
            if code != 0 && code != ffi::MDB_NOTFOUND {
                return Err(LmdbError(code));
            }
        }
        Ok(pages)
    }
}

/// The head of LMDB's `struct MDB_txn`: how far the file and the dirty list have grown is told
/// nowhere else. The crate is pinned to one version, and the two words that the interface tells as
/// well are compared before the others are believed.
#[repr(C)]
struct TxnHead {
    parent: *mut c_void,
    child: *mut c_void,
    readers: c_uint,
    mutex: libc::pthread_mutex_t,
    next_page: usize,
    id: usize,
    env: *mut ffi::MDB_env,
    free_pages: *mut c_void,
    loose_pages: *mut c_void,
    loose_count: c_int,
    spilled: *mut c_void,
    dirty: *const usize, // pairs of page number and address; the first one's number is the count
}

/// The running write transaction. Dropping it loses its changes.
pub(crate) struct Txn {
    raw: Option<NonNull<ffi::MDB_txn>>, // none once it has ended
    env: Option<Env>,                   // none once it was given back
}

// SAFETY: as for Env; with MDB_NOLOCK a write transaction holds no mutex of the thread that began
// it.
unsafe impl Send for Txn {}

impl Drop for Txn {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            // SAFETY: begun and not ended; the environment is closed after this.
            unsafe { ffi::mdb_txn_abort(raw.as_ptr()) }
        }
    }
}

impl Txn {
    fn raw(&self) -> *mut ffi::MDB_txn {
        self.raw.expect("a transaction that can be named has not ended").as_ptr()
    }

    fn head(&self) -> *const TxnHead {
        self.raw() as *const TxnHead
    }

    fn layout_is_known(&self) -> bool {
        let env =
            self.env.as_ref().expect("a running transaction owns its environment").raw.as_ptr();
        // SAFETY: both words lie within the structure of the pinned version (and far within one of
        // any version).
        unsafe { (*self.head()).id == ffi::mdb_txn_id(self.raw()) && (*self.head()).env == env }
    }

    /// Pages that the file needs if it is committed now, without what the commit itself takes.
    pub(crate) fn next_page(&self) -> usize {
        // SAFETY: `begin` has checked the layout.
        unsafe { (*self.head()).next_page }
    }

    /// Entries of the list of changed pages: pages side by side count as one.
    pub(crate) fn dirty_entries(&self) -> usize {
        // SAFETY: `begin` has checked the layout; a write transaction always has a dirty list.
        unsafe { *(*self.head()).dirty }
    }

    /// Opens a table, making it if it is not there.
    pub(crate) fn table(&mut self, name: &str) -> Result<Dbi, LmdbError> {
        let name = CString::new(name).expect("names of tables have no NUL");
        let mut dbi = 0;
        // SAFETY: a running transaction, a name that outlives the call, an out-pointer to a local.
        check(unsafe { ffi::mdb_dbi_open(self.raw(), name.as_ptr(), ffi::MDB_CREATE, &mut dbi) })?;
        Ok(dbi)
    }

    /// Size of a table.
    pub(crate) fn stat(&self, table: Dbi) -> Result<Stat, LmdbError> {
        let mut stat = ffi::MDB_stat {
            ms_psize: 0,
            ms_depth: 0,
            ms_branch_pages: 0,
            ms_leaf_pages: 0,
            ms_overflow_pages: 0,
            ms_entries: 0,
        };
        // SAFETY: a running transaction and an out-pointer to a local.
        check(unsafe { ffi::mdb_stat(self.raw(), table, &mut stat) })?;
        Ok(Stat {
            page_bytes: stat.ms_psize as usize,
            depth: stat.ms_depth as usize,
            tree_pages: stat.ms_branch_pages + stat.ms_leaf_pages,
            entries: stat.ms_entries as u64,
        })
    }

    /// The value of `key`, in place: it lives until the next change, which needs `&mut self`.
    pub(crate) fn get(&self, table: Dbi, key: &[u8]) -> Result<Option<&[u8]>, LmdbError> {
        let (mut key, mut value) = (val(key), empty());
        // SAFETY: a running transaction; LMDB reads the key only.
        match unsafe { ffi::mdb_get(self.raw(), table, &mut key, &mut value) } {
            ffi::MDB_NOTFOUND => Ok(None),
            // SAFETY: LMDB points into the map or into a dirty page, which stay until the next
            // change.
            code => check(code).map(|()| Some(unsafe { bytes(&value) })),
        }
    }

    /// Sets `key`.
    pub(crate) fn put(&mut self, table: Dbi, key: &[u8], value: &[u8]) -> Result<(), LmdbError> {
        let (mut key, mut value) = (val(key), val(value));
        // SAFETY: a running transaction; without MDB_RESERVE LMDB only reads key and value.
        check(unsafe { ffi::mdb_put(self.raw(), table, &mut key, &mut value, 0) })
    }

    /// Removes `key`, if it is there.
    pub(crate) fn delete(&mut self, table: Dbi, key: &[u8]) -> Result<(), LmdbError> {
        let mut key = val(key);
        // SAFETY: a running transaction; LMDB only reads the key.
        match unsafe { ffi::mdb_del(self.raw(), table, &mut key, ptr::null_mut()) } {
            ffi::MDB_NOTFOUND => Ok(()),
            code => check(code),
        }
    }

    /// Removes the records at or above key `from` and below `to`; `gone` is shown each key. A
    /// cursor that stays near where it was finds the next one without a search from the root.
    pub(crate) fn delete_range(
        &mut self,
        table: Dbi,
        (from, to): (&[u8], &[u8]),
        gone: &mut dyn FnMut(&[u8]),
    ) -> Result<(), LmdbError> {
        let cursor = Cursor::open(self, table)?;
        loop {
            let (mut key, mut value) = (val(from), empty());
            // SAFETY: an open cursor of this transaction; the key is read and then replaced.
            match unsafe {
                ffi::mdb_cursor_get(cursor.raw, &mut key, &mut value, ffi::MDB_SET_RANGE)
            } {
                ffi::MDB_NOTFOUND => return Ok(()),
                code => check(code)?,
            }
            // SAFETY: LMDB points into a page that stays until the next change, which is below.
            let found = unsafe { bytes(&key) };
            if found >= to {
                return Ok(());
            }
            gone(found);
            // SAFETY: an open cursor of this transaction, at the record that was found.
            check(unsafe { ffi::mdb_cursor_del(cursor.raw, 0) })?;
        }
    }

    /// Sets keys, or removes them where there is no value, in rising order: a cursor that stays
    /// near where it was finds its page without a search from the root. `store` puts what is to be
    /// stored for a key and value into a buffer.
    pub(crate) fn write_sorted(
        &mut self,
        table: Dbi,
        changes: &[(&[u8], Option<&[u8]>)],
        store: impl Fn(&[u8], &[u8], &mut Vec<u8>),
    ) -> Result<(), LmdbError> {
        let cursor = Cursor::open(self, table)?;
        let mut stored = Vec::new();
        for (name, value) in changes {
            let mut key = val(name);
            let Some(value) = value else {
                // SAFETY: a running transaction; LMDB only reads the key, and keeps the open cursor
                // right.
                match unsafe { ffi::mdb_del(self.raw(), table, &mut key, ptr::null_mut()) } {
                    ffi::MDB_NOTFOUND => {}
                    code => check(code)?,
                }
                continue;
            };
            store(name, value, &mut stored);
            let mut value = val(&stored);
            // SAFETY: an open cursor of this transaction; without MDB_RESERVE LMDB only reads key
            // and value.
            check(unsafe { ffi::mdb_cursor_put(cursor.raw, &mut key, &mut value, 0) })?;
        }
        Ok(())
    }

    /// Visits pairs from `from` on, until `visit` returns false.
    pub(crate) fn scan(
        &self,
        table: Dbi,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), LmdbError> {
        let cursor = Cursor::open(self, table)?;
        let (mut key, mut value) = (val(from), empty());
        let mut step = if from.is_empty() { ffi::MDB_FIRST } else { ffi::MDB_SET_RANGE };
        loop {
            // SAFETY: an open cursor of this transaction; with MDB_SET_RANGE the key is read and
            // then replaced.
            match unsafe { ffi::mdb_cursor_get(cursor.raw, &mut key, &mut value, step) } {
                ffi::MDB_NOTFOUND => return Ok(()),
                code => check(code)?,
            }
            // SAFETY: both point into pages that stay while nobody changes anything; `&self` is
            // borrowed here.
            let (key, value) = unsafe { (bytes(&key), bytes(&value)) };
            if !visit(key, value) {
                return Ok(());
            }
            step = ffi::MDB_NEXT;
        }
    }

    /// Writes everything out, without a sync. After an error the environment is closed: nothing of
    /// the transaction is there.
    pub(crate) fn commit(mut self) -> Result<Env, LmdbError> {
        let raw = self.raw.take().expect("a transaction that can be named has not ended");
        // SAFETY: begun and not ended; success or not, it has ended then.
        check(unsafe { ffi::mdb_txn_commit(raw.as_ptr()) })?;
        Ok(self.env.take().expect("a running transaction owns its environment"))
    }
}

/// What [`Txn::stat`] tells.
pub(crate) struct Stat {
    pub(crate) page_bytes: usize,
    pub(crate) depth: usize,
    pub(crate) tree_pages: usize, // without those of large values
    pub(crate) entries: u64,
}

struct Cursor<'a> {
    raw: *mut ffi::MDB_cursor,
    txn: std::marker::PhantomData<&'a Txn>,
}

impl Cursor<'_> {
    fn open(txn: &Txn, table: Dbi) -> Result<Cursor<'_>, LmdbError> {
        let mut raw = ptr::null_mut();
        // SAFETY: a running transaction and an out-pointer to a local.
        check(unsafe { ffi::mdb_cursor_open(txn.raw(), table, &mut raw) })?;
        Ok(Cursor { raw, txn: std::marker::PhantomData })
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: open, and its transaction is borrowed, so still running.
        unsafe { ffi::mdb_cursor_close(self.raw) }
    }
}

fn val(bytes: &[u8]) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

fn empty() -> ffi::MDB_val {
    ffi::MDB_val { mv_size: 0, mv_data: ptr::null_mut() }
}

/// # Safety
/// `val` was filled in by LMDB, and what it points to is not changed during `'a`.
unsafe fn bytes<'a>(val: &ffi::MDB_val) -> &'a [u8] {
    if val.mv_size == 0 {
        return &[];
    }
    // SAFETY: LMDB gives a valid address and length; the caller answers for the lifetime.
    unsafe { std::slice::from_raw_parts(val.mv_data.cast(), val.mv_size) }
}
