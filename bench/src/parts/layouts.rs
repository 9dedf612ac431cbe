//! Component cost: the same stream into files with one striping, and into files that get their
//! objects part by part. The streams are those of "DoM, DNE and PFL working together" (LUG 2018).
//! And instructions of mapping an extent to objects.

use std::fs;

use anyhow::{Context, Result};
use mounted::{Scratch, Up};

use super::data::{BLOCK, between};
use super::figures::example;
use super::instructions::{self, VALGRIND};
use super::metadata::text;
use crate::bed::Bed;
use crate::machine::output;
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// Of the rate without components, write and read.
pub(super) const BOUNDS: [f64; 2] = [0.95, 0.95];

/// Seconds of a phase at most.
const SECONDS_MAX: u32 = 5;

/// Instructions of a piece, in a layout of ten components of 200 stripes.
const PIECE_MOST: f64 = 300.0;

/// Of the files that are compared: the talk's, and those of one striping.
pub(super) const LAYOUTS: [&str; 2] = ["-E 1M -L mdt -E -1 -c 1 -S 1M", "-c 1 -S 1M"];

pub(crate) fn stream(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let dirs = ["progressive", "plain"].map(|name| bed.ours().join(name));
    for (dir, layout) in dirs.iter().zip(LAYOUTS) {
        fs::create_dir(dir)?;
        set(bed.up(), layout, &text(dir)?);
    }
    let seconds = scale.seconds.min(SECONDS_MAX).to_string();
    let files = dirs.map(|dir| dir.join("ior"));
    let (options, names) = (streams(&seconds), ["PROGRESSIVE/ior", "PLAIN/ior"]);
    let mut rows = between(scale, "layouts", &options, &files, names, BOUNDS)?;
    rows.extend(mapping()?);
    Ok(rows)
}

/// Makes a layout the default of a directory, or makes a file with it.
pub(super) fn set(up: &Up, layout: &str, path: &str) {
    let words: Vec<&str> =
        ["lfs", "setstripe"].into_iter().chain(layout.split(' ')).chain([path]).collect();
    let _silent = up.tool(&words);
}

/// Options of IOR: four processes, a file each, O_DIRECT, 64 MiB transfers, until the time is over.
pub(super) fn streams(seconds: &str) -> [&str; 11] {
    ["-N", "4", "-F", "-B", "-t", "64m", "-b", BLOCK, "-D", seconds, "-e"]
}

/// Only where valgrind is installed.
fn mapping() -> Result<Option<Row>> {
    if !instructions::can_be_counted() {
        eprintln!("valgrind is not installed: instructions are not counted");
        return Ok(None);
    }
    let scratch = Scratch::new("bench-mapping");
    let profile = scratch.path().join("callgrind.out");
    let (map, out) = (example("layout", "map")?, text(&profile)?);
    let out = format!("--callgrind-out-file={out}");
    let printed =
        output(VALGRIND, &["--tool=callgrind", "--toggle-collect=main", &out, &text(&map)?])?;
    let values = vec![each(&fs::read_to_string(&profile)?, &printed)?];
    let (title, command) = (
        "a piece of an extent in ten components of 200 stripes",
        "cargo build --release -p layout --example map; \
         valgrind --tool=callgrind --toggle-collect=main target/release/examples/map",
    );
    let bound = Some(Bound::AtMost(PIECE_MOST));
    Ok(Some(Row::of("layouts/piece", title, "instructions", [values, Vec::new()], bound, command)))
}

/// Instructions a piece, from callgrind's file and from the example's line `N pieces`.
fn each(profile: &str, printed: &str) -> Result<f64> {
    let total = instructions::total(profile)?; // nothing: the function main was not found
    let pieces = printed.lines().find_map(|line| line.strip_suffix(" pieces"));
    let pieces: f64 = pieces.context("the example prints its pieces")?.trim().parse()?;
    Ok(total / pieces)
}

#[cfg(test)]
mod tests_of_counts {
    use super::each;

    #[test]
    fn instructions_are_those_of_a_piece() {
        let profile = "events: Ir\nsummary: 5000\n\nfn=(0)\n0 5000\n\ntotals: 5000\n";
        assert_eq!(each(profile, "25 pieces").expect("both are there"), 200.0);
        assert!(each("", "25 pieces").is_err());
        assert!(each("totals: 0", "25 pieces").is_err(), "nothing was counted");
    }
}
