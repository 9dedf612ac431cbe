//! ORR: round robin over objects, sorted by offset (Lustre: `nrs_orr.c`). It is for disks that
//! seek: each object gets a batch of up to `quantum` requests per round, which sweeps over it once.
//!
//! It takes requests only at `ost_io`, and only reads unless `supported` says otherwise. Everything
//! else is left to FIFO.

use queues::Key;
use types::{Fid, OstIndex};

use crate::sweep::{Sweep, Target};
use crate::{Descriptor, Request, Tunable};

pub(crate) struct Objects;

impl Target for Objects {
    const NAME: &'static str = "orr";
    const GROUPS: &'static str = "objects";

    fn key<R: Request>(request: &R) -> Option<Key> {
        request.object().map(|Fid { seq, oid, ver }| [seq, u64::from(oid) << 32 | u64::from(ver)])
    }

    fn line<R: Request>(request: &R, round: u64) -> String {
        let fid = request.object().unwrap_or_default();
        let OstIndex(ost) = request.ost_index().unwrap_or_default();
        format!(
            "NRS start orr request for object with ID {fid} from OST with index {ost}, with round {round}"
        )
    }
}

const TUNABLES: &[Tunable] = &[
    Tunable::labelled("nrs_orr_quantum", "quantum"),
    Tunable::labelled("nrs_orr_offset_type", "offset_type"),
    Tunable::labelled("nrs_orr_supported", "supported"),
    Tunable::labelled("nrs_orr_sweep", "sweep"),
    Tunable::labelled("nrs_orr_objects_max", "objects_max"),
    Tunable::reset("nrs_orr_reset"),
];

/// Registers as `orr`, for `ost_io`.
#[must_use]
pub fn orr<R: Request>() -> Descriptor<R> {
    Descriptor::plain(Objects::NAME, TUNABLES, Sweep::<Objects>::new).only_for("ost_io")
}
