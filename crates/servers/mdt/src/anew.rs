//! New ids for an MDT whose store no longer knows which ids it gave out. Its records are lost, or
//! an older copy of them was restored. OSTs and clients may know ids that the store does not.

use osd::{StoreError, Table, View, WriteSet};
use types::{ClientId, Fid, Instance};
use wire::SizeState;
use wire::attr::S_IFREG;

use crate::fences::Lapsed;
use crate::ids::{encode_place, first_sequences, place_at};
use crate::keys;
use crate::limits::{ID_RANGE, SEQUENCES_PER_MDT};
use crate::record::{INODE_HAS_LAYOUT, Inode};

/// Ids left out behind the highest one that is known: more than a start burns and has swept, so
/// that objects below stay.
const LEFT_OUT: u32 = 3 * ID_RANGE;

/// The highest ids of an MDT that are known to be in use, as OSTs tell them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HighestIds {
    file: Fid,
    object: Fid,
}

impl HighestIds {
    /// An OST has this object of this file; those of other MDTs do not count.
    pub fn note(&mut self, mdt_index: u32, object: Fid, file: Fid) {
        let (files, objects) = first_sequences(mdt_index);
        if (files..objects).contains(&file.seq) {
            self.file = self.file.max(file);
        }
        if (objects..files + SEQUENCES_PER_MDT).contains(&object.seq) {
            self.object = self.object.max(Fid { ver: 0, ..object });
        }
    }
}

/// Adds to `set`, for a store that no MDT has open: ids of files and objects begin at a place of
/// their own in time, and behind all that the store and the OSTs know. Nothing that an earlier run
/// gave out is swept from the OSTs.
pub fn ids_anew(
    set: &mut WriteSet,
    view: &dyn View,
    mdt_index: u32,
    unix_seconds: u64,
    highest: &HighestIds,
) -> Result<(), StoreError> {
    let (files, objects) = first_sequences(mdt_index);
    for (key, first, known) in [
        (keys::META_FILE_IDS, files, highest.file),
        (keys::META_OBJECT_IDS, objects, highest.object),
    ] {
        let stored = view.get(Table::Meta, key)?.and_then(|bytes| place(&bytes));
        let behind = [stored, (!known.is_zero()).then_some((known.seq, known.oid))]
            .into_iter()
            .flatten()
            .map(left_out);
        let place = behind.fold(place_at(first, unix_seconds), Ord::max);
        set.put(Table::Meta, key, encode_place(place));
    }
    set.delete(Table::Meta, keys::META_BURNT_OBJECTS);
    set.delete(Table::Meta, keys::META_BURNT_FILES);
    Ok(())
}

/// An inode's record for a store that an older copy was put into: of a file that has objects its
/// size may have changed since, and the objects say what it is. None where nothing is to change.
#[must_use]
pub fn size_anew(stored: &[u8]) -> Option<Vec<u8>> {
    let mut inode = Inode::decode(stored)?;
    let has_objects = inode.attr.file_type() == S_IFREG && inode.has(INODE_HAS_LAYOUT);
    if !has_objects || inode.attr.size_state() == SizeState::Dirty {
        return None;
    }
    inode.attr.size_state = SizeState::Dirty as u32;
    Some(inode.encode())
}

/// Adds to `set`, for a store that no MDT has open and whose next run is `first`: all sessions of
/// earlier runs are fenced. Nobody knows any more what their clients held, and some of them may
/// still send what they wrote under it. So before an OST refuses them, the MDT gives no lock on
/// files there, and believes no size.
pub fn sessions_anew(set: &mut WriteSet, first: Instance) {
    let lapsed =
        Lapsed { client: ClientId::EVERYBODY, session: first_session(first) - 1, osts: None };
    lapsed.remember(set);
}

/// No session of this run or a later one has a lower number.
fn first_session(run: Instance) -> u64 {
    run.0 << 32
}

fn place(stored: &[u8]) -> Option<(u64, u32)> {
    let seq = u64::from_le_bytes(stored.get(..8)?.try_into().ok()?);
    Some((seq, u32::from_le_bytes(stored.get(8..12)?.try_into().ok()?)))
}

