//! Makes tables, plots and one JSON file from the results of a run.

mod charts;
pub(crate) mod csv;
pub(crate) mod markdown;
mod plot;
pub(crate) mod publish;
pub(crate) mod summary;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use self::charts::Drawn;
use crate::machine::Machine;
use crate::parts::{borders, listing};
use crate::row::{PartResult, Row};

/// Writes `figures.md` and everything of [`data`] into `dir`.
pub(crate) fn write(dir: &Path, machine: &Machine, results: &[PartResult]) -> Result<PathBuf> {
    fs::write(dir.join("figures.md"), markdown::whole(machine, results))?;
    data(dir, machine, results)?;
    Ok(dir.to_path_buf())
}

/// Writes `figures.json`, `figures.csv`, the charts and a plot per group into `dir`. Returns the
/// charts.
fn data(dir: &Path, machine: &Machine, results: &[PartResult]) -> Result<Vec<Drawn>> {
    let whole = json!({ "machine": machine, "parts": results });
    fs::write(dir.join("figures.json"), serde_json::to_string_pretty(&whole)? + "\n")?;
    fs::write(dir.join("figures.csv"), csv::whole(results))?;
    plots(dir, results)?;
    let drawn = charts::draw(results)?;
    for chart in &drawn {
        fs::write(dir.join(format!("{}.svg", chart.name)), &chart.svg)?;
    }
    Ok(drawn)
}

/// A plot for each group that has ratios. Void rows are in none.
fn plots(dir: &Path, results: &[PartResult]) -> Result<()> {
    for (name, title, ids) in GROUPS {
        let rows: Vec<&Row> = results
            .iter()
            .flat_map(|result| &result.rows)
            .filter(|row| ids.iter().any(|id| row.id.starts_with(*id)))
            .filter(|row| row.ratio().is_some() && !row.is_void())
            .collect();
        if !rows.is_empty() {
            fs::write(dir.join(format!("{name}.svg")), plot::ratios(title, &rows)?)?;
        }
    }
    listings(dir, results)?;
    small_calls(dir, results)
}

/// A plot for each program that has listed on mounts.
fn listings(dir: &Path, results: &[PartResult]) -> Result<()> {
    let rows: Vec<&Row> = results.iter().flat_map(|result| &result.rows).collect();
    for (name, program) in listing::PROGRAMS {
        let lines = listing::lines(&rows, Some(program));
        if !lines.is_empty() {
            let title = format!("{program}: time of a file against its stripes");
            let svg = plot::lines(&title, ("stripes", "us a file"), &lines)?;
            fs::write(dir.join(format!("{name}.svg")), svg)?;
        }
    }
    Ok(())
}

/// A plot for random writes to files of several layouts, and one for reads.
fn small_calls(dir: &Path, results: &[PartResult]) -> Result<()> {
    let rows: Vec<&Row> = results.iter().flat_map(|result| &result.rows).collect();
    for (name, access) in borders::PLOTS {
        let lines = borders::lines(&rows, access);
        if !lines.is_empty() {
            let title = format!("{access} of 4 KiB at random, against the file's size");
            let svg = plot::lines(&title, ("KiB of a file", "calls/s"), &lines)?;
            fs::write(dir.join(format!("{name}.svg")), svg)?;
        }
    }
    Ok(())
}

/// File, title, and the beginnings of the ids that one plot shows.
const GROUPS: &[(&str, &str, &[&str])] = &[
    (
        "metadata",
        "Metadata, of ext4 in the same run",
        &["mdtest-own/", "mdtest-shared/", "mdtest-32k/", "native/"],
    ),
    ("data", "Data, of ext4 in the same run", &["ior-4/", "ior-1/", "random/"]),
    ("rpc", "RPC, of a bare epoll echo in the same run", &["rpc/"]),
    (
        "neighbours",
        "A stream on a disk beside a neighbour, of the stream alone",
        &["devices/beside-"],
    ),
];

#[cfg(test)]
mod tests_of_plots {
    use mounted::Scratch;

    use super::*;
    use crate::row::tests::{result, row};

    #[test]
    fn a_plot_has_the_rows_of_its_group_that_are_not_void() {
        let scratch = Scratch::new("plots");
        let of = |id: &str, idle| Row { id: id.to_owned(), idle, ..row(&[1.0], &[2.0], None) };
        let ids = [("devices/beside-mdt", 0.9), ("devices/beside-disk", 0.1), ("devices/dom", 0.9)];
        let rows = ids.map(|(id, idle)| of(id, Some(idle))).to_vec();
        plots(scratch.path(), &[result("devices", rows)]).expect("it is drawn");
        let svg = fs::read_to_string(scratch.path().join("neighbours.svg")).expect("a plot");
        let shown = ids.map(|(id, _)| svg.contains(&id.replace('/', ": ")));
        assert_eq!(shown, [true, false, false]);
        assert!(!scratch.path().join("data.svg").exists(), "it has no rows");
    }
}
