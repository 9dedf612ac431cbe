//! Several MDTs that die and come back: seeds of the scenarios `mdts`, `forest` and `matrix`.

use cluster::{Report, Scenario, run};

/// Runs some seeds, which must keep all promises.
fn pass(scenario: &Scenario, seeds: &[u64]) {
    let reports: Vec<Report> = seeds.iter().map(|seed| run(*seed, scenario)).collect();
    let failed = reports.iter().filter(|report| report.failure.is_some());
    let text = |report: &Report| format!("{report}\n{}", scenario.replay_line(report.seed));
    let failed: Vec<String> = failed.map(text).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn some_order_explains_what_users_of_several_mdts_see() {
    pass(&Scenario::mdts(), &[1, 2, 3, 4]);
}

/// A link of a file and a rename of it, each with a caller that dies together with an MDT.
#[test]
fn a_call_of_a_caller_that_dies_with_an_mdt_has_happened_or_not() {
    pass(&Scenario::matrix(), &[23, 24]);
}

#[test]
fn a_change_is_executed_once_though_its_mdt_lost_it() {
    pass(&Scenario::matrix(), &[1, 3, 4]);
}

#[test]
fn an_operation_that_only_one_mdt_remembers_reaches_all_of_them() {
    pass(&Scenario::matrix(), &[34]);
}

/// Names of a directory move, and an open file gets its first name.
#[test]
fn an_mdt_that_dies_leaves_no_name_between_two_shards() {
    pass(&Scenario::matrix(), &[35, 40]);
}

/// Either call begins first, and an MDT dies again during the recovery.
#[test]
fn an_mdt_that_dies_while_another_death_is_repaired_loses_nothing() {
    pass(&Scenario::matrix(), &[100, 117]);
}

/// A rename waits at one MDT for another, which dies twice: it is executed long after its caller.
#[test]
fn a_call_of_a_dead_caller_that_an_mdt_still_has_is_waited_for() {
    pass(&Scenario::matrix(), &[46_088_573]);
}

/// One row of all pairs: a mkdir, where both deaths are right after applied sets of MDT 0.
#[test]
fn an_mdt_dies_at_every_pair_of_points_of_a_row() {
    let report = run(0, &Scenario::pairs());
    assert_eq!(report.failure, None);
    assert!(report.marks.contains_key(cluster::DIED_AGAIN), "it died twice: {report}");
}

#[test]
fn directories_are_removed_after_an_mdt_has_died() {
    pass(&Scenario::matrix(), &[11]);
}

#[test]
fn an_operation_in_the_way_of_others_ends_all_the_same() {
    pass(&Scenario::mdts(), &[8, 24]);
}

#[test]
fn a_name_that_nothing_has_is_not_taken() {
    pass(&Scenario::mdts(), &[22]);
}

#[test]
fn times_that_are_set_hold_for_a_striped_directory() {
    pass(&Scenario::forest(), &[1]);
}

#[test]
fn no_reader_sees_one_half_of_an_operation() {
    pass(&Scenario::mdts(), &[27, 33, 35]);
}

#[test]
fn removers_of_one_name_pass_each_other() {
    pass(&Scenario::mdts(), &[1878, 2697]);
}

#[test]
fn peers_hear_that_operations_are_done_before_an_mdt_forgets_them() {
    pass(&Scenario::mdts(), &[1092]);
}

#[test]
fn a_full_mdt_exchanges_names_with_another_one() {
    pass(&Scenario::mdts(), &[61, 335]);
}

#[test]
fn a_replay_finds_room_although_the_mdt_is_full() {
    pass(&Scenario::mdts(), &[951]);
}

/// The commit that makes the removal durable began before it.
#[test]
fn objects_go_although_the_mdt_has_nothing_else_to_do() {
    pass(&Scenario::mdts(), &[784]);
}