fn left_out((seq, oid): (u64, u32)) -> (u64, u32) {
    match oid.checked_add(LEFT_OUT) {
        Some(oid) => (seq, oid),
        None => (seq.saturating_add(1), 1 + LEFT_OUT),
    }
}

#[cfg(test)]
mod tests {
    use osd::MetaStore;

    use super::*;
    use crate::burnt::Burnt;
    use crate::ids::Ids;
    use crate::tests::store::TestStore;

    /// First object id after a start, and the ids that it has swept.
    fn next(stored: Option<(u64, u32)>, seconds: u64, highest: &HighestIds) -> (Fid, Burnt) {
        let meta = TestStore::default();
        let mut set = WriteSet::new();
        if let Some(stored) = stored {
            set.put(Table::Meta, keys::META_OBJECT_IDS, encode_place(stored));
            meta.apply(&set).expect("room");
        }
        let mut set = WriteSet::new();
        let view = meta.running().expect("ready");
        ids_anew(&mut set, &*view, 0, seconds, highest).expect("reads");
        drop(view);
        meta.apply(&set).expect("room");
        let view = meta.running().expect("ready");
        let stored = view.get(Table::Meta, keys::META_OBJECT_IDS).expect("reads").expect("there");
        let ids = Ids::open(Some(&stored), first_sequences(0).1, false).expect("our own bytes");
        let mut burnt = Burnt::default();
        burnt.add(&stored, ids.first());
        (ids.first(), burnt)
    }

    #[test]
    fn objects_say_the_size_of_a_file_of_an_older_copy() {
        let inode = |mode, flags, state: SizeState| {
            let attr = wire::Attr { mode, size: 9, size_state: state as u32, ..Default::default() };
            let (parent, mtime_set) = (Fid::ROOT, types::Timespec::default());
            let stripes = layout::StripeSet::from(5u64);
            Inode { attr, flags, parent, mtime_set, stripes, depth: 0, symlink: Vec::new() }
        };
        let (file, dir) = (S_IFREG | 0o644, 0o040_755);
        for state in [SizeState::NeverWritten, SizeState::Clean] {
            let changed = size_anew(&inode(file, INODE_HAS_LAYOUT, state).encode());
            let dirty = inode(file, INODE_HAS_LAYOUT, SizeState::Dirty).encode();
            assert_eq!(changed.as_ref(), Some(&dirty));
            assert_eq!(size_anew(&dirty), None);
            assert_eq!(size_anew(&inode(file, 0, state).encode()), None, "it has no objects");
            assert_eq!(size_anew(&inode(dir, INODE_HAS_LAYOUT, state).encode()), None);
        }
        assert_eq!(size_anew(b"damaged"), None);
    }

    #[test]
    fn ids_begin_behind_the_clock_the_store_and_what_osts_have() {
        let (_, objects) = first_sequences(0);
        let now = 1_800_000_000;
        let (by_clock, _) = next(None, now, &HighestIds::default());
        assert_eq!(next(Some((objects, 9)), now, &HighestIds::default()).0, by_clock);
        // with a clock that went back the others count
        let stored = (by_clock.seq + 3, 70);
        let (first, burnt) = next(Some(stored), now, &HighestIds::default());
        assert!((first.seq, first.oid) > stored && !burnt.holds(Fid::new(stored.0, stored.1)));
        for oid in [80, u32::MAX - 5] {
            let mut highest = HighestIds::default();
            let there = Fid { seq: by_clock.seq + 3, oid, ver: 4 };
            highest.note(0, there, Fid::new(first_sequences(0).0, 1));
            highest.note(0, Fid::new(first_sequences(1).1, 5), Fid::new(first_sequences(1).0, 5));
            let (first, burnt) = next(Some(stored), now, &highest);
            assert!(first > there && first.seq <= by_clock.seq + 5, "{first}");
            assert!(!burnt.holds(there.stripe(0)), "it is not swept");
        }
    }
}
