//! Parameters of an MDT, under Lustre's names.

mod dirs;
mod held;
mod lod;
mod som;

use std::collections::BTreeMap;
use std::rc::Rc;

use layout::dir::SHARDS_MAX;
use ldlm::grants::Mode;
use params::{ParamTree, parse_within};
use target::{Leaves, Place};

use crate::background::destroy;
use crate::target::{Counts, Mdt};

/// Least `dir_split_count`.
const SPLIT_LEAST: u64 = 16;

fn shown(mode: Mode) -> &'static str {
    match mode {
        Mode::None => "none",
        Mode::Timed => "timed",
        Mode::Recall => "recall",
    }
}

fn parse_mode(value: &str) -> Result<Mode, String> {
    match value.trim() {
        "none" => Ok(Mode::None),
        "timed" => Ok(Mode::Timed),
        "recall" => Ok(Mode::Recall),
        _ => Err("one of none, timed, recall".into()),
    }
}

/// What a parameter shows of an MDT's memory.
type Shown = fn(&Counts) -> u64;

impl Mdt {
    /// Takes over which pools of OSTs there are, by name; the MDT is called `name`.
    pub fn set_pools(
        self: &Rc<Self>,
        tree: &ParamTree,
        name: &str,
        pools: &BTreeMap<String, Vec<u32>>,
    ) {
        lod::set_pools(self, tree, name, pools);
    }

    /// Registers all of them in `tree`.
    pub fn register_params(self: &Rc<Self>, tree: &ParamTree, place: &Place) {
        target::register_params(tree, place, &self.exports);
        target::register_device(tree, place, &self.env, self.engine.store.device());
        let leaves = Leaves::new(tree, place.base(), self);
        let counts: [(&str, Shown); 9] = [
            ("open_handles", |counts| counts.open_handles as u64),
            ("locks_held", |counts| counts.locks_held as u64),
            ("locks_waiting", |counts| counts.locks_waiting as u64),
            ("leases_held", |counts| counts.leases_held as u64),
            ("lease_waits", |counts| counts.lease_waits),
            ("grants_held", |counts| counts.grants_held as u64),
            ("grants_recalled", |counts| counts.grants_recalled),
            ("grant_waits", |counts| counts.grant_waits),
            ("grants_expelled", |counts| counts.grants_expelled),
        ];
        for (name, of) in counts {
            leaves.number(name, move |mdt| of(&mdt.counts()));
        }
        leaves.typed("destroys_left", destroy::left);
        // Whether clients may cache attributes and names for a moment.
        leaves.set(
            "grants",
            |mdt| shown(mdt.engine.state.borrow().grants.mode()).to_owned(),
            |mdt, value| {
                mdt.set_grants(parse_mode(value)?);
                Ok(())
            },
        );
        leaves.read("grants_waiting_on", |mdt| mdt.grants_waiting_on().join("\n"));
        leaves.table("md_stats", |mdt| mdt.tally.table(mdt.env.wall()), |mdt| mdt.tally.clear());
        leaves.table("export_stats", |mdt| mdt.tally.nids(), |mdt| mdt.tally.clear_nids());
        let clear = |mdt: &Mdt| mdt.tally.clear_jobs();
        leaves.table("job_stats", |mdt| mdt.tally.jobs(mdt.env.now()), clear);
        leaves.read("commit_interval_ms", |mdt| mdt.engine.pace.interval().as_millis().to_string());
        leaves.set(
            "enable_dir_auto_split",
            |mdt| u8::from(mdt.engine.state.borrow().split.is_on).to_string(),
            |mdt, value| {
                let is_on = parse_within(value, 0, 1)? == 1;
                mdt.engine.state.borrow_mut().split.is_on = is_on;
                Ok(())
            },
        );
        leaves.set(
            "dir_split_count",
            |mdt| mdt.engine.state.borrow().split.count.to_string(),
            |mdt, value| {
                let count = parse_within(value, SPLIT_LEAST, u64::from(u32::MAX))?;
                mdt.engine.state.borrow_mut().split.count = count;
                Ok(())
            },
        );
        leaves.set(
            "dir_split_delta",
            |mdt| mdt.engine.state.borrow().split.delta.to_string(),
            |mdt, value| {
                let delta = parse_within(value, 1, SHARDS_MAX as u64)? as u32;
                mdt.engine.state.borrow_mut().split.delta = delta;
                Ok(())
            },
        );
        leaves.read("dir_moves", |mdt| {
            let moves = mdt.engine.state.borrow().moves.all();
            let mut text = String::from("directory moved left\n");
            for (dir, progress) in moves {
                let left = progress.left.map_or("?".to_owned(), |left| left.to_string());
                text += &format!("{dir} {} {left}\n", progress.moved);
            }
            text
        });
        lod::register(self, tree, &place.name);
        dirs::register(self, tree, place);
        held::register(&leaves);
        som::register(&leaves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_as_they_are_set() {
        for mode in [Mode::None, Mode::Timed, Mode::Recall] {
            assert_eq!(parse_mode(shown(mode)), Ok(mode));
        }
        assert!(parse_mode("1").is_err());
    }
}
