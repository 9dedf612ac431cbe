//! Finds the planted bugs of the directed runs on every run of the tests, because such a run takes
//! milliseconds. The example's `--bugs` tries all.

use std::panic::catch_unwind;

use cluster::{PLANTED, Scenario, run};

fn fails(seed: u64, scenario: &Scenario) -> bool {
    catch_unwind(|| run(seed, scenario)).map_or(true, |report| report.failure.is_some())
}

#[test]
fn a_directed_run_fails_with_the_bug_and_passes_without_it() {
    let directed = PLANTED.iter().filter(|planted| planted.control().script.is_some());
    for planted in directed {
        let found = planted.seeds().take(20).find(|seed| fails(*seed, &planted.scenario()));
        let seed = found.unwrap_or_else(|| panic!("no run shows {}", planted.name));
        assert!(!fails(seed, &planted.control()), "seed {seed} fails without {}", planted.name);
    }
}
