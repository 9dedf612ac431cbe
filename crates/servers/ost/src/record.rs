//! Records of an OST as they are stored; `docs/formats/` draws them. Little-endian, {type, version,
//! length} first.

use osd::{StoreError, Table, View};
use types::{ClientId, Fid, Timespec, Transno};
use wire::body::WireFid;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Key in `Table::Meta`: data is durable up to this transno, u64.
pub(crate) const META_COMMITTED: &[u8] = b"committed";
/// Key in `Table::Meta`: there after a clean stop.
pub(crate) const META_CLEAN: &[u8] = b"clean";

/// First bytes of a fence's key in `Table::Meta`.
pub(crate) const META_FENCE: &[u8] = b"fence/";

/// Key of a fence: the client, then the number of the MDT's store, big-endian.
pub(crate) fn fence_key(client: ClientId, store: u64) -> Vec<u8> {
    [META_FENCE, &client.0.to_be_bytes(), &store.to_be_bytes()].concat()
}

/// First bytes of the key of an MDT's store number in `Table::Meta`.
pub(crate) const META_MDT: &[u8] = b"mdt/";

/// Key of the number of an MDT's store: the index of the MDT, big-endian.
pub(crate) fn mdt_key(index: u32) -> Vec<u8> {
    [META_MDT, &index.to_be_bytes()].concat()
}

const TYPE_OBJECT: u8 = 1;
/// Bytes of an object's record of version 1.
const VERSION_1_BYTES: usize = 32;
const TYPE_TOMBSTONE: u8 = 2;

/// No layout has this version: that of the record of an object that is destroyed.
pub(crate) const NO_LAYOUT: u32 = u32::MAX;

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The file.
    pub(crate) parent: Fid,
    /// Number of the store of the file's MDT.
    pub(crate) store: u64,
}

/// An object, by its FID in `Table::Objects`. Version 1 ended before `store`, version 2 before
/// `layout_version`, version 3 before `changed`. There may be one of an object that is not
/// there yet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct ObjectRecord {
    kind: u8,
    version: u8,
    length: u16,
    mtime_nsec: u32,
    parent: WireFid,
    mtime: i64,
    store: u64,
    layout_version: u32,
    /// Index of an MDT to which the file may have moved, and one; zero: none.
    lent: u32,
    changed: u64,
}

/// A tombstone, by the object's FID in `Table::Tombstones`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct TombstoneRecord {
    kind: u8,
    version: u8,
    length: u16,
    reserved: u32,
    /// Place among all destroys of this OST.
    pub(crate) number: u64,
}

const _: () = assert!(size_of::<ObjectRecord>() == 56);
const _: () = assert!(size_of::<TombstoneRecord>() == 16);

impl ObjectRecord {
    pub(crate) fn new(owner: Owner, mtime: Timespec) -> ObjectRecord {
        let length = size_of::<ObjectRecord>() as u16;
        ObjectRecord {
            kind: TYPE_OBJECT,
            version: 4,
            length,
            mtime_nsec: mtime.nsec,
            parent: owner.parent.into(),
            mtime: mtime.sec,
            store: owner.store,
            layout_version: 0,
            lent: 0,
            changed: 0,
        }
    }

    /// The same, not written earlier than the record before it says.
    pub(crate) fn not_before(self, before: Option<ObjectRecord>) -> ObjectRecord {
        let Some(before) = before.filter(|before| before.mtime() > self.mtime()) else {
            return self;
        };
        ObjectRecord { mtime: before.mtime, mtime_nsec: before.mtime_nsec, ..self }
    }

    /// The same, changed last by this transno.
    pub(crate) fn changed_by(self, transno: Transno) -> ObjectRecord {
        ObjectRecord { changed: transno.0, ..self }
    }

    /// Transno of the last change of its bytes; none where that was before version 4.
    pub(crate) fn changed(&self) -> Transno {
        Transno(self.changed)
    }

    /// The same, used under a layout of this version or a later one.
    pub(crate) fn since_version(self, layout_version: u32) -> ObjectRecord {
        ObjectRecord { layout_version, ..self }
    }

    /// The same, of this file. Files of that MDT may use the object, too.
    pub(crate) fn lent_to(self, owner: Owner, mdt: u32) -> ObjectRecord {
        let (parent, lent) = (owner.parent.into(), mdt.saturating_add(1));
        ObjectRecord { parent, store: owner.store, lent, ..self }
    }

    /// The same, lent as the record before it says.
    pub(crate) fn lent_as(self, before: &ObjectRecord) -> ObjectRecord {
        ObjectRecord { lent: before.lent, ..self }
    }

    /// Index of the MDT whose files may use it, too: its file is about to move there, or has moved.
    pub(crate) fn lent(&self) -> Option<u32> {
        self.lent.checked_sub(1)
    }

    /// The record that stays of a destroyed object which clients may still have in a layout: no
    /// layout may use it.
    pub(crate) fn gone(self) -> ObjectRecord {
        self.since_version(NO_LAYOUT)
    }

