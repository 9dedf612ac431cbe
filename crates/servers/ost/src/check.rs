//! Records of objects, for a check of a whole file system that has the store open alone.

use osd::{StoreError, Table, View, WriteSet};
use types::Fid;
use zerocopy::IntoBytes;

use crate::record::{ObjectRecord, Owner, object_record};

/// What the record of an object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub object: Fid,
    /// The file for which it was made, zero if the record does not say so.
    pub file: Fid,
    /// Number of the store of the file's MDT, zero if the record does not say so.
    pub store: u64,
    /// The lowest generation of a layout that may use it.
    pub layout_version: u32,
    /// It was destroyed, and the record stays so that no layout uses it.
    pub is_gone: bool,
}

/// All records of objects, in the order of their FIDs. One that cannot be read says nothing.
///
/// # Errors
/// What the store answers where it cannot be read.
pub fn recorded(view: &dyn View) -> Result<Vec<Recorded>, StoreError> {
    let mut all = Vec::new();
    view.scan(Table::Objects, &[0], &mut |key, value| {
        let record = ObjectRecord::decode(value);
        let (file, store) = record.map_or((Fid::ZERO, 0), |record| record.made_for());
        all.extend(Fid::from_key(key).map(|object| Recorded {
            object,
            file,
            store,
            layout_version: record.map_or(0, |record| record.layout_version()),
            is_gone: record.is_some_and(|record| record.is_gone()),
        }));
        true
    })?;
    Ok(all)
}

/// Makes an object that of a file, whatever its record says; `store` is the number of the store of
/// the file's MDT.
///
/// # Errors
/// What the store answers where it cannot be read.
pub fn owned_by(
    view: &dyn View,
    object: Fid,
    (parent, store): (Fid, u64),
) -> Result<WriteSet, StoreError> {
    let before = object_record(view, object)?;
    let mtime = before.map(|record| record.mtime()).unwrap_or_default();
    let record = ObjectRecord::new(Owner { parent, store }, mtime);
    let record = before.map_or(record, |before| {
        record.since_version(before.layout_version()).changed_by(before.changed())
    });
    let mut set = WriteSet::new();
    set.put(Table::Objects, object.to_key(), record.as_bytes());
    Ok(set)
}
