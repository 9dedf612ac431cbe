//! The counters of a service: `stats` has one line per counter, `req_history` one line per request.
//! Both are in Lustre's format.

use std::collections::VecDeque;
use std::fmt::Write as _;

use types::{
    Counter, CounterTable, Detail, Errno, Histogram, Histograms, Instant, Nid, Row, Span, TargetId,
    Timespec,
};
use wire::Opcode;

use crate::limits;

/// Counters of one service.
#[derive(Default)]
pub(crate) struct Stats {
    waittime: Counter,
    qdepth: Counter,
    active: Counter,
    timeout: Counter,
    reqbuf_avail: Counter,
    read_bytes: Counter,
    write_bytes: Counter,
    opcodes: Vec<Counter>, // by opcode
    waits: Histogram,
    handlings: Vec<Option<Box<Histogram>>>, // by opcode
}

/// What is known when a request starts.
pub(crate) struct Started {
    pub(crate) waited: Span,
    pub(crate) queued: u64,
    pub(crate) active: u64,
    pub(crate) patience: Span,
    pub(crate) buffers_free: u64,
}

impl Stats {
    #[inline]
    pub(crate) fn started(&mut self, at: &Started) {
        self.waittime.add(at.waited.0 / 1_000);
        self.waits.add(at.waited.0 / 1_000);
        self.qdepth.add(at.queued);
        self.active.add(at.active);
        self.timeout.add(at.patience.0 / 1_000_000_000);
        self.reqbuf_avail.add(at.buffers_free);
    }

    #[inline]
    pub(crate) fn handled(&mut self, opcode: Opcode, took: Span) {
        let at = opcode as usize;
        if at >= self.opcodes.len() {
            self.opcodes.resize(at + 1, Counter::default());
        }
        self.opcodes[at].add(took.0 / 1_000);
        if at >= self.handlings.len() {
            self.handlings.resize(at + 1, None);
        }
        self.handlings[at].get_or_insert_default().add(took.0 / 1_000);
    }

    /// A read of object data gave `bytes`.
    pub(crate) fn read(&mut self, bytes: u64) {
        self.read_bytes.add(bytes);
    }

    /// A write of object data took `bytes`.
    pub(crate) fn written(&mut self, bytes: u64) {
        self.write_bytes.add(bytes);
    }

    /// Waiting in the queue, handling, and handling by opcode.
    pub(crate) fn histograms(&self) -> Histograms {
        let mut all = Histogram::default();
        let mut by_opcode = Vec::new();
        for (opcode, histogram) in self.handlings.iter().enumerate() {
            let Some(histogram) = histogram else { continue };
            all.merge(histogram);
            by_opcode.push((name(opcode), **histogram));
        }
        let mut shown = vec![("req_waittime", self.waits), ("req_handling", all)];
        shown.append(&mut by_opcode);
        Histograms(shown)
    }

    pub(crate) fn clear_histograms(&mut self) {
        self.waits = Histogram::default();
        self.handlings.clear();
    }

    /// What has no samples has no line.
    pub(crate) fn table(&self) -> CounterTable {
        let row = |name, unit, counter| Row { name, unit, counter, detail: Detail::Squares };
        let mut rows = vec![
            row("req_waittime", "usec", self.waittime),
            row("req_qdepth", "reqs", self.qdepth),
            row("req_active", "reqs", self.active),
            row("req_timeout", "secs", self.timeout),
            row("reqbuf_avail", "bufs", self.reqbuf_avail),
            row("read_bytes", "bytes", self.read_bytes),
            row("write_bytes", "bytes", self.write_bytes),
        ];
        for (opcode, counter) in self.opcodes.iter().enumerate() {
            rows.push(row(name(opcode), "usec", *counter));
        }
        CounterTable::Lines { at: None, rows }
    }
}

/// Name of the operation with this number.
fn name(opcode: usize) -> &'static str {
    let opcode = u16::try_from(opcode).ok().and_then(Opcode::from_u16);
    opcode.map_or("unknown", Opcode::name)
}

/// A request that was handled or dropped.
pub(crate) struct Past {
    pub(crate) target: TargetId,
    pub(crate) nid: Nid,
    pub(crate) xid: u64,
    pub(crate) length: usize,
    pub(crate) opcode: Opcode,
    /// Of its answer; nothing if it was dropped.
    pub(crate) status: Option<Errno>,
    pub(crate) dropped: bool,
    pub(crate) arrived: Timespec,
    pub(crate) took: Span,
    /// Answer before deadline: negative is too late, seconds.
    pub(crate) spare: i64,
}

