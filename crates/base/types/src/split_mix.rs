//! Random numbers from a seed: the same seed gives the same numbers in every version.

/// SplitMix64 (Steele, Lea, Flood 2014). Its whole state is one word; no secret may hang on it.
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next 64 bits of the sequence.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Uniform over `0..bound`, and 0 for a bound of 0. The bias is below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_paper_and_below_the_bound() {
        assert_eq!(SplitMix64::new(0).bits(), 0xe220_a839_7b1d_cdaf);
        let mut chance = SplitMix64::new(1);
        let mut seen = [0u32; 3];
        (0..3_000).for_each(|_| seen[chance.below(3) as usize] += 1);
        assert!(seen.iter().all(|count| (800..1_200).contains(count)), "{seen:?}");
        assert_eq!(chance.below(0), 0);
    }
}
