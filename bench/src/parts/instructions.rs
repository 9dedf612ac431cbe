//! Instructions in user space of a create and its close at a native client, counted by callgrind.
//! The load of the machine does not change them. Those of servers are not counted, because the
//! record store does not open under valgrind.
//!
//! The client is counted twice, with few files and with many. The difference is without the start
//! and the end of the process.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context, Result, ensure};
use mounted::nacre_bin;
use mounted::nodes::{Nodes, Shape};

use super::metadata::text;
use super::public::is_installed;
use crate::bed::Bed;
use crate::machine::output;
use crate::row::Row;
use crate::scale::Scale;

pub(super) const VALGRIND: &str = "valgrind";

/// Files of the two runs.
const FILES: [u32; 2] = [1_000, 5_000];

/// Whether instructions can be counted.
pub(crate) fn can_be_counted() -> bool {
    is_installed(VALGRIND)
}

pub(crate) fn of_creates(bed: &Bed, _scale: Scale) -> Result<Vec<Row>> {
    let dir = bed.fresh("instructions");
    let mut totals = [0.0; 2];
    for (total, files) in totals.iter_mut().zip(FILES) {
        *total = count(&dir.join(files.to_string()), files)?;
    }
    fs::remove_dir_all(&dir)?;
    let values = [vec![each(totals)], Vec::new()];
    let (id, title) = ("instructions/client", "create and close, at the client");
    Ok(vec![Row::of(id, title, "instructions", values, None, &command())])
}

/// What a file costs, from the instructions of both runs.
fn each([few, many]: [f64; 2]) -> f64 {
    (many - few) / f64::from(FILES[1] - FILES[0])
}

fn command() -> String {
    let [few, many] = FILES;
    format!(
        "{VALGRIND} --tool=callgrind nacre bench mdtest --native NID:/testfs --in-flight 64 -F -C \
         -n {many} --keep; less the same of {few} files"
    )
}

/// Instructions of a client that makes files in a new file system.
fn count(dir: &Path, files: u32) -> Result<f64> {
    fs::create_dir_all(dir)?;
    let (profile, files) = (dir.join("callgrind.out"), files.to_string());
    let out = format!("--callgrind-out-file={}", text(&profile)?);
    let mut nodes = Nodes::format(dir);
    nodes.start(Shape::OneProcess, &[]);
    let (address, binary) = (nodes.address(), text(&nacre_bin())?);
    let driver = [&binary, "bench", "mdtest", "--native", &address];
    let options = ["--in-flight", "64", "-F", "-C", "-n", &files, "--keep", "--json"];
    let words = [&["--tool=callgrind", &out][..], &driver, &options].concat();
    drop(output(VALGRIND, &words)?);
    let ended = nodes.stop();
    ensure!(ended.iter().all(ExitStatus::success), "a server ended with {ended:?}");
    total(&fs::read_to_string(&profile)?)
}

/// Instructions in all, from callgrind's file.
pub(super) fn total(profile: &str) -> Result<f64> {
    let total = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let total: f64 = total.context("callgrind writes a total")?.trim().parse()?;
    ensure!(total > 0.0, "callgrind has counted nothing");
    Ok(total)
}

#[cfg(test)]
mod tests_of_counts {
    use super::*;

    #[test]
    fn a_file_costs_what_more_files_add() {
        assert_eq!(each([7e6, 7e6 + 4_000.0 * 25.0]), 25.0);
        let profile = "events: Ir\nsummary: 5000\n\nfn=(0)\n0 5000\n\ntotals: 5000\n";
        assert_eq!(total(profile).expect("it is there"), 5_000.0);
        assert!(total("").is_err());
        assert!(total("totals: 0").is_err(), "nothing was counted");
    }
}
