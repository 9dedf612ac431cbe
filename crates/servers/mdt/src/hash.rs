//! SipHash-1-3 with a key per file system: names cannot be crafted to collide in a directory.

/// Key of the hash, drawn when the MDT is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashKey(pub(crate) u64, pub(crate) u64);

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

impl HashKey {
    /// 64 bits of `bytes`.
    pub(crate) fn hash(self, bytes: &[u8]) -> u64 {
        let mut v = [
            self.0 ^ 0x736f_6d65_7073_6575,
            self.1 ^ 0x646f_7261_6e64_6f6d,
            self.0 ^ 0x6c79_6765_6e65_7261,
            self.1 ^ 0x7465_6462_7974_6573,
        ];
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            absorb(&mut v, u64::from_le_bytes(word.try_into().expect("a chunk of eight")));
        }
        let mut last = [0; 8];
        assert!(words.remainder().len() < 8, "whole words are absorbed");
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        last[7] = bytes.len() as u8;
        absorb(&mut v, u64::from_le_bytes(last));
        v[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }

    /// 47 bits of a name, never zero: every cookie is then above the two that "." and ".." take.
    pub(crate) fn name(self, name: &[u8]) -> u64 {
        (self.hash(name) >> 17).max(1)
    }
}

fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    v[0] ^= word;
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
    fn names_take_47_bits() {
        let key = HashKey(1, 2);
        assert!((0..1_000u32).all(|n| (1..1 << 47).contains(&key.name(&n.to_le_bytes()))));
    }
}
