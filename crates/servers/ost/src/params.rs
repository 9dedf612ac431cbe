//! Parameters of an OST, under Lustre's names.

use std::rc::Rc;

use params::{ParamTree, parse_within};
use target::{Leaves, Place};
use types::{ByteSize, Span};
use wire::body::StatfsState;

use crate::limits::COMMIT_INTERVAL_MS_MAX;
use crate::sizes::Sizes;
use crate::tally::Tally;
use crate::target::Ost;

/// States that an administrator may give an OST, by parameter.
const MARKS: [(&str, StatfsState); 3] = [
    ("degraded", StatfsState::DEGRADED),
    ("no_create", StatfsState::NO_CREATE),
    ("readonly", StatfsState::READ_ONLY),
];

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
        leaves.set(
            "readcache_max_filesize",
            |ost| ost.readcache_max.get().to_string(),
            |ost, value| {
                ost.readcache_max.set(file_bytes(value)?);
                Ok(())
            },
        );
        target::register_marks(&leaves, &MARKS, |ost| &ost.marks);
        leaves.number("dirty_data_bytes", |ost| ost.dirty_data.get());
        let clears = |clear: fn(&Tally)| move |ost: &Ost| clear(&ost.tally);
        let stats = |ost: &Ost| ost.tally.all(ost.env.wall());
        leaves.table("stats", stats, clears(Tally::clear_all));
        leaves.table("export_stats", |ost| ost.tally.nids(), clears(Tally::clear_nids));
        let jobs = |ost: &Ost| ost.tally.jobs(ost.env.now());
        leaves.table("job_stats", jobs, clears(Tally::clear_jobs));
        leaves.set(
            "brw_stats",
            |ost| ost.sizes.borrow().text(ost.env.wall()),
            |ost, _| {
                *ost.sizes.borrow_mut() = Sizes::default();
                Ok(())
            },
        );
    }
}

/// Bytes from `4096`, `256M`; -1 is no bound, as in Lustre.
fn file_bytes(value: &str) -> Result<u64, String> {
    match value.trim() {
        "-1" => Ok(u64::MAX),
        value => value
            .parse()
            .map(|ByteSize(bytes)| bytes)
            .map_err(|error| format!("{error}, as 256M; -1 means no bound")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_cached_files_have_units_or_no_bound() {
        assert_eq!(file_bytes("256M"), Ok(256 << 20));
        assert_eq!(file_bytes("0"), Ok(0));
        assert_eq!(file_bytes("-1\n"), Ok(u64::MAX));
        assert_eq!(file_bytes("18446744073709551615"), Ok(u64::MAX));
        for wrong in ["", "M", "-2", "1.5G", "1Q", "99999999T"] {
            assert!(file_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
