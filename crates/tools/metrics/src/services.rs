//! Services: requests by operation with their times, waits, the queues of NRS policies, and CPU
//! partitions.

use params::ParamTree;
use types::{Counter, CounterTable, Detail};

use crate::families;
use crate::text::Exposition;
use crate::{lines, part, values};

/// Where services have their parameters.
const SERVICES: &[&str] = &["ost.OSS", "mds.MDS", "mgs.MGS", "ldlm.services"];

/// The counter of a service's waits.
const WAITS: &str = "req_waittime";

pub(crate) fn add(out: &mut Exposition, params: &ParamTree) {
    for base in SERVICES {
        for (name, table) in params.tables(&format!("{base}.*.stats")) {
            statistics(out, part(&name, 2), &table);
        }
        for (service, text) in values(params, base, "nrs_stats") {
            nrs(out, &service, &text);
        }
        for (name, table) in params.tables(&format!("{base}.*.requests_by_cpt")) {
            let CounterTable::Numbers(counts) = table else { continue };
            for (cpt, count) in counts.into_iter().enumerate() {
                let labels = [("service", part(&name, 2)), ("cpt", &cpt.to_string())];
                out.add(families::BY_CPT, &labels, count as f64);
            }
        }
    }
}

/// Seconds in so many microseconds.
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn statistics(out: &mut Exposition, service: &str, table: &CounterTable) {
    for line in lines(table) {
        let Counter { samples, max, sum, .. } = line.counter;
        let labels = [("service", service), ("operation", line.name)];
        if line.name == WAITS {
            out.add(families::WAITS, &labels[..1], samples as f64);
            out.add(families::WAIT_SECONDS, &labels[..1], seconds(sum));
            out.add(families::WAIT_MAX, &labels[..1], seconds(max));
        } else if line.unit == "usec" {
            out.add(families::REQUESTS, &labels, samples as f64);
            out.add(families::REQUEST_SECONDS, &labels, seconds(sum));
            out.add(families::REQUEST_MAX, &labels, seconds(max));
        } else {
            let labels = [labels[0], ("counter", line.name), ("unit", line.unit)];
            out.add(families::SERVICE_SAMPLES, &labels, samples as f64);
            if line.detail >= Detail::Sum {
                out.add(families::SERVICE_SUM, &labels, sum as f64);
                out.add(families::SERVICE_MAX, &labels, max as f64);
            }
        }
    }
}

/// The counters of policies in `nrs_stats`: a title for each kind of head, then a line `- { name:
/// POLICY, COUNTER: VALUE, ... }` for each policy. A policy that never had a request has no series.
fn nrs(out: &mut Exposition, service: &str, text: &str) {
    let mut head = "";
    for line in text.lines() {
        if let Some(title) = line.strip_suffix("_requests:") {
            head = title;
            continue;
        }
        let pairs = line.trim().strip_prefix("- { ").and_then(|rest| rest.strip_suffix(" }"));
        let field = |name: &str| {
            pairs?.split(", ").find_map(|pair| pair.strip_prefix(name)?.strip_prefix(": "))
        };
        let Some(policy) = field("name") else { continue };
        let number = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok());
        let [queued, active, started, forced, waited, longest] =
            ["queued", "active", "started", "forced", "waited_us", "waited_us_max"]
                .map(|name| number(name).unwrap_or_default());
        if queued + started == 0 {
            continue;
        }
        let labels = [("service", service), ("head", head), ("policy", policy)];
        for (family, value) in [
            (families::NRS_QUEUED, queued as f64),
            (families::NRS_ACTIVE, active as f64),
            (families::NRS_STARTED, started as f64),
            (families::NRS_FORCED, forced as f64),
            (families::NRS_WAIT, seconds(waited)),
            (families::NRS_WAIT_MAX, seconds(longest)),
        ] {
            out.add(family, &labels, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_told_apart_by_head_and_unused_ones_are_left_out() {
        let policy = |name: &str, queued: u32, started: u32| {
            format!(
                "  - {{ name: {name}, queued: {queued}, active: 1, started: {started}, \
                 declined: 0, removed: 0, promoted: 0, forced: 4, waited_us: 2500000, \
                 waited_us_max: 500000 }}\n"
            )
        };
        let text = format!(
            "regular_requests:\n{}{}    cpt0: {{ classes: 7, rules: 2 }}\n\
             high_priority_requests:\n{}nonsense\n  - {{ queued: 5 }}\n",
            policy("fifo", 0, 0),
            policy("tbf", 3, 9),
            policy("fifo", 0, 8),
        );
        let mut out = Exposition::default();
        nrs(&mut out, "ost_io", &text);
        let text = out.finish();
        let labels = |head: &str, policy: &str| {
            format!("{{service=\"ost_io\",head=\"{head}\",policy=\"{policy}\"}}")
        };
        for (head, policy, queued, started) in
            [("regular", "tbf", 3, 9), ("high_priority", "fifo", 0, 8)]
        {
            let labels = labels(head, policy);
            for line in [
                format!("nacre_nrs_queued_requests{labels} {queued}\n"),
                format!("nacre_nrs_active_requests{labels} 1\n"),
                format!("nacre_nrs_started_requests_total{labels} {started}\n"),
                format!("nacre_nrs_forced_requests_total{labels} 4\n"),
                format!("nacre_nrs_wait_seconds_total{labels} 2.5\n"),
                format!("nacre_nrs_wait_maximum_seconds{labels} 0.5\n"),
            ] {
                assert!(text.contains(&line), "{line}{text}");
            }
        }
        assert_eq!(text.matches("nacre_nrs_queued_requests{").count(), 2, "{text}");
    }
}
