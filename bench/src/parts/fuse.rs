//! FUSE's own cost: a file system that does nothing, over io_uring and over the device.

use anyhow::Result;
use serde::Deserialize;

use crate::bed::{Bed, nacre_lines};
use crate::row::{Bound, Cpu, Row};
use crate::scale::Scale;

/// Seconds of a phase at most: there are two calls, each by one process and by four.
const SECONDS_MAX: u32 = 2;

/// Turns, each with eight phases.
const TURNS_MAX: u32 = 5;

/// One line of `nacre bench fusedev --json`.
#[derive(Deserialize)]
struct Line {
    call: String,
    processes: u32,
    classic: Side,
    uring: Side,
}

#[derive(Deserialize)]
struct Side {
    rates: Vec<f64>,
    server_cpu_us: f64,
}

pub(crate) fn null(_bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let seconds = scale.seconds.min(SECONDS_MAX).to_string();
    let pairs = scale.pairs.min(TURNS_MAX).to_string();
    let args =
        ["bench", "fusedev", "--calls", "fstat,read4k", "--seconds", &seconds, "--pairs", &pairs];
    let command = format!("nacre {}", args.join(" "));
    let lines: Vec<Line> = nacre_lines(&[&args[..], &["--json"]].concat())?;
    Ok(lines.into_iter().map(|line| row(line, &command)).collect())
}

fn row(line: Line, command: &str) -> Row {
    let Line { call, processes, classic, uring } = line;
    let bound = (call == "fstat").then_some(if processes == 1 { 2.0 } else { 1.3 });
    Row {
        id: format!("fuse/{call}-{processes}"),
        title: format!("{call}, {processes} process(es), io_uring beside the device"),
        unit: "calls/s".to_owned(),
        ours: uring.rates,
        limit: classic.rates,
        cpu: Some(Cpu { value: uring.server_cpu_us, unit: "us of the server each".to_owned() }),
        idle: None,
        bound: bound.map(Bound::Ratio),
        command: command.to_owned(),
    }
}
