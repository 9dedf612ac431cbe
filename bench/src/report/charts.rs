//! The five figures of the landing page, each with one small chart and one sentence.

use anyhow::{Context, Result};

use super::markdown::number;
use super::plot::{self, Bar};
use crate::parts::listing;
use crate::row::{PartResult, Row, Spread};

/// Whose value of a row a bar shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Ours,
    Limit,
}

/// Bars of rows that may be in different parts.
struct Chart {
    /// Its file, without the ending.
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    /// Name, row, and whose value.
    bars: &'static [(&'static str, &'static str, Of)],
    /// Says what the bars mean. `{0}` is the value of the first bar.
    says: &'static str,
}

const CHARTS: &[Chart] = &[
    Chart {
        name: "creates",
        title: "Files created per second, 4 processes",
        unit: "files/s",
        bars: &[
            ("Nacre, mounted", "mdtest-own/creation", Of::Ours),
            ("Nacre, library", "native/creation", Of::Ours),
            ("ext4, no network", "mdtest-own/creation", Of::Limit),
        ],
        says: "Four processes create {0} files per second through the mount. The library with 64 \
               calls in flight creates {1}. The local ext4 below creates {2}.",
    },
    Chart {
        name: "streams",
        title: "Streams of 4 processes, a file each",
        unit: "MiB/s",
        bars: &[
            ("Nacre, write", "ior-4/write", Of::Ours),
            ("ext4, write", "ior-4/write", Of::Limit),
            ("Nacre, read", "ior-4/read", Of::Ours),
            ("ext4, read", "ior-4/read", Of::Limit),
        ],
        says: "Through the mount, four processes write {0} MiB/s and read {2} MiB/s. The ext4 that \
               holds the targets has {1} and {3} MiB/s without them.",
    },
    Chart {
        name: "fairness",
        title: "Spread between ten mounts with 5 to 14 tasks",
        unit: "%",
        bars: &[
            ("FIFO, writes", "fairness/write/spread-fifo", Of::Limit),
            ("CRR-N, writes", "fairness/write/spread-crrn", Of::Ours),
            ("FIFO, reads", "fairness/read/spread-fifo", Of::Limit),
            ("CRR-N, reads", "fairness/read/spread-crrn", Of::Ours),
        ],
        says: "Ten mounts with 5 to 14 writers share an OST with four threads. Their rates differ \
               by {0} % with FIFO, and by {1} % with CRR-N and a quantum of 1. For readers the two \
               are {2} % and {3} %.",
    },
    Chart {
        name: "pauses",
        title: "Longest pause of programs, 30 kills of each",
        unit: "s",
        bars: &[
            ("MDT", "kill-mdt/pause", Of::Ours),
            ("OSTs", "kill-ost/pause", Of::Ours),
            ("MGS", "kill-mgs/pause", Of::Ours),
            ("all in turn", "kill-all-kinds/pause", Of::Ours),
        ],
        says: "Servers are killed 30 times while programs work, and nothing acknowledged is lost. \
               The longest pause of a program is {0} s for the MDT, {1} s for OSTs, {2} s for the \
               MGS, and {3} s if all kinds are killed in turn.",
    },
];

/// The chart that has lines, which comes last.
const LISTING: &str = "listing";
const LISTING_TITLE: &str = "Listing: time of a file against its stripes";
/// Of the sentence below it.
const LISTING_ROWS: [&str; 3] = [
    "listing/clean, nacre, 1 stripes",
    "listing/clean, nacre, 64 stripes",
    "listing/clean, statahead+agl 32, 64 stripes",
];

/// A chart as an SVG, and what is written below it.
pub(crate) struct Drawn {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) svg: String,
    pub(crate) sentence: String,
}

