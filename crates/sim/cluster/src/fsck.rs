//! Checks of all MDTs' records together.

use mdt::fsck::{self, Image};
use types::Span;

use crate::fixture::Cluster;

/// Operations of several MDTs are done everywhere within this: what they changed is committed, and
/// each MDT is told.
const DONE_MAX: Span = Span::secs(60);
/// Between looks.
const LOOK: Span = Span::millis(500);

/// Records of all MDTs at this moment, or nothing where some cannot be read.
fn images(cluster: &Cluster) -> Option<Vec<Image>> {
    cluster.mdts().map(crate::server::Server::image).collect()
}

/// # Panics
/// If the records of MDTs do not fit together. Operations may be under way.
fn check(cluster: &Cluster, when: &str) {
    let Some(images) = images(cluster) else { return };
    let bad = fsck::all(&images);
    assert!(bad.is_empty(), "the records of the MDTs are broken {when}: {}", bad.join("; "));
}

/// Checks if an MDT has recovered since the last time. MDTs that are down count with what is
/// durable.
///
/// # Panics
/// As [`check`].
pub(crate) fn after_recoveries(cluster: &Cluster) {
    if cluster.mdts().filter(|mdt| mdt.take_fresh()).count() > 0 {
        check(cluster, "after a recovery");
    }
}

/// Whether no operation of several MDTs is left undone, and no name is left to move.
pub(crate) fn is_done(cluster: &Cluster) -> bool {
    images(cluster)
        .is_some_and(|images| fsck::left(&images).is_empty() && !fsck::are_names_moving(&images))
}

/// Whether names of a directory are still to move to other shards.
pub(crate) fn are_names_moving(cluster: &Cluster) -> bool {
    images(cluster).is_some_and(|images| fsck::are_names_moving(&images))
}

/// Nothing is under way: records fit together, and no operation is left undone.
///
/// # Panics
/// As [`check`].
pub(crate) fn at_peace(cluster: &Cluster) -> Result<(), String> {
    let until = cluster.sim.now() + DONE_MAX;
    let left = loop {
        let left = images(cluster).map(|images| fsck::left(&images)).unwrap_or_default();
        if left.is_empty() || cluster.sim.now() >= until {
            break left;
        }
        cluster.sim.run_for(LOOK);
    };
    check(cluster, "at peace");
    if left.is_empty() { Ok(()) } else { Err(format!("not done at peace: {}", left.join("; "))) }
}
