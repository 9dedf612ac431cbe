//! Runs seeds: `cargo run -p cluster --example sim -- --seeds 0..20 [--scenario storm] [--ops 2000] [--log debug]`.

use std::panic::catch_unwind;

use cluster::{Scenario, run};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let name = value("--scenario").unwrap_or_else(|| "storm".to_owned());
    let Some(mut scenario) = Scenario::by_name(&name) else { return fail(&format!("no scenario '{name}'")) };
    if let Some(ops) = value("--ops") {
        scenario.ops = ops.parse().unwrap_or(scenario.ops);
    }
    scenario.print = value("--log").and_then(|level| level.parse().ok());
    let seeds = match (value("--seed"), value("--seeds")) {
        (Some(seed), _) => seed.parse().map(|seed: u64| seed..seed + 1).ok(),
        (None, Some(range)) => parse_range(&range),
        (None, None) => Some(0..10),
    };
    let Some(seeds) = seeds else { return fail("seeds are a number or A..B") };
    let mut failed = Vec::new();
    for seed in seeds {
        match catch_unwind(|| run(seed, &scenario)) {
            Ok(report) => {
                println!("{report}");
                if report.failure.is_some() {
                    failed.push(seed);
                }
            }
            Err(_) => {
                println!("seed {seed}: FAILED with a panic\nreplay: cargo xtask sim --seed {seed} --scenario {name}");
                failed.push(seed);
            }
        }
    }
    if !failed.is_empty() {
        fail(&format!("failed seeds: {failed:?}"));
    }
}

fn parse_range(text: &str) -> Option<std::ops::Range<u64>> {
    let (from, to) = text.split_once("..")?;
    Some(from.parse().ok()?..to.parse().ok()?)
}

fn fail(what: &str) {
    eprintln!("{what}");
    std::process::exit(1);
}
