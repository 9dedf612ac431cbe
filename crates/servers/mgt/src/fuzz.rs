//! For fuzz targets: valid records, and a check of any bytes against every decoder of records.

use wire::config::TargetInfo;

use crate::record::{StoredTarget, decode_u64};

/// A valid record of each sort.
#[must_use]
pub fn records() -> Vec<Vec<u8>> {
    let info = TargetInfo { id: 1 << 16, nid: 5, port: 988, instance: 3 };
    vec![StoredTarget { info, uuid: 1 << 127 }.encode(), 7_u64.to_le_bytes().to_vec()]
}

/// Whether a decoder takes `bytes`. What it takes encodes to bytes that mean the same.
#[must_use]
pub fn record(bytes: &[u8]) -> bool {
    let target = StoredTarget::decode(bytes);
    if let Some(target) = &target {
        assert_eq!(StoredTarget::decode(&target.encode()).as_ref(), Some(target));
    }
    target.is_some() || decode_u64(bytes).is_some()
}
