//! Seeds of every scenario. `NACRE_SIM_SEEDS` sets the number of seeds per scenario,
//! `NACRE_SIM_FIRST` the first seed.

use cluster::{Report, Scenario, Stores, Totals, run};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run_seeds(scenario: &Scenario) -> Vec<Report> {
    let (first, count) = (number("NACRE_SIM_FIRST", 1), number("NACRE_SIM_SEEDS", 4));
    let reports: Vec<_> = (first..first + count).map(|seed| run(seed, scenario)).collect();
    for report in &reports {
        println!("{report}");
    }
    let failed: Vec<_> = reports
        .iter()
        .filter(|report| report.failure.is_some())
        .map(|report| format!("{report}\n{}", scenario.replay_line(report.seed)))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    reports
}

#[test]
fn without_faults_every_answer_is_the_models() {
    for report in run_seeds(&Scenario::calm()) {
        assert!(report.ops >= 1_000 && report.races > 10, "{report}");
        let faults = report.faults;
        assert_eq!(
            (faults.lost, faults.duplicated, faults.resets, faults.partitioned, faults.kills),
            (0, 0, 0, 0, faults.kills)
        );
    }
}

#[test]
fn kills_of_servers_are_not_noticed_but_for_a_pause() {
    for report in run_seeds(&Scenario::kills()) {
        assert_eq!(report.restarts, 8, "{report}");
    }
}

#[test]
fn storms_lose_and_double_nothing() {
    let (scenario, mut totals) = (Scenario::storm(), Totals::default());
    let reports = run_seeds(&scenario);
    assert!(
        reports.iter().all(|report| report.ops >= 2_000 && report.restarts == 5),
        "the runs do what they are for"
    );
    reports.iter().for_each(|report| totals.add(report));
    assert_eq!(totals.missing(&scenario), Vec::<&str>::new(), "{totals}");
}

#[test]
fn policy_changes_in_a_storm_lose_nothing() {
    for report in run_seeds(&Scenario::swaps()) {
        assert!(report.ops >= 2_000 && report.swaps >= 10, "{report}");
    }
}

#[test]
fn what_is_built_on_a_dead_clients_changes_holds() {
    run_seeds(&Scenario::share());
}

#[test]
fn a_late_write_brings_no_object_back() {
    for report in run_seeds(&Scenario::late()) {
        assert!(report.faults.partitioned > 0, "{report}");
    }
}

#[test]
fn a_lost_answer_is_told_by_the_next_instance() {
    run_seeds(&Scenario::resend());
}

#[test]
fn the_dead_are_waited_for_briefly_and_once() {
    for report in run_seeds(&Scenario::dead()) {
        assert_eq!(report.restarts, 15, "{report}");
    }
}

#[test]
fn a_lost_object_is_an_error_and_no_other_is() {
    run_seeds(&Scenario::lost());
}

#[test]
fn the_object_behind_a_new_length_may_go_with_the_power_of_all() {
    let report = run(3_503_396_253, &Scenario::storm());
    assert!(report.failure.is_none(), "{report}");
}

