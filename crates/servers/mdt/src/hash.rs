//! SipHash-1-3 with a key per file system, so that no names can be crafted to collide in a
//! directory.

use siphasher::sip::SipHasher13;

/// The key of seals of records is made of the hashes of these. A file may have such a name, but its
/// cookie shows none of them.
pub(crate) const RECORD_SEALS: [&[u8]; 2] = [b"seal of records, 1", b"seal of records, 2"];

/// Key of the hash, drawn when the MDT is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashKey(pub(crate) u64, pub(crate) u64);

impl HashKey {
    /// 64 bits of `bytes`.
    pub(crate) fn hash(self, bytes: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.0, self.1).hash(bytes)
    }

    /// 47 bits of a name, never zero: every cookie is then above the two that "." and ".." take.
    pub(crate) fn name(self, name: &[u8]) -> u64 {
        let hash = match RECORD_SEALS.contains(&name) {
            true => self.hash(&[name, b"/"].concat()), // no name has a slash
            false => self.hash(name),
        };
        (hash >> 17).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_siphash_1_3() {
        // Vectors of the reference implementation: key 00..0f, input 00, 01, 02, ...
        let key = HashKey(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let input: Vec<u8> = (0..16).collect();
        assert_eq!(key.hash(&[]), 0xabac_0158_050f_c4dc);
        assert_eq!(key.hash(&input[..1]), 0xc9f4_9bf3_7d57_ca93);
    }

    #[test]
    fn no_name_shows_a_key_of_seals() {
        let key = HashKey(1, 2);
        assert!(RECORD_SEALS.iter().all(|label| key.name(label) != key.hash(label) >> 17));
        assert_eq!(key.name(b"seal of records, 3"), key.hash(b"seal of records, 3") >> 17);
    }

    #[test]
    fn names_take_47_bits() {
        let key = HashKey(1, 2);
        assert!((0..1_000u32).all(|n| (1..1 << 47).contains(&key.name(&n.to_le_bytes()))));
    }
}
