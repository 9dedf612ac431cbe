//! Random bits that need not be secret, seeded by the kernel.

use std::cell::Cell;

use types::SplitMix64;

/// One per executor.
pub(crate) struct Rng(Cell<SplitMix64>);

impl Rng {
    pub(crate) fn from_os() -> Rng {
        Rng(Cell::new(SplitMix64::new(os_random())))
    }

    pub(crate) fn next(&self) -> u64 {
        let mut chance = self.0.get();
        let bits = chance.bits();
        self.0.set(chance);
        bits
    }
}

/// 64 bits from the kernel: for what a stranger must not guess, as the nonce of a pair.
pub(crate) fn os_random() -> u64 {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert!(got == Ok(bytes.len()), "the kernel gives up to 256 random bytes at once");
    u64::from_ne_bytes(bytes)
}
