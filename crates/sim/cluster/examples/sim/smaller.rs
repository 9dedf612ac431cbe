//! A failing part of a failing seed's schedule: found with `--shrink`, repeated with `--keep-ops`
//! and `--keep-faults`.

use std::rc::Rc;
use std::time::Duration;

use cluster::{Recording, Report, Scenario, Schedule, run_part, run_recorded, shrink};

use crate::attempt::{Fault, guard};
use crate::watch::Watch;

/// Runs the whole seed and keeps what it did.
fn record(seed: u64, scenario: &Scenario) -> (Rc<Recording>, Result<Report, Fault>) {
    let recording = Rc::<Recording>::default();
    let outcome = guard(|| run_recorded(seed, scenario, &recording));
    (recording, outcome)
}

fn failure(outcome: Result<Report, Fault>) -> Result<Option<String>, Fault> {
    match outcome {
        Ok(report) => Ok(report.failure),
        Err(Fault::Promise(what)) => Ok(Some(what)),
        Err(harness) => Err(harness),
    }
}

fn refuse_directed(scenario: &Scenario) -> Result<(), Fault> {
    match scenario.script {
        None => Ok(()),
        Some(_) => Err(Fault::Harness(format!("{} is a short script already", scenario.name))),
    }
}

/// Prints the smallest part that was found within `limit` and still fails, with the line that
/// replays it.
pub(crate) fn find(seed: u64, scenario: &Scenario, limit: Duration) -> Result<(), Fault> {
    refuse_directed(scenario)?;
    let (recording, outcome) = record(seed, scenario);
    let Some(first) = failure(outcome)? else {
        println!("seed {seed} of {} passes: there is nothing to shrink", scenario.name);
        return Ok(());
    };
    let (whole, watch, mut tries) = (recording.whole(), Watch::start(), 0);
    println!("seed {seed} fails after {}: {first}", size(&whole));
    let fails = |part: &Schedule| {
        if watch.has_run_for(limit) {
            return false;
        }
        tries += 1;
        let outcome = guard(|| run_part(seed, scenario, &recording, part));
        matches!(failure(outcome), Ok(Some(_)))
    };
    let small = shrink(&whole, fails);
    let Some(last) = failure(guard(|| run_part(seed, scenario, &recording, &small)))? else {
        return Err(Fault::Promise(format!(
            "seed {seed} fails as a whole and not when it is repeated: {}",
            scenario.replay_line(seed)
        )));
    };
    println!("{tries} runs later {} are enough: {last}", size(&small));
    println!("{} {small}", scenario.replay_line(seed));
    Ok(())
}

/// Repeats `kept` of a seed.
pub(crate) fn repeat(seed: u64, scenario: &Scenario, kept: &Schedule) -> Result<(), Fault> {
    refuse_directed(scenario)?;
    let quiet = Scenario { print: None, ..*scenario };
    let (recording, _) = record(seed, &quiet);
    let report = guard(|| run_part(seed, scenario, &recording, kept))?;
    println!("{report}");
    report.failure.map_or(Ok(()), |failure| Err(Fault::Promise(failure)))
}

fn size(schedule: &Schedule) -> String {
    let (ops, faults) = schedule.sizes();
    format!("{ops} operations and {faults} faults")
}
