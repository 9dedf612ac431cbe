//! Seeded random numbers, whose sequence never changes between versions.

use types::{Span, SplitMix64};

/// A stream of numbers from a seed.
#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(SplitMix64::new(seed ^ 0x6a09_e667_f3bc_c909))
    }

    /// A stream of its own that starts from here: adding draws to one does not shift the other.
    #[must_use]
    pub fn fork(&mut self) -> Rng {
        Rng(SplitMix64::new(self.bits()))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        self.0.below(bound)
    }

    /// An index into something of `len` elements, which is not empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of `low..=high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "a range is not empty");
        low + self.below((high - low).saturating_add(1))
    }

    /// A span of `low..=high`.
    pub fn span(&mut self, low: Span, high: Span) -> Span {
        Span(self.range(low.0, high.0))
    }

    /// True in `ppm` of a million cases. Draws in every case, so that a switched-off fault keeps
    /// the sequence.
    pub fn chance(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_is_fixed() {
        let mut rng = Rng::new(17);
        let first: Vec<_> = (0..3).map(|_| rng.below(1_000)).collect();
        let mut again = Rng::new(17);
        assert_eq!(first, (0..3).map(|_| again.below(1_000)).collect::<Vec<_>>());
        assert_ne!(Rng::new(17).bits(), Rng::new(18).bits());
    }

    #[test]
    fn chances_come_out_about_right() {
        let mut rng = Rng::new(1);
        let hits = (0..100_000).filter(|_| rng.chance(10_000)).count();
        assert!((800..1_200).contains(&hits), "{hits}");
        assert!((0..1_000).all(|_| !rng.chance(0)));
        assert!((0..1_000).all(|_| rng.chance(1_000_000)));
    }
}
