//! Runs seeds, or tries the planted bugs.
//!
//! ```text
//! cargo run -p cluster --example sim -- --seed 17 [--scenario storm|kills|slow|calm|sick|swaps|share|late|resend|lost|leases] [--ops 2000] [--log debug]
//! cargo run -p cluster --example sim -- --seeds 0..200
//! cargo run -p cluster --example sim -- --bugs             each planted bug must be found; one line each
//! cargo run -p cluster --example sim -- --bug mdt.skip_reply_record --seeds 1..40
//! ```
//! Exits with 1 if a seed failed, a bug was not found, or some kind of fault that the scenario is
//! for did not occur in so many seeds that it should have.

use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use cluster::{PLANTED, SEEDS_MAX, Scenario, Totals, run};

/// From so many seeds on, each kind of fault must have occurred.
const SEEDS_FOR_ALL_FAULTS: u64 = 50;

struct Args(Vec<String>);

impl Args {
    fn value(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|arg| arg == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|arg| arg == name)
    }
}

fn main() -> ExitCode {
    let args = Args(std::env::args().skip(1).collect());
    let done = if args.has("--bugs") { try_bugs() } else { run_seeds(&args) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn run_seeds(args: &Args) -> Result<(), String> {
    let scenario = scenario(args)?;
    let (mut failed, mut totals) = (Vec::new(), Totals::default());
    for seed in seeds(args)? {
        let replay = format!("replay: cargo xtask sim --seed {seed} --scenario {}", scenario.name);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            hook(info);
            eprintln!("{replay}");
        }));
        let report = run(seed, &scenario);
        drop(std::panic::take_hook());
        println!("{report}");
        totals.add(&report);
        if report.failure.is_some() {
            failed.push(seed);
        }
    }
    if totals.runs > 1 {
        println!("{totals}");
    }
    let missing = totals.missing(&scenario);
    if !failed.is_empty() {
        Err(format!("failed seeds: {failed:?}"))
    } else if totals.runs >= SEEDS_FOR_ALL_FAULTS && !missing.is_empty() {
        Err(format!("never hit by: {}", missing.join(", ")))
    } else {
        Ok(())
    }
}

fn scenario(args: &Args) -> Result<Scenario, String> {
    let planted = args
        .value("--bug")
        .map(|name| PLANTED.iter().find(|planted| planted.name == name).ok_or(name));
    let mut scenario = match planted {
        Some(Ok(planted)) => planted.scenario(),
        Some(Err(name)) => return Err(format!("no planted bug is called '{name}'")),
        None => {
            let name = args.value("--scenario").unwrap_or("storm");
            Scenario::by_name(name).ok_or_else(|| format!("no scenario is called '{name}'"))?
        }
    };
    if let Some(ops) = args.value("--ops") {
        scenario.ops = ops.parse().map_err(|_| format!("--ops {ops} is no number"))?;
    }
    if let Some(level) = args.value("--log") {
        scenario.print = Some(level.parse().map_err(|_| format!("--log {level} is no level"))?);
    }
    Ok(scenario)
}

fn seeds(args: &Args) -> Result<Range<u64>, String> {
    let range = match (args.value("--seed"), args.value("--seeds")) {
        (Some(seed), _) => seed.parse().ok().map(|seed: u64| seed..seed + 1),
        (None, Some(range)) => {
            range.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?))
        }
        (None, None) => Some(0..10),
    };
    range.ok_or_else(|| "seeds are --seed N or --seeds A..B".to_owned())
}

/// Each in processes of its own, one per seed: a broken invariant may end a run with an abort.
fn try_bugs() -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let width = std::thread::available_parallelism().map_or(1, usize::from);
    let mut missed = Vec::new();
    for planted in PLANTED {
        let seeds: Vec<u64> = (1..=SEEDS_MAX).collect();
        let mut found = None;
        for some in seeds.chunks(width) {
            // all of a chunk are waited for, and the lowest counts: the outcome does not depend on
            // the machine
            let failed =
                some.iter().map(|seed| start(&program, planted.name, *seed)).collect::<Vec<_>>();
            let failed: Vec<_> = failed.into_iter().map(fails).collect();
            found = some.iter().zip(failed).find(|(_, fails)| *fails).map(|(seed, _)| *seed);
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(seed) => {
                println!("{:<32} found by seed {seed} of {}", planted.name, planted.scenario().name)
            }
            None => {
                println!(
                    "{:<32} NOT FOUND in {SEEDS_MAX} seeds of {}",
                    planted.name,
                    planted.scenario().name
                );
                missed.push(planted.name);
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("nobody notices: {}", missed.join(", "))) }
}

fn start(program: &Path, bug: &str, seed: u64) -> std::io::Result<Child> {
    let mut child = Command::new(program);
    child
        .args(["--bug", bug, "--seed", &seed.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    child.spawn()
}

/// A child that could not be started has found nothing.
fn fails(child: std::io::Result<Child>) -> bool {
    child.and_then(|mut child| child.wait()).is_ok_and(|status| !status.success())
}
