//! Counts the operations that succeeded since the start, by Lustre's names, as `md_stats` prints
//! them.
//!
//! Locks and paths of FIDs are not counted here. An open that also creates counts as an open, and
//! as a `mknod` if the file is new.

use std::cell::Cell;

use types::{CounterTable, Row, Timespec};
use wire::body::{AttrRep, CLOSES_MAX, Disposition};
use wire::{Opcode, Reply, Request, stats};

use crate::op::{self, Stat};

/// Names in the order of their rows.
const NAMES: [&str; 15] = [
    "open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getattr", "setattr",
    "getxattr", "setxattr", "statfs", "sync", "readdir",
];

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Tally([Cell<u64>; NAMES.len()]);

impl Tally {
    /// `reply` is what `request` is answered.
    pub(crate) fn count(&self, request: &Request, reply: &Reply) {
        if reply.errno().is_some() {
            return;
        }
        let name = match op::row(request.opcode()).map(|row| &row.stat) {
            Some(Stat::Name(name)) => *name,
            Some(Stat::Of(name)) => name(request),
            Some(Stat::None) | None => return,
        };
        let count = match request.opcode() {
            Opcode::MdtCloses => closed(reply),
            _ => 1,
        };
        (0..count).for_each(|_| self.add(name));
        let creates = name == "open" && request.opcode() == Opcode::MdtCreate;
        if creates && reply.body::<AttrRep>().disposition.contains(Disposition::CREATED) {
            self.add("mknod");
        }
    }

    fn add(&self, name: &str) {
        assert!(NAMES.contains(&name), "every name that operations count under has a row");
        let rows = NAMES.iter().zip(&self.0).filter(|(row, _)| **row == name);
        rows.for_each(|(_, count)| count.set(count.get() + 1));
    }

    /// As Lustre's `md_stats`: what was never done has no row.
    pub(crate) fn table(&self, now: Timespec) -> CounterTable {
        let rows = NAMES.iter().zip(&self.0).map(|(name, count)| Row::requests(name, count.get()));
        CounterTable::Lines { at: Some(now), rows: rows.collect() }
    }

    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(Cell::get).sum()
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|count| count.set(0));
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
            tally.count(&request, &done(&request, Disposition::CREATED));
        }
        let open = creation(0o644, CreateFlags::OPEN);
        tally.count(&open, &done(&open, Disposition::empty()));
        tally.count(&open, &done(&open, Disposition::CREATED));
        tally.count(&open, &Reply::error(&open.header, Errno::EACCES));
        let rmdir = Request::new(
            Opcode::MdtUnlink,
            vec![encode_body(&UnlinkReq { is_dir: 1, ..Default::default() })],
        );
        tally.count(&rmdir, &done(&rmdir, Disposition::empty()));
        let closes = Request::new(Opcode::MdtCloses, Vec::new());
        let mut answers = Vec::new();
        for errno in [0, 9, 0] {
            stats::push(&mut answers, &stats::StatRecord { errno, ..Default::default() });
        }
        tally.count(&closes, &Reply::ok(&closes.header, vec![Default::default(), answers.into()]));
        let text = tally.table(Timespec { sec: 17, nsec: 5 }).to_string();
        let rows: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let counts = [
            "open 2 samples [reqs]",
            "close 2 samples [reqs]",
            "mknod 2 samples [reqs]",
            "mkdir 1 samples [reqs]",
            "rmdir 1 samples [reqs]",
        ];
        assert_eq!(rows[0], "snapshot_time 17.000000005 secs.nsecs");
        assert_eq!(rows[1..], counts);
        tally.clear();
        assert_eq!(tally.table(Timespec { sec: 17, nsec: 5 }).to_string().lines().count(), 1);
    }
}
