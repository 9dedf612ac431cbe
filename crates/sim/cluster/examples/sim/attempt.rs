//! One run, and the classification of its panics.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use cluster::{Report, Scenario, run};

/// Why a run, or all of them, did not end well.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The code under test broke a promise or an invariant of its own.
    Promise(String),
    /// The simulator itself failed: that says nothing about the code under test.
    Harness(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Promise(what) => write!(f, "{what}"),
            Fault::Harness(what) => write!(f, "HARNESS: {what}"),
        }
    }
}

/// Files of the simulator.
const HARNESS: [&str; 2] = ["crates/sim/", "crates/machine/env-sim/"];
/// Panics there that report the code under test: a run that is stuck or goes in circles, an
/// error-level event, a server that does not boot, records that do not fit together.
const VERDICTS: [&str; 3] = ["seed ", "does not boot from what a crash left", "are broken"];

thread_local! {
    /// The first panic of this thread's run. The executor raises it again, with the seed.
    static FIRST: RefCell<Option<Fault>> = const { RefCell::new(None) };
}

/// Panics are sorted from now on.
pub(crate) fn watch_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        FIRST.with_borrow_mut(|first| {
            first.get_or_insert_with(|| sort(info));
        });
    }));
}

fn sort(info: &PanicHookInfo<'_>) -> Fault {
    let text = info.payload_as_str().unwrap_or("without a message");
    let file = info.location().map_or("", |location| location.file());
    let what = format!("PANIC at {file}: {text}");
    let is_verdict = VERDICTS.iter().any(|verdict| text.contains(verdict));
    match HARNESS.iter().any(|folder| file.contains(folder)) && !is_verdict {
        true => Fault::Harness(what),
        false => Fault::Promise(what),
    }
}

/// Runs a seed; a panic is a fault of that seed.
pub(crate) fn attempt(seed: u64, scenario: &Scenario) -> Result<Report, Fault> {
    guard(|| run(seed, scenario))
}

/// What `run` reports, or why it panicked.
pub(crate) fn guard(run: impl FnOnce() -> Report) -> Result<Report, Fault> {
    FIRST.set(None);
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| {
        FIRST.take().unwrap_or_else(|| Fault::Harness("a panic that no hook saw".to_owned()))
    })
}
