//! Random bits that need not be secret: SplitMix64, seeded by the kernel.

use std::cell::Cell;

/// One per executor.
pub(crate) struct Rng(Cell<u64>);

impl Rng {
    pub(crate) fn from_os() -> Rng {
        Rng(Cell::new(os_random()))
    }

    pub(crate) fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// 64 bits from the kernel: for what a stranger must not guess, as the nonce of a pair.
pub(crate) fn os_random() -> u64 {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert!(got == Ok(bytes.len()), "the kernel gives up to 256 random bytes at once");
    u64::from_ne_bytes(bytes)
}
