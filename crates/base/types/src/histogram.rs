//! Durations by powers of two. Lustre's kind of text and a monitor's histogram are both made from
//! one value.

use std::fmt;

/// Bins of a histogram: up to 2^26 us, a minute, and one for all longer ones.
const BINS: usize = 28;

/// Durations in microseconds. Bin `n` counts those below `2^n` that no lower bin counts; the last
/// bin counts the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    bins: [u64; BINS],
    sum: u64,
}

impl Histogram {
    /// The largest exponent that [`Histogram::below`] knows.
    pub const BITS_MAX: usize = BINS - 2;

    /// One more duration.
    #[inline]
    pub fn add(&mut self, micros: u64) {
        let bin = (u64::BITS - micros.leading_zeros()) as usize;
        self.bins[bin.min(BINS - 1)] += 1;
        self.sum = self.sum.saturating_add(micros);
    }

    /// How many there are.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.bins.iter().sum()
    }

    /// All of them together, as far as that fits.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// How many are below `2^bits` microseconds.
    #[must_use]
    pub fn below(&self, bits: usize) -> u64 {
        assert!(bits <= Histogram::BITS_MAX, "the last bin has no upper end");
        self.bins.iter().take(bits + 1).sum()
    }

    /// Adds those of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        self.bins.iter_mut().zip(other.bins).for_each(|(bin, samples)| *bin += samples);
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// The value of a parameter that shows histograms, each with its name. Prints a heading for each,
/// and a line for each bin that has samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histograms(pub Vec<(&'static str, Histogram)>);

impl fmt::Display for Histograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, histogram) in &self.0 {
            writeln!(f, "{name}_usec:")?;
            for (bin, samples) in histogram.bins.iter().enumerate() {
                match bin {
                    _ if *samples == 0 => {}
                    _ if bin + 1 == BINS => writeln!(f, "  more: {samples}")?,
                    _ => writeln!(f, "  <{}: {samples}", 1_u64 << bin)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_powers_of_two() {
        let mut histogram = Histogram::default();
        for micros in [0, 1, 2, 3, 1_023, 1_024, 1 << 40] {
            histogram.add(micros);
        }
        let counts = [0, 1, 2, 10, 11, Histogram::BITS_MAX].map(|bits| histogram.below(bits));
        assert_eq!(counts, [1, 2, 4, 5, 6, 6]);
        assert_eq!((histogram.samples(), histogram.sum()), (7, 2_053 + (1 << 40)));
        let text = "wait_usec:\n  <1: 1\n  <2: 1\n  <4: 2\n  <1024: 1\n  <2048: 1\n  more: 1\n";
        assert_eq!(Histograms(vec![("wait", histogram)]).to_string(), text);
        let mut twice = histogram;
        twice.merge(&histogram);
        assert_eq!((twice.samples(), twice.below(2)), (14, 8));
    }
}
