//! For fuzz targets: valid records, and a check of any bytes against every decoder of records.

use types::{Fid, TargetKind, Timespec, Transno};
use zerocopy::IntoBytes;

use crate::record::{ObjectRecord, Owner, TombstoneRecord};

/// A valid record of each sort.
#[must_use]
pub fn records() -> Vec<Vec<u8>> {
    let owner = Owner { parent: Fid::new(5, 6), store: 7 };
    vec![
        ObjectRecord::new(owner, Timespec::new(-7, 8)).as_bytes().to_vec(),
        TombstoneRecord::new(9).as_bytes().to_vec(),
        target::reply_record(TargetKind::Ost, Transno(3), b"reply".to_vec()),
        7_u64.to_le_bytes().to_vec(),
    ]
}

/// Whether a decoder takes `bytes`. What it takes encodes to bytes that mean the same.
#[must_use]
pub fn record(bytes: &[u8]) -> bool {
    let object = ObjectRecord::decode(bytes);
    if let Some(object) = &object {
        let owner = object.owner().unwrap_or(Owner { parent: Fid::ZERO, store: 0 });
        let again = ObjectRecord::new(owner, object.mtime()).since_version(object.layout_version());
        let again = ObjectRecord::decode(again.as_bytes()).expect("our own encoding decodes");
        assert_eq!((again.owner(), again.mtime()), (object.owner(), object.mtime()));
    }
    let tombstone = TombstoneRecord::decode(bytes);
    if let Some(tombstone) = &tombstone {
        let again = TombstoneRecord::decode(TombstoneRecord::new(tombstone.number).as_bytes());
        assert_eq!(again.map(|again| again.number), Some(tombstone.number));
    }
    let shared = target::fuzz::record(bytes);
    object.is_some() || tombstone.is_some() || shared
}
