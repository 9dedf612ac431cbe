//! Lustre's `job_stats` as metrics, for the jobs with the most operations.

use types::{Counter, CounterTable, Detail, Row};

use crate::families;
use crate::text::{Exposition, seconds};

/// Jobs of a target that are shown: those with the most operations.
pub(crate) const JOBS_MAX: usize = 32;

/// The row of queue times.
pub(crate) const WAITS: &str = "req_waittime";

pub(crate) fn add(out: &mut Exposition, component: &str, target: &str, table: &CounterTable) {
    let CounterTable::Groups { groups, .. } = table else { return };
    // each operation is a sample of the queue times, too
    let operations = |rows: &[Row]| {
        let rows = rows.iter().filter(|row| row.name != WAITS);
        rows.map(|row| row.counter.samples).sum::<u64>()
    };
    let mut jobs: Vec<&(String, Vec<Row>)> = groups.iter().collect();
    jobs.sort_by(|(a, of_a), (b, of_b)| operations(of_b).cmp(&operations(of_a)).then(a.cmp(b)));
    out.dropped(jobs.iter().skip(JOBS_MAX).map(|(_, rows)| rows.len()).sum());
    for (id, rows) in jobs.into_iter().take(JOBS_MAX) {
        let labels = [("component", component), ("target", target), ("jobid", id)];
        for row in rows {
            let Counter { samples, sum, .. } = row.counter;
            let (count, bytes) = match row.name {
                "read_bytes" => (families::JOB_READS, families::JOB_READ_BYTES),
                "write_bytes" => (families::JOB_WRITES, families::JOB_WRITE_BYTES),
                WAITS => {
                    out.add(families::JOB_REQUESTS, &labels, samples as f64);
                    out.add(families::JOB_WAIT, &labels, seconds(sum));
                    continue;
                }
                operation => {
                    let labels = [labels[0], labels[1], labels[2], ("operation", operation)];
                    out.add(families::JOB_STATS, &labels, samples as f64);
                    continue;
                }
            };
            out.add(count, &labels, samples as f64);
            if row.detail >= Detail::Sum {
                out.add(bytes, &labels, sum as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_that_did_most_are_shown() {
        let rows = |job: usize| {
            let (samples, sum) = (job as u64, job as u64 * 10);
            let written = Counter { samples, min: 1, max: 2, sum, sumsq: 0 };
            // failed ones wait too, and are no operations
            let samples = if job < 2 { 1_000 } else { samples };
            let (counter, detail) = (Counter { samples, sum: 500_000, ..written }, Detail::Sum);
            let waits = Row { name: WAITS, unit: "usecs", counter, detail };
            vec![Row::bytes("write_bytes", written), Row::requests("sync", 1), waits]
        };
        let groups = (0..JOBS_MAX + 2).map(|job| (format!("job{job:02}"), rows(job))).collect();
        let table = CounterTable::Groups { title: "job_stats", label: "job_id", groups };
        let mut out = Exposition::default();
        add(&mut out, "ost", "testfs-OST0000", &table);
        let text = out.finish().to_string();
        let labels = "{component=\"ost\",target=\"testfs-OST0000\",jobid=\"job33\"";
        assert!(text.contains(&format!("lustre_job_write_bytes_total{labels}}} 330\n")), "{text}");
        assert!(
            text.contains(&format!("lustre_job_stats_total{labels},operation=\"sync\"}} 1\n")),
            "{text}"
        );
        for line in [
            format!("nacre_job_requests_total{labels}}} 33\n"),
            format!("nacre_job_wait_seconds_total{labels}}} 0.5\n"),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(
            !text.contains("job00") && !text.contains("job01") && text.contains("job02"),
            "{text}"
        );
        assert!(text.ends_with("nacre_metrics_dropped_series 6\n"), "{text}");
    }
}
