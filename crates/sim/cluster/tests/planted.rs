//! Planted bugs that are cheap to find are found here on every run of the tests; the example's
//! `--bugs` tries all.

use std::panic::catch_unwind;

use cluster::{PLANTED, run};

#[test]
fn a_few_seeds_find_what_is_easy_to_find() {
    let easy = [
        "mdt.skip_reply_record",
        "mdt.forget_open_replay",
        "mdt.replay_draws_new_fid",
        "mdt.ack_before_apply",
        "mdt.drop_commit_on_share",
        "ost.skip_tombstones",
        "client.forget_glimpse",
        "client.forget_must_exist",
    ];
    for name in easy {
        let planted =
            PLANTED.iter().find(|planted| planted.name == name).expect("the switch exists");
        let scenario = planted.scenario();
        let found = (1..=20).any(|seed| {
            catch_unwind(|| run(seed, &scenario)).map_or(true, |report| report.failure.is_some())
        });
        assert!(found, "nobody notices {name}");
    }
}
