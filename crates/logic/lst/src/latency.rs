//! Latencies of requests: a histogram of fixed size, merged over nodes and subtracted over time.
//!
//! Buckets are logarithmic with [`STEPS`] linear steps in each power of two of microseconds, so
//! that a percentile is accurate to an eighth of itself. The last bucket holds everything longer.

use types::Span;

/// Linear steps within a power of two.
const STEPS: u64 = 8;
const STEP_BITS: u32 = STEPS.ilog2();
/// 2^27 microseconds are two minutes; the timeout of a request is 64 s.
const BUCKETS: usize = (27 - STEP_BITS as usize + 1) * STEPS as usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::new([0; BUCKETS]) }
    }
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// Half of the requests took no longer.
    pub p50_us: u64,
    /// 90 of 100.
    pub p90_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// 999 of 1,000.
    pub p999_us: u64,
    pub max_us: u64,
}

impl Histogram {
    pub fn record(&mut self, took: Span) {
        self.counts[bucket(took.0 / 1_000)] += 1;
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Buckets that hold any, as messages carry them.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(u16, u64)> {
        (0..)
            .zip(self.counts.iter())
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (index, *count))
            .collect()
    }

    /// Adds what a message carried; buckets that do not exist count as the last one.
    pub fn add_pairs(&mut self, pairs: &[(u16, u64)]) {
        for (index, count) in pairs {
            let slot = &mut self.counts[usize::from(*index).min(BUCKETS - 1)];
            *slot = slot.saturating_add(*count);
        }
    }

    /// What came since `before`.
    #[must_use]
    pub fn since(&self, before: &Histogram) -> Histogram {
        let mut out = Histogram::default();
        for ((out, now), before) in
            out.counts.iter_mut().zip(self.counts.iter()).zip(before.counts.iter())
        {
            *out = now.saturating_sub(*before);
        }
        out
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (sum, one) in self.counts.iter_mut().zip(other.counts.iter()) {
            *sum = sum.saturating_add(*one);
        }
    }

    /// Upper ends of the buckets in which the percentiles lie; zero where nothing was counted.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        let total = self.count();
        let at = |per_mille: u64| {
            let rank = (u128::from(total) * u128::from(per_mille)).div_ceil(1_000) as u64;
            let mut seen = 0_u64;
            let found = self.counts.iter().position(|count| {
                seen = seen.saturating_add(*count);
                seen >= rank && rank > 0
            });
            found.map_or(0, upper_us)
        };
        Percentiles {
            p50_us: at(500),
            p90_us: at(900),
            p99_us: at(990),
            p999_us: at(999),
            max_us: at(1_000),
        }
    }
}

fn bucket(us: u64) -> usize {
    if us < STEPS {
        return us as usize;
    }
    let power = us.ilog2();
    let step = (us >> (power - STEP_BITS)) - STEPS;
    (((power - STEP_BITS + 1) as usize) * STEPS as usize + step as usize).min(BUCKETS - 1)
}

/// Longest duration of a bucket, microseconds.
fn upper_us(index: usize) -> u64 {
    let (row, step) = (index as u64 / STEPS, index as u64 % STEPS);
    match row {
        0 => step,
        _ => ((STEPS + step + 1) << (row - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_told_within_an_eighth() {
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|us| histogram.record(Span::micros(us)));
        let told = histogram.percentiles();
        for (told, true_us) in
            [(told.p50_us, 500), (told.p90_us, 900), (told.p99_us, 990), (told.max_us, 1_000)]
        {
            assert!(told >= true_us && told <= true_us + true_us / 8, "{told} for {true_us}");
        }
        assert_eq!(Histogram::default().percentiles(), Percentiles::default());
    }

    #[test]
    fn an_interval_is_a_difference_and_nodes_are_a_sum() {
        let (mut before, mut other) = (Histogram::default(), Histogram::default());
        before.record(Span::millis(5));
        let mut now = before.clone();
        now.record(Span::micros(3));
        other.record(Span::secs(1_000));
        let mut all = now.since(&before);
        all.merge(&other);
        assert_eq!(all.count(), 2);
        assert_eq!(all.percentiles().p50_us, 3);
        assert_eq!(all.percentiles().max_us, upper_us(BUCKETS - 1));
    }

    proptest! {
        #[test]
        fn a_duration_lies_in_its_bucket(us in 0_u64..1 << 27) {
            let index = bucket(us);
            prop_assert!(us <= upper_us(index));
            prop_assert!(index == 0 || us > upper_us(index - 1));
        }

        #[test]
        fn any_pairs_are_taken(pairs in proptest::collection::vec((any::<u16>(), any::<u64>()), 0..20)) {
            let mut histogram = Histogram::default();
            histogram.add_pairs(&pairs);
            let _ = histogram.percentiles();
            let mut again = Histogram::default();
            again.add_pairs(&histogram.to_pairs());
            prop_assert_eq!(histogram, again);
        }
    }
}
