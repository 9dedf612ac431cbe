//! Lustre's `job_stats` as metrics, for the jobs that did most.

use crate::text::Exposition;

/// Jobs of a target that are shown: those with the most operations.
pub(crate) const JOBS_MAX: usize = 32;

#[derive(Default)]
struct Job<'a> {
    id: &'a str,
    samples: f64,
    counters: Vec<Counter<'a>>,
}

struct Counter<'a> {
    name: &'a str,
    samples: f64,
    sum: Option<f64>,
}

pub(crate) fn add(out: &mut Exposition, component: &str, target: &str, text: &str) {
    let mut jobs = parse(text);
    jobs.sort_by(|a, b| b.samples.total_cmp(&a.samples).then(a.id.cmp(b.id)));
    out.dropped(jobs.iter().skip(JOBS_MAX).map(|job| job.counters.len()).sum());
    for job in jobs.iter().take(JOBS_MAX) {
        let labels = [("component", component), ("target", target), ("jobid", job.id)];
        for counter in &job.counters {
            let names = match counter.name {
                "read_bytes" => ("lustre_job_read_samples_total", "lustre_job_read_bytes_total"),
                "write_bytes" => ("lustre_job_write_samples_total", "lustre_job_write_bytes_total"),
                operation => {
                    let labels = [labels[0], labels[1], labels[2], ("operation", operation)];
                    let help = "Number of operations the filesystem has performed.";
                    out.counter("lustre_job_stats_total", help, &labels, counter.samples);
                    continue;
                }
            };
            out.counter(
                names.0,
                "Total number of transfers that have been recorded.",
                &labels,
                counter.samples,
            );
            if let Some(sum) = counter.sum {
                out.counter(
                    names.1,
                    "The total number of bytes that have been transferred.",
                    &labels,
                    sum,
                );
            }
        }
    }
}

/// `- job_id: NAME`, then `counter: { samples: N, unit: U, .., sum: S }` until the next job. Lines
/// without samples are times and the like.
fn parse(text: &str) -> Vec<Job<'_>> {
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(id) = line.trim_start().strip_prefix("- job_id") {
            jobs.push(Job { id: id.trim_start_matches([':', ' ']).trim(), ..Job::default() });
            continue;
        }
        let Some((name, fields)) = line.split_once(':') else { continue };
        let (Some(job), Some(samples)) = (jobs.last_mut(), field(fields, "samples")) else {
            continue;
        };
        job.samples += samples;
        job.counters.push(Counter { name: name.trim(), samples, sum: field(fields, "sum") });
    }
    jobs
}

fn field(fields: &str, name: &str) -> Option<f64> {
    let inner = fields.trim().strip_prefix('{')?.strip_suffix('}')?;
    let found = inner
        .split(',')
        .filter_map(|field| field.split_once(':'))
        .find(|(key, _)| key.trim() == name);
    found?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_that_did_most_are_shown() {
        let mut text = String::from("job_stats:\n");
        for job in 0..JOBS_MAX + 2 {
            text.push_str(&format!(
                "- job_id          job{job:02}\n  snapshot_time:   17\n  write_bytes:    {{ samples:  {job}, unit: bytes, min: 1, max: 2, sum:  {} }}\n  sync:           {{ samples: 1, unit: reqs }}\n",
                job * 10
            ));
        }
        let mut out = Exposition::default();
        add(&mut out, "ost", "testfs-OST0000", &text);
        let text = out.finish();
        let labels = "{component=\"ost\",target=\"testfs-OST0000\",jobid=\"job33\"";
        assert!(text.contains(&format!("lustre_job_write_bytes_total{labels}}} 330\n")), "{text}");
        assert!(
            text.contains(&format!("lustre_job_stats_total{labels},operation=\"sync\"}} 1\n")),
            "{text}"
        );
        assert!(
            !text.contains("job00") && !text.contains("job01") && text.contains("job02"),
            "{text}"
        );
        assert!(text.ends_with("nacre_metrics_dropped_series 4\n"), "{text}");
    }
}