/// The last requests, as many as `req_buffer_history_max` says.
#[derive(Default)]
pub(crate) struct History {
    kept: VecDeque<(u64, Past)>,
    seq: u64,
    max: usize,
}

impl History {
    pub(crate) fn is_on(&self) -> bool {
        self.max > 0
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn set_max(&mut self, max: usize) {
        assert!(max <= limits::HISTORY_MAX, "the history is bounded");
        self.max = max;
        while self.kept.len() > max {
            self.kept.pop_front();
        }
    }

    pub(crate) fn push(&mut self, past: Past) {
        self.seq += 1;
        if self.kept.len() >= self.max {
            self.kept.pop_front();
        }
        self.kept.push_back((self.seq, past));
    }

    /// `seq:target:client-id:x<xid>:length:phase:arrival_s.us:+handling_s.us s(sent-deadline)
    /// opcode`, oldest first.
    pub(crate) fn print(&self) -> String {
        let mut out = String::new();
        for (seq, past) in &self.kept {
            let phase = match (past.dropped, past.status) {
                (true, _) => "Dropped",
                (false, Some(_)) => "Failed",
                (false, None) => "Complete",
            };
            let (us, took) = (past.arrived.nsec / 1_000, past.took.0 / 1_000);
            let _ = writeln!(
                out,
                "{seq}:{}:12345-{}:x{}:{}:{phase}:{}.{us:06}:+{}.{:06}s({:+}s) {}",
                past.target,
                past.nid,
                past.xid,
                past.length,
                past.arrived.sec,
                took / 1_000_000,
                took % 1_000_000,
                -past.spare,
                past.opcode.name(),
            );
        }
        out
    }
}

/// Seconds from `now` to `deadline`, negative if it has passed.
pub(crate) fn spare(deadline: Instant, now: Instant) -> i64 {
    let secs = |span: Span| i64::try_from(span.0 / 1_000_000_000).unwrap_or(i64::MAX);
    if deadline >= now { secs(deadline - now) } else { -secs(now - deadline) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_print_what_was_counted() {
        let mut stats = Stats::default();
        assert_eq!(stats.table().to_string(), "", "nothing happened");
        for us in [211, 98_211] {
            stats.handled(Opcode::OstWrite, Span::micros(us));
        }
        stats.read(4_096);
        let sumsq = 211_u64 * 211 + 98_211 * 98_211;
        let expected = format!(
            "{:<25} 1 samples [bytes] 4096 4096 4096 16777216\n{:<25} 2 samples [usec] 211 98211 98422 {sumsq}\n",
            "read_bytes", "ost_write"
        );
        assert_eq!(stats.table().to_string(), expected);
    }

    #[test]
    fn histograms_are_of_waits_of_all_handlings_and_of_each_operation() {
        let mut stats = Stats::default();
        let none = "req_waittime_usec:\nreq_handling_usec:\n";
        assert_eq!(stats.histograms().to_string(), none);
        for (opcode, us) in [(Opcode::OstWrite, 0), (Opcode::OstRead, 3), (Opcode::OstWrite, 9)] {
            stats.handled(opcode, Span::micros(us));
        }
        let expected = "req_waittime_usec:\nreq_handling_usec:\n  <1: 1\n  <4: 1\n  <16: 1\n\
                        ost_read_usec:\n  <4: 1\nost_write_usec:\n  <1: 1\n  <16: 1\n";
        assert_eq!(stats.histograms().to_string(), expected);
        stats.clear_histograms();
        assert_eq!(stats.histograms().to_string(), none);
        assert!(!stats.table().to_string().is_empty(), "the counters stay");
    }

    #[test]
    fn the_history_keeps_the_last_ones() {
        let mut history = History::default();
        assert!(!history.is_on());
        history.set_max(2);
        for xid in 1..=3 {
            history.push(Past {
                target: TargetId::ost(1),
                nid: "10.0.0.1@tcp".parse().expect("a NID"),
                xid,
                length: 360,
                opcode: Opcode::OstRead,
                status: None,
                dropped: false,
                arrived: Timespec::new(1_700_000_000, 5_000),
                took: Span::micros(1_500_000),
                spare: 9,
            });
        }
        let line = |seq: u64| {
            format!(
                "{seq}:OST0001:12345-10.0.0.1@tcp:x{seq}:360:Complete:1700000000.000005:+1.500000s(-9s) ost_read\n"
            )
        };
        assert_eq!(history.print(), line(2) + &line(3));
        history.set_max(1);
        assert_eq!((history.print(), history.len()), (line(3), 1));
    }
}
