//! The exposition format of Prometheus, version 0.0.4: families with their help and type, then
//! their series.
//!
//! The encoder is written by hand: three kinds of line, no registry and no state between scrapes. A
//! client library would hold every value a second time.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use types::Histogram;

use crate::families::{DROPPED, Family, Kind};

/// Series of one scrape at most.
pub(crate) const SERIES_MAX: usize = 4_096;

/// Buckets of a histogram end at `2^N` microseconds for each of these: from 16 us to 67 s.
const BUCKETS: [usize; 12] = [4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, Histogram::BITS_MAX];

/// Series of one histogram: its buckets, the one without an end, sum and count.
const SERIES_OF_HISTOGRAM: usize = BUCKETS.len() + 3;

/// Bytes of a label's value at most; what is longer is cut.
const LABEL_BYTES_MAX: usize = 128;

/// By name: the family and the lines of its series.
type Families = BTreeMap<&'static str, (&'static Family, String)>;

/// A scrape in the making.
#[derive(Default)]
pub(crate) struct Exposition {
    families: Families,
    /// The executor is well.
    pub(crate) is_well: bool,
    series: usize,
    dropped: usize,
    /// Value of the label `executor` of all series.
    executor: Option<String>,
}

impl Exposition {
    /// Of one of several executors, or of the only one.
    pub(crate) fn of(executor: Option<usize>) -> Exposition {
        Exposition { executor: executor.map(|index| index.to_string()), ..Exposition::default() }
    }

    /// So many series were left out by the caller.
    pub(crate) fn dropped(&mut self, count: usize) {
        self.dropped += count;
    }

    pub(crate) fn add(&mut self, family: &'static Family, labels: &[(&str, &str)], value: f64) {
        if self.has_room(1) {
            self.line(family, "", labels, value);
        }
    }

    /// A series of the process, so without the label `executor`.
    pub(crate) fn add_of_process(
        &mut self,
        family: &'static Family,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        let executor = self.executor.take();
        self.add(family, labels, value);
        self.executor = executor;
    }

    /// A histogram of microseconds, whole or not at all.
    pub(crate) fn add_times(
        &mut self,
        family: &'static Family,
        labels: &[(&str, &str)],
        times: &Histogram,
    ) {
        if !self.has_room(SERIES_OF_HISTOGRAM) {
            return;
        }
        let samples = times.samples() as f64;
        for bits in BUCKETS {
            let end = ((1_u64 << bits) as f64 / 1e6).to_string();
            let labels = [labels, &[("le", end.as_str())]].concat();
            self.line(family, "_bucket", &labels, times.below(bits) as f64);
        }
        self.line(family, "_bucket", &[labels, &[("le", "+Inf")]].concat(), samples);
        self.line(family, "_sum", labels, times.sum() as f64 / 1e6);
        self.line(family, "_count", labels, samples);
    }

    /// Counts so many series, as shown or as left out.
    fn has_room(&mut self, series: usize) -> bool {
        let has_room = self.series + series <= SERIES_MAX;
        *(if has_room { &mut self.series } else { &mut self.dropped }) += series;
        has_room
    }

    fn line(&mut self, family: &'static Family, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let (_, lines) = self.families.entry(family.name).or_insert((family, String::new()));
        lines.push_str(family.name);
        lines.push_str(suffix);
        let executor = self.executor.as_deref().map(|index| ("executor", index));
        let mut open = '{';
        for (label, value) in labels.iter().copied().chain(executor) {
            let _ = write!(lines, "{open}{label}=\"{}\"", escaped(value));
            open = ',';
        }
        let close = if open == ',' { "}" } else { "" };
        let _ = writeln!(lines, "{close} {value}");
    }

    pub(crate) fn finish(mut self) -> Part {
        self.series = 0; // there is always room for this one
        self.add(DROPPED, &[], self.dropped as f64);
        Part { families: self.families, is_well: self.is_well }
    }
}

/// The part of one executor in a scrape of its process, or the parts of several together.
pub struct Part {
    families: Families,
    /// Each of the executors is well.
    pub(crate) is_well: bool,
}

