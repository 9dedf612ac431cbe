//! Counts by client node or by job, for `export_stats` and `job_stats`.
//!
//! Bounded: above a number of keys, the key that was quiet longest goes. Jobs also go after
//! `job_cleanup_interval` (Lustre's 600 s).

use std::cell::RefCell;
use std::collections::BTreeMap;

use types::{CounterTable, Instant, Row, Span};

/// Quiet jobs are forgotten after this long.
const JOB_CLEANUP_INTERVAL: Span = Span::secs(600);

/// Label of a job, as requests carry it; zeros: none.
pub type Job = [u8; 32];

/// A line of counters `L` for each key `K`.
pub struct Lines<K, L> {
    most: usize,
    lines: RefCell<BTreeMap<K, (Instant, L)>>,
}

impl<K: Ord + Copy, L: Default> Lines<K, L> {
    /// Empty, for at most this many keys.
    #[must_use]
    pub fn new(most: usize) -> Lines<K, L> {
        Lines { most, lines: RefCell::default() }
    }

    /// Changes the line of a key, which may be new.
    pub fn add(&self, now: Instant, key: K, change: impl FnOnce(&mut L)) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() >= self.most && !lines.contains_key(&key) {
            let quietest = lines.iter().min_by_key(|(_, (last, _))| *last).map(|(key, _)| *key);
            quietest.and_then(|key| lines.remove(&key));
        }
        let (last, line) = lines.entry(key).or_default();
        *last = now;
        change(line);
        assert!(lines.len() <= self.most, "the table is bounded");
    }

    /// Keys and rows, as a table shows them.
    pub fn groups(
        &self,
        name: impl Fn(&K) -> String,
        rows: impl Fn(&L) -> Vec<Row>,
    ) -> Vec<(String, Vec<Row>)> {
        let lines = self.lines.borrow();
        lines.iter().map(|(key, (_, line))| (name(key), rows(line))).collect()
    }

    /// Forgets all keys.
    pub fn clear(&self) {
        self.lines.borrow_mut().clear();
    }
}

impl<L: Default> Lines<Job, L> {
    /// As Lustre's `job_stats`.
    pub fn job_stats(&self, now: Instant, rows: impl Fn(&L) -> Vec<Row>) -> CounterTable {
        self.lines.borrow_mut().retain(|_, (last, _)| now - *last < JOB_CLEANUP_INTERVAL);
        CounterTable::Groups {
            title: "job_stats",
            label: "job_id",
            groups: self.groups(shown, rows),
        }
    }
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
            lines.add(Instant(at), key, |count| *count += 1);
        }
        let kept: Vec<String> =
            lines.groups(u32::to_string, rows).into_iter().map(|(key, _)| key).collect();
        assert_eq!(kept, ["7", "9", "10"]);
        lines.clear();
        assert!(lines.groups(u32::to_string, rows).is_empty());
    }

    #[test]
    fn quiet_jobs_go_and_labels_are_text() {
        let lines: Lines<Job, u64> = Lines::new(MOST);
        lines.add(Instant(0), job("dd\n.0"), |count| *count = 2);
        lines.add(Instant(0) + Span::secs(500), job("cp.0"), |count| *count = 1);
        let at = |secs| lines.job_stats(Instant(0) + Span::secs(secs), rows).to_string();
        assert!(at(599).contains("\n- job_id:         dd\\n.0\n"), "{}", at(599));
        assert!(!at(601).contains("dd") && at(601).contains("cp.0"), "{}", at(601));
        assert_eq!(at(2_000), "job_stats:\n");
    }
}