/// The store could not be read when a client stated its grants: the MDT went on waiting for them,
/// renewed no lease of that client and evicted it.
#[test]
fn a_client_that_states_its_grants_to_a_busy_store_keeps_its_session() {
    let report = run(3_122_444_805, &Scenario::storm());
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn power_cuts_of_slow_disks_lose_nothing_durable() {
    for report in run_seeds(&Scenario::slow()) {
        assert!(report.restarts == 8, "{report}");
    }
}

#[test]
fn a_change_is_answered_when_no_lease_hides_it_any_more() {
    run_seeds(&Scenario::leases());
    // answers of two creates in one directory overtake each other, and one was crossed by a chmod
    let report = run(8506, &Scenario::leases());
    assert!(report.failure.is_none(), "{report}");
    // the answer of a rename is lost, its client changes the new name, and the MDT dies
    let report = run(8233, &Scenario::leases());
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn some_order_explains_what_programs_see_through_their_kernels() {
    for report in run_seeds(&Scenario::kernel()) {
        assert!(report.ops >= 800, "{report}");
    }
    // an inode is dropped between a recall and an answer that its kernel takes in late
    let report = run(73, &Scenario::kernel());
    assert!(report.failure.is_none(), "{report}");
    // a removal waits, its name stands for another file by then, and the kernel looks at the first
    for seed in [1_903_412_210, 1_319] {
        let report = run(seed, &Scenario::kernel());
        assert!(report.failure.is_none(), "{report}");
    }
}

#[test]
fn some_order_explains_what_users_of_common_files_are_answered() {
    for report in run_seeds(&Scenario::shared()) {
        assert!(report.ops >= 800, "{report}");
    }
    // the MDT has no room for the objects of a component
    for (seed, scenario) in [(1547, Scenario::shared()), (1321, Scenario::hard())] {
        let report = run(seed, &scenario);
        assert!(report.failure.is_none(), "{report}");
    }
    // an OST loses power during a write or a cut, and others look before it is sent again
    let interrupted =
        [(5112, Scenario::moves()), (3007, Scenario::moves()), (4308, Scenario::mdts())];
    for (seed, scenario) in interrupted {
        let report = run(seed, &scenario);
        assert!(report.failure.is_none(), "{report}");
    }
    // the answer of an unlink is lost, and its client has attributes of the file; or is about to
    // ask another MDT for them
    let unlinked =
        [(6524, Scenario::shared()), (6848, Scenario::moves()), (7747, Scenario::moves())];
    for (seed, scenario) in unlinked {
        let report = run(seed, &scenario);
        assert!(report.failure.is_none(), "{report}");
    }
}

#[test]
fn a_client_that_still_waits_for_a_machine_without_power_is_not_silent() {
    // an MDT ends twice within ten seconds
    for (seed, scenario) in [(750, Scenario::swaps()), (6825, Scenario::matrix())] {
        let report = run(seed, &scenario);
        assert!(report.failure.is_none(), "{report}");
    }
}

#[test]
fn an_mdt_without_a_part_in_an_operation_stores_nothing_of_it() {
    let report = run(5578, &Scenario::splits()); // an MDT hears late that its keys are free
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn a_reader_finds_the_parent_of_a_directory_whose_name_moves_on() {
    // names come back from a shard of the parent, and the shard ends before it is asked
    let report = run(10_113, &Scenario::splits());
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn nobody_writes_or_reads_a_component_that_went() {
    run_seeds(&Scenario::layouts());
}

#[test]
fn two_cuts_of_a_file_at_once_leave_one_of_both_lengths() {
    run_seeds(&Scenario::cuts());
    let report = run(781, &Scenario::cuts()); // a client looks at the objects amid the second cut
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn a_file_that_moves_keeps_what_is_written_and_leaves_no_object() {
    run_seeds(&Scenario::migrations());
    // a recovery waits for a dead client for longer than a last pass may take
    let report = run(7004, &Scenario::migrations());
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn bytes_that_came_with_an_open_are_never_older_than_an_answered_write() {
    run_seeds(&Scenario::on_open());
}

#[test]
fn a_write_that_was_answered_and_not_sent_is_seen_by_all() {
    run_seeds(&Scenario::kept());
}

#[test]
fn a_page_that_a_kernel_keeps_is_never_older_than_an_answered_write() {
    run_seeds(&Scenario::pages());
}

#[test]
fn late_writes_of_a_client_that_was_given_up_change_nothing() {
    run_seeds(&Scenario::fence());
}

#[test]
fn what_succeeds_though_sessions_are_lost_is_explained() {
    let reports = run_seeds(&Scenario::hard());
    assert!(reports.iter().any(|report| report.faults.pauses > 0), "some node stood still");
    // a name that is looked up goes while its writer, cut off, is asked for what it keeps
    let report = run(1290, &Scenario::hard());
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn who_needs_no_damaged_record_is_answered_as_ever() {
    run_seeds(&Scenario::damaged());
    // the entry behind the last one of a directory, in another directory, is damaged
    let report = run(18, &Scenario::damaged());
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn a_hostile_client_takes_nothing_from_honest_ones() {
    for report in run_seeds(&Scenario::hostile()) {
        assert!(report.ops >= 600, "{report}");
    }
    // it makes a name that is no text
    let report = run(8643, &Scenario::hostile());
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn sick_stores_end_an_instance_and_lose_nothing() {
    run_seeds(&Scenario::sick());
}

#[test]
fn an_open_whose_file_went_after_its_close_is_replayed_in_vain_and_nothing_is_lost() {
    for (seed, scenario) in [(44, Scenario::storm()), (29, Scenario::leases())] {
        let report = run(seed, &scenario);
        assert!(report.failure.is_none(), "{report}");
    }
}

#[test]
fn a_nameless_file_that_a_restart_swept_before_its_answer_came_is_made_again() {
    let report = run(92, &Scenario::storm());
    assert!(report.failure.is_none(), "{report}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for stores in [Stores::Memory, Stores::Disk] {
        let scenario = Scenario { ops: 400, restarts: 2, stores, ..Scenario::storm() };
        let (one, other) = (run(5, &scenario), run(5, &scenario));
        assert_eq!(
            (one.trace_hash, one.ops, one.virtual_ms),
            (other.trace_hash, other.ops, other.virtual_ms)
        );
        assert_eq!(one.on_disk, stores == Stores::Disk, "{one}");
    }
}

#[test]
fn servers_on_osd_disk_lose_nothing_either() {
    for scenario in [Scenario::kills(), Scenario::sick(), Scenario::shared(), Scenario::hard()] {
        run_seeds(&Scenario { stores: Stores::Disk, ..scenario });
    }
}

#[test]
fn one_seed_of_eight_has_its_servers_on_osd_disk() {
    let scenario = Scenario { ops: 10, restarts: 0, races: false, ..Scenario::shared() };
    let on_disk = (0..64).filter(|seed| run(*seed, &scenario).on_disk).count();
    assert!((2..16).contains(&on_disk), "{on_disk} of 64");
}
