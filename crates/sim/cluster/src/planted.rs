//! Planted bugs: each switch breaks one promise at one place, and some scenario must detect it
//! within a few seeds.

use endpoint::ImportBugs;

use crate::Scenario;

/// Seeds tried before a bug counts as not found.
pub const SEEDS_MAX: u64 = 60;

/// The seed that found each bug when `sim --bugs --record` ran last: a name and a seed a line.
const FOUND: &str = include_str!("found.txt");

/// A switch and where it should be noticed.
pub struct Planted {
    /// `mdt.skip_reply_record` and so on.
    pub name: &'static str,
    scenario: fn() -> Scenario,
}

impl Planted {
    /// The run in which it must be found.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        Scenario { bug: Some(self.name), ..self.control() }
    }

    /// The same run without the bug.
    #[must_use]
    pub fn control(&self) -> Scenario {
        (self.scenario)()
    }

    /// The seeds to try, up to [`SEEDS_MAX`]: the recorded one first, if there is one, because a
    /// run of it finds the bug as long as nothing near it has changed.
    pub fn seeds(&self) -> impl Iterator<Item = u64> {
        in_order(recorded(self.name))
    }
}

fn recorded(name: &str) -> Option<u64> {
    let mut lines = FOUND.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(of, _)| *of == name).and_then(|(_, seed)| seed.parse().ok())
}

fn in_order(first: Option<u64>) -> impl Iterator<Item = u64> {
    first.into_iter().chain((1..=SEEDS_MAX).filter(move |seed| Some(*seed) != first))
}

/// The switches of all parts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bugs {
    pub(crate) mdt: mdt::Bugs,
    pub(crate) ost: ost::Bugs,
    pub(crate) client: client::Bugs,
    /// Of grants, at MDTs and clients.
    pub(crate) grants: client::GrantBugs,
    pub(crate) fuse: fuse::Bugs,
    /// Of clients' sessions.
    pub(crate) import: ImportBugs,
}

impl Bugs {
    /// The bug of that name is on.
    pub(crate) fn plant(name: &'static str) -> Bugs {
        let none = Bugs::default();
        match name.split_once('.') {
            Some(("mdt", _)) => Bugs { mdt: mdt::Bugs::plant(name), ..none },
            Some(("ost", _)) => Bugs { ost: ost::Bugs::plant(name), ..none },
            Some(("ldlm", _)) => Bugs { grants: client::GrantBugs::plant(name), ..none },
            Some(("ptlrpc", _)) => Bugs { import: ImportBugs::plant(name), ..none },
            Some(("fuse", _)) => Bugs { fuse: fuse::Bugs::plant(name), ..none },
            _ => Bugs { client: client::Bugs::plant(name), ..none },
        }
    }
}

macro_rules! planted {
    ($($part:ident . $bug:ident in $scenario:ident;)*) => {
        /// All of them.
        pub const PLANTED: &[Planted] = &[$(Planted {
            name: concat!(stringify!($part), ".", stringify!($bug)),
            scenario: Scenario::$scenario,
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
    mdt.ignore_recalls in kernel;
    mdt.recall_skips_holder in kernel;
    mdt.forget_cached_data in pages;
    mdt.keep_writes_at_open in kept;
    mdt.link_passes_leases in shared;
    mdt.skip_fence in fence;
    mdt.sweep_orphans_early in kills;
    mdt.sweep_held_ranges in kills;
    mdt.sweep_held_files in dom;
    mdt.keep_lapsed_locks in shared;
    mdt.keep_no_reserve in shared;
    mdt.damaged_is_absent in damaged;
    mdt.destroy_one_component in calm;
    mdt.give_objects_twice in shared;
    mdt.replay_draws_new_objects in dom;
    mdt.truncate_without_objects in calm;
    mdt.swap_without_check in migrations;
    mdt.grow_without_room in layouts;
    mdt.prepare_uncommitted in matrix;
    mdt.forget_records_early in matrix;
    mdt.open_before_peers in matrix;
    mdt.part_without_record in matrix;
    mdt.execute_part_twice in mdts;
    mdt.reserve_nothing in matrix;
    mdt.prepare_without_recall in mdts;
    mdt.ignore_sealed_record in matrix;
    mdt.look_at_one_shard in forest;
    mdt.take_names_astray in moves;
    mdt.forget_old_shard in splits;
    ost.commit_records_before_data in slow;
    ost.lose_overlap in shared;
    ost.ack_sync_before_commit in storm;
    ost.believe_old_layouts in layouts;
    client.skip_append_lock in calm;
    client.believe_holes in shared;
    client.forget_glimpse in calm;
    client.forget_must_exist in lost;
    client.forget_lost_work in told;
    client.tell_one_handle in hard;
    client.restate_no_locks in kills;
    client.resend_abandoned in killed;
    client.keep_old_beliefs in leases;
    client.keep_called_back in leases;
    client.keep_opened_bytes in on_open;
    client.keep_without_grant in kept;
    client.cut_without_lock in cuts;
    client.migrate_without_last_pass in migrations;
    fuse.believe_whole_leases in kernel;
    fuse.keep_called_back in kernel;
    fuse.acknowledge_early in kernel;
    fuse.keep_pages in pages;
    fuse.tell_old_pages in kernel;
    ldlm.dying_has_validity in kernel;
    ldlm.as_of_ignored in kernel;
    ptlrpc.lease_from_reply in kernel;
}

const _: () = assert!(PLANTED.len() >= 10);

#[cfg(test)]
mod tests {
    use super::*;

    /// The fence of an evicted client refuses the same writes first, so no run of a cluster shows
    /// the first: `ost/tests/world/destroys.rs` does. The second takes a cut within one operation:
    /// `mdt/tests/crossed/main.rs`.
    const SHOWN_BY_ITS_PART_ALONE: &[&str] = &["ost.skip_tombstones", "mdt.show_halves"];

    #[test]
    fn the_recorded_seed_is_tried_first_and_each_seed_once() {
        assert!(in_order(None).eq(1..=SEEDS_MAX));
        let order: Vec<u64> = in_order(Some(7)).collect();
        assert_eq!(order[..3], [7, 1, 2]);
        assert_eq!(order.len() as u64, SEEDS_MAX);
    }

    #[test]
    fn recorded_seeds_are_of_planted_bugs() {
        for line in FOUND.lines() {
            let name = line.split(' ').next().expect("a line is not empty");
            assert!(PLANTED.iter().any(|planted| planted.name == name), "{line}");
            let seed = recorded(name);
            assert!(seed.is_some_and(|seed| (1..=SEEDS_MAX).contains(&seed)), "{line}");
        }
    }

    #[test]
    fn every_switch_of_every_part_has_a_scenario() {
        let parts = [
            mdt::Bugs::NAMES,
            ost::Bugs::NAMES,
            client::Bugs::NAMES,
            fuse::Bugs::NAMES,
            ImportBugs::NAMES,
        ];
        let parts = parts.concat();
        for name in &parts {
            let tried = PLANTED.iter().any(|planted| planted.name == *name);
            assert!(tried != SHOWN_BY_ITS_PART_ALONE.contains(name), "{name} is not tried");
        }
        // the tests of `ldlm` find all of its own
        let is_of_ldlm = |planted: &&Planted| planted.name.starts_with("ldlm.");
        let of_ldlm = PLANTED.iter().filter(is_of_ldlm).count();
        assert_eq!(PLANTED.len() - of_ldlm + SHOWN_BY_ITS_PART_ALONE.len(), parts.len());
        for planted in PLANTED {
            let _known = Bugs::plant(planted.name);
        }
    }
}
