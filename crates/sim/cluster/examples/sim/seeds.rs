//! Runs seeds: prints one line per seed, then their totals.

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

/// What is printed of a run, and kept of it.
pub(crate) struct Record {
    /// One line for each seed that passes too.
    is_whole: bool,
    pub(crate) lines: Vec<String>,
}

impl Record {
    pub(crate) fn everything() -> Record {
        Record { is_whole: true, lines: Vec::new() }
    }

    pub(crate) fn failures_and_totals() -> Record {
        Record { is_whole: false, lines: Vec::new() }
    }

    fn passed(&self, line: &str) {
        if self.is_whole {
            println!("{line}");
        }
    }

    fn keep(&mut self, line: String) {
        println!("{line}");
        self.lines.push(line);
    }
}

/// Runs `tasks`. Fails if one of them failed, or if a kind of fault never occurred, or if the seeds
/// are the suite and never reach a rare branch.
pub(crate) fn run_all(
    tasks: &[Task],
    is_suite: bool,
    jobs: usize,
    record: &mut Record,
) -> Result<(), Fault> {
    let mut sums = Sums::default();
    let mut failed = Vec::new();
    let mut is_broken = false;
    let work = |task: &Task| attempt(task.seed, &task.scenario);
    over_cores(tasks, jobs, work, |task, outcome| {
        let Task { seed, scenario } = task;
        match outcome {
            Ok(report) => {
                let line = format!("{:<7} {report}", scenario.name);
                sums.add(scenario, &report);
                if report.failure.is_none() {
                    return record.passed(&line);
                }
                record.keep(line);
            }
            Err(fault) => {
                record.keep(format!("{:<7} seed {seed}: {fault}", scenario.name));
                is_broken |= matches!(fault, Fault::Harness(_));
            }
        }
        record.keep(scenario.replay_line(*seed));
        if scenario.script.is_none() {
            println!("{} --shrink", scenario.replay_line(*seed).replace("replay", "shrink"));
        }
        failed.push(format!("{seed} of {}", scenario.name));
    });
    sums.print(record);
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

    fn print(&self, record: &mut Record) {
        let mut runs = 0;
        for (name, (_, totals)) in &self.0 {
            runs += totals.runs;
            if totals.runs > 1 {
                record.keep(format!("{name}: {totals}"));
            }
        }
        if runs > 1 {
            record.keep("rare branches:".to_owned());
            for (mark, count) in self.marks() {
                record.keep(format!("{count:>9} {mark}"));
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
