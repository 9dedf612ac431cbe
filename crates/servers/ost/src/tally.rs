//! Operations and bytes: in total, by client node and by job, as `stats`, `export_stats` and
//! `job_stats` print them. The latter two also have the queue times of requests.
//!
//! Bounded: [`limits::TALLY_NIDS_MAX`] nodes and [`limits::TALLY_JOBS_MAX`] jobs.

use std::cell::RefCell;

use target::{Job, Lines};
use types::{Counter, CounterTable, Instant, Nid, Row, Span, Timespec};

use crate::limits;

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
    read: Counter,
    write: Counter,
    operations: [u64; OPERATIONS.len()],
}

impl Line {
    fn add(&mut self, kind: Kind, bytes: u64) {
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

/// See the head of the file.
pub(crate) struct Tally {
    all: RefCell<Line>,
    nids: Lines<Nid, Line>,
    jobs: Lines<Job, Line>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            all: RefCell::default(),
            nids: Lines::new(limits::TALLY_NIDS_MAX),
            jobs: Lines::new(limits::TALLY_JOBS_MAX),
        }
    }
}

impl Tally {
    /// A request of `nid` and `job` is answered. `waited` is its time in the queue, if it was in
    /// one. `done` is what it did, with its bytes, if it succeeded.
    pub(crate) fn count(
        &self,
        now: Instant,
        nid: Nid,
        job: Job,
        waited: Option<Span>,
        done: Option<(Kind, u64)>,
    ) {
        let add = |line: &mut Line| {
            if let Some((kind, bytes)) = done {
                line.add(kind, bytes);
            }
        };
        add(&mut self.all.borrow_mut());
        self.nids.add(now, nid, waited, add);
        if job != [0; 32] {
            self.jobs.add(now, job, waited, add);
        }
    }

    /// As Lustre's `stats`: what was never done has no row.
    pub(crate) fn all(&self, now: Timespec) -> CounterTable {
        CounterTable::Lines { at: Some(now), rows: self.all.borrow().rows() }
    }

    /// As `export_stats` shows it.
    pub(crate) fn nids(&self) -> CounterTable {
        self.nids.export_stats(Line::rows)
    }

    /// As Lustre's `job_stats`.
    pub(crate) fn jobs(&self, now: Instant) -> CounterTable {
        self.jobs.job_stats(now, Line::rows)
    }

    pub(crate) fn clear_all(&self) {
        *self.all.borrow_mut() = Line::default();
    }

    pub(crate) fn clear_nids(&self) {
        self.nids.clear();
    }

    pub(crate) fn clear_jobs(&self) {
        self.jobs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> Job {
        let mut out = [0; 32];
        out[..name.len()].copy_from_slice(name.as_bytes());
        out
    }

    fn done(tally: &Tally, at: u64, job: Job, kind: Kind, bytes: u64) {
        let nid = "10.0.0.1@tcp".parse().expect("a NID");
        tally.count(Instant(at), nid, job, Some(Span::micros(7)), Some((kind, bytes)));
    }

    #[test]
    fn operations_are_counted_by_node_and_by_job() {
        let tally = Tally::default();
        done(&tally, 1, job("dd.0"), Kind::Write, 4_096);
        done(&tally, 2, job("dd.0"), Kind::Write, 1_024);
        done(&tally, 3, [0; 32], Kind::Sync, 0);
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
    fn a_request_that_fails_has_waited_too_and_a_write_of_the_mdt_has_not() {
        let (tally, nid) = (Tally::default(), "10.0.0.1@tcp".parse().expect("a NID"));
        tally.count(Instant(1), nid, job("dd.0"), Some(Span::millis(2)), None);
        tally.count(Instant(2), nid, job("dd.0"), None, Some((Kind::Write, 9)));
        let nids = tally.nids().to_string();
        assert!(
            nids.contains("write_bytes:    { samples:           1, ")
                && nids.contains("req_waittime:   { samples:           1, ")
                && nids.contains(", max:    2000, "),
            "{nids}"
        );
        assert!(!tally.all(Timespec::default()).to_string().contains("req_waittime"));
    }

    #[test]
    fn totals_outlive_the_nodes_and_jobs_they_came_from() {
        let tally = Tally::default();
        done(&tally, 1, [0; 32], Kind::Read, 4_096);
        done(&tally, 2, job("dd.0"), Kind::Read, 1_024);
        done(&tally, 3, job("dd.0"), Kind::Destroy, 0);
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
        let tally = Tally::default();
        for index in 0..=limits::TALLY_JOBS_MAX as u64 {
            done(&tally, index, job(&format!("j{index}")), Kind::Read, 1);
        }
        let text = tally.jobs(Instant(0) + Span::secs(1)).to_string();
        assert!(text.matches("job_id:").count() <= limits::TALLY_JOBS_MAX);
        assert!(!text.contains(" j0\n") && text.contains(" j1024\n"), "the quietest went");
        assert_eq!(tally.jobs(Instant(0) + Span::secs(700)).to_string(), "job_stats:\n");
    }
}
