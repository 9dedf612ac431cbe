//! Counts by client node or by job, for `export_stats` and `job_stats`.
//!
//! Each key also has the queue times of all its requests, failed ones included. So a node or a job
//! that floods a server is seen, whatever it asks for.
//!
//! Bounded: above a number of keys, the keys that were quiet longest go. Jobs also go after
//! `job_cleanup_interval` (Lustre's 600 s).

use std::cell::RefCell;
use std::collections::BTreeMap;

use types::{Counter, CounterTable, Detail, Instant, Nid, Row, Span};

/// Quiet jobs are forgotten after this long.
const JOB_CLEANUP_INTERVAL: Span = Span::secs(600);

/// When a table is full, one key of 16 goes. If only one key went, each request of more active
/// nodes than places would search the whole table.
const GOING_ONE_IN: usize = 16;

/// Label of a job, as requests carry it; zeros: none.
pub type Job = [u8; 32];

/// A line of counters `L` for each key `K`.
pub struct Lines<K, L> {
    most: usize,
    lines: RefCell<BTreeMap<K, Entry<L>>>,
}

#[derive(Default)]
struct Entry<L> {
    /// Its last change.
    last: Instant,
    /// Queue times of its requests, microseconds.
    waits: Counter,
    line: L,
}

impl<L> Entry<L> {
    /// Rows of the line, and the queue times under the name that they have in a service's `stats`.
    fn rows(&self, rows: impl Fn(&L) -> Vec<Row>) -> Vec<Row> {
        let mut rows = rows(&self.line);
        let (counter, detail) = (self.waits, Detail::Sum);
        rows.push(Row { name: "req_waittime", unit: "usecs", counter, detail });
        rows
    }
}

impl<K: Ord + Copy, L: Default> Lines<K, L> {
    /// Empty, for at most this many keys.
    #[must_use]
    pub fn new(most: usize) -> Lines<K, L> {
        Lines { most, lines: RefCell::default() }
    }

    /// Changes the line of a key, which may be new, for a request that has `waited` this long in
    /// the queue. None: it is for something that was no request.
    pub fn add(&self, now: Instant, key: K, waited: Option<Span>, change: impl FnOnce(&mut L)) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() >= self.most && !lines.contains_key(&key) {
            forget_quietest(&mut lines, self.most.div_ceil(GOING_ONE_IN));
        }
        let entry = lines.entry(key).or_default();
        entry.last = now;
        if let Some(waited) = waited {
            entry.waits.add(waited.0 / 1_000);
        }
        change(&mut entry.line);
        assert!(lines.len() <= self.most, "the table is bounded");
    }

    /// Keys and rows, as a table shows them.
    fn groups(
        &self,
        name: impl Fn(&K) -> String,
        rows: impl Fn(&L) -> Vec<Row>,
    ) -> Vec<(String, Vec<Row>)> {
        let lines = self.lines.borrow();
        lines.iter().map(|(key, entry)| (name(key), entry.rows(&rows))).collect()
    }

    /// Forgets all keys.
    pub fn clear(&self) {
        self.lines.borrow_mut().clear();
    }
}

impl<L: Default> Lines<Job, L> {
    /// As Lustre's `job_stats`.
    pub fn job_stats(&self, now: Instant, rows: impl Fn(&L) -> Vec<Row>) -> CounterTable {
        self.lines.borrow_mut().retain(|_, entry| now - entry.last < JOB_CLEANUP_INTERVAL);
        CounterTable::Groups {
            title: "job_stats",
            label: "job_id",
            groups: self.groups(shown, rows),
        }
    }
}

impl<L: Default> Lines<Nid, L> {
    /// As `export_stats` shows it: rows with samples only, because there may be many nodes.
    pub fn export_stats(&self, rows: impl Fn(&L) -> Vec<Row>) -> CounterTable {
        let mut groups = self.groups(Nid::to_string, rows);
        groups.iter_mut().for_each(|(_, rows)| rows.retain(|row| row.counter.samples > 0));
        CounterTable::Groups { title: "export_stats", label: "nid", groups }
    }
}

