//! Records: ordered keys and values in one running transaction.

use env::LocalFuture;
use types::Errno;

use crate::Space;

/// Tables of a target; the number is the name on disk and never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Table {
    /// Target-wide values: epochs, id ranges, counters.
    Meta = 0,
    /// Known clients.
    Clients = 1,
    /// Reply records.
    Replies = 2,
    /// Inode records by FID.
    Inodes = 3,
    /// Directory entries by directory, hash, disambiguator.
    Dirents = 4,
    /// Back-links: names of a FID.
    Links = 5,
    /// Extended attributes.
    Xattrs = 6,
    /// Unlinked, still open files.
    Orphans = 7,
    /// Objects to destroy.
    Destroys = 8,
    /// Layouts.
    Layouts = 9,
    /// Attributes of objects.
    Objects = 10,
    /// Tombstones of destroyed objects.
    Tombstones = 11,
    /// Configuration of the MGS.
    Config = 12,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 13] = [
        Table::Meta,
        Table::Clients,
        Table::Replies,
        Table::Inodes,
        Table::Dirents,
        Table::Links,
        Table::Xattrs,
        Table::Orphans,
        Table::Destroys,
        Table::Layouts,
        Table::Objects,
        Table::Tombstones,
        Table::Config,
    ];
}

/// Longest key, bytes (LMDB's bound).
pub const KEY_BYTES_MAX: usize = 511;

/// What a store may answer besides data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A commit is under way: await [`MetaStore::ready`] and try again.
    #[error("a commit is under way")]
    Busy,
    /// No room: the change was refused before anything was done. Nothing is lost.
    #[error("no space left for records")]
    Full,
    /// The storage failed: everything since the last commit is lost and the target must stop.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// What a caller is told.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            StoreError::Busy => Errno::EAGAIN,
            StoreError::Full => Errno::ENOSPC,
            StoreError::Failed(_) => Errno::EIO,
        }
    }
}

/// Reads of one image. Values are owned: nothing borrows the transaction.
pub trait View {
    /// The value of `key`.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Visits pairs with a key at or above `from`, in key order, until `visit` returns false or the table ends.
    fn scan(&self, table: Table, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError>;
}

/// Everything that one operation changes; applied whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSet {
    /// In order: table, key, new value or nothing for a deletion.
    pub changes: Vec<(Table, Vec<u8>, Option<Vec<u8>>)>,
}

impl WriteSet {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> WriteSet {
        WriteSet::default()
    }

    /// Sets `key`.
    pub fn put(&mut self, table: Table, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        let key = key.into();
        assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX, "a key is 1 to {KEY_BYTES_MAX} bytes");
        self.changes.push((table, key, Some(value.into())));
    }

    /// Removes `key`; no error where it is absent.
    pub fn delete(&mut self, table: Table, key: impl Into<Vec<u8>>) {
        self.changes.push((table, key.into(), None));
    }

    /// Whether it only deletes: such a set is taken on a full store too.
    #[must_use]
    pub fn frees_space(&self) -> bool {
        self.changes.iter().any(|(_, _, value)| value.is_none())
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.changes.iter().map(|(_, key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum()
    }
}

/// One running transaction over ordered tables. Calls do not await between reading and applying, so an operation
/// that does both in one go is atomic against all others of its thread.
pub trait MetaStore {
    /// Completes when no commit is under way.
    fn ready(&self) -> LocalFuture<'_, ()>;
    /// The running image: everything applied so far. `Busy` during a commit.
    fn running(&self) -> Result<Box<dyn View + '_>, StoreError>;
    /// Applies a whole set to the running image. `Busy` during a commit; `Full` before anything was changed (a set
    /// that frees space is taken from a reserve then).
    fn apply(&self, set: &WriteSet) -> Result<(), StoreError>;
    /// Bytes applied since the last commit, roughly.
    fn dirty_bytes(&self) -> u64;
    /// Makes everything applied before this call durable. Concurrent calls share one commit.
    fn commit(&self) -> LocalFuture<'_, Result<(), StoreError>>;
    /// Room.
    fn space(&self) -> Result<Space, StoreError>;
}
