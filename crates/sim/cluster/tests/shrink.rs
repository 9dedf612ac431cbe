//! A planted bug's failing seed, made small: faults and operations alike.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use cluster::{PLANTED, Recording, Report, Scenario, Schedule, run_part, run_recorded, shrink};

fn fails(run: impl FnOnce() -> Report) -> bool {
    catch_unwind(AssertUnwindSafe(run)).map_or(true, |report| report.failure.is_some())
}

#[test]
fn a_failing_seed_shrinks_to_a_few_operations_and_faults() {
    let planted = PLANTED.iter().find(|planted| planted.name == "mdt.forget_open_replay");
    let scenario = planted.expect("the bug exists").scenario();
    let scenario = Scenario { ops: 240, restarts: 4, races: false, clients: 2, ..scenario };
    let mut found = None;
    for seed in 1..=20 {
        let recording = Rc::<Recording>::default();
        if fails(|| run_recorded(seed, &scenario, &recording)) {
            found = Some((seed, recording));
            break;
        }
    }
    let (seed, recording) = found.expect("some seed shows the bug");
    let (whole, mut tries) = (recording.whole(), 0);
    let small = shrink(&whole, |part: &Schedule| {
        tries += 1;
        tries <= 150 && fails(|| run_part(seed, &scenario, &recording, part))
    });
    let ((ops, _), (ops_left, faults_left)) = (whole.sizes(), small.sizes());
    assert!(ops_left * 5 <= ops && (1..=2).contains(&faults_left), "{ops} operations: {small}");
    assert!(fails(|| run_part(seed, &scenario, &recording, &small)), "{small}");
}
