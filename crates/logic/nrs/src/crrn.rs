//! CRR-N: client round robin over NIDs (Lustre: `nrs_crr.c`). Each node gets a batch of up to
//! `quantum` requests per round, in the order in which its requests came.
//!
//! Tunables:
//! - `quantum`: 1..65535, default 8. A change holds for batches opened later.
//! - `unit`: `rpc` or `kib`. In KiB, a batch closes when the data of its requests reaches the
//!   quantum, and the excess is a debt of the client's next batch.
//! - `place`: `keep` (default) or `lustre`. With `keep`, a client whose last request has just left
//!   keeps its seat. It goes on with the rest of its quantum when it asks again.

use queues::Key;

use crate::turns::{By, Turns};
use crate::{Descriptor, Request, Tunable};

pub(crate) struct ByNid;

impl By for ByNid {
    const NAME: &'static str = "crrn";

    fn key<R: Request>(request: &R) -> Option<Key> {
        Some([request.nid().0, 0])
    }
}

const TUNABLES: &[Tunable] = &[
    Tunable::labelled("nrs_crrn_quantum", "quantum"),
    Tunable::labelled("nrs_crrn_unit", "unit"),
    Tunable::labelled("nrs_crrn_place", "place"),
    Tunable::reset("nrs_crrn_reset"),
];

/// Registers as `crrn`, for all services.
#[must_use]
pub fn crrn<R: Request>() -> Descriptor<R> {
    Descriptor::plain(ByNid::NAME, TUNABLES, Turns::<ByNid>::new)
}
