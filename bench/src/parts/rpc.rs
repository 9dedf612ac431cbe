//! The RPC layer compared with a bare epoll echo on the same CPUs.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::bed::{Bed, nacre};
use crate::row::{Bound, Cpu, Row};
use crate::scale::Scale;

/// Output of `nacre bench lnet --json`.
#[derive(Deserialize)]
pub(super) struct Output {
    pub(super) cases: Vec<Case>,
}

#[derive(Deserialize)]
pub(super) struct Case {
    pub(super) case: String,
    pub(super) unit: String,
    pub(super) sides: Vec<Side>,
}

#[derive(Deserialize)]
pub(super) struct Side {
    pub(super) side: String,
    pub(super) rates: Vec<f64>,
    pub(super) cpu_us: f64,
}

pub(crate) fn lnet(_bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let pairs = scale.pairs.to_string();
    let options = ["--inflight", "64", "--sides", "bare,rpc", "--seconds", seconds(scale)];
    let mut args = vec!["bench", "lnet"];
    args.extend(options);
    args.extend(["--pairs", &pairs, "--json"]);
    let output: Output = nacre(&args)?;
    let command = format!("nacre bench lnet {} --pairs {pairs}", options.join(" "));
    output.cases.into_iter().map(|case| row(case, &command)).collect()
}

/// Seconds of a case. There are nine with two sides each, so 7 turns of 10 s would take 21 minutes.
pub(super) fn seconds(scale: Scale) -> &'static str {
    if scale.is_quick() { "0.5" } else { "1" }
}

fn row(case: Case, command: &str) -> Result<Row> {
    let side = |name: &str| case.sides.iter().find(|side| side.side == name);
    let (bare, rpc) =
        side("bare").zip(side("rpc")).with_context(|| format!("sides of {}", case.case))?;
    Ok(Row {
        id: format!("rpc/{}", case.case),
        title: case.case.clone(),
        unit: case.unit.clone(),
        ours: rpc.rates.clone(),
        limit: bare.rates.clone(),
        cpu: Some(Cpu { value: rpc.cpu_us, unit: "us each".to_owned() }),
        idle: None,
        bound: Some(Bound::Ratio(bound(&case.case))),
        command: command.to_owned(),
    })
}

/// The bare echo's share that a case has to reach.
fn bound(case: &str) -> f64 {
    match case {
        case if case.starts_with("ping") => 0.5,
        case if case.contains("4 KiB") => 0.25,
        case if case.contains("no crc") => 0.8,
        _ => 0.6,
    }
}

#[cfg(test)]
mod tests_of_bounds {
    use super::bound;

    #[test]
    fn each_case_has_its_bound() {
        assert_eq!(bound("ping, 64 in flight"), 0.5);
        assert_eq!(bound("read 4 KiB, no crc, 64 in flight"), 0.25);
        assert_eq!(bound("write 1 MiB, no crc, 4 in flight"), 0.8);
        assert_eq!(bound("write 1 MiB, crc, 4 in flight"), 0.6);
    }
}
