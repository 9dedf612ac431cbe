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
    Clients = 1,
    Replies = 2,
    /// Inode records by FID.
    Inodes = 3,
    /// Directory entries by directory, hash, disambiguator.
    Dirents = 4,
    /// Back-links: names of a FID.
    Links = 5,
    Xattrs = 6,
    /// Unlinked, still open files.
    Orphans = 7,
    Destroys = 8,
    Layouts = 9,
    /// Attributes of objects.
    Objects = 10,
    /// Tombstones of destroyed objects.
    Tombstones = 11,
    /// Configuration of the MGS.
    Config = 12,
    /// Operations of several MDTs that are not done everywhere.
    Updates = 13,
}

impl Table {
    pub const ALL: [Table; 14] = [
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
        Table::Updates,
    ];
}

/// Longest key, bytes (LMDB's bound).
pub const KEY_BYTES_MAX: usize = 511;

/// What may be applied while a commit is under way, bytes; then the store is `Busy` until that
/// commit has ended. Twice what makes a target commit, and written out in some 30 ms.
pub const BEHIND_COMMIT_BYTES_MAX: u64 = 32 << 20;

/// Records that the ranges of one set hold together at most: some ten milliseconds of work. Who
/// removes more does so in several sets ([`remove_range`]).
pub const RANGE_RECORDS_MAX: usize = 4_096;

/// Commits that [`remove_all`] and [`remove_range`] wait for on a full store: pages freed by one
/// transaction can be taken by the second one after it.
const FULL_COMMITS_MAX: u32 = 2;

/// What a store may answer besides data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Not at this moment, because of a commit or an allocation: await [`MetaStore::ready`] and try
    /// again.
    #[error("a commit or an allocation is under way")]
    Busy,
    /// No room: the change was refused before anything was done. Nothing is lost.
    #[error("no space left for records")]
    Full,
    /// This record cannot be given out: it is not what was stored. Others can.
    #[error("a record of {table:?} is damaged, its key is {}", Hex(.key))]
    Damaged { table: Table, key: Vec<u8> },
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
            StoreError::Damaged { .. } | StoreError::Failed(_) => Errno::EIO,
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads of one image. Values are owned: nothing borrows the transaction.
pub trait View {
    /// The value of `key`.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Visits pairs with a key at or above `from`, in key order, until `visit` returns false or the
    /// table ends.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;

    /// The same of keys that begin with `prefix` alone: a damaged record behind them does not
    /// concern the caller.
    fn scan_within(
        &self,
        (table, prefix): (Table, &[u8]),
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        assert!(from.starts_with(prefix), "it begins among those keys");
        let scanned =
            self.scan(table, from, &mut |key, value| key.starts_with(prefix) && visit(key, value));
        match scanned {
            Err(StoreError::Damaged { key, .. }) if !key.starts_with(prefix) => Ok(()),
            scanned => scanned,
        }
    }
}

/// Keys of a table: those at or above `from` and below `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub table: Table,
    pub from: Vec<u8>,
    pub to: Vec<u8>,
}

impl KeyRange {
    /// Whether it holds this key.
    #[must_use]
    pub fn holds(&self, table: Table, key: &[u8]) -> bool {
        self.table == table && (&self.from[..]..&self.to[..]).contains(&key)
    }
}

/// Everything that one operation changes; applied whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSet {
    /// Records that go, before anything else changes. They are [`RANGE_RECORDS_MAX`] at most.
    pub ranges: Vec<KeyRange>,
    /// In order: table, key, new value or nothing for a deletion.
    pub changes: Vec<(Table, Vec<u8>, Option<Vec<u8>>)>,
}

impl WriteSet {
    #[must_use]
    pub fn new() -> WriteSet {
        WriteSet::default()
    }

    /// Sets `key`.
    pub fn put(&mut self, table: Table, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        let key = key.into();
        assert!(
            !key.is_empty() && key.len() <= KEY_BYTES_MAX,
            "a key is 1 to {KEY_BYTES_MAX} bytes"
        );
        self.changes.push((table, key, Some(value.into())));
    }

    /// Removes `key`; no error where it is absent.
    pub fn delete(&mut self, table: Table, key: impl Into<Vec<u8>>) {
        self.changes.push((table, key.into(), None));
    }

    /// Removes the records of `table` from key `from` up to, but without, key `to`. They go before
    /// everything else that the set changes, and are [`RANGE_RECORDS_MAX`] at most, together with
    /// those of its other ranges.
    pub fn delete_range(&mut self, table: Table, from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) {
        let (from, to) = (from.into(), to.into());
        assert!(!from.is_empty() && from < to, "a range has a first key, and its end is behind it");
        assert!(to.len() <= KEY_BYTES_MAX + 1, "the end of a range is a key, or right behind one");
        self.ranges.push(KeyRange { table, from, to });
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.changes.is_empty()
    }

    /// Whether it deletes something: such a set is taken on a full store too.
    #[must_use]
    pub fn frees_space(&self) -> bool {
        !self.ranges.is_empty() || self.changes.iter().any(|(_, _, value)| value.is_none())
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ranges = self.ranges.iter().map(|range| range.from.len() + range.to.len());
        let changes = self.changes.iter();
        let changes = changes.map(|(_, key, value)| key.len() + value.as_ref().map_or(0, Vec::len));
        ranges.chain(changes).sum()
    }
}

