//! For fuzz targets: a check of any bytes against every decoder of records.

use types::TargetKind;

use crate::frozen;

/// Whether a decoder takes `bytes`. What it takes encodes to the same bytes.
#[must_use]
pub fn record(bytes: &[u8]) -> bool {
    let mut taken = false;
    for kind in [TargetKind::Mgt, TargetKind::Mdt, TargetKind::Ost] {
        if let Some(epoch) = frozen::decode_epoch(kind, bytes) {
            assert_eq!(frozen::encode_epoch(kind, epoch), bytes);
            taken = true;
        }
        if let Some((Some(transno), reply)) = frozen::decode_reply(kind, bytes) {
            assert_eq!(frozen::encode_reply(kind, transno, reply.to_vec()), bytes);
            taken = true;
        }
        taken |= frozen::decode_format(kind, bytes).is_some();
    }
    taken
}
