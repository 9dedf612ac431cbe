//! mdtest's closing lines, as text and as JSON.

use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{MdtestArgs, Sample};
use crate::setting::Setting;
use crate::stats::{Stats, decimals, ratios};

/// What a phase does to every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Create, write if asked, close.
    Create,
    Stat,
    /// Open, read if asked, close.
    Read,
    /// Rename to another directory.
    Rename,
    /// unlink.
    Remove,
}

impl Phase {
    pub(crate) const ALL: [Phase; 5] =
        [Phase::Create, Phase::Stat, Phase::Read, Phase::Rename, Phase::Remove];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Create => "File creation",
            Phase::Stat => "File stat",
            Phase::Read => "File read",
            Phase::Rename => "File rename",
            Phase::Remove => "File removal",
        })
    }
}

/// The report as JSON.
#[derive(Serialize)]
struct Report {
    setting: String,
    phases: Vec<PhaseJson>,
    against: Vec<PhaseJson>,
}

#[derive(Serialize)]
struct PhaseJson {
    phase: String,
    files: u64,
    rate: f64,
    cpu_s_per_10000: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_file: Option<f64>,
}

fn json(setting: &Setting, ours: &[Sample], theirs: &[Sample]) -> Result<String> {
    let phase = |sample: &Sample| PhaseJson {
        phase: sample.phase.to_string(),
        files: sample.files,
        rate: decimals(sample.rate, 3),
        cpu_s_per_10000: decimals(sample.cpu, 3),
        requests_per_file: sample.requests.map(|requests| decimals(requests, 3)),
    };
    let [phases, against] = [ours, theirs].map(|samples| samples.iter().map(phase).collect());
    Ok(serde_json::to_string(&Report { setting: setting.line(), phases, against })?)
}

pub(super) fn print(
    args: &MdtestArgs,
    setting: &Setting,
    ours: &[Sample],
    theirs: &[Sample],
) -> Result<()> {
    if args.json {
        println!("{}", json(setting, ours, theirs)?);
        return Ok(());
    }
    let tasks = if args.native.is_some() { args.in_flight } else { args.tasks };
    let place = args.native.clone().unwrap_or_else(|| args.dir.display().to_string());
    println!("mdtest was launched with {tasks} total task(s) on 1 node(s)");
    println!("Path: {place}\n");
    summary(ours);
    if let Some(dir) = &args.against {
        println!("\nPath: {}\n", dir.display());
        summary(theirs);
        println!("\nratio, median of turns (range); CPU per file, ratio of medians");
        for phase in Phase::ALL {
            let sides = [ours, theirs];
            let [ours, theirs] = sides.map(|side| each(side, phase, |sample| sample.rate));
            let Some(ratio) = Stats::of(&ratios(&ours, &theirs)) else { continue };
            let [cpu, other] = sides.map(|side| {
                Stats::of(&each(side, phase, |s| s.cpu)).map_or(f64::NAN, |stats| stats.median)
            });
            println!(
                "   {phase:<20} {:14.3} ({:.3} .. {:.3}); {:.1}",
                ratio.median,
                ratio.min,
                ratio.max,
                cpu / other
            );
        }
    }
    Ok(())
}

fn each(samples: &[Sample], phase: Phase, value: impl Fn(&Sample) -> f64) -> Vec<f64> {
    samples.iter().filter(|sample| sample.phase == phase).map(value).collect()
}

/// mdtest's table, and behind each line what it cost.
fn summary(samples: &[Sample]) {
    let runs = Phase::ALL
        .into_iter()
        .map(|phase| each(samples, phase, |s| s.rate).len())
        .max()
        .unwrap_or(0);
    println!("SUMMARY rate: (of {runs} iterations)");
    println!(
        "   {:<20} {:>14} {:>14} {:>14} {:>14}   CPU s per 10,000",
        "Operation", "Max", "Min", "Mean", "Std Dev"
    );
    println!(
        "   {:<20} {:>14} {:>14} {:>14} {:>14}   ---------------",
        "---------", "---", "---", "----", "-------"
    );
    for phase in Phase::ALL {
        let Some(rate) = Stats::of(&each(samples, phase, |sample| sample.rate)) else { continue };
        let cpu = Stats::of(&each(samples, phase, |sample| sample.cpu))
            .map_or(f64::NAN, |stats| stats.median);
        println!(
            "   {phase:<20} {:14.3} {:14.3} {:14.3} {:14.3}   {cpu:15.2}",
            rate.max, rate.min, rate.mean, rate.deviation
        );
    }
    for phase in Phase::ALL {
        let asked = samples.iter().filter(|sample| sample.phase == phase);
        let asked: Vec<f64> = asked.filter_map(|sample| sample.requests).collect();
        if let Some(requests) = Stats::of(&asked) {
            println!("   {phase:<20} {:14.3} requests a file", requests.median);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_with_quotes_is_json() {
        let setting =
            Setting { lines: vec!["path: a\"b\\c".into(), "x".into()], in_process: false };
        let sample =
            Sample { phase: Phase::Create, files: 2, rate: 1.23456, cpu: f64::NAN, requests: None };
        let line = "{\"setting\":\"path: a\\\"b\\\\c; x\",\"phases\":[{\"phase\":\"File creation\",\
            \"files\":2,\"rate\":1.235,\"cpu_s_per_10000\":null}],\"against\":[]}";
        assert_eq!(json(&setting, &[sample], &[]).expect("plain values"), line);
        let native = Sample { requests: Some(1.0), ..sample };
        let text = json(&setting, &[native], &[]).expect("plain values");
        assert!(text.contains("\"cpu_s_per_10000\":null,\"requests_per_file\":1.0}"), "{text}");
    }
}
