//! Records of an OST as they lie in its store; `docs/formats/` draws them. Little-endian, {type,
//! version, length} first.

use types::{Fid, Timespec};
use wire::body::WireFid;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Key in `Table::Meta`: data is durable up to this transno, u64.
pub(crate) const META_COMMITTED: &[u8] = b"committed";
/// Key in `Table::Meta`: there after a clean stop.
pub(crate) const META_CLEAN: &[u8] = b"clean";

const TYPE_OBJECT: u8 = 1;
const TYPE_TOMBSTONE: u8 = 2;

/// An object, by its FID in `Table::Objects`.
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

const _: () = assert!(size_of::<ObjectRecord>() == 32);
const _: () = assert!(size_of::<TombstoneRecord>() == 16);

impl ObjectRecord {
    pub(crate) fn new(parent: Fid, mtime: Timespec) -> ObjectRecord {
        let length = size_of::<ObjectRecord>() as u16;
        let parent = parent.into();
        ObjectRecord {
            kind: TYPE_OBJECT,
            version: 1,
            length,
            mtime_nsec: mtime.nsec,
            parent,
            mtime: mtime.sec,
        }
    }

    /// Nothing where the bytes are none of ours.
    pub(crate) fn decode(bytes: &[u8]) -> Option<ObjectRecord> {
        let (record, _newer) = ObjectRecord::read_from_prefix(bytes).ok()?;
        (record.kind == TYPE_OBJECT).then_some(record)
    }

    pub(crate) fn parent(&self) -> Fid {
        self.parent.into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_there_and_back_and_foreign_bytes_are_refused() {
        let record = ObjectRecord::new(Fid::new(5, 6), Timespec::new(-7, 8));
        let back = ObjectRecord::decode(record.as_bytes()).expect("ours");
        assert_eq!((back.parent(), back.mtime()), (Fid::new(5, 6), Timespec::new(-7, 8)));
        let stone = TombstoneRecord::new(9);
        assert_eq!(TombstoneRecord::decode(stone.as_bytes()), Some(stone));
        assert_eq!(ObjectRecord::decode(stone.as_bytes()), None);
        assert_eq!(TombstoneRecord::decode(&[]), None);
    }

    #[test]
    fn bytes_on_disk_are_what_they_were() {
        let record = ObjectRecord::new(Fid { seq: 1, oid: 2, ver: 3 }, Timespec::new(4, 5));
        let bytes = [
            1, 1, 32, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0,
            0, 0, 0,
        ];
        assert_eq!(record.as_bytes(), bytes);
        assert_eq!(
            TombstoneRecord::new(6).as_bytes(),
            [2, 1, 16, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]
        );
    }
}
