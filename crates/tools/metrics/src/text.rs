//! The exposition format of Prometheus, version 0.0.4: families with their help and type, then
//! their series.
//!
//! The encoder is written by hand: three kinds of line, no registry and no state between scrapes. A
//! client library would hold every value a second time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Series of one scrape at most.
pub(crate) const SERIES_MAX: usize = 4_096;

/// Bytes of a label's value at most; what is longer is cut.
const LABEL_BYTES_MAX: usize = 128;

struct Family {
    help: &'static str,
    kind: &'static str,
    lines: String,
}

/// A scrape in the making.
#[derive(Default)]
pub(crate) struct Exposition {
    families: BTreeMap<&'static str, Family>,
    series: usize,
    dropped: usize,
}

impl Exposition {
    pub(crate) fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        self.add(name, help, "gauge", labels, value);
    }

    pub(crate) fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        self.add(name, help, "counter", labels, value);
    }

    /// So many series were left out by whoever counts them.
    pub(crate) fn dropped(&mut self, count: usize) {
        self.dropped += count;
    }

    fn add(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        if self.series >= SERIES_MAX {
            self.dropped += 1;
            return;
        }
        self.series += 1;
        let family =
            self.families.entry(name).or_insert(Family { help, kind, lines: String::new() });
        family.lines.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let _ = write!(family.lines, "{open}{label}=\"{}\"", escaped(value));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(family.lines, "{close} {value}");
    }

    pub(crate) fn finish(mut self) -> String {
        let dropped = self.dropped as f64;
        self.series = 0; // there is always room for this one
        self.gauge(
            "nacre_metrics_dropped_series",
            "Series that were left out because there are too many",
            &[],
            dropped,
        );
        let mut out = String::new();
        for (name, Family { help, kind, lines }) in self.families {
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
        }
        out
    }
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

    #[test]
    fn families_stand_together_and_labels_are_escaped() {
        let mut out = Exposition::default();
        out.counter("b_total", "B.", &[("x", "a\"b\\c\nd")], 2.0);
        out.gauge("a", "A.", &[], 0.5);
        out.counter("b_total", "B.", &[("x", "1"), ("y", "2")], 3.0);
        let text = out.finish();
        assert!(text.starts_with(
            "# HELP a A.\n# TYPE a gauge\na 0.5\n# HELP b_total B.\n# TYPE b_total counter\nb_total{x=\"a\\\"b\\\\c\\nd\"} 2\nb_total{x=\"1\",y=\"2\"} 3\n"
        ));
    }

    #[test]
    fn series_are_bounded_and_what_is_left_out_is_counted() {
        let mut out = Exposition::default();
        for peer in 0..SERIES_MAX + 10 {
            out.gauge("a", "A.", &[("peer", &peer.to_string())], 1.0);
        }
        let text = out.finish();
        assert_eq!(text.lines().filter(|line| line.starts_with("a{")).count(), SERIES_MAX);
        assert!(text.ends_with("nacre_metrics_dropped_series 10\n"));
    }
}
