//! Shrinks a planted bug's failing seed: faults and operations alike.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use cluster::{PLANTED, Recording, Report, Scenario, Schedule, run_part, run_recorded, shrink};

fn fails(run: impl FnOnce() -> Report) -> bool {
    catch_unwind(AssertUnwindSafe(run)).map_or(true, |report| report.failure.is_some())
}

/// What is left of a failing run, if a part of it still fails.
fn shrunk(seed: u64, scenario: &Scenario) -> Option<Shrunk> {
    let recording = Rc::<Recording>::default();
    if !fails(|| run_recorded(seed, scenario, &recording)) {
        return None;
    }
    let (whole, mut tries) = (recording.whole(), 0);
    let part_fails = |part: &Schedule| fails(|| run_part(seed, scenario, &recording, part));
    let small = shrink(&whole, |part: &Schedule| {
        tries += 1;
        tries <= 150 && part_fails(part)
    });
    Some(Shrunk { ops: whole.sizes().0, fails_again: part_fails(&small), small })
}

struct Shrunk {
    ops: usize,
    small: Schedule,
    fails_again: bool,
}

/// A failure that comes from the timing of everything together does not shrink; most do.
#[test]
fn most_failing_seeds_shrink_to_a_few_operations_and_faults() {
    let planted = PLANTED.iter().find(|planted| planted.name == "mdt.forget_open_replay");
    let scenario = planted.expect("the bug exists").scenario();
    let scenario = Scenario { ops: 240, restarts: 4, races: false, clients: 2, ..scenario };
    let failing: Vec<Shrunk> =
        (1..=20).filter_map(|seed| shrunk(seed, &scenario)).take(3).collect();
    let small = failing.iter().filter(|shrunk| {
        let (ops_left, faults_left) = shrunk.small.sizes();
        ops_left * 5 <= shrunk.ops && (1..=2).contains(&faults_left) && shrunk.fails_again
    });
    let left: Vec<String> = failing.iter().map(|shrunk| shrunk.small.to_string()).collect();
    assert!(failing.len() == 3 && small.count() >= 2, "{left:?}");
}
