//! Grants of one MDT and its clients under drawn faults, and the planted bugs that these runs find.

mod world;

use std::collections::BTreeMap;

use ldlm::grants::Bugs;
use types::Span;
use world::{HEALTHY, LOSSY, MOODY, RESTARTS, Scenario, TIMED, World};

const RUN: Span = Span::secs(90);

fn run(scenario: Scenario, seeds: std::ops::Range<u64>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for seed in seeds {
        let mut world = World::new(seed, scenario, Bugs::default());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run(RUN)));
        assert!(outcome.is_ok(), "seed {seed} of {}", scenario.name);
        for (what, count) in world.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    counts
}

fn went_through(counts: &BTreeMap<&str, u64>, marks: &[&str]) {
    for mark in marks {
        assert!(counts.contains_key(mark), "no run came to '{mark}': {counts:?}");
    }
}

#[test]
fn healthy_clients_agree_and_changes_wait_for_milliseconds() {
    let counts = run(HEALTHY, 0..8);
    went_through(&counts, &["hits", "changes", "recalls", "shed", "forced"]);
}

#[test]
fn timed_grants_call_nobody() {
    let counts = run(TIMED, 0..4);
    went_through(&counts, &["hits", "changes", "given up"]);
    assert!(!counts.contains_key("recalls"), "nobody is called: {counts:?}");
}

#[test]
fn messages_may_be_lost_doubled_late_and_out_of_order() {
    went_through(&run(LOSSY, 0..12), &["hits", "changes", "recalls", "shed"]);
}

#[test]
fn clients_may_freeze_die_and_fall_silent() {
    went_through(&run(MOODY, 0..12), &["hits", "changes", "expelled", "early"]);
}

#[test]
fn the_mdt_may_restart_and_lose_changes() {
    went_through(&run(RESTARTS, 0..16), &["hits", "changes", "restated", "lost"]);
}

/// Planted bugs, and the first seed that finds each.
const FOUND_BY: [(&str, Scenario, u64); 19] = [
    ("ldlm.recall_skips_holder", MOODY, 1),
    ("ldlm.own_recall_not_exempt", HEALTHY, 0),
    ("ldlm.grant_during_takeover", MOODY, 0),
    ("ldlm.dying_given_again", LOSSY, 1),
    ("ldlm.no_fence", RESTARTS, 3),
    ("ldlm.old_ack_counts", HEALTHY, 0),
    ("ldlm.old_shed_counts", LOSSY, 2),
    ("ldlm.stuck_client_renews", MOODY, 0),
    ("ldlm.no_floor", MOODY, 2),
    ("ldlm.restart_waits_for_nobody", RESTARTS, 0),
    ("ldlm.ack_before_notify", HEALTHY, 0),
    ("ldlm.dying_has_validity", HEALTHY, 0),
    ("ldlm.as_of_ignored", LOSSY, 0),
    ("ldlm.dead_answer_counts", HEALTHY, 0),
    ("ldlm.lease_from_reply", RESTARTS, 4),
    ("ldlm.restate_after_lapse", RESTARTS, 8),
    ("ldlm.lost_changes_kept", RESTARTS, 1),
    ("ldlm.stuck_kernel_waits", HEALTHY, 0),
    ("ldlm.own_change_not_awaited", HEALTHY, 0),
];

/// Seeds to search where the known one does not find a bug any more, because runs were changed.
const SEEDS_MAX: u64 = 60;

fn is_found(bug: &'static str, scenario: Scenario, seed: u64) -> bool {
    let mut world = World::new(seed, scenario, Bugs::plant(bug));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run(RUN))).is_err()
}

/// Each breaks one promise, and every run without it is clean.
#[test]
fn every_planted_bug_is_found() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_expected = std::thread::current().name() == Some("every_planted_bug_is_found");
        if !is_expected || !panic.to_string().contains("world/") {
            loud(panic);
        }
    }));
    let names: Vec<_> = FOUND_BY.iter().map(|(bug, ..)| *bug).collect();
    assert_eq!(names, Bugs::NAMES);
    for (bug, scenario, known) in FOUND_BY {
        let mut seeds = std::iter::once(known).chain(0..SEEDS_MAX);
        let by = seeds.find(|seed| is_found(bug, scenario, *seed));
        assert!(by.is_some(), "no seed of {} finds {bug}", scenario.name);
    }
}