/// One running transaction over ordered tables. Calls do not await between reading and applying, so
/// an operation that does both in one go is atomic against all others of its thread.
///
/// Reads and changes go on while the disk works on a commit. Sets become durable in the order in
/// which they were applied: commits come one after the other, and a crash leaves what the last one
/// that ended covers. A commit that fails ends the store, with all that was applied since the last
/// good one.
pub trait MetaStore {
    /// Completes when changes are taken.
    fn ready(&self) -> LocalFuture<'_, ()>;
    /// The running image: everything applied so far. `Busy` for the moment in which a commit
    /// begins.
    fn running(&self) -> Result<Box<dyn View + '_>, StoreError>;
    /// Applies a whole set to the running image. `Busy` for the moment in which a commit begins,
    /// with [`BEHIND_COMMIT_BYTES_MAX`] behind one, and while room is made for the set; `Full`
    /// before anything was changed (a set that frees space is taken from a reserve then).
    fn apply(&self, set: &WriteSet) -> Result<(), StoreError>;
    /// Bytes applied since the last commit began, roughly.
    fn dirty_bytes(&self) -> u64;
    /// Makes everything applied before this call durable. Calls that one commit covers share it.
    fn commit(&self) -> LocalFuture<'_, Result<(), StoreError>>;
    fn space(&self) -> Result<Space, StoreError>;
    /// Whether it would refuse an ordinary operation that frees nothing, and take it after a
    /// removal at the earliest.
    fn is_full(&self) -> Result<bool, StoreError>;
}

/// Applies a set as soon as the store is not [`StoreError::Busy`].
pub async fn apply(store: &dyn MetaStore, set: &WriteSet) -> Result<(), StoreError> {
    loop {
        store.ready().await;
        match store.apply(set) {
            Err(StoreError::Busy) => {}
            other => return other,
        }
    }
}

/// Records that [`remove_all`] and [`remove_range`] remove at once.
const REMOVED_AT_ONCE: usize = 64;

/// Removes any number of records, in order, in sets small enough for the reserve of a full store.
/// Not one transaction: some may be durably gone and others not after a crash, so whoever asks must
/// ask again then.
pub async fn remove_all(
    store: &dyn MetaStore,
    keys: &[(Table, Vec<u8>)],
) -> Result<(), StoreError> {
    for some in keys.chunks(REMOVED_AT_ONCE) {
        let mut set = WriteSet::new();
        some.iter().for_each(|(table, key)| set.delete(*table, key.clone()));
        apply_to_full(store, &set).await?;
    }
    Ok(())
}

/// Removes the records of `table` from key `from` up to, but without, key `to`, in sets of
/// `REMOVED_AT_ONCE` records. As [`remove_all`], it is not one transaction. Returns how many
/// records were there.
pub async fn remove_range(
    store: &dyn MetaStore,
    table: Table,
    (from, to): (&[u8], &[u8]),
) -> Result<u64, StoreError> {
    let (mut at, mut removed) = (from.to_vec(), 0);
    while at[..] < *to {
        store.ready().await;
        let (mut count, mut end) = (0, to.to_vec());
        let read = store.running().and_then(|view| {
            view.scan(table, &at, &mut |key, _| {
                if key >= to {
                    return false;
                }
                if count == REMOVED_AT_ONCE {
                    end = key.to_vec();
                    return false;
                }
                count += 1;
                true
            })
        });
        match read {
            Err(StoreError::Busy) => continue,
            read => read?,
        }
        if count > 0 {
            let mut set = WriteSet::new();
            set.delete_range(table, at, end.clone());
            apply_to_full(store, &set).await?;
        }
        removed += count as u64;
        at = end;
    }
    Ok(removed)
}

/// Applies a set that frees space, also on a full store.
async fn apply_to_full(store: &dyn MetaStore, set: &WriteSet) -> Result<(), StoreError> {
    assert!(set.frees_space(), "another set is not taken on a full store");
    let mut full = 0;
    loop {
        match apply(store, set).await {
            Err(StoreError::Full) if full < FULL_COMMITS_MAX => {
                full += 1;
                store.commit().await?;
            }
            applied => return applied,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Takes one set of at most 64 changes between two commits.
    #[derive(Default)]
    struct Tight {
        used: Cell<bool>,
        removed: RefCell<Vec<Vec<u8>>>,
    }

    impl MetaStore for Tight {
        fn ready(&self) -> LocalFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }
        fn running(&self) -> Result<Box<dyn View + '_>, StoreError> {
            Err(StoreError::Busy)
        }
        fn apply(&self, set: &WriteSet) -> Result<(), StoreError> {
            if set.changes.len() > 64 || self.used.replace(true) {
                return Err(StoreError::Full);
            }
            self.removed.borrow_mut().extend(set.changes.iter().map(|(_, key, _)| key.clone()));
            Ok(())
        }
        fn dirty_bytes(&self) -> u64 {
            0
        }
        fn commit(&self) -> LocalFuture<'_, Result<(), StoreError>> {
            self.used.set(false);
            Box::pin(std::future::ready(Ok(())))
        }
        fn space(&self) -> Result<Space, StoreError> {
            Ok(Space::default())
        }
        fn is_full(&self) -> Result<bool, StoreError> {
            Ok(self.used.get())
        }
    }

    #[test]
    fn any_number_of_records_is_removed_from_a_full_store() {
        let keys: Vec<_> =
            (0..1_000_u32).map(|number| (Table::Replies, number.to_be_bytes().to_vec())).collect();
        let store = Tight::default();
        let mut work = std::pin::pin!(remove_all(&store, &keys));
        let done = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(done, Poll::Ready(Ok(())));
        assert!(store.removed.borrow().iter().eq(keys.iter().map(|(_, key)| key)));
    }
}
