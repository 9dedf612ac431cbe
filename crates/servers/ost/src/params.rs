//! Parameters of an OST, under Lustre's names.

use std::rc::Rc;

use params::{ParamTree, parse_within};
use target::{Leaves, Place};
use types::Span;

use crate::limits::COMMIT_INTERVAL_MS_MAX;
use crate::tally::Tally;
use crate::target::Ost;

impl Ost {
    /// Registers all of them in `tree`.
    pub fn register_params(self: &Rc<Self>, tree: &ParamTree, place: &Place) {
        target::register_params(tree, place, &self.exports);
        target::register_device(tree, place, &self.env, self.store.device());
        let leaves = Leaves::new(tree, place.base(), self);
        leaves.set(
            "commit_interval_ms",
            |ost| ost.pace.interval().as_millis().to_string(),
            |ost, value| {
                let ms = parse_within(value, 1, COMMIT_INTERVAL_MS_MAX)?;
                ost.pace.set_interval(Span::millis(ms));
                Ok(())
            },
        );
        leaves.read("dirty_data_bytes", |ost| ost.dirty_data.get().to_string());
        let clears = |clear: fn(&Tally)| move |ost: &Ost| clear(&ost.tally);
        let stats = |ost: &Ost| ost.tally.all(ost.env.wall());
        leaves.table("stats", stats, clears(Tally::clear_all));
        leaves.table("export_stats", |ost| ost.tally.nids(), clears(Tally::clear_nids));
        let jobs = |ost: &Ost| ost.tally.jobs(ost.env.now());
        leaves.table("job_stats", jobs, clears(Tally::clear_jobs));
    }
}
