//! Whether a peer may have one more link.
//!
//! Invariants
//! - Of three quarters of all places, an address has no more links than it leaves free for others.
//! - The last quarter is for addresses that have few links ([`LINKS_FEW`]), so an address that
//!   takes all that it can get keeps no other out.
//!
//! Pure: the acceptor asks before it takes a connection. Links that become whole at the same time
//! are not counted yet; there are at most as many as half-open ones.

use crate::limits::{LINK_DESCRIPTORS, LINKS_FEW, LINKS_KEPT_SHARE};

/// Whether a peer with `own` links may have one more where all have `all` of `max`.
pub(crate) fn has_place(own: usize, all: usize, max: usize) -> bool {
    let free = max.saturating_sub(all);
    let of_anybody = free.saturating_sub(max / LINKS_KEPT_SHARE);
    own < of_anybody || (own < LINKS_FEW && free > 0)
}

/// Links that an executor with so many descriptors may have: three quarters of them are for these.
pub(crate) fn within(descriptors: Option<u64>, links_max: usize) -> usize {
    let descriptors = descriptors.and_then(|count| usize::try_from(count).ok());
    descriptors.map_or(links_max, |count| links_max.min(count / 4 * 3 / LINK_DESCRIPTORS)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many links an address gets that takes all, after others have `all`.
    fn take(all: &mut usize, max: usize) -> usize {
        let mut own = 0;
        while has_place(own, *all, max) {
            (own, *all) = (own + 1, *all + 1);
        }
        own
    }

    #[test]
    fn addresses_that_take_all_they_can_get_keep_nobody_out() {
        const MAX: usize = 4_096;
        let mut all = 0;
        assert_eq!(take(&mut all, MAX), MAX * 3 / 8);
        assert_eq!(take(&mut all, MAX), MAX * 3 / 16);
        let greedy = 10;
        (2..greedy).for_each(|_| assert!(take(&mut all, MAX) >= LINKS_FEW));
        let clients = (MAX - all) / LINKS_FEW;
        assert!(clients > 40, "{all} are taken");
        (0..clients).for_each(|_| assert_eq!(take(&mut all, MAX), LINKS_FEW));
        assert!((0..100).all(|_| take(&mut all, MAX) <= LINKS_FEW));
        assert_eq!(all, MAX, "and no more");
    }

    #[test]
    fn a_quarter_of_the_descriptors_is_for_other_things() {
        assert_eq!(within(Some(1_024), 65_536), 256);
        assert_eq!(within(Some(1 << 20), 65_536), 65_536);
        assert_eq!(within(None, 65_536), 65_536);
        assert_eq!(within(Some(0), 65_536), 1);
    }
}
