//! Ids of an MDT whose store has lost count of those that it gave out: its records are gone, or an
//! older copy of them is back. OSTs and clients may know ids that the store does not.

use osd::{Table, WriteSet};

use crate::ids::{encode_place, first_sequences, place_at};
use crate::keys;

/// Adds to `set`, for a store that no MDT has open: ids of files and objects begin at a place of
/// their own in time, and nothing that an earlier run gave out is swept from the OSTs.
pub fn ids_anew(set: &mut WriteSet, mdt_index: u32, unix_seconds: u64) {
    let (files, objects) = first_sequences(mdt_index);
    for (key, first) in [(keys::META_FILE_IDS, files), (keys::META_OBJECT_IDS, objects)] {
        set.put(Table::Meta, key, encode_place(place_at(first, unix_seconds)));
    }
    set.delete(Table::Meta, keys::META_BURNT_OBJECTS);
}
