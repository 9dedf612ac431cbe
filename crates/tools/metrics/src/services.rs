//! Services: requests by operation with their times, waits, the queues of NRS policies, and CPU
//! partitions.

use nrs::{HeadKind, HeadStats, NrsStats};
use params::ParamTree;
use types::{Counter, CounterTable, Detail, Histograms};

use crate::families;
use crate::text::{Exposition, seconds};
use crate::{lines, values};

/// Where services have their parameters.
const SERVICES: &[&str] = &["ost.OSS", "mds.MDS", "mgs.MGS", "ldlm.services"];

/// The counter and the histogram of a service's waits.
const WAITS: &str = "req_waittime";

/// The histogram of all operations together; each operation has its own.
const HANDLINGS: &str = "req_handling";

/// Counters of which neither a sum nor an average has a meaning.
const WITHOUT_SUM: &[&str] = &["req_timeout", "reqbuf_avail"];

pub(crate) fn add(out: &mut Exposition, params: &ParamTree) {
    for base in SERVICES {
        for (service, table) in values::<CounterTable>(params, base, "stats") {
            statistics(out, &service, &table);
        }
        for (service, histograms) in values::<Histograms>(params, base, "req_histograms") {
            times(out, &service, &histograms);
        }
        for (service, stats) in values::<NrsStats>(params, base, "nrs_stats") {
            scheduler(out, &service, &stats);
        }
        for (service, table) in values::<CounterTable>(params, base, "requests_by_cpt") {
            let CounterTable::Numbers(counts) = table else { continue };
            for (cpt, count) in counts.into_iter().enumerate() {
                let labels = [("service", service.as_str()), ("cpt", &cpt.to_string())];
                out.add(families::BY_CPT, &labels, count as f64);
            }
        }
    }
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
                out.add(families::SERVICE_MAX, &labels, max as f64);
            }
            if line.detail >= Detail::Sum && !WITHOUT_SUM.contains(&line.name) {
                out.add(families::SERVICE_SUM, &labels, sum as f64);
            }
        }
    }
}

/// Waits of a service, and handling times of each operation. One without samples has no series.
fn times(out: &mut Exposition, service: &str, histograms: &Histograms) {
    let used = histograms.0.iter().filter(|(_, histogram)| histogram.samples() > 0);
    for (name, histogram) in used {
        let labels = [("service", service), ("operation", *name)];
        match *name {
            WAITS => out.add_times(families::WAIT_TIMES, &labels[..1], histogram),
            HANDLINGS => {}
            _ => out.add_times(families::HANDLING_TIMES, &labels, histogram),
        }
    }
}

/// The counters of policies. A policy that never had a request has no series.
fn scheduler(out: &mut Exposition, service: &str, stats: &NrsStats) {
    for HeadStats { kind, policies } in &stats.0 {
        let head = match kind {
            HeadKind::Reg => "regular",
            HeadKind::Hp => "high_priority",
        };
        for policy in policies {
            let counters = policy.counters;
            if counters.queued + counters.started == 0 {
                continue;
            }
            let labels = [("service", service), ("head", head), ("policy", policy.name)];
            for (family, value) in [
                (families::NRS_QUEUED, counters.queued as f64),
                (families::NRS_ACTIVE, counters.active as f64),
                (families::NRS_STARTED, counters.started as f64),
                (families::NRS_FORCED, counters.forced as f64),
                (families::NRS_WAIT, seconds(counters.waited.0 / 1_000)),
                (families::NRS_WAIT_MAX, seconds(counters.waited_max.0 / 1_000)),
            ] {
                out.add(family, &labels, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nrs::{Counters, PolicyStats};
    use types::Span;

    use super::*;

    #[test]
    fn policies_are_told_apart_by_head_and_unused_ones_are_left_out() {
        let policy = |name, queued, started| PolicyStats {
            name,
            counters: Counters {
                queued,
                active: 1,
                started,
                forced: 4,
                waited: Span::millis(2_500),
                waited_max: Span::millis(500),
                ..Counters::default()
            },
            parts: Vec::new(),
        };
        let regular = vec![policy("fifo", 0, 0), policy("tbf", 3, 9)];
        let stats = NrsStats(vec![
            HeadStats { kind: HeadKind::Reg, policies: regular },
            HeadStats { kind: HeadKind::Hp, policies: vec![policy("fifo", 0, 8)] },
        ]);
        let mut out = Exposition::default();
        scheduler(&mut out, "ost_io", &stats);
        let text = out.finish().to_string();
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
