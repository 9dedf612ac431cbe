//! Counts the operations that succeeded since the start, with their times, by Lustre's names, as
//! `md_stats`, `export_stats` and `job_stats` print them.
//!
//! Locks and paths of FIDs are not counted here. An open that also creates counts as an open, and
//! as a `mknod` if the file is new. A time includes waits for commits and for other clients, but
//! not the wait in the queue. Client nodes and jobs have a counter for that, which counts each of
//! their requests.
//!
//! Bounded: [`limits::TALLY_NIDS_MAX`] nodes and [`limits::TALLY_JOBS_MAX`] jobs.

use std::cell::RefCell;

use target::{Job, Lines};
use types::{Counter, CounterTable, Detail, Instant, Nid, Row, Span, Timespec};
use wire::body::{AttrRep, CLOSES_MAX, Disposition};
use wire::{Opcode, Reply, Request, stats};

use crate::limits;
use crate::op::{self, Stat};

/// Names in the order of their rows.
const NAMES: [&str; 15] = [
    "open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getattr", "setattr",
    "getxattr", "setxattr", "statfs", "sync", "readdir",
];

/// What was done, by [`NAMES`]: microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    counters: [Counter; NAMES.len()],
}

impl Line {
    fn add(&mut self, name: &str, took: Span) {
        let mut rows = NAMES.iter().zip(&mut self.counters);
        let row = rows.find(|(row, _)| **row == name);
        let (_, counter) = row.expect("every name that operations count under has a row");
        counter.add(took.0 / 1_000);
    }

    fn rows(&self) -> Vec<Row> {
        let row = |(name, counter): (&&'static str, &Counter)| Row {
            name,
            unit: "usecs",
            counter: *counter,
            detail: Detail::Sum,
        };
        NAMES.iter().zip(&self.counters).map(row).collect()
    }
}

/// The operations of one request that succeeded.
struct Done {
    name: &'static str,
    count: usize,
    /// It has made a file, too.
    is_new: bool,
    took: Span,
}

impl Done {
    /// None: it failed, or operations like it are not counted.
    fn of(request: &Request, reply: &Reply, took: Span) -> Option<Done> {
        if reply.errno().is_some() {
            return None;
        }
        let name = match &op::row(request.opcode())?.stat {
            Stat::Name(name) => *name,
            Stat::Of(name) => name(request),
            Stat::None => return None,
        };
        let count = match request.opcode() {
            Opcode::MdtCloses => closed(reply),
            _ => 1,
        };
        let creates = name == "open" && request.opcode() == Opcode::MdtCreate;
        let is_new = creates && reply.body::<AttrRep>().disposition.contains(Disposition::CREATED);
        Some(Done { name, count, is_new, took })
    }

    fn add_to(&self, line: &mut Line) {
        let each = Span(self.took.0 / (self.count as u64).max(1));
        (0..self.count).for_each(|_| line.add(self.name, each));
        if self.is_new {
            line.add("mknod", self.took);
        }
    }
}

/// Where the time of a request went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// In the queue.
    pub(crate) waited: Span,
    /// From its start to its answer.
    pub(crate) took: Span,
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
    /// `reply` is what `request` of `nid` is answered `now`.
    pub(crate) fn count(
        &self,
        now: Instant,
        times: Times,
        nid: Nid,
        request: &Request,
        reply: &Reply,
    ) {
        let (waited, done) = (Some(times.waited), Done::of(request, reply, times.took));
        let add = |line: &mut Line| {
            if let Some(done) = &done {
                done.add_to(line);
            }
        };
        add(&mut self.all.borrow_mut());
        self.nids.add(now, nid, waited, add);
        let job = request.header.jobid;
        if job != [0; 32] {
            self.jobs.add(now, job, waited, add);
        }
    }

    /// As Lustre's `md_stats`: what was never done has no row.
    pub(crate) fn table(&self, now: Timespec) -> CounterTable {
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

    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.all.borrow().counters.iter().map(|counter| counter.samples).sum()
    }

    pub(crate) fn clear(&self) {
        *self.all.borrow_mut() = Line::default();
    }

    pub(crate) fn clear_nids(&self) {
        self.nids.clear();
    }

    pub(crate) fn clear_jobs(&self) {
        self.jobs.clear();
    }
}

/// Closes of one request that succeeded.
fn closed(reply: &Reply) -> usize {
    let records = stats::decode(&reply.buf(1), CLOSES_MAX).unwrap_or_default();
    records.iter().filter(|record| record.errno == 0).count()
}

#[cfg(test)]
mod tests {
    use types::Errno;
    use wire::attr::S_IFDIR;
    use wire::body::{CreateFlags, CreateReq, UnlinkReq};
    use wire::encode_body;

    use super::*;

    const TIMES: Times = Times { waited: Span::micros(40), took: Span::micros(6) };

