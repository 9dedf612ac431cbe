//! The bytes of version 1 for the values that all targets keep. MGS, MDT and OST chose different
//! widths for the same values; every later version must read them.
//!
//! | target | `format` | `epoch` | reply record |
//! |---|---|---|---|
//! | MGS | u16 | u64 | none |
//! | OST | u16 | u64 | transno u64, then the reply |
//! | MDT | u32 | u32 | the reply |
//!
//! New stores are written like this too. A second format would not end the first one, because every
//! program would read both for ever. So one shape would be more code: the 83 lines of this file,
//! its tests left out, would have to stay. A store also could not be converted in place, because a
//! full store has no room for its rewritten reply records.

use types::{TargetKind, Transno};

/// Version of all records; a store of a higher one is refused.
pub(crate) const FORMAT: u32 = 1;

/// Widths of one kind of target, bytes.
#[derive(Clone, Copy)]
struct Shape {
    format: usize,
    epoch: usize,
    /// Whether a reply record begins with its transno.
    reply_transno: bool,
}

fn shape(kind: TargetKind) -> Shape {
    match kind {
        TargetKind::Mdt => Shape { format: 4, epoch: 4, reply_transno: false },
        TargetKind::Ost => Shape { format: 2, epoch: 8, reply_transno: true },
        TargetKind::Mgt | TargetKind::Lst => Shape { format: 2, epoch: 8, reply_transno: false },
    }
}

pub(crate) fn encode_format(kind: TargetKind) -> Vec<u8> {
    encode(u64::from(FORMAT), shape(kind).format)
}

/// Nothing where the bytes have another width.
pub(crate) fn decode_format(kind: TargetKind, bytes: &[u8]) -> Option<u32> {
    decode(bytes, shape(kind).format).and_then(|format| u32::try_from(format).ok())
}

pub(crate) fn encode_epoch(kind: TargetKind, epoch: u64) -> Vec<u8> {
    encode(epoch, shape(kind).epoch)
}

/// Nothing where the bytes have another width.
pub(crate) fn decode_epoch(kind: TargetKind, bytes: &[u8]) -> Option<u64> {
    decode(bytes, shape(kind).epoch)
}

pub(crate) fn encode_reply(kind: TargetKind, transno: Transno, reply: Vec<u8>) -> Vec<u8> {
    if shape(kind).reply_transno { [&transno.0.to_le_bytes()[..], &reply].concat() } else { reply }
}

/// The reply, and its transno where that is kept beside it. Nothing where the record is too short.
pub(crate) fn decode_reply(kind: TargetKind, bytes: &[u8]) -> Option<(Option<Transno>, &[u8])> {
    if !shape(kind).reply_transno {
        return Some((None, bytes));
    }
    let (transno, reply) = bytes.split_first_chunk::<8>()?;
    Some((Some(Transno(u64::from_le_bytes(*transno))), reply))
}

/// `width` bytes, little-endian.
fn encode(value: u64, width: usize) -> Vec<u8> {
    let bytes = value.to_le_bytes();
    assert!(bytes[width..].iter().all(|byte| *byte == 0), "a value fits its record");
    bytes[..width].to_vec()
}

fn decode(bytes: &[u8], width: usize) -> Option<u64> {
    if bytes.len() != width {
        return None;
    }
    let mut whole = [0; 8];
    whole[..width].copy_from_slice(bytes);
    Some(u64::from_le_bytes(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_on_disk_are_what_they_were() {
        use TargetKind::{Mdt, Mgt, Ost};
        assert_eq!(encode_format(Mdt), [1, 0, 0, 0]);
        assert_eq!(encode_format(Ost), [1, 0]);
        assert_eq!(encode_format(Mgt), [1, 0]);
        assert_eq!(encode_epoch(Mdt, 0x102), [2, 1, 0, 0]);
        assert_eq!(encode_epoch(Ost, 0x102), [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode_epoch(Mgt, 0x102), [2, 1, 0, 0, 0, 0, 0, 0]);
        let transno = Transno(3);
        assert_eq!(encode_reply(Ost, transno, b"x".to_vec()), b"\x03\0\0\0\0\0\0\0x");
        assert_eq!(encode_reply(Mdt, transno, b"x".to_vec()), b"x");
    }

    #[test]
    fn records_go_there_and_back_and_foreign_bytes_are_refused() {
        use TargetKind::{Mdt, Mgt, Ost};
        for kind in [Mdt, Ost, Mgt] {
            assert_eq!(decode_format(kind, &encode_format(kind)), Some(FORMAT));
            assert_eq!(decode_epoch(kind, &encode_epoch(kind, 77)), Some(77));
            assert_eq!(decode_epoch(kind, b"abc"), None);
            assert_eq!(decode_format(kind, b""), None);
        }
        let stored = encode_reply(Ost, Transno(9), b"reply".to_vec());
        assert_eq!(decode_reply(Ost, &stored), Some((Some(Transno(9)), &b"reply"[..])));
        assert_eq!(decode_reply(Ost, b"short"), None);
        assert_eq!(decode_reply(Mdt, b"reply"), Some((None, &b"reply"[..])));
    }
}