/// Those of the charts whose rows are there.
pub(crate) fn draw(results: &[PartResult]) -> Result<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for chart in CHARTS {
        let values = chart.bars.iter().map(|(_, id, of)| value(results, id, *of));
        let Some(values) = values.collect::<Option<Vec<f64>>>() else { continue };
        let bars: Vec<Bar> = chart
            .bars
            .iter()
            .zip(&values)
            .map(|((name, _, of), value)| Bar { name, value: *value, is_ours: *of == Of::Ours })
            .collect();
        let svg = plot::bars(chart.title, chart.unit, &bars)?;
        let sentence = filled(chart.says, &values);
        drawn.push(Drawn { name: chart.name, title: chart.title, svg, sentence });
    }
    drawn.extend(draw_listing(results)?);
    Ok(drawn)
}

/// How many charts a whole run has.
pub(crate) fn count() -> usize {
    CHARTS.len() + 1
}

fn draw_listing(results: &[PartResult]) -> Result<Option<Drawn>> {
    let parts = results.iter().filter(|result| result.part == LISTING);
    let rows: Vec<&Row> = parts.flat_map(|result| &result.rows).collect();
    let lines = listing::lines(&rows, None);
    if lines.is_empty() {
        return Ok(None);
    }
    let svg = plot::lines(LISTING_TITLE, ("stripes", "us a file"), &lines)?;
    let [one, many, older] = LISTING_ROWS.map(|id| value(results, id, Of::Ours));
    let values = [one, many, older].into_iter().collect::<Option<Vec<f64>>>();
    let values = values.context("the listing lacks a row")?;
    let says = "The attributes of a file cost {0} us in a listing if files have one stripe, and {1} \
                us with 64. With Lustre's way, statahead and asynchronous glimpses, 64 stripes cost \
                {2} us here. These servers keep objects in memory, and each message takes 100 us \
                longer than the network needs.";
    let sentence = filled(says, &values);
    Ok(Some(Drawn { name: LISTING, title: LISTING_TITLE, svg, sentence }))
}

/// The median of a row.
fn value(results: &[PartResult], id: &str, of: Of) -> Option<f64> {
    let row = results.iter().flat_map(|result| &result.rows).find(|row| row.id == id)?;
    // a figure without a limit is ours, also where a chart shows it as what others do
    let values = if of == Of::Limit && !row.limit.is_empty() { &row.limit } else { &row.ours };
    Spread::of(values).map(|spread| spread.median)
}

fn filled(text: &str, values: &[f64]) -> String {
    let fill = |text: String, (index, value): (usize, &f64)| {
        text.replace(&format!("{{{index}}}"), &number(*value))
    };
    values.iter().enumerate().fold(text.to_owned(), fill)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::{result, row};

    #[test]
    fn a_chart_is_drawn_where_its_rows_are() {
        let mut rows = Vec::new();
        for (id, ours) in [("kill-mdt", 0.25), ("kill-ost", 0.5), ("kill-mgs", 0.125)] {
            rows.push(Row { id: format!("{id}/pause"), ..row(&[ours], &[], None) });
        }
        let drawn = |rows: &[Row]| draw(&[result("servers", rows.to_vec())]).expect("drawn");
        assert_eq!(drawn(&rows).len(), 0, "one is missing");
        rows.push(Row { id: "kill-all-kinds/pause".to_owned(), ..row(&[2.0], &[], None) });
        let drawn = drawn(&rows);
        assert_eq!(drawn.len(), 1);
        assert!(drawn[0].sentence.contains("0.250 s for the MDT, 0.500 s for OSTs, 0.125 s"));
        assert!(drawn[0].svg.contains("Longest pause") && drawn[0].svg.contains("all in turn"));
        assert!(!drawn[0].sentence.contains('{'));
    }

    #[test]
    fn a_limit_is_told_where_there_is_one() {
        let rows = vec![row(&[1.0], &[4.0], None)];
        let results = [result("mdtest-own", rows)];
        let of = |of| value(&results, "mdtest-own/create", of);
        assert_eq!((of(Of::Ours), of(Of::Limit)), (Some(1.0), Some(4.0)));
    }
}