    /// Whether there is no object any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.layout_version == NO_LAYOUT
    }

    /// The lowest version of a layout under which it may be used; 0: any.
    pub(crate) fn layout_version(&self) -> u32 {
        self.layout_version
    }

    /// Nothing where the bytes are none of ours.
    pub(crate) fn decode(bytes: &[u8]) -> Option<ObjectRecord> {
        let known = bytes.get(..bytes.len().min(size_of::<ObjectRecord>()))?;
        let mut record = ObjectRecord::default();
        record.as_mut_bytes()[..known.len()].copy_from_slice(known);
        (known.len() >= VERSION_1_BYTES && record.kind == TYPE_OBJECT).then_some(record)
    }

    /// Nothing in a record of version 1: the first one that uses the object owns it.
    pub(crate) fn owner(&self) -> Option<Owner> {
        (self.store != 0).then(|| Owner { parent: self.parent.into(), store: self.store })
    }

    /// File and number of the store, as the record has them. The number of an object that is lent
    /// is zero: its file may be another MDT's by now.
    pub(crate) fn made_for(&self) -> (Fid, u64) {
        (self.parent.into(), if self.lent == 0 { self.store } else { 0 })
    }

    pub(crate) fn mtime(&self) -> Timespec {
        Timespec::new(self.mtime, self.mtime_nsec)
    }
}

impl TombstoneRecord {
    pub(crate) fn new(number: u64) -> TombstoneRecord {
        let length = size_of::<TombstoneRecord>() as u16;
        TombstoneRecord { kind: TYPE_TOMBSTONE, version: 1, length, reserved: 0, number }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<TombstoneRecord> {
        let (record, _newer) = TombstoneRecord::read_from_prefix(bytes).ok()?;
        (record.kind == TYPE_TOMBSTONE).then_some(record)
    }
}

/// The record of an object, if it has one.
pub(crate) fn object_record(
    view: &dyn View,
    object: Fid,
) -> Result<Option<ObjectRecord>, StoreError> {
    Ok(view.get(Table::Objects, &object.to_key())?.and_then(|bytes| ObjectRecord::decode(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_there_and_back_and_foreign_bytes_are_refused() {
        let owner = Owner { parent: Fid::new(5, 6), store: 9 };
        let record = ObjectRecord::new(owner, Timespec::new(-7, 8));
        let back = ObjectRecord::decode(record.as_bytes()).expect("ours");
        assert_eq!((back.owner(), back.mtime()), (Some(owner), Timespec::new(-7, 8)));
        assert_eq!(ObjectRecord::decode(&record.as_bytes()[..31]), None);
        let stone = TombstoneRecord::new(9);
        assert_eq!(TombstoneRecord::decode(stone.as_bytes()), Some(stone));
        assert_eq!(ObjectRecord::decode(stone.as_bytes()), None);
        assert_eq!(TombstoneRecord::decode(&[]), None);
    }

    #[test]
    fn bytes_on_disk_are_what_they_were() {
        let owner = Owner { parent: Fid { seq: 1, oid: 2, ver: 3 }, store: 6 };
        let record = ObjectRecord::new(owner, Timespec::new(4, 5));
        let record = record.since_version(7).changed_by(Transno(8));
        let bytes = [
            1, 4, 56, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0,
            0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(record.as_bytes(), bytes);
        let lent = record.lent_to(owner, 2);
        assert_eq!(&lent.as_bytes()[44..48], [3, 0, 0, 0]);
        assert_eq!((lent.lent(), record.lent()), (Some(2), None));
        assert_eq!((lent.owner(), lent.made_for()), (Some(owner), (owner.parent, 0)));
        assert_eq!(record.lent_as(&lent), lent);
        let mut version_1 = bytes[..32].to_vec();
        (version_1[1], version_1[2]) = (1, 32);
        let old = ObjectRecord::decode(&version_1).expect("ours");
        assert_eq!((old.owner(), old.mtime()), (None, Timespec::new(4, 5)));
        let mut version_2 = bytes[..40].to_vec();
        (version_2[1], version_2[2]) = (2, 40);
        let old = ObjectRecord::decode(&version_2).expect("ours");
        assert_eq!((old.owner(), old.layout_version()), (Some(owner), 0), "any layout");
        let mut version_3 = bytes[..48].to_vec();
        (version_3[1], version_3[2]) = (3, 48);
        let old = ObjectRecord::decode(&version_3).expect("ours");
        assert_eq!((old.layout_version(), old.changed()), (7, Transno::NONE));
        assert_eq!(
            fence_key(ClientId(2), 3),
            [&b"fence/"[..], &[0; 15], &[2], &[0; 7], &[3]].concat()
        );
        assert_eq!(mdt_key(0x102), b"mdt/\0\0\x01\x02");
        assert_eq!(
            TombstoneRecord::new(6).as_bytes(),
            [2, 1, 16, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]
        );
    }
}
