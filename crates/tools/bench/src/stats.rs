//! Median, range, mean and deviation of measured values.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stats {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    /// Standard deviation of the values themselves, not of an estimate.
    pub(crate) deviation: f64,
}

impl Stats {
    /// `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Stats> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let deviation =
            (sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        Some(Stats { median: sorted[sorted.len() / 2], min, max, mean, deviation })
    }
}

/// Ratios of what stood beside each other.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

/// `value` with this many decimals, as it is printed.
pub(crate) fn decimals(value: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (value * scale).round() / scale
}

/// CPU seconds of a process and its children that were waited for, from the kernel's own account.
pub(crate) fn cpu_of(pid: u32) -> std::io::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// CPU seconds of the whole machine since it started, idle, waiting and stolen time left out
/// (`/proc/stat`).
pub(crate) fn cpu_of_machine() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let busy: u64 = ticks
        .iter()
        .enumerate()
        .filter(|(index, _)| !matches!(index, 3 | 4 | 7 | 8 | 9))
        .map(|(_, ticks)| ticks)
        .sum();
    busy as f64 / TICKS_PER_SECOND
}

/// The kernel's unit of accounts in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_value_and_the_spread_are_told() {
        let stats = Stats::of(&[4.0, 1.0, 1.0]).expect("values");
        assert_eq!((stats.median, stats.min, stats.max, stats.mean), (1.0, 1.0, 4.0, 2.0));
        assert!((stats.deviation - 2.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(Stats::of(&[]), None);
    }

    #[test]
    fn a_process_that_works_is_charged() {
        let before = cpu_of(std::process::id()).expect("proc is mounted");
        let start = std::time::Instant::now();
        while cpu_of(std::process::id()).expect("proc is mounted") - before < 0.02 {
            assert!(start.elapsed().as_secs() < 30, "20 ms of work were not seen");
        }
    }
}
