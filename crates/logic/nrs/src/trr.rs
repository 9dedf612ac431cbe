//! TRR: round robin over OSTs, sorted by offset. It is ORR with an OST in place of an object, for a
//! server whose OSTs are separate disks.

use queues::Key;
use types::OstIndex;

use crate::sweep::{Sweep, Target};
use crate::{Descriptor, Request, Tunable};

pub(crate) struct Osts;

impl Target for Osts {
    const NAME: &'static str = "trr";
    const GROUPS: &'static str = "osts";

    fn key<R: Request>(request: &R) -> Option<Key> {
        request.ost_index().map(|OstIndex(index)| [u64::from(index), 0])
    }

    fn line<R: Request>(request: &R, round: u64) -> String {
        let OstIndex(ost) = request.ost_index().unwrap_or_default();
        format!("NRS start trr request from OST with index {ost}, with round {round}")
    }
}

const TUNABLES: &[Tunable] = &[
    Tunable::labelled("nrs_trr_quantum", "quantum"),
    Tunable::labelled("nrs_trr_offset_type", "offset_type"),
    Tunable::labelled("nrs_trr_supported", "supported"),
    Tunable::labelled("nrs_trr_sweep", "sweep"),
    Tunable::reset("nrs_trr_reset"),
];

/// Registers as `trr`, for `ost_io`.
#[must_use]
pub fn trr<R: Request>() -> Descriptor<R> {
    Descriptor::plain(Osts::NAME, TUNABLES, Sweep::<Osts>::new).only_for("ost_io")
}
