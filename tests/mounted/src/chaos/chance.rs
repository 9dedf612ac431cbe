//! Numbers from a seed: one seed always gives the same plan and the same work.

use types::SplitMix64;

pub(super) struct Chance(SplitMix64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(SplitMix64::new(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// `0..end`. Not [`SplitMix64::below`], so that seeds of earlier runs keep their plans.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// `low..=high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}
