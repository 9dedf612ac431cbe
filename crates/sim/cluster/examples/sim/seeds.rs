//! Seeds: one line for each, then what they did together.

use std::collections::BTreeMap;

use cluster::{MARKS, Report, Scenario, Totals};

use crate::attempt::{Fault, attempt};
use crate::cores::over_cores;

/// From so many seeds on, each kind of fault must have occurred.
const SEEDS_FOR_ALL_FAULTS: u64 = 50;

/// A seed and what to do with it.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    pub(crate) seed: u64,
    pub(crate) scenario: Scenario,
}

/// Runs `tasks`. Fails if one of them failed, or if a kind of fault never occurred, or if the seeds
/// are the suite and never reach a rare branch.
pub(crate) fn run_all(tasks: &[Task], is_suite: bool, jobs: usize) -> Result<(), Fault> {
    let mut sums = Sums::default();
    let mut failed = Vec::new();
    let mut is_broken = false;
    let work = |task: &Task| attempt(task.seed, &task.scenario);
    over_cores(tasks, jobs, work, |task, outcome| {
        let Task { seed, scenario } = task;
        match outcome {
            Ok(report) => {
                println!("{:<7} {report}", scenario.name);
                sums.add(scenario, &report);
                if report.failure.is_none() {
                    return;
                }
            }
            Err(fault) => {
                println!("{:<7} seed {seed}: {fault}", scenario.name);
                is_broken |= matches!(fault, Fault::Harness(_));
            }
        }
        println!("{}", scenario.replay_line(*seed));
        if scenario.script.is_none() {
            println!("{} --shrink", scenario.replay_line(*seed).replace("replay", "shrink"));
        }
        failed.push(format!("{seed} of {}", scenario.name));
    });
    sums.print();
    let failed = failed.join(", ");
    match (failed.is_empty(), is_broken) {
        (true, _) => sums.check(is_suite),
        (false, true) => Err(Fault::Harness(format!("the simulator is broken: seeds {failed}"))),
        (false, false) => Err(Fault::Promise(format!("failed seeds: {failed}"))),
    }
}

/// Totals of each scenario.
#[derive(Default)]
struct Sums(BTreeMap<&'static str, (Scenario, Totals)>);

impl Sums {
    fn add(&mut self, scenario: &Scenario, report: &Report) {
        let sum = self.0.entry(scenario.name).or_insert((*scenario, Totals::default()));
        sum.1.add(report);
    }

    fn marks(&self) -> BTreeMap<&'static str, u64> {
        let mut marks: BTreeMap<_, _> = MARKS.iter().map(|mark| (*mark, 0)).collect();
        for (_, totals) in self.0.values() {
            for (mark, count) in totals.marks() {
                *marks.entry(mark).or_default() += count;
            }
        }
        marks
    }

    fn print(&self) {
        let mut runs = 0;
        for (name, (_, totals)) in &self.0 {
            runs += totals.runs;
            if totals.runs > 1 {
                println!("{name}: {totals}");
            }
        }
        if runs > 1 {
            println!("rare branches:");
            for (mark, count) in self.marks() {
                println!("{count:>9} {mark}");
            }
        }
    }

    /// Every fault of a scenario occurs in some of its seeds. Every rare branch is reached by some
    /// seed of the suite.
    fn check(&self, is_suite: bool) -> Result<(), Fault> {
        let mut missing = Vec::new();
        for (name, (scenario, totals)) in &self.0 {
            if totals.runs >= SEEDS_FOR_ALL_FAULTS {
                let kinds = totals.missing(scenario);
                missing.extend(kinds.into_iter().map(|kind| format!("{name}: {kind}")));
            }
        }
        let marks = self.marks();
        if is_suite {
            let never = marks.iter().filter(|(_, count)| **count == 0);
            missing.extend(never.map(|(mark, _)| format!("rare branch \"{mark}\"")));
        }
        let unknown = marks.keys().filter(|mark| !MARKS.contains(mark));
        missing.extend(unknown.map(|mark| format!("\"{mark}\" in the list of rare branches")));
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Fault::Promise(format!("never occurred: {}", missing.join(", ")))),
        }
    }
}
