//! Planted bugs: each switch breaks one promise at one place, and some scenario must notice it
//! within a few seeds.

use crate::{Bugs, Scenario};

/// Seeds tried before a bug counts as not found.
pub const SEEDS_MAX: u64 = 60;

/// A switch and where it should be noticed.
pub struct Planted {
    /// `mdt.skip_reply_record` and so on.
    pub name: &'static str,
    scenario: fn() -> Scenario,
    set: fn(&mut Bugs),
}

impl Planted {
    /// The run in which it must be found.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        let mut scenario = (self.scenario)();
        (self.set)(&mut scenario.bugs);
        scenario
    }
}

macro_rules! planted {
    ($($part:ident . $field:ident in $scenario:ident;)*) => {
        pub const PLANTED: &[Planted] = &[$(Planted {
            name: concat!(stringify!($part), ".", stringify!($field)),
            scenario: Scenario::$scenario,
            set: |bugs| bugs.$part.$field = true,
        },)*];
    };
}

planted! {
    mdt.skip_reply_record in resend;
    mdt.reuse_id_range in kills;
    mdt.drop_commit_on_share in share;
    mdt.forget_open_replay in kills;
    mdt.skip_orphan_record in kills;
    mdt.forget_destroy_log in calm;
    mdt.replay_draws_new_fid in kills;
    mdt.ack_before_apply in calm;
    mdt.clean_size_despite_writers in calm;
    mdt.lose_lock_restate in kills;
    mdt.skip_range_sweep in storm;
    mdt.ack_sync_before_commit in storm;
    mdt.replay_draws_new_time in kills;
    mdt.ignore_leases in leases;
    ost.skip_tombstones in late;
    ost.commit_records_before_data in slow;
    client.skip_append_lock in calm;
    client.forget_glimpse in calm;
    client.forget_must_exist in lost;
    client.keep_old_beliefs in leases;
}

const _: () = assert!(PLANTED.len() >= 10);
