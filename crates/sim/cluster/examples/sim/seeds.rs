//! Many runs over all cores; what they print comes in the order in which they were asked for.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use cluster::{Report, Scenario, Totals, run};

/// From so many seeds on, each kind of fault must have occurred.
const SEEDS_FOR_ALL_FAULTS: u64 = 50;
/// As much as the main thread of a process has.
const STACK_BYTES: usize = 8 << 20;

/// A seed and what to do with it.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    pub(crate) seed: u64,
    pub(crate) scenario: Scenario,
}

/// Runs `tasks`, prints a line for each and the totals of each scenario. Fails if one of them
/// failed.
pub(crate) fn run_all(tasks: &[Task], jobs: usize) -> Result<(), String> {
    let mut totals: BTreeMap<&str, (Scenario, Totals)> = BTreeMap::new();
    let mut failed = Vec::new();
    over_cores(tasks, jobs, |task, outcome| {
        let scenario = &task.scenario;
        match outcome {
            Ok(report) => {
                println!("{:<7} {report}", scenario.name);
                let sum = totals.entry(scenario.name).or_insert((*scenario, Totals::default()));
                sum.1.add(&report);
                if report.failure.is_none() {
                    return;
                }
            }
            Err(panic) => println!("{:<7} seed {}: PANIC: {panic}", scenario.name, task.seed),
        }
        println!("{}", scenario.replay_line(task.seed));
        failed.push(format!("{} of {}", task.seed, scenario.name));
    });
    let mut missing = Vec::new();
    for (name, (scenario, totals)) in &totals {
        if totals.runs > 1 {
            println!("{name}: {totals}");
        }
        if totals.runs >= SEEDS_FOR_ALL_FAULTS {
            missing
                .extend(totals.missing(scenario).into_iter().map(|kind| format!("{name}: {kind}")));
        }
    }
    match (failed.is_empty(), missing.is_empty()) {
        (false, _) => Err(format!("failed seeds: {}", failed.join(", "))),
        (true, false) => Err(format!("never occurred: {}", missing.join(", "))),
        (true, true) => Ok(()),
    }
}

type Outcome = Result<Report, String>;

/// Calls `done` with each task and its outcome, in the order of `tasks`.
fn over_cores(tasks: &[Task], jobs: usize, mut done: impl FnMut(&Task, Outcome)) {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let work = |send: mpsc::Sender<(usize, Outcome)>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { return };
            if send.send((index, attempt(task))).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.min(tasks.len()) {
            let (send, work) = (send.clone(), &work);
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, move || work(send)).expect("a thread for a core starts");
        }
        drop(send);
        let (mut early, mut printed) = (BTreeMap::new(), 0);
        for (index, outcome) in receive {
            early.insert(index, outcome);
            while let Some(outcome) = early.remove(&printed) {
                done(&tasks[printed], outcome);
                printed += 1;
            }
        }
    });
}

/// A panic of the code under test, an error-level event and a run that is stuck are failures of
/// one seed.
fn attempt(task: &Task) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(task.seed, &task.scenario))).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "without a message".to_owned())
    })
}
