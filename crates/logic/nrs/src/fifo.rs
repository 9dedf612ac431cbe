//! FIFO: requests leave in the order in which they arrived at the head. It is the fallback of every
//! head: it takes everything and cannot fail, because it is only the head's own list.
//!
//! It holds its own lane and the lanes that broken policies have left behind. The oldest front of
//! all these lanes is next, so that the order of arrival holds over all of them.

use crate::{Id, Queue};

/// Lane of what was queued here in the first place.
pub(crate) const LANE: u16 = 0;

/// The next request of FIFO, with `salvaged` the lanes left behind by others.
#[inline]
pub(crate) fn next<R>(queue: &Queue<R>, salvaged: &[u16]) -> Option<Id> {
    let own = queue.lane_front(LANE);
    if salvaged.is_empty() {
        return own;
    }
    let left = salvaged.iter().filter_map(|lane| queue.lane_front(*lane));
    own.into_iter().chain(left).min_by_key(|id| queue.seq(*id))
}