impl Part {
    /// Adds the part of another executor, which labels its own series, so no two are the same. An
    /// executor without an answer is not well.
    pub(crate) fn join(&mut self, other: Option<Part>) {
        let Some(other) = other else {
            self.is_well = false;
            return;
        };
        self.is_well &= other.is_well;
        for (name, (family, lines)) in other.families {
            let (_, known) = self.families.entry(name).or_insert((family, String::new()));
            known.push_str(&lines);
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (Family { name, kind, help }, lines) in self.families.values() {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            write!(f, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}")?;
        }
        Ok(())
    }
}

/// Seconds in so many microseconds.
pub(crate) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn escaped(value: &str) -> String {
    let mut out = String::new();
    for c in value.chars() {
        if out.len() >= LABEL_BYTES_MAX {
            break;
        }
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::{BUILD, LOST, WAIT_TIMES};

    #[test]
    fn families_stand_together_and_labels_are_escaped() {
        let mut out = Exposition::default();
        out.add(LOST, &[("x", "a\"b\\c\nd")], 2.0);
        out.add(BUILD, &[], 0.5);
        out.add(LOST, &[("x", "1"), ("y", "2")], 3.0);
        let expected = format!(
            "# HELP nacre_build_info {}\n# TYPE nacre_build_info gauge\nnacre_build_info 0.5\n\
             # HELP nacre_lost_changes_total {}\n# TYPE nacre_lost_changes_total counter\n\
             nacre_lost_changes_total{{x=\"a\\\"b\\\\c\\nd\"}} 2\n\
             nacre_lost_changes_total{{x=\"1\",y=\"2\"}} 3\n\
             # HELP nacre_metrics_dropped_series ",
            BUILD.help, LOST.help
        );
        let text = out.finish().to_string();
        assert!(text.starts_with(&expected), "{text}");
    }

    #[test]
    fn a_histogram_has_buckets_a_sum_and_a_count() {
        let mut times = Histogram::default();
        [10, 20, 1 << 30].into_iter().for_each(|micros| times.add(micros));
        let mut out = Exposition::default();
        out.add_times(WAIT_TIMES, &[("service", "mdt")], &times);
        let text = out.finish().to_string();
        let name = WAIT_TIMES.name;
        for line in [
            format!("# TYPE {name} histogram\n"),
            format!("{name}_bucket{{service=\"mdt\",le=\"0.000016\"}} 1\n"),
            format!("{name}_bucket{{service=\"mdt\",le=\"0.000064\"}} 2\n"),
            format!("{name}_bucket{{service=\"mdt\",le=\"67.108864\"}} 2\n"),
            format!("{name}_bucket{{service=\"mdt\",le=\"+Inf\"}} 3\n"),
            format!("{name}_sum{{service=\"mdt\"}} 1073.741854\n"),
            format!("{name}_count{{service=\"mdt\"}} 3\n"),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert_eq!(text.matches(&format!("\n{name}_")).count(), SERIES_OF_HISTOGRAM);
        let mut full = Exposition { series: SERIES_MAX - 1, ..Exposition::default() };
        full.add_times(WAIT_TIMES, &[], &times);
        assert_eq!((full.series, full.dropped), (SERIES_MAX - 1, SERIES_OF_HISTOGRAM));
    }

    #[test]
    fn several_executors_make_one_text_in_which_no_series_comes_twice() {
        let of = |executor: usize, value: f64| {
            let mut out = Exposition::of(Some(executor));
            out.add(LOST, &[("x", "1")], value);
            if executor == 1 {
                out.add(BUILD, &[], 1.0);
            }
            out.finish()
        };
        let mut both = of(0, 2.0);
        both.join(Some(of(1, 3.0)));
        let text = both.to_string();
        let expected = format!(
            "# HELP nacre_build_info {}\n# TYPE nacre_build_info gauge\n\
             nacre_build_info{{executor=\"1\"}} 1\n\
             # HELP nacre_lost_changes_total {}\n# TYPE nacre_lost_changes_total counter\n\
             nacre_lost_changes_total{{x=\"1\",executor=\"0\"}} 2\n\
             nacre_lost_changes_total{{x=\"1\",executor=\"1\"}} 3\n\
             # HELP nacre_metrics_dropped_series ",
            BUILD.help, LOST.help
        );
        assert!(text.starts_with(&expected), "{text}");
    }

    #[test]
    fn a_process_is_well_if_each_executor_is() {
        let of = |is_well| Exposition { is_well, ..Exposition::default() }.finish();
        let joined = |first, other: Option<bool>| {
            let mut part = of(first);
            part.join(other.map(of));
            part.is_well
        };
        assert!(of(true).is_well && joined(true, Some(true)));
        assert!(!joined(true, Some(false)) && !joined(false, Some(true)));
        assert!(!joined(true, None), "one is silent");
    }

    #[test]
    fn series_are_bounded_and_what_is_left_out_is_counted() {
        let mut out = Exposition::default();
        for peer in 0..SERIES_MAX + 10 {
            out.add(LOST, &[("peer", &peer.to_string())], 1.0);
        }
        let text = out.finish().to_string();
        let series = text.lines().filter(|line| line.starts_with("nacre_lost_changes_total{"));
        assert_eq!(series.count(), SERIES_MAX);
        assert!(text.ends_with("nacre_metrics_dropped_series 10\n"));
    }
}
