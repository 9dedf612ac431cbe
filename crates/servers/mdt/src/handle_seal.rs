//! Seals of handles of directories. A client goes on listing a directory that it opened while it
//! was allowed to, also after a restart of the MDT. No record has such a handle: the client states
//! it. So the reply to the open has a seal, by which a later run knows a handle that this store
//! gave this client.
//!
//! The seal is 32 bits of SipHash-2-4, under a key that is derived from the store's own. No message
//! shows a value under it.

use siphasher::sip::SipHasher24;
use types::{ClientId, Fid};

use crate::hash::HashKey;

/// The seal of a handle; never zero.
pub(crate) fn seal(key: HashKey, handle: u64, (fid, client): (Fid, ClientId)) -> u32 {
    let (one, other) = (key.hash(b"seal/of handles, 1"), key.hash(b"seal/of handles, 2"));
    let words = [&handle.to_le_bytes()[..], &fid.to_key(), &client.0.to_le_bytes()].concat();
    let hash = SipHasher24::new_with_keys(one, other).hash(&words).to_le_bytes();
    u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_one_handle_of_one_client_in_one_store() {
        let (key, fid) = (HashKey(1, 2), Fid::new(0x400, 7));
        let of = |key, handle, fid, client| seal(key, handle, (fid, ClientId(client)));
        let right = of(key, 5, fid, 9);
        assert_eq!(of(key, 5, fid, 9), right);
        let others = [
            of(HashKey(1, 3), 5, fid, 9),
            of(key, 6, fid, 9),
            of(key, 5, Fid::new(0x400, 8), 9),
            of(key, 5, fid, 8),
        ];
        assert!(!others.contains(&right) && !others.contains(&0));
    }
}
