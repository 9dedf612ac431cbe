//! mdtest's closing lines, and the same as JSON.

use std::fmt;

use super::{MdtestArgs, Rates};

/// What a phase does to every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Create, write if asked, close.
    Create,
    /// stat.
    Stat,
    /// Open, read if asked, close.
    Read,
    /// unlink.
    Remove,
}

impl Phase {
    pub(crate) const ALL: [Phase; 4] = [Phase::Create, Phase::Stat, Phase::Read, Phase::Remove];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Create => "File creation",
            Phase::Stat => "File stat",
            Phase::Read => "File read",
            Phase::Remove => "File removal",
        })
    }
}

/// One run: rates and files made, and the CPU seconds that the whole machine spent.
type Run = ((Rates, u64), f64);

pub(super) fn print(args: &MdtestArgs, ours: &[Run], theirs: &[Run]) {
    if args.json {
        println!("{{\"runs\":{},\"against\":{}}}", json(ours), json(theirs));
        return;
    }
    let tasks = if args.native.is_some() { args.in_flight } else { args.tasks };
    let place = args.native.clone().unwrap_or_else(|| args.dir.display().to_string());
    println!("mdtest was launched with {tasks} total task(s) on 1 node(s)");
    println!("Path: {place}\n");
    summary(ours);
    if let Some(dir) = &args.against {
        println!("\nPath: {}\n", dir.display());
        summary(theirs);
        println!("\nratio of medians");
        for phase in Phase::ALL {
            if let (Some(ours), Some(theirs)) = (median(&of(ours, phase)), median(&of(theirs, phase))) {
                println!("   {phase:<20} {:14.3}", ours / theirs);
            }
        }
    }
}

fn of(runs: &[Run], phase: Phase) -> Vec<f64> {
    runs.iter().flat_map(|((rates, _), _)| rates).filter(|(one, _)| *one == phase).map(|(_, rate)| *rate).collect()
}

fn median(rates: &[f64]) -> Option<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn summary(runs: &[Run]) {
    println!("SUMMARY rate: (of {} iterations)", runs.len());
    println!("   {:<20} {:>14} {:>14} {:>14} {:>14}", "Operation", "Max", "Min", "Mean", "Std Dev");
    println!("   {:<20} {:>14} {:>14} {:>14} {:>14}", "---------", "---", "---", "----", "-------");
    for phase in Phase::ALL {
        let rates = of(runs, phase);
        if rates.is_empty() {
            continue;
        }
        let max = rates.iter().copied().fold(f64::MIN, f64::max);
        let min = rates.iter().copied().fold(f64::MAX, f64::min);
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
        println!("   {phase:<20} {max:14.3} {min:14.3} {mean:14.3} {:14.3}", variance.sqrt());
    }
    let files: u64 = runs.iter().map(|((_, files), _)| files).sum();
    let cpu: f64 = runs.iter().map(|(_, cpu)| cpu).sum();
    println!("   CPU of the whole machine: {:.2} s per 10,000 files (all phases)", cpu / (files.max(1) as f64 / 10_000.0));
}

fn json(runs: &[Run]) -> String {
    let run = |((rates, files), cpu): &Run| {
        let rates: Vec<_> = rates.iter().map(|(phase, rate)| format!("\"{phase}\":{rate:.3}")).collect();
        format!("{{\"files\":{files},\"cpu_s\":{cpu:.2},\"rates\":{{{}}}}}", rates.join(","))
    };
    format!("[{}]", runs.iter().map(run).collect::<Vec<_>>().join(","))
}
