//! Makes tables, plots and one JSON file from the results of a run.

pub(crate) mod markdown;
mod plot;
pub(crate) mod publish;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use crate::machine::Machine;
use crate::parts::listing;
use crate::row::{PartResult, Row};

/// Writes `figures.json`, `figures.md` and a plot per group into `dir`.
pub(crate) fn write(dir: &Path, machine: &Machine, results: &[PartResult]) -> Result<PathBuf> {
    let whole = json!({ "machine": machine, "parts": results });
    fs::write(dir.join("figures.json"), serde_json::to_string_pretty(&whole)?)?;
    fs::write(dir.join("figures.md"), markdown::whole(machine, results))?;
    plots(dir, results)?;
    Ok(dir.to_path_buf())
}

/// A plot for each group that has ratios.
pub(crate) fn plots(dir: &Path, results: &[PartResult]) -> Result<()> {
    for (name, title, parts) in GROUPS {
        let rows: Vec<&Row> = results
            .iter()
            .filter(|result| parts.contains(&result.part.as_str()))
            .flat_map(|result| &result.rows)
            .filter(|row| row.ratio().is_some())
            .collect();
        if !rows.is_empty() {
            fs::write(dir.join(format!("{name}.svg")), plot::ratios(title, &rows)?)?;
        }
    }
    let listings = results.iter().filter(|result| result.part == "listing");
    let rows: Vec<&Row> = listings.flat_map(|result| &result.rows).collect();
    let lines = listing::lines(&rows);
    if !lines.is_empty() {
        let svg = plot::lines(LISTING_TITLE, ("stripes", "us a file"), &lines)?;
        fs::write(dir.join("listing.svg"), svg)?;
    }
    Ok(())
}

const LISTING_TITLE: &str = "Listing: time of a file against its stripes";

/// File, title, and the parts that one plot shows.
const GROUPS: &[(&str, &str, &[&str])] = &[
    (
        "metadata",
        "Metadata, of ext4 in the same run",
        &["mdtest-own", "mdtest-shared", "mdtest-32k", "native"],
    ),
    ("data", "Data, of ext4 in the same run", &["ior-4", "ior-1", "random"]),
    ("rpc", "RPC, of a bare epoll echo in the same run", &["rpc"]),
];
