//! Sizes and times of reads and writes by powers of two, as Lustre's `brw_stats` prints them.

use std::fmt::Write as _;

use service::Direction;
use types::{Span, Timespec};

/// Rows of a table: up to 2^15 pages or milliseconds, and larger ones in the last row.
const ROWS: usize = 16;

/// Lustre's page.
const PAGE_BYTES: u64 = 4_096;

/// Counts of reads and writes by size or by time.
type Rows = [[u64; 2]; ROWS];

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes {
    pages: Rows,
    millis: Rows,
}

impl Sizes {
    /// A transfer of `bytes` is done, after it `took` this long.
    pub(crate) fn add(&mut self, direction: Direction, bytes: u64, took: Span) {
        let column = match direction {
            Direction::Read => 0,
            Direction::Write => 1,
        };
        self.pages[row_of(bytes.div_ceil(PAGE_BYTES))][column] += 1;
        self.millis[row_of(took.as_millis())][column] += 1;
    }

    /// Lustre's text.
    pub(crate) fn text(&self, now: Timespec) -> String {
        let mut out = format!("snapshot_time:         {}.{:09} (secs.nsecs)\n", now.sec, now.nsec);
        table(&mut out, "pages per bulk r/w", "rpcs", &self.pages);
        table(&mut out, "I/O time (1/1000s)", "ios", &self.millis);
        out
    }
}

/// The row whose power of two is the first that is not below `value`.
fn row_of(value: u64) -> usize {
    let bits = value.saturating_sub(1).checked_ilog2().map_or(0, |bits| bits + 1);
    (bits as usize).min(ROWS - 1)
}

/// A table up to its last row that has samples.
fn table(out: &mut String, name: &str, unit: &str, rows: &Rows) {
    let _ = writeln!(out, "\n{:26} read      |     write", "");
    let _ = writeln!(out, "{name:<22} {unit:<5} % cum % |  {unit:<11} % cum %");
    let all = [0, 1].map(|column| rows.iter().map(|row| row[column]).sum::<u64>());
    let used = rows.iter().rposition(|row| *row != [0, 0]).map_or(0, |last| last + 1);
    let mut sums = [0; 2];
    for (row, counts) in rows.iter().take(used).enumerate() {
        let mut shares = [[0; 2]; 2];
        for (column, count) in counts.iter().enumerate() {
            sums[column] += count;
            shares[column] = [*count, sums[column]].map(|part| part * 100 / all[column].max(1));
        }
        let [[read, reads], [write, writes]] = shares;
        let [of_reads, of_writes] = counts;
        let _ = writeln!(
            out,
            "{}:\t\t{of_reads:10} {read:3} {reads:3}   | {of_writes:4} {write:3} {writes:3}",
            1_u64 << row
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_powers_of_two() {
        let rows = [0, 1, 2, 3, 4, 5, 256, 257, u64::MAX].map(row_of);
        assert_eq!(rows, [0, 0, 1, 2, 2, 3, 8, 9, ROWS - 1]);
    }

    #[test]
    fn transfers_are_counted_by_size_and_time() {
        let mut sizes = Sizes::default();
        sizes.add(Direction::Write, 1, Span::micros(10));
        sizes.add(Direction::Write, 1 << 20, Span::millis(3));
        sizes.add(Direction::Write, 1 << 20, Span::millis(3));
        sizes.add(Direction::Read, 8_192, Span::millis(1));
        let text = sizes.text(Timespec::new(17, 5));
        assert!(text.starts_with("snapshot_time:         17.000000005 (secs.nsecs)\n\n"), "{text}");
        let rows: Vec<String> = text
            .lines()
            .filter(|line| line.contains(":\t\t"))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rows.len(), 9 + 3, "up to the last that has samples: {rows:?}");
        assert_eq!(rows[..2], ["1: 0 0 0 | 1 33 33", "2: 1 100 100 | 0 0 33"]);
        assert_eq!(rows[8], "256: 0 0 100 | 2 66 100");
        assert_eq!(
            rows[9..],
            ["1: 1 100 100 | 1 33 33", "2: 0 0 100 | 0 0 33", "4: 0 0 100 | 2 66 100"]
        );
    }
}
