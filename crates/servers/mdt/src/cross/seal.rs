//! Records of operations in replies. A client keeps the record and brings it back with a replay, so
//! it is sealed: an MDT repeats only operations that it has decided itself.
//!
//! ```text
//!  | magic 8 | seal 16 | record |
//! ```
//! The seal is SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012), under a key that is
//! derived from the store's own. No message shows a value under it.

use bytes::Bytes;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;
use wire::updates::{self, RECORD_MAGIC, Record};

use crate::hash::{HashKey, RECORD_SEALS};

const SEAL_BYTES: usize = 16;

fn seal(key: HashKey, record: &[u8]) -> [u8; SEAL_BYTES] {
    let [one, other] = RECORD_SEALS.map(|label| key.hash(label));
    let mut hasher = SipHasher24::new_with_keys(one, other);
    hasher.write(record);
    hasher.finish128().as_bytes()
}

/// As a reply carries it.
pub(crate) fn sealed(key: HashKey, record: &Record) -> Bytes {
    let record = updates::encode(record);
    [&RECORD_MAGIC[..], &seal(key, &record), &record].concat().into()
}

/// The record of a buffer; none if the buffer is something else, or the seal is not this store's.
pub(crate) fn opened(key: HashKey, buf: &[u8]) -> Option<Record> {
    let rest = buf.strip_prefix(&RECORD_MAGIC)?;
    let (stated, record) = rest.split_at_checked(SEAL_BYTES)?;
    let differs =
        seal(key, record).iter().zip(stated).fold(0, |sum, (one, other)| sum | (one ^ other));
    if differs != 0 {
        return None;
    }
    updates::decode(record)
}

#[cfg(test)]
mod tests {
    use wire::updates::OpId;

    use super::*;

    #[test]
    fn a_sealed_record_is_opened_by_its_own_store_alone() {
        let key = HashKey(1, 2);
        let id = OpId { mdt: 0, number: 7 };
        let record = Record { id, time: (5, 6), parts: Vec::new(), reply: Default::default() };
        let buf = sealed(key, &record);
        assert_eq!(opened(key, &buf), Some(record));
        assert_eq!(opened(HashKey(1, 3), &buf), None);
        for at in 0..buf.len() {
            let mut forged = buf.to_vec();
            forged[at] ^= 1;
            assert_eq!(opened(key, &forged), None, "byte {at}");
            assert_eq!(opened(key, &buf[..at]), None);
        }
    }
}
