//! IOR's closing lines, as text and as JSON.

use anyhow::Result;
use serde::Serialize;

use super::{IorArgs, Phase, Sample};
use crate::setting::Setting;
use crate::stats::{Stats, decimals, ratios};

const MIB: f64 = (1 << 20) as f64;

/// The report as JSON.
#[derive(Serialize)]
struct Report {
    setting: String,
    runs: Vec<Run>,
    against: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    access: String,
    mib_s: f64,
    cpu_s_per_gib: f64,
    task_mib_s: Vec<f64>,
}

fn json(setting: &Setting, ours: &[Sample], theirs: &[Sample]) -> Result<String> {
    let run = |sample: &Sample| Run {
        access: sample.phase.to_string(),
        mib_s: decimals(sample.rate / MIB, 1),
        cpu_s_per_gib: decimals(sample.cpu_per_gib, 3),
        task_mib_s: sample.tasks.iter().map(|rate| decimals(rate / MIB, 1)).collect(),
    };
    let [runs, against] = [ours, theirs].map(|samples| samples.iter().map(run).collect());
    Ok(serde_json::to_string(&Report { setting: setting.line(), runs, against })?)
}

pub(super) fn print(
    args: &IorArgs,
    setting: &Setting,
    ours: &[Sample],
    theirs: &[Sample],
) -> Result<()> {
    if args.json {
        println!("{}", json(setting, ours, theirs)?);
        return Ok(());
    }
    println!(
        "tasks: {}, transfer {} KiB, block {} MiB each\n",
        args.tasks,
        args.transfer >> 10,
        args.block >> 20
    );
    table(ours);
    if let Some(file) = &args.against {
        println!("\nagainst {}\n", file.display());
        table(theirs);
        println!("\nratio, median of turns (range); CPU per GiB, ratio of medians");
        for phase in [Phase::Write, Phase::Read] {
            let (ours, theirs) = (of(ours, phase), of(theirs, phase));
            let (rate, cpu) = (|s: &Sample| s.rate, |s: &Sample| s.cpu_per_gib);
            let Some(ratio) = Stats::of(&ratios(&each(&ours, rate), &each(&theirs, rate))) else {
                continue;
            };
            let cpus = [&ours, &theirs]
                .map(|side| Stats::of(&each(side, cpu)).map_or(f64::NAN, |stats| stats.median));
            println!(
                "   {phase:<6} {:.2} ({:.2} .. {:.2}); {:.2}",
                ratio.median,
                ratio.min,
                ratio.max,
                cpus[0] / cpus[1]
            );
        }
    }
    Ok(())
}

fn of(samples: &[Sample], phase: Phase) -> Vec<&Sample> {
    samples.iter().filter(|sample| sample.phase == phase).collect()
}

fn each(samples: &[&Sample], value: impl Fn(&Sample) -> f64) -> Vec<f64> {
    samples.iter().map(|sample| value(sample)).collect()
}

fn table(samples: &[Sample]) {
    println!(
        "access    MiB/s median        min        max | task mean   std dev | CPU s per GiB of the whole machine"
    );
    for phase in [Phase::Write, Phase::Read] {
        let samples = of(samples, phase);
        let Some(rate) = Stats::of(&each(&samples, |sample| sample.rate / MIB)) else { continue };
        let tasks: Vec<f64> =
            samples.iter().flat_map(|sample| &sample.tasks).map(|rate| rate / MIB).collect();
        let tasks = Stats::of(&tasks).expect("a phase has tasks");
        let cpu =
            Stats::of(&each(&samples, |sample| sample.cpu_per_gib)).expect("as many as rates");
        println!(
            "{phase:<9} {:12.1} {:10.1} {:10.1} | {:9.1} {:9.1} | {:.2}",
            rate.median, rate.min, rate.max, tasks.mean, tasks.deviation, cpu.median
        );
    }
}
