//! Round robin with one counter for all files.
//!
//! Invariants
//! - While the usable OSTs stay the same, the numbers of objects on any two of them differ by at
//!   most one.
//! - Files of one stripe count start on every OST equally often in the long run. The stripe count
//!   and the number of OSTs may have a common divisor. So the starts move on by one at the end of
//!   each full round.
//! - Neighbours in a file are on different nodes as long as nodes have equally many OSTs.
//!
//! Pure: no clock, no lock, no I/O. Lustre: `lod_ost_alloc_rr`.

use std::collections::BTreeMap;

use crate::{Ost, PlacementError};

/// Where the next file goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundRobin {
    at: usize,     // objects given out in this round
    offset: usize, // rounds done: moves the starts
}

impl RoundRobin {
    /// Starts anywhere: `seed` keeps many MDTs from starting together.
    #[must_use]
    pub fn new(seed: u64) -> RoundRobin {
        RoundRobin { at: 0, offset: (seed % 0xffff) as usize }
    }

    /// The next `count` OSTs, stripe 0 first; all usable ones where they are fewer.
    pub fn next(&mut self, count: usize, osts: &[Ost]) -> Result<Vec<u32>, PlacementError> {
        let ring = spread(osts);
        if ring.is_empty() {
            return Err(if osts.is_empty() {
                PlacementError::NoneKnown
            } else {
                PlacementError::NoneUsable
            });
        }
        let count = count.min(ring.len());
        // The ring may be shorter than it was.
        self.at %= ring.len();
        let start = (self.at + self.offset) % ring.len();
        self.at = (self.at + count) % ring.len();
        if self.at == 0 {
            self.offset = (self.offset + 1) % ring.len();
        }
        Ok(ring.iter().cycle().skip(start).take(count).copied().collect())
    }
}

/// Usable OSTs so that neighbours sit on different nodes: the i-th of n OSTs of a node stands at (i
/// + 1/2) / n.
fn spread(osts: &[Ost]) -> Vec<u32> {
    let mut nodes: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for ost in osts.iter().filter(|ost| ost.usable) {
        nodes.entry(ost.node).or_default().push(ost.index);
    }
    let mut places = Vec::new();
    for (node, mut indices) in nodes {
        indices.sort_unstable();
        let count = indices.len() as u64;
        places.extend(
            (0u64..).zip(indices).map(|(i, index)| ((((2 * i + 1) << 32) / count), node, index)),
        );
    }
    places.sort_unstable();
    places.into_iter().map(|(_, _, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cluster(nodes: u32, each: u32) -> Vec<Ost> {
        (0..nodes * each)
            .map(|index| Ost {
                index,
                node: u64::from(index / each),
                usable: true,
                is_degraded: false,
                bytes_avail: None,
            })
            .collect()
    }

    fn files(count: usize, osts: &[Ost], number: usize) -> Vec<Vec<u32>> {
        let mut robin = RoundRobin::default();
        (0..number).map(|_| robin.next(count, osts).expect("there is room")).collect()
    }

    fn spread_of(indices: impl Iterator<Item = u32>, osts: usize) -> usize {
        let mut uses = vec![0usize; osts];
        indices.for_each(|index| uses[index as usize] += 1);
        uses.iter().max().expect("osts") - uses.iter().min().expect("osts")
    }

    #[test]
    fn neighbours_sit_on_different_nodes() {
        assert_eq!(files(6, &cluster(2, 3), 1), [[0, 3, 1, 4, 2, 5]]);
    }

    #[test]
    fn too_many_stripes_take_every_usable_ost() {
        let mut osts = cluster(1, 4);
        osts[2].usable = false;
        assert_eq!(files(99, &osts, 1), [[0, 1, 3]]);
    }

    #[test]
    fn no_usable_ost_is_no_space() {
        let full: Vec<_> =
            cluster(1, 2).into_iter().map(|ost| Ost { usable: false, ..ost }).collect();
        let error = |osts: &[Ost]| RoundRobin::default().next(1, osts).expect_err("nowhere to go");
        assert_eq!(
            (error(&full), error(&full).errno()),
            (PlacementError::NoneUsable, types::Errno::ENOSPC)
        );
        assert_eq!(
            (error(&[]), error(&[]).errno()),
            (PlacementError::NoneKnown, types::Errno::EINPROGRESS)
        );
    }

    proptest! {
        #[test]
        fn objects_are_even_at_any_time(osts in 1u32..20, nodes in 1u32..4, count in 1usize..25, number in 1usize..80) {
            let cluster = cluster(nodes, osts);
            let files = files(count, &cluster, number);
            prop_assert!(spread_of(files.into_iter().flatten(), cluster.len()) <= 1);
        }

        #[test]
        fn objects_are_even_with_mixed_counts(osts in 1u32..20, counts in proptest::collection::vec(1usize..25, 1..60)) {
            let cluster = cluster(1, osts);
            let mut robin = RoundRobin::new(7);
            let mut used = Vec::new();
            for count in counts {
                used.extend(robin.next(count, &cluster).expect("room"));
            }
            prop_assert!(spread_of(used.into_iter(), cluster.len()) <= 2);
        }

        #[test]
        fn starts_are_even_over_full_cycles(osts in 1u32..12, count in 1usize..14) {
            let cluster = cluster(1, osts);
            let cycle = (osts * osts) as usize;
            let starts = files(count, &cluster, cycle).into_iter().map(|file| file[0]);
            prop_assert_eq!(spread_of(starts, cluster.len()), 0);
        }
    }
}
