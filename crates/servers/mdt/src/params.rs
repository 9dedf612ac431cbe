//! Parameters of an MDT, under Lustre's names.

mod lod;

use std::rc::Rc;

use params::{ParamTree, parse_within};
use target::{Leaves, Place};

use crate::target::{Counts, Mdt};

/// What a parameter shows of an MDT's memory.
type Shown = fn(&Counts) -> u64;

impl Mdt {
    /// Registers all of them in `tree`.
    pub fn register_params(self: &Rc<Self>, tree: &ParamTree, place: &Place) {
        target::register_params(tree, place, &self.exports);
        let leaves = Leaves::new(tree, place.base(), self);
        let counts: [(&str, Shown); 5] = [
            ("open_handles", |counts| counts.open_handles as u64),
            ("locks_held", |counts| counts.locks_held as u64),
            ("locks_waiting", |counts| counts.locks_waiting as u64),
            ("leases_held", |counts| counts.leases_held as u64),
            ("lease_waits", |counts| counts.lease_waits),
        ];
        for (name, of) in counts {
            leaves.read(name, move |mdt| of(&mdt.counts()).to_string());
        }
        // Whether clients may cache attributes and names for a moment.
        leaves.set(
            "short_leases",
            |mdt| u32::from(mdt.engine.state.borrow().leases.is_enabled()).to_string(),
            |mdt, value| {
                let enabled = parse_within(value, 0, 1)? == 1;
                mdt.engine.state.borrow_mut().leases.enable(enabled);
                Ok(())
            },
        );
        leaves.table("md_stats", |mdt| mdt.tally.table(mdt.env.wall()), |mdt| mdt.tally.clear());
        leaves.read("commit_interval_ms", |mdt| mdt.engine.pace.interval().as_millis().to_string());
        lod::register(self, tree, &place.name);
    }
}
