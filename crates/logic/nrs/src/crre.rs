//! CRR-E: client round robin over exports. It is CRR-N with a connection in place of a node, so a
//! node with three mounts has three shares. A request without an export is left to FIFO.

use queues::Key;

use crate::turns::{By, Turns};
use crate::{Descriptor, Request, Tunable};

pub(crate) struct ByExport;

impl By for ByExport {
    const NAME: &'static str = "crre";

    fn key<R: Request>(request: &R) -> Option<Key> {
        Some([request.export()?, 0])
    }
}

const TUNABLES: &[Tunable] = &[
    Tunable::labelled("nrs_crre_quantum", "quantum"),
    Tunable::labelled("nrs_crre_unit", "unit"),
    Tunable::labelled("nrs_crre_place", "place"),
    Tunable::reset("nrs_crre_reset"),
];

/// Registers as `crre`, for all services.
#[must_use]
pub fn crre<R: Request>() -> Descriptor<R> {
    Descriptor::plain(ByExport::NAME, TUNABLES, Turns::<ByExport>::new)
}
