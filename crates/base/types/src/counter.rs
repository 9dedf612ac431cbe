//! Counters and the tables that show them. Lustre's text and a monitor's metrics are both made from
//! one value.

use std::fmt;

use crate::Timespec;

/// Samples of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// How many there are.
    pub samples: u64,
    /// The smallest one; zero without samples.
    pub min: u64,
    /// The largest one.
    pub max: u64,
    /// All of them together, as far as that fits.
    pub sum: u64,
    /// Their squares together.
    pub sumsq: u128,
}

impl Counter {
    /// One more sample.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.min = if self.samples == 0 { value } else { self.min.min(value) };
        self.samples += 1;
        self.max = self.max.max(value);
        self.sum = self.sum.saturating_add(value);
        self.sumsq = self.sumsq.saturating_add(u128::from(value) * u128::from(value));
    }
}

/// What of a counter its table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// How many samples.
    Samples,
    /// The smallest, the largest and the sum too.
    Sum,
    /// The sum of squares too.
    Squares,
}

/// A counter as a table shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Lustre's name of what is counted.
    pub name: &'static str,
    /// Unit of a sample.
    pub unit: &'static str,
    /// The samples.
    pub counter: Counter,
    /// How much of them is shown.
    pub detail: Detail,
}

impl Row {
    /// So many requests, whatever their size.
    #[must_use]
    pub fn requests(name: &'static str, samples: u64) -> Row {
        let counter = Counter { samples, ..Counter::default() };
        Row { name, unit: "reqs", counter, detail: Detail::Samples }
    }

    /// Transfers of bytes.
    #[must_use]
    pub fn bytes(name: &'static str, counter: Counter) -> Row {
        Row { name, unit: "bytes", counter, detail: Detail::Sum }
    }
}

/// The value of a parameter that shows counters. Its `Display` is Lustre's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterTable {
    /// A line for each row that has samples (`stats`).
    Lines {
        /// When it was made, where the text says so.
        at: Option<Timespec>,
        /// In the order of the lines.
        rows: Vec<Row>,
    },
    /// Rows by key (`job_stats`).
    Groups {
        /// Name above all groups.
        title: &'static str,
        /// What a key is.
        label: &'static str,
        /// Key and rows, those without samples too.
        groups: Vec<(String, Vec<Row>)>,
    },
    /// Plain numbers in a row.
    Numbers(Vec<u64>),
}

impl Default for CounterTable {
    /// Without rows.
    fn default() -> CounterTable {
        CounterTable::Lines { at: None, rows: Vec::new() }
    }
}

impl fmt::Display for CounterTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CounterTable::Lines { at, rows } => {
                if let Some(Timespec { sec, nsec }) = at {
                    writeln!(f, "{:<25} {sec}.{nsec:09} secs.nsecs", "snapshot_time")?;
                }
                rows.iter().filter(|row| row.counter.samples > 0).try_for_each(|row| line(f, row))
            }
            CounterTable::Groups { title, label, groups } => {
                writeln!(f, "{title}:")?;
                for (key, rows) in groups {
                    writeln!(f, "- {:<16}{key}", format!("{label}:"))?;
                    rows.iter().try_for_each(|row| member(f, row))?;
                }
                Ok(())
            }
            CounterTable::Numbers(numbers) => {
                for (at, number) in numbers.iter().enumerate() {
                    write!(f, "{}{number}", if at == 0 { "" } else { " " })?;
                }
                Ok(())
            }
        }
    }
}

/// `name samples [unit] min max sum sumsq`.
fn line(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let Counter { samples, min, max, sum, sumsq } = row.counter;
    write!(f, "{:<25} {samples} samples [{}]", row.name, row.unit)?;
    if row.detail >= Detail::Sum {
        write!(f, " {min} {max} {sum}")?;
    }
    if row.detail >= Detail::Squares {
        write!(f, " {sumsq}")?;
    }
    writeln!(f)
}

/// `name: { samples: N, unit: U, min: A, max: B, sum: C }`.
fn member(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let Counter { samples, min, max, sum, .. } = row.counter;
    write!(f, "  {:<16}{{ samples: {samples:11}, unit: {}", format!("{}:", row.name), row.unit)?;
    if row.detail >= Detail::Sum {
        write!(f, ", min: {min:7}, max: {max:7}, sum: {sum:15}")?;
    }
    writeln!(f, " }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(samples: &[u64]) -> Counter {
        let mut counter = Counter::default();
        samples.iter().for_each(|sample| counter.add(*sample));
        counter
    }

    #[test]
    fn a_counter_knows_its_ends_and_sums() {
        assert_eq!(counter(&[]), Counter::default());
        let many = counter(&[5, 3, 9]);
        assert_eq!((many.samples, many.min, many.max, many.sum, many.sumsq), (3, 3, 9, 17, 115));
        let full = counter(&[u64::MAX, u64::MAX]);
        assert_eq!((full.sum, full.sumsq), (u64::MAX, u128::MAX), "they stay at the end");
    }

    #[test]
    fn lines_are_lustres() {
        let squares = Row {
            name: "req_waittime",
            unit: "usec",
            counter: counter(&[1, 9]),
            detail: Detail::Squares,
        };
        let rows = vec![
            squares,
            Row::bytes("read_bytes", counter(&[4_096, 1_024])),
            Row::requests("sync", 7),
            Row::requests("statfs", 0),
        ];
        let table = CounterTable::Lines { at: Some(Timespec::new(17, 5)), rows };
        let text = "snapshot_time             17.000000005 secs.nsecs\n\
                    req_waittime              2 samples [usec] 1 9 10 82\n\
                    read_bytes                2 samples [bytes] 1024 4096 5120\n\
                    sync                      7 samples [reqs]\n";
        assert_eq!(table.to_string(), text);
        assert_eq!(CounterTable::default().to_string(), "");
    }

    #[test]
    fn groups_are_lustres() {
        let rows = vec![Row::bytes("read_bytes", counter(&[4_096])), Row::requests("sync", 0)];
        let groups = vec![("dd.0".to_owned(), rows)];
        let table = CounterTable::Groups { title: "job_stats", label: "job_id", groups };
        let text = "job_stats:\n\
                    - job_id:         dd.0\n  \
                    read_bytes:     { samples:           1, unit: bytes, min:    4096, max:    4096, sum:            4096 }\n  \
                    sync:           { samples:           0, unit: reqs }\n";
        assert_eq!(table.to_string(), text);
    }

    #[test]
    fn numbers_stand_in_a_row() {
        assert_eq!(CounterTable::Numbers(vec![5, 0, 7]).to_string(), "5 0 7");
        assert_eq!(CounterTable::Numbers(Vec::new()).to_string(), "");
    }
}
