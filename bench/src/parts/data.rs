//! Bytes per second through FUSE, with IOR's options, beside ext4.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::metadata::text;
use super::public;
use super::setting::Setting;
use crate::bed::{Bed, nacre};
use crate::row::{Bound, Cpu, Row, Spread};
use crate::scale::Scale;

/// Output of `nacre bench ior --json`.
#[derive(Deserialize)]
pub(super) struct Output {
    pub(super) runs: Vec<Run>,
    pub(super) against: Vec<Run>,
}

#[derive(Deserialize)]
pub(super) struct Run {
    pub(super) access: String,
    pub(super) mib_s: f64,
    cpu_s_per_gib: f64,
}

/// More than a task writes in one phase: the deadline ends it.
pub(super) const BLOCK: &str = "32g";

/// Bounds are those of write and read.
pub(super) type Streams = Setting<[f64; 2]>;

/// Four tasks, a file each.
pub(super) const FOUR: Streams =
    Setting { part: "ior-4", tasks: "4", options: &["-F"], bounds: [0.40, 0.75] };

const ONE: Streams = Setting { part: "ior-1", tasks: "1", options: &[], bounds: [0.30, 0.75] };

/// CPU seconds of the machine per GiB that is read.
const READ_CPU_MOST: f64 = 0.9;

pub(crate) fn four(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    with_cpu(stream(bed, scale, &FOUR)?)
}

pub(crate) fn one(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    with_cpu(stream(bed, scale, &ONE)?)
}

/// Adds a row for the CPU of reads.
fn with_cpu(mut rows: Vec<Row>) -> Result<Vec<Row>> {
    let read = rows.iter().find(|row| row.title == "read").context("reads were measured")?;
    let cost = read.cost(READ_CPU_MOST);
    rows.extend(cost);
    Ok(rows)
}

fn stream(bed: &Bed, scale: Scale, setting: &Streams) -> Result<Vec<Row>> {
    if public::has("ior") {
        return public::ior(bed, scale, setting);
    }
    by_own(bed, scale, setting)
}

/// The same with our own driver.
pub(super) fn by_own(bed: &Bed, scale: Scale, setting: &Streams) -> Result<Vec<Row>> {
    let seconds = scale.seconds.to_string();
    let mut options = vec!["-N", setting.tasks];
    options.extend(setting.options);
    options.extend(["-t", "1m", "-b", BLOCK, "-D", &seconds, "-e", "--drop-caches"]);
    ior(bed, scale, setting.part, &options, setting.bounds)
}

/// Both phases of one setting. The bounds are those of write and read.
pub(super) fn ior(
    bed: &Bed,
    scale: Scale,
    part: &str,
    options: &[&str],
    bounds: [f64; 2],
) -> Result<Vec<Row>> {
    let files = [bed.ours().join("ior"), bed.limit().join("ior")];
    between(scale, part, options, &files, ["MOUNT/ior", "EXT4/ior"], bounds)
}

/// The same between two places, and what they are called.
pub(super) fn between(
    scale: Scale,
    part: &str,
    options: &[&str],
    files: &[PathBuf; 2],
    names: [&str; 2],
    bounds: [f64; 2],
) -> Result<Vec<Row>> {
    let pairs = scale.pairs.to_string();
    let (ours, limit) = (text(&files[0])?, text(&files[1])?);
    let mut args = vec!["bench", "ior", "-o", &ours];
    args.extend(options);
    args.extend(["--against", &limit, "--pairs", &pairs, "--json"]);
    let output: Output = nacre(&args)?;
    let command = format!(
        "nacre bench ior -o {} {} --against {} --pairs {pairs}",
        names[0],
        options.join(" "),
        names[1]
    );
    rows(part, &output, bounds, &command)
}

/// A row for writes and one for reads.
pub(super) fn rows(
    part: &str,
    output: &Output,
    bounds: [f64; 2],
    command: &str,
) -> Result<Vec<Row>> {
    let row = |(access, bound): (&str, f64)| {
        let each = |runs: &[Run], value: fn(&Run) -> f64| -> Vec<f64> {
            runs.iter().filter(|run| run.access == access).map(value).collect()
        };
        let cpu = Spread::of(&each(&output.runs, |run| run.cpu_s_per_gib));
        let cpu = cpu.with_context(|| format!("no {access} phase"))?.median;
        anyhow::Ok(Row {
            id: format!("{part}/{access}"),
            title: access.to_owned(),
            unit: "MiB/s".to_owned(),
            ours: each(&output.runs, |run| run.mib_s),
            limit: each(&output.against, |run| run.mib_s),
            cpu: Some(Cpu { value: cpu, unit: "s per GiB".to_owned() }),
            idle: None,
            bound: Some(Bound::Ratio(bound)),
            command: command.to_owned(),
        })
    };
    ["write", "read"].into_iter().zip(bounds).map(row).collect()
}
