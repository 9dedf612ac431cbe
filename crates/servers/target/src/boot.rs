//! A start: the format is checked and the next epoch is durable before the first connection.
//!
//! A crash before the commit repeats the start; one after it burns an epoch.

use osd::{MetaStore, Table, View, WriteSet};
use types::{Fid, Instance, TargetKind};

use crate::StartError;
use crate::frozen::{self, FORMAT};

/// Key in `Table::Meta`: version of the records.
const META_FORMAT: &[u8] = b"format";
/// Key in `Table::Meta`: boot epoch.
const META_EPOCH: &[u8] = b"epoch";

/// The instance that a start on this store begins. A store of a later version is refused.
pub fn next_instance(view: &dyn View, kind: TargetKind) -> Result<Instance, StartError> {
    if let Some(stored) = view.get(Table::Meta, META_FORMAT)? {
        let found = frozen::decode_format(kind, &stored).ok_or_else(|| broken(META_FORMAT))?;
        if found > FORMAT {
            return Err(StartError::Newer { found, known: FORMAT });
        }
    }
    let last = match view.get(Table::Meta, META_EPOCH)? {
        Some(stored) => frozen::decode_epoch(kind, &stored).ok_or_else(|| broken(META_EPOCH))?,
        None => 0,
    };
    last.checked_add(1).map(Instance).ok_or_else(|| broken(META_EPOCH))
}

/// The set that makes the next start's instance higher than `floor`, on a store that no target has
/// open.
pub fn above(view: &dyn View, kind: TargetKind, floor: u32) -> Result<WriteSet, StartError> {
    let next = next_instance(view, kind)?;
    let last = (next.0 - 1).max(u64::from(floor));
    let mut set = from_reserve();
    set.put(Table::Meta, META_FORMAT, frozen::encode_format(kind));
    set.put(Table::Meta, META_EPOCH, frozen::encode_epoch(kind, last));
    Ok(set)
}

/// Makes the next instance durable together with `set`.
pub async fn begin(
    store: &dyn MetaStore,
    kind: TargetKind,
    mut set: WriteSet,
) -> Result<Instance, StartError> {
    store.ready().await;
    let instance = next_instance(&*store.running()?, kind)?;
    assert!(instance.0 > 0, "the first instance is 1");
    reserve(&mut set);
    set.put(Table::Meta, META_FORMAT, frozen::encode_format(kind));
    set.put(Table::Meta, META_EPOCH, frozen::encode_epoch(kind, instance.0));
    osd::apply(store, &set).await?;
    store.commit().await?;
    Ok(instance)
}

/// The counter `key` of `Table::Meta`, u64.
pub fn word(view: &dyn View, key: &[u8]) -> Result<Option<u64>, StartError> {
    let stored = view.get(Table::Meta, key)?;
    let decode = |bytes: Vec<u8>| bytes.try_into().map(u64::from_le_bytes);
    stored.map(decode).transpose().map_err(|_| broken(key))
}

/// All records of a table. One that cannot be decoded ends the start.
pub fn all<T>(
    view: &dyn View,
    table: Table,
    mut decode: impl FnMut(&[u8], &[u8]) -> Option<T>,
) -> Result<Vec<T>, StartError> {
    let mut values = Vec::new();
    let mut unread = None;
    view.scan(table, &[0], &mut |key, value| match decode(key, value) {
        Some(decoded) => {
            values.push(decoded);
            true
        }
        None => {
            unread = Some(key.to_vec());
            false
        }
    })?;
    match unread {
        None => Ok(values),
        Some(key) => Err(StartError::Broken(format!("a record of {table:?} (key {key:02x?})"))),
    }
}

/// A set that a full store takes from its reserve. Starts, closes and the end of a client must
/// work on a full store, and sooner or later they free more than they take.
#[must_use]
pub fn from_reserve() -> WriteSet {
    let mut set = WriteSet::new();
    reserve(&mut set);
    set
}

/// Makes `set` such a set: a store takes from its reserve what removes a record, there or not.
pub fn reserve(set: &mut WriteSet) {
    set.delete(Table::Orphans, Fid::ZERO.to_key());
    assert!(set.frees_space(), "a set that removes a record is taken from the reserve");
}

fn broken(key: &[u8]) -> StartError {
    StartError::Broken(format!("`{}`", key.escape_ascii()))
}
