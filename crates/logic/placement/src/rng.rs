//! Chance from a seed, so that the same run chooses the same OSTs. SplitMix64 (Steele, Lea, Flood 2014).

/// A sequence of numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_paper_and_below_the_bound() {
        assert_eq!(Rng(0).next(), 0xe220_a839_7b1d_cdaf);
        let mut rng = Rng(1);
        let mut seen = [0u32; 3];
        (0..3_000).for_each(|_| seen[rng.below(3) as usize] += 1);
        assert!(seen.iter().all(|count| (800..1_200).contains(count)), "{seen:?}");
    }
}
