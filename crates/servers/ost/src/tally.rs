//! Who moved how much: operations and bytes of all, by client node and by job, as `stats`,
//! `export_stats` and `job_stats` print them.
//!
//! Bounded: above [`limits::TALLY_NIDS_MAX`] or [`limits::TALLY_JOBS_MAX`] keys the one that was
//! quiet longest goes; jobs also go after `job_cleanup_interval` (Lustre's 600 s).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;

use types::{Instant, Nid, Span, Timespec};

use crate::limits;

/// Quiet jobs are forgotten after this long.
const JOB_CLEANUP_INTERVAL: Span = Span::secs(600);

/// A kind of operation that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Getattr,
    Punch,
    Prealloc,
    Sync,
    Destroy,
    Statfs,
    Other,
}

/// Kinds that are counted without bytes, in the order of their rows; names as Lustre's.
const OPERATIONS: [(Kind, &str); 7] = [
    (Kind::Getattr, "getattr"),
    (Kind::Punch, "punch"),
    (Kind::Prealloc, "prealloc"),
    (Kind::Sync, "sync"),
    (Kind::Destroy, "destroy"),
    (Kind::Statfs, "statfs"),
    (Kind::Other, "other"),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bytes {
    samples: u64,
    min: u64,
    max: u64,
    sum: u64,
}

impl Bytes {
    fn add(&mut self, bytes: u64) {
        self.min = if self.samples == 0 { bytes } else { self.min.min(bytes) };
        self.max = self.max.max(bytes);
        self.samples += 1;
        self.sum = self.sum.saturating_add(bytes);
    }

    fn render(&self) -> String {
        format!(
            "{{ samples: {:11}, unit: bytes, min: {:7}, max: {:7}, sum: {:15} }}",
            self.samples, self.min, self.max, self.sum
        )
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    last: Instant,
    read: Bytes,
    write: Bytes,
    operations: [u64; OPERATIONS.len()],
}

impl Line {
    fn add(&mut self, now: Instant, kind: Kind, bytes: u64) {
        self.last = now;
        match kind {
            Kind::Read => self.read.add(bytes),
            Kind::Write => self.write.add(bytes),
            counted => {
                let rows = OPERATIONS.iter().zip(&mut self.operations);
                rows.filter(|((kind, _), _)| *kind == counted).for_each(|(_, count)| *count += 1);
            }
        }
    }

    fn operations(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OPERATIONS.iter().zip(self.operations).map(|((_, name), count)| (*name, count))
    }
}

type Lines<K> = RefCell<BTreeMap<K, Line>>;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Tally {
    all: RefCell<Line>,
    nids: Lines<Nid>,
    jobs: Lines<[u8; 32]>,
}

impl Tally {
    /// One operation of `bytes` bytes is done.
    pub(crate) fn count(&self, now: Instant, nid: Nid, job: [u8; 32], kind: Kind, bytes: u64) {
        self.all.borrow_mut().add(now, kind, bytes);
        add(&self.nids, limits::TALLY_NIDS_MAX, nid, now, kind, bytes);
        if job != [0; 32] {
            add(&self.jobs, limits::TALLY_JOBS_MAX, job, now, kind, bytes);
        }
    }

    /// As Lustre's `stats`: what was never done has no row.
    pub(crate) fn render_all(&self, now: Timespec) -> String {
        let line = *self.all.borrow();
        let mut out = format!("{:<25} {}.{:09} secs.nsecs\n", "snapshot_time", now.sec, now.nsec);
        for (name, bytes) in [("read_bytes", line.read), ("write_bytes", line.write)] {
            if bytes.samples > 0 {
                let Bytes { samples, min, max, sum } = bytes;
                let _ = writeln!(out, "{name:<25} {samples} samples [bytes] {min} {max} {sum}");
            }
        }
        for (name, count) in line.operations().filter(|(_, count)| *count > 0) {
            let _ = writeln!(out, "{name:<25} {count} samples [reqs]");
        }
        out
    }

    /// As `export_stats` prints it.
    pub(crate) fn render_nids(&self) -> String {
        let mut out = String::from("export_stats:\n");
        for (nid, line) in self.nids.borrow().iter() {
            render(&mut out, "nid", &nid.to_string(), line);
        }
        out
    }

    /// As Lustre's `job_stats`.
    pub(crate) fn render_jobs(&self, now: Instant) -> String {
        let mut jobs = self.jobs.borrow_mut();
        jobs.retain(|_, line| now - line.last < JOB_CLEANUP_INTERVAL);
        let mut out = String::from("job_stats:\n");
        for (job, line) in jobs.iter() {
            let end = job.iter().position(|byte| *byte == 0).unwrap_or(job.len());
            render(&mut out, "job_id", &job[..end].escape_ascii().to_string(), line);
        }
        out
    }

    pub(crate) fn clear_all(&self) {
        *self.all.borrow_mut() = Line::default();
    }

    pub(crate) fn clear_nids(&self) {
        self.nids.borrow_mut().clear();
    }

    pub(crate) fn clear_jobs(&self) {
        self.jobs.borrow_mut().clear();
    }
}

fn add<K: Ord + Copy>(
    lines: &Lines<K>,
    bound: usize,
    key: K,
    now: Instant,
    kind: Kind,
    bytes: u64,
) {
    let mut lines = lines.borrow_mut();
    if lines.len() >= bound && !lines.contains_key(&key) {
        let quietest = lines.iter().min_by_key(|(_, line)| line.last).map(|(key, _)| *key);
        quietest.and_then(|key| lines.remove(&key));
    }
    lines.entry(key).or_default().add(now, kind, bytes);
    assert!(lines.len() <= bound, "the table is bounded");
}

fn render(out: &mut String, label: &str, key: &str, line: &Line) {
    let count = |n: u64| format!("{{ samples: {n:11}, unit: reqs }}");
    let bytes = [("read_bytes", line.read.render()), ("write_bytes", line.write.render())];
    let rows = bytes.into_iter().chain(line.operations().map(|(name, n)| (name, count(n))));
    let _ = writeln!(out, "- {:<16}{key}", format!("{label}:"));
    for (name, value) in rows {
        let _ = writeln!(out, "  {:<16}{value}", format!("{name}:"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> [u8; 32] {
        let mut out = [0; 32];
        out[..name.len()].copy_from_slice(name.as_bytes());
        out
    }

    #[test]
    fn operations_are_counted_by_node_and_by_job() {
        let (tally, nid) = (Tally::default(), "10.0.0.1@tcp".parse().expect("a NID"));
        tally.count(Instant(1), nid, job("dd.0"), Kind::Write, 4_096);
        tally.count(Instant(2), nid, job("dd.0"), Kind::Write, 1_024);
        tally.count(Instant(3), nid, [0; 32], Kind::Sync, 0);
        let jobs = tally.render_jobs(Instant(3));
        assert!(
            jobs.contains("\n- job_id:         dd.0\n")
                && jobs.contains("min:    1024, max:    4096, sum:            5120"),
            "{jobs}"
        );
        let nids = tally.render_nids();
        assert!(
            nids.contains("10.0.0.1@tcp")
                && nids.contains("sync:           { samples:           1"),
            "{nids}"
        );
    }

    #[test]
    fn totals_outlive_the_nodes_and_jobs_they_came_from() {
        let (tally, nid) = (Tally::default(), "10.0.0.1@tcp".parse().expect("a NID"));
        tally.count(Instant(1), nid, [0; 32], Kind::Read, 4_096);
        tally.count(Instant(2), nid, job("dd.0"), Kind::Read, 1_024);
        tally.count(Instant(3), nid, job("dd.0"), Kind::Destroy, 0);
        tally.clear_nids();
        tally.clear_jobs();
        let rows = |tally: &Tally| {
            let text = tally.render_all(Timespec { sec: 17, nsec: 5 });
            text.lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        let time = "snapshot_time 17.000000005 secs.nsecs";
        assert_eq!(
            rows(&tally),
            [time, "read_bytes 2 samples [bytes] 1024 4096 5120", "destroy 1 samples [reqs]"]
        );
        tally.clear_all();
        assert_eq!(rows(&tally), [time]);
    }

    #[test]
    fn quiet_jobs_go_and_the_table_is_bounded() {
        let (tally, nid) = (Tally::default(), "10.0.0.1@tcp".parse().expect("a NID"));
        for index in 0..=limits::TALLY_JOBS_MAX as u64 {
            tally.count(Instant(index), nid, job(&format!("j{index}")), Kind::Read, 1);
        }
        assert_eq!(tally.jobs.borrow().len(), limits::TALLY_JOBS_MAX);
        assert!(!tally.jobs.borrow().contains_key(&job("j0")), "the quietest went");
        assert_eq!(tally.render_jobs(Instant(0) + Span::secs(700)), "job_stats:\n");
    }
}