/// Removes this many keys, at least one.
fn forget_quietest<K: Ord, L>(lines: &mut BTreeMap<K, Entry<L>>, count: usize) {
    let mut times: Vec<Instant> = lines.values().map(|entry| entry.last).collect();
    let (_, newest, _) = times.select_nth_unstable(count - 1);
    let newest = *newest;
    // all that are older go, and of those that are as old only so many
    let older = times.iter().filter(|last| **last < newest).count();
    let mut ties = count - older;
    lines.retain(|_, entry| {
        let is_tie = entry.last == newest && ties > 0;
        ties -= usize::from(is_tie);
        !is_tie && entry.last >= newest
    });
}

fn shown(job: &Job) -> String {
    let end = job.iter().position(|byte| *byte == 0).unwrap_or(job.len());
    job[..end].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 3;

    fn rows(count: &u64) -> Vec<Row> {
        vec![Row::requests("read", *count)]
    }

    fn job(name: &str) -> Job {
        let mut out = [0; 32];
        out[..name.len()].copy_from_slice(name.as_bytes());
        out
    }

    #[test]
    fn the_key_that_was_quiet_longest_goes() {
        let lines: Lines<u32, u64> = Lines::new(MOST);
        for (at, key) in [(1, 7), (2, 8), (3, 9), (4, 7), (5, 10)] {
            lines.add(Instant(at), key, None, |count| *count += 1);
        }
        let kept: Vec<String> =
            lines.groups(u32::to_string, rows).into_iter().map(|(key, _)| key).collect();
        assert_eq!(kept, ["7", "9", "10"]);
        lines.clear();
        assert!(lines.groups(u32::to_string, rows).is_empty());
    }

    #[test]
    fn what_is_older_goes_before_what_is_as_old_as_the_last_that_goes() {
        let last = [(1, 5), (2, 5), (3, 1), (4, 9)];
        let entry = |last| Entry::<u64> { last: Instant(last), ..Entry::default() };
        let mut lines: BTreeMap<u32, _> =
            last.into_iter().map(|(key, last)| (key, entry(last))).collect();
        forget_quietest(&mut lines, 2);
        assert_eq!(lines.keys().copied().collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn queue_times_are_counted_also_of_requests_that_did_nothing() {
        let nid: Nid = "10.0.0.1@tcp".parse().expect("a NID");
        let lines: Lines<Nid, u64> = Lines::new(MOST);
        let waited = |micros| Some(Span::micros(micros));
        lines.add(Instant(1), nid, waited(3), |_| {});
        lines.add(Instant(2), nid, waited(5), |_| {});
        lines.add(Instant(3), nid, None, |_| {});
        let text = lines.export_stats(rows).to_string();
        let row = "req_waittime:   { samples:           2, unit: usecs, \
            min:       3, max:       5, sum:               8 }\n";
        assert!(text.starts_with("export_stats:\n") && text.ends_with(row), "{text}");
        assert!(text.contains("10.0.0.1@tcp") && !text.contains("read:"), "{text}");
    }

    #[test]
    fn a_part_of_a_full_table_goes_at_once() {
        let lines: Lines<u32, u64> = Lines::new(64);
        // the second half is older
        for key in 0..64 {
            lines.add(Instant(u64::from(100 - key / 32)), key, None, |_| {});
        }
        lines.add(Instant(200), 64, None, |_| {});
        let kept: Vec<u32> = lines.lines.borrow().keys().copied().collect();
        assert_eq!(kept.len(), 64 - 64 / GOING_ONE_IN + 1);
        assert!(kept.starts_with(&[0, 1]) && kept.contains(&31), "{kept:?}");
        assert!(!kept.contains(&32) && kept.ends_with(&[63, 64]), "{kept:?}");
    }

    #[test]
    fn quiet_jobs_go_and_labels_are_text() {
        let lines: Lines<Job, u64> = Lines::new(MOST);
        lines.add(Instant(0), job("dd\n.0"), None, |count| *count = 2);
        lines.add(Instant(0) + Span::secs(500), job("cp.0"), None, |count| *count = 1);
        let at = |secs| lines.job_stats(Instant(0) + Span::secs(secs), rows).to_string();
        assert!(at(599).contains("\n- job_id:         dd\\n.0\n"), "{}", at(599));
        assert!(!at(601).contains("dd") && at(601).contains("cp.0"), "{}", at(601));
        assert_eq!(at(2_000), "job_stats:\n");
    }
}
