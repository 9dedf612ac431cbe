//! Answers of a getattr of many files, and of closes of many. Each entry is the answer to a request
//! about one file, or its error.
//!
//! ```text
//!  | errno u32 | layout_len u32 | AttrRep 184 | layout record, padded to 8 |
//! ```

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::body::AttrRep;

/// Fixed part of an answer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StatHeader {
    /// Why there are no attributes; zero: there are.
    pub errno: u32,
    /// Bytes of the layout record.
    pub layout_len: u32,
    /// Attributes and grants.
    pub rep: AttrRep,
}

const _: () = assert!(size_of::<StatHeader>() == 192);

/// Bytes of an answer without a layout.
pub const HEADER_BYTES: usize = size_of::<StatHeader>();

/// Bytes of a layout record at most: more than one of 2,000 stripes has, and less than a reply.
pub const LAYOUT_BYTES_MAX: usize = 64 << 10;

/// An answer, decoded.
#[derive(Clone, Debug, Default)]
pub struct StatRecord {
    /// Zero, or why there are no attributes.
    pub errno: u32,
    /// Attributes and grants.
    pub rep: AttrRep,
    /// Layout record; empty where it was not asked for.
    pub layout: Vec<u8>,
}

/// Bytes that an answer with a layout of this length takes.
#[must_use]
pub fn encoded_len(layout_len: usize) -> usize {
    size_of::<StatHeader>() + layout_len.next_multiple_of(8)
}

/// Appends an answer.
///
/// # Panics
/// If the layout record is longer than [`LAYOUT_BYTES_MAX`].
pub fn push(out: &mut Vec<u8>, record: &StatRecord) {
    let StatRecord { errno, rep, ref layout } = *record;
    assert!(layout.len() <= LAYOUT_BYTES_MAX, "a stored layout has its bounds");
    let header = StatHeader { errno, layout_len: layout.len() as u32, rep };
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(layout);
    out.resize(out.len() + (layout.len().next_multiple_of(8) - layout.len()), 0);
}

/// All answers; `None` where the bytes are none, or more than `count_max`.
#[must_use]
pub fn decode(mut bytes: &[u8], count_max: usize) -> Option<Vec<StatRecord>> {
    let mut records = Vec::with_capacity(count_max.min(bytes.len() / size_of::<StatHeader>()));
    while !bytes.is_empty() {
        let (header, rest) = StatHeader::read_from_prefix(bytes).ok()?;
        let len = header.layout_len as usize;
        if records.len() == count_max || len > LAYOUT_BYTES_MAX {
            return None;
        }
        let layout = rest.get(..len)?.to_vec();
        bytes = rest.get(len.next_multiple_of(8)..)?;
        records.push(StatRecord { errno: header.errno, rep: header.rep, layout });
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_go_there_and_back() {
        let record = |errno, layout: &[u8]| StatRecord {
            errno,
            rep: AttrRep { handle: 7, ..AttrRep::default() },
            layout: layout.to_vec(),
        };
        let records = [record(0, b"a layout"), record(2, b""), record(0, b"123456789")];
        let mut bytes = Vec::new();
        records.iter().for_each(|record| push(&mut bytes, record));
        assert_eq!(bytes.len(), [8, 0, 9].map(encoded_len).iter().sum::<usize>());
        let back = decode(&bytes, 3).expect("our own bytes");
        let parts = |record: &StatRecord| (record.errno, record.rep.handle, record.layout.clone());
        assert!(back.iter().map(parts).eq(records.iter().map(parts)));
        assert!(decode(&bytes, 2).is_none(), "more than were asked for");
        for len in (1..bytes.len()).filter(|len| ![200, 392].contains(len)) {
            assert!(decode(&bytes[..len], 3).is_none(), "{len}");
        }
        let mut long = bytes.clone();
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decode(&long, 3).is_none());
    }
}
