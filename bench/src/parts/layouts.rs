//! Component cost: the same stream into files with one striping, and into files that get their
//! objects part by part (the streams of "DoM, DNE and PFL working together", LUG 2018).

use std::fs;

use anyhow::Result;

use super::data::{BLOCK, between};
use crate::bed::Bed;
use crate::row::Row;
use crate::scale::Scale;

/// Of the rate without components, write and read.
const BOUNDS: [f64; 2] = [0.95, 0.95];

/// Four processes, a file each, O_DIRECT, 64 MiB transfers, until the time is over.
pub(crate) fn stream(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let dirs = ["progressive", "plain"].map(|name| bed.ours().join(name));
    let layouts = [
        "setstripe -E 1M -c 1 -S 1M -E -1 -c 1 -S 1M".split(' '),
        "setstripe -c 1 -S 1M".split(' '),
    ];
    for (dir, layout) in dirs.iter().zip(layouts) {
        fs::create_dir(dir)?;
        let dir = dir.to_string_lossy().into_owned();
        let words: Vec<&str> = ["lfs"].into_iter().chain(layout).collect();
        let _silent = bed.up().tool(&[&words[..], &[&dir]].concat());
    }
    let seconds = scale.seconds.to_string();
    let options = ["-N", "4", "-F", "-B", "-t", "64m", "-b", BLOCK, "-D", &seconds, "-e"];
    let files = dirs.map(|dir| dir.join("ior"));
    between(scale, "layouts", &options, &files, ["PROGRESSIVE/ior", "PLAIN/ior"], BOUNDS)
}
