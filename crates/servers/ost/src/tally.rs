//! Operations and bytes: in total, by client node and by job, as `stats`, `export_stats` and
//! `job_stats` print them.
//!
//! Bounded: above [`limits::TALLY_NIDS_MAX`] or [`limits::TALLY_JOBS_MAX`] keys, the key that was
//! quiet longest goes. Jobs also go after `job_cleanup_interval` (Lustre's 600 s).

use std::cell::RefCell;
use std::collections::BTreeMap;

use types::{Counter, CounterTable, Instant, Nid, Row, Span, Timespec};

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

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    last: Instant,
    read: Counter,
    write: Counter,
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

    fn rows(&self) -> Vec<Row> {
        let mut rows =
            vec![Row::bytes("read_bytes", self.read), Row::bytes("write_bytes", self.write)];
        let operations = OPERATIONS.iter().zip(self.operations);
        rows.extend(operations.map(|((_, name), count)| Row::requests(name, count)));
        rows
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
    pub(crate) fn all(&self, now: Timespec) -> CounterTable {
        CounterTable::Lines { at: Some(now), rows: self.all.borrow().rows() }
    }

    /// As `export_stats` shows it.
    pub(crate) fn nids(&self) -> CounterTable {
        let nids = self.nids.borrow();
        let groups = nids.iter().map(|(nid, line)| (nid.to_string(), line.rows())).collect();
        CounterTable::Groups { title: "export_stats", label: "nid", groups }
    }

    /// As Lustre's `job_stats`.
    pub(crate) fn jobs(&self, now: Instant) -> CounterTable {
        let mut jobs = self.jobs.borrow_mut();
        jobs.retain(|_, line| now - line.last < JOB_CLEANUP_INTERVAL);
        let groups = jobs.iter().map(|(job, line)| {
            let end = job.iter().position(|byte| *byte == 0).unwrap_or(job.len());
            (job[..end].escape_ascii().to_string(), line.rows())
        });
        CounterTable::Groups { title: "job_stats", label: "job_id", groups: groups.collect() }
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
        let jobs = tally.jobs(Instant(3)).to_string();
        assert!(
            jobs.contains("\n- job_id:         dd.0\n")
                && jobs.contains("min:    1024, max:    4096, sum:            5120"),
            "{jobs}"
        );
        let nids = tally.nids().to_string();
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
            let text = tally.all(Timespec { sec: 17, nsec: 5 }).to_string();
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
        assert_eq!(tally.jobs(Instant(0) + Span::secs(700)).to_string(), "job_stats:\n");
    }
}
