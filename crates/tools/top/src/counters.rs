//! Reads tables of counters: `stats` with a line for each counter, and `job_stats` with a group for
//! each key. A line that is not understood is left out.

/// The counter of queue times.
pub(crate) const WAITS: &str = "req_waittime";

/// Sums of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Operations, reads and writes among them.
    pub operations: u64,
    /// Bytes.
    pub read: u64,
    pub written: u64,
    /// Requests, of clients and jobs only: failed ones too, and each once, whatever it does.
    pub requests: u64,
    /// Sum of their times in the queue, microseconds.
    pub waited_us: u64,
}

impl Count {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Count) -> Count {
        Count {
            operations: self.operations.saturating_add(other.operations),
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
            requests: self.requests.saturating_add(other.requests),
            waited_us: self.waited_us.saturating_add(other.waited_us),
        }
    }

    /// Adds a counter with its samples and their sum.
    fn add(&mut self, name: &str, samples: u64, sum: u64) {
        let (none, operations) = (Count::default(), samples);
        *self = self.plus(match name {
            WAITS => Count { requests: samples, waited_us: sum, ..none },
            "read_bytes" => Count { operations, read: sum, ..none },
            "write_bytes" => Count { operations, written: sum, ..none },
            _ => Count { operations, ..none },
        });
    }
}

/// `name samples [unit] min max sum`: its name, samples and sum.
fn line(text: &str) -> Option<(&str, u64, u64)> {
    let mut words = text.split_whitespace();
    let (name, samples) = (words.next()?, words.next()?.parse().ok()?);
    if words.next()? != "samples" {
        return None;
    }
    let sum = words.nth(3).and_then(|sum| sum.parse().ok()).unwrap_or(0);
    Some((name, samples, sum))
}

/// A target's `stats` or `md_stats`.
pub(crate) fn total(text: &str) -> Count {
    let mut count = Count::default();
    for (name, samples, sum) in text.lines().filter_map(line) {
        count.add(name, samples, sum);
    }
    count
}

/// Samples and sum of one counter of a service's `stats`.
pub(crate) fn one(text: &str, wanted: &str) -> Option<(u64, u64)> {
    let found = text.lines().filter_map(line).find(|(name, ..)| *name == wanted);
    found.map(|(_, samples, sum)| (samples, sum))
}

/// `job_stats` and `export_stats`: keys with their sums.
pub(crate) fn groups(text: &str) -> Vec<(String, Count)> {
    let mut all: Vec<(String, Count)> = Vec::new();
    for line in text.lines() {
        if let Some((_label, key)) = line.strip_prefix("- ").and_then(|line| line.split_once(':')) {
            all.push((key.trim_start().to_owned(), Count::default()));
        } else if let (Some((name, samples, sum)), Some((_, count))) =
            (member(line), all.last_mut())
        {
            count.add(name, samples, sum);
        }
    }
    all
}

/// `name: { samples: N, unit: U, min: A, max: B, sum: C }`.
fn member(text: &str) -> Option<(&str, u64, u64)> {
    let (name, rest) = text.trim_start().split_once(':')?;
    let fields = rest.trim().strip_prefix('{')?.strip_suffix('}')?;
    let field = |wanted: &str| {
        let mut pairs = fields.split(',').filter_map(|pair| pair.split_once(':'));
        let (_, value) = pairs.find(|(key, _)| key.trim() == wanted)?;
        value.trim().parse().ok()
    };
    Some((name, field("samples")?, field("sum").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "snapshot_time             17.000000005 secs.nsecs\n\
        read_bytes                2 samples [bytes] 1024 4096 5120\n\
        write_bytes               3 samples [bytes] 10 10 30\n\
        sync                      7 samples [reqs]\n";

    #[test]
    fn a_table_of_lines_is_summed() {
        let sums = Count { operations: 12, read: 5_120, written: 30, ..Count::default() };
        assert_eq!(total(STATS), sums);
        let service = "req_waittime              2 samples [usec] 1 9 10 82\n";
        assert_eq!(one(service, "req_waittime"), Some((2, 10)));
        assert_eq!(one(service, "req_qdepth"), None);
        assert_eq!(total("odd\nx 1\n"), Count::default());
    }

    /// Fuzz target: damaged tables have no more groups than lines, and sums do not overflow.
    #[test]
    fn tables() {
        const GROUPS: &str = "job_stats:\n- job_id:         dd.0\n  \
            read_bytes:     { samples:           9, unit: bytes, min: 9, max: 9, sum:            9 }\n  \
            read_bytes:     { samples:           9, unit: bytes, min: 9, max: 9, sum:            9 }\n";
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .for_each(|input: &[u8]| {
                for text in [STATS, GROUPS] {
                    let mut bytes = text.as_bytes().to_vec();
                    for change in input.chunks_exact(2) {
                        let at = usize::from(change[0]) % bytes.len();
                        bytes[at] = change[1];
                    }
                    let text = String::from_utf8_lossy(&bytes);
                    assert!(groups(&text).len() <= text.lines().count());
                    let sum = groups(&text).into_iter().fold(total(&text), |a, (_, b)| a.plus(b));
                    assert!(sum.operations >= one(&text, "sync").map_or(0, |(samples, _)| samples));
                }
            });
    }

    #[test]
    fn a_table_of_groups_has_a_sum_for_each_key() {
        let text = "job_stats:\n\
            - job_id:         dd.0 a\n  \
            read_bytes:     { samples:           1, unit: bytes, min:    4096, max:    4096, sum:            4096 }\n  \
            sync:           { samples:           2, unit: reqs }\n  \
            req_waittime:   { samples:           7, unit: usecs, min:       1, max:       9, sum:              21 }\n\
            - job_id:         cp.1\n  \
            write_bytes:    { samples:           0, unit: bytes, min:       0, max:       0, sum:               0 }\n";
        let first = Count { operations: 3, read: 4_096, written: 0, requests: 7, waited_us: 21 };
        let expected = [("dd.0 a".to_owned(), first), ("cp.1".to_owned(), Count::default())];
        assert_eq!(groups(text), expected);
        assert!(groups("job_stats:\n  read_bytes: { samples: 1 }\nodd\n").is_empty());
    }
}