    fn nid() -> Nid {
        "10.0.0.1@tcp".parse().expect("a NID")
    }

    fn count(tally: &Tally, request: &Request, reply: &Reply) {
        tally.count(Instant(1), TIMES, nid(), request, reply);
    }

    fn creation(mode: u32, flags: CreateFlags) -> Request {
        Request::new(
            Opcode::MdtCreate,
            vec![encode_body(&CreateReq { mode, flags, ..Default::default() })],
        )
    }

    fn done(request: &Request, disposition: Disposition) -> Reply {
        Reply::ok(
            &request.header,
            vec![encode_body(&AttrRep { disposition, ..Default::default() })],
        )
    }

    #[test]
    fn operations_that_succeeded_are_counted_by_name() {
        let tally = Tally::default();
        for request in
            [creation(S_IFDIR, CreateFlags::empty()), creation(0o644, CreateFlags::empty())]
        {
            count(&tally, &request, &done(&request, Disposition::CREATED));
        }
        let open = creation(0o644, CreateFlags::OPEN);
        count(&tally, &open, &done(&open, Disposition::empty()));
        count(&tally, &open, &done(&open, Disposition::CREATED));
        count(&tally, &open, &Reply::error(&open.header, Errno::EACCES));
        let rmdir = Request::new(
            Opcode::MdtUnlink,
            vec![encode_body(&UnlinkReq { is_dir: 1, ..Default::default() })],
        );
        count(&tally, &rmdir, &done(&rmdir, Disposition::empty()));
        let closes = Request::new(Opcode::MdtCloses, Vec::new());
        let mut answers = Vec::new();
        for errno in [0, 9, 0] {
            stats::push(&mut answers, &stats::StatRecord { errno, ..Default::default() });
        }
        count(
            &tally,
            &closes,
            &Reply::ok(&closes.header, vec![Default::default(), answers.into()]),
        );
        let text = tally.table(Timespec { sec: 17, nsec: 5 }).to_string();
        let rows: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let counts = [
            "open 2 samples [usecs] 6 6 12",
            "close 2 samples [usecs] 3 3 6",
            "mknod 2 samples [usecs] 6 6 12",
            "mkdir 1 samples [usecs] 6 6 6",
            "rmdir 1 samples [usecs] 6 6 6",
        ];
        assert_eq!(rows[0], "snapshot_time 17.000000005 secs.nsecs");
        assert_eq!(rows[1..], counts);
        tally.clear();
        assert_eq!(tally.table(Timespec { sec: 17, nsec: 5 }).to_string().lines().count(), 1);
    }

    #[test]
    fn a_node_that_floods_with_failures_is_seen_by_its_queue_times() {
        let tally = Tally::default();
        let open = creation(0o644, CreateFlags::OPEN);
        count(&tally, &open, &done(&open, Disposition::empty()));
        count(&tally, &open, &Reply::error(&open.header, Errno::EACCES));
        let text = tally.nids().to_string();
        for row in [
            "open:           { samples:           1, unit: usecs, ",
            "req_waittime:   { samples:           2, unit: usecs, ",
        ] {
            assert!(text.contains(row), "{text}");
        }
        assert!(text.contains("10.0.0.1@tcp") && !text.contains("mkdir:"), "{text}");
        tally.clear_nids();
        assert_eq!(tally.nids().to_string(), "export_stats:\n");
    }

    #[test]
    fn jobs_are_counted_and_quiet_ones_go() {
        let tally = Tally::default();
        let mut open = creation(0o644, CreateFlags::OPEN);
        let mut of = |at: u64, job: &str| {
            open.header.jobid = [0; 32];
            open.header.jobid[..job.len()].copy_from_slice(job.as_bytes());
            let reply = done(&open, Disposition::CREATED);
            tally.count(Instant(at), TIMES, nid(), &open, &reply);
        };
        of(1, "");
        of(2, "dd.0");
        let text = tally.jobs(Instant(2)).to_string();
        assert_eq!(text.matches("job_id:").count(), 1, "{text}");
        assert!(text.contains("\n- job_id:         dd.0\n"), "{text}");
        assert!(text.contains("mknod:          { samples:           1, unit: usecs, "), "{text}");
        for job in 0..limits::TALLY_JOBS_MAX as u64 {
            of(3 + job, &format!("j{job}"));
        }
        let text = tally.jobs(Instant(9)).to_string();
        assert!(text.matches("job_id:").count() <= limits::TALLY_JOBS_MAX);
        assert!(!text.contains("dd.0") && text.contains(" j1023\n"), "the quietest went");
        assert_eq!(tally.jobs(Instant(0) + Span::secs(700)).to_string(), "job_stats:\n");
        assert_eq!(tally.total(), 2 * (2 + limits::TALLY_JOBS_MAX as u64), "totals stay");
    }
}
