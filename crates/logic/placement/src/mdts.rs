//! Which MDT a new directory goes to where no MDT is named. It is each in turn while the MDTs are
//! balanced, else a random one, with emptier MDTs more likely. Deep directories tend to stay on
//! their parent's MDT. While the MDTs are balanced, further shards of a directory go to the next
//! MDTs in the order of their indexes. Otherwise they go to emptier ones too.
//!
//! - MDTs are balanced while neither their free space nor their free inodes differ by more than the
//!   threshold. Directories then go to the MDTs in turn, if the caller asks for that. Otherwise
//!   they stay.
//! - Otherwise an MDT's room is its free space x its free inodes. A directory stays if the room of
//!   its parent's MDT is at least 16 / (depth + 10) of the average. So directories near the root
//!   spread, and deep ones stay.
//!
//! Invariants
//! - Only usable MDTs are chosen.
//! - None is chosen only if none is usable.
//! - Shards of a directory are chosen on different MDTs.
//!
//! Pure: the caller passes in the time and the seed. Lustre: `lmv_locate_tgt_by_space`.

use types::SplitMix64;

use crate::weighted::{Weighted, is_balanced};
use crate::{Ost, Policy, RoundRobin, Space};

/// Parts of the average that a directory's MDT must have free for the directory to stay, as
/// `STAY_PARTS / (depth + STAY_BASE)`: 160 % at the root, 100 % at depth 6, 64 % at depth 15.
const STAY_PARTS: u128 = 16;
/// See [`STAY_PARTS`].
const STAY_BASE: u128 = 10;

/// Bits by which free bytes and free inodes are scaled down, so that their product fits 64 bits.
const BYTES_SHIFT: u32 = 20;
/// See [`BYTES_SHIFT`].
const FILES_SHIFT: u32 = 6;

/// An MDT as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mdt {
    pub index: u32,
    /// Neither full nor closed for new directories.
    pub usable: bool,
    /// Its room, if it has told.
    pub space: Option<Space>,
}

/// A directory that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// MDT of its parent.
    pub parent: u32,
    /// Levels between its parent and the root.
    pub depth: u32,
    /// It may go to the next MDT in turn although it could stay.
    pub may_turn: bool,
}

/// Chooses MDTs; kept between calls.
#[derive(Clone, Debug)]
pub struct MdtAllocator {
    round_robin: RoundRobin,
    weighted: Weighted,
    rng: SplitMix64,
}

impl MdtAllocator {
    /// Starts anywhere: `seed` keeps many MDTs from starting together.
    #[must_use]
    pub fn new(seed: u64) -> MdtAllocator {
        MdtAllocator {
            round_robin: RoundRobin::new(seed),
            weighted: Weighted::default(),
            rng: SplitMix64::new(seed),
        }
    }

    /// The MDT of a new directory, none if no MDT is usable; `now` in seconds, from any start.
    pub fn choose(&mut self, wish: &Wish, mdts: &[Mdt], policy: &Policy, now: u64) -> Option<u32> {
        let usable: Vec<&Mdt> = mdts.iter().filter(|mdt| mdt.usable).collect();
        let may_stay = usable.iter().any(|mdt| mdt.index == wish.parent);
        let by_bytes = measured(&usable, |space| space.bytes_avail);
        let by_files = measured(&usable, |space| space.files_free);
        if is_balanced(&by_bytes, policy) && is_balanced(&by_files, policy) {
            if may_stay && !wish.may_turn {
                return Some(wish.parent);
            }
            return self.round_robin.next(1, &by_bytes).ok().and_then(|one| one.first().copied());
        }
        let rooms = measured(&usable, room);
        if stays(wish, &rooms) {
            return Some(wish.parent);
        }
        let chosen = self.weighted.choose(1, &rooms, policy, now, &mut self.rng);
        chosen.first().copied()
    }

    /// MDTs of `count` further shards of a directory whose first one is on MDT `first`: different
    /// ones, and fewer if fewer are usable.
    pub fn choose_others(
        &mut self,
        (first, count): (u32, usize),
        mdts: &[Mdt],
        policy: &Policy,
        now: u64,
    ) -> Vec<u32> {
        let usable: Vec<&Mdt> = mdts.iter().filter(|mdt| mdt.usable).collect();
        let by_bytes = measured(&usable, |space| space.bytes_avail);
        let by_files = measured(&usable, |space| space.files_free);
        let others = behind(first, &usable);
        if others.len() <= count
            || (is_balanced(&by_bytes, policy) && is_balanced(&by_files, policy))
        {
            return others.into_iter().take(count).collect();
        }
        // the first one has its shard already: one more is drawn in case it comes up again
        let rooms = measured(&usable, room);
        let drawn = self.weighted.choose(count + 1, &rooms, policy, now, &mut self.rng);
        drawn.into_iter().filter(|mdt| *mdt != first).take(count).collect()
    }
}

/// All but `first`, from the next index on.
fn behind(first: u32, mdts: &[&Mdt]) -> Vec<u32> {
    let mut others: Vec<u32> = mdts.iter().map(|mdt| mdt.index).collect();
    others.sort_unstable();
    let next = others.partition_point(|mdt| *mdt <= first);
    others.rotate_left(next);
    others.retain(|mdt| *mdt != first);
    others
}

/// Free space x free inodes, scaled.
fn room(space: &Space) -> u64 {
    (space.bytes_avail >> BYTES_SHIFT).saturating_mul(space.files_free >> FILES_SHIFT)
}

/// These MDTs with one measure of their room, as OSTs of a node each.
fn measured(mdts: &[&Mdt], measure: impl Fn(&Space) -> u64) -> Vec<Ost> {
    let one = |mdt: &&Mdt| Ost {
        index: mdt.index,
        node: u64::from(mdt.index),
        usable: mdt.usable,
        is_degraded: false,
        bytes_avail: mdt.space.as_ref().map(&measure),
    };
    mdts.iter().map(one).collect()
}

fn stays(wish: &Wish, rooms: &[Ost]) -> bool {
    let of = |mdt: &Ost| u128::from(mdt.bytes_avail.unwrap_or(0));
    let total: u128 = rooms.iter().map(of).sum();
    let parent = rooms.iter().find(|mdt| mdt.index == wish.parent);
    let base = STAY_BASE + u128::from(wish.depth);
    parent.is_some_and(|parent| of(parent) * rooms.len() as u128 * base >= total * STAY_PARTS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn mdts(rooms: &[(u64, u64)]) -> Vec<Mdt> {
        let mdt = |(index, (bytes_avail, files_free)): (u32, &(u64, u64))| Mdt {
            index,
            usable: true,
            space: Some(Space {
                bytes: u64::MAX,
                bytes_avail: *bytes_avail,
                files_free: *files_free,
            }),
        };
        (0..).zip(rooms).map(mdt).collect()
    }

    fn policy() -> Policy {
        Policy { threshold_rr_percent: 5, ..Policy::default() }
    }

    /// How often each MDT gets one of 600 directories.
    fn counts(wish: &Wish, mdts: &[Mdt]) -> BTreeMap<u32, u32> {
        let mut allocator = MdtAllocator::new(7);
        let mut counts = BTreeMap::new();
        for _ in 0..600 {
            let chosen = allocator.choose(wish, mdts, &policy(), 0).expect("one is usable");
            *counts.entry(chosen).or_default() += 1;
        }
        counts
    }

    fn wish(depth: u32, may_turn: bool) -> Wish {
        Wish { parent: 1, depth, may_turn }
    }

    #[test]
    fn balanced_mdts_take_turns_where_that_is_asked_for() {
        let even = mdts(&[(100 * GIB, 1_000_000), (98 * GIB, 1_000_000), (97 * GIB, 990_000)]);
        assert_eq!(counts(&wish(0, true), &even), BTreeMap::from([(0, 200), (1, 200), (2, 200)]));
        assert_eq!(counts(&wish(0, false), &even), BTreeMap::from([(1, 600)]), "it stays");
        let mut closed = even.clone();
        closed[1].usable = false;
        let elsewhere = BTreeMap::from([(0, 300), (2, 300)]);
        assert_eq!(counts(&wish(20, false), &closed), elsewhere, "it cannot stay");
        let unknown = even.iter().map(|mdt| Mdt { space: None, ..*mdt });
        assert_eq!(counts(&wish(9, true), &unknown.collect::<Vec<_>>()).len(), 3);
        closed.iter_mut().for_each(|mdt| mdt.usable = false);
        assert_eq!(MdtAllocator::new(0).choose(&wish(0, true), &closed, &policy(), 0), None);
    }

    #[test]
    fn inodes_count_as_much_as_space() {
        let few_inodes = mdts(&[(100 * GIB, 1_000_000), (100 * GIB, 100_000)]);
        let counts = counts(&wish(0, true), &few_inodes);
        assert!(counts[&0] > 400 && counts.get(&1).is_some_and(|few| *few > 0), "{counts:?}");
    }

    #[test]
    fn the_deeper_the_parent_the_more_a_directory_stays() {
        // MDT 1 has 80 % of the average room
        let uneven = mdts(&[(120 * GIB, 1_000_000), (80 * GIB, 1_000_000)]);
        let stays = |depth| counts(&wish(depth, true), &uneven)[&1] == 600;
        assert_eq!([0, 6, 9, 10, 40].map(stays), [false, false, false, true, true]);
        // and here 150 %
        let roomy = mdts(&[(50 * GIB, 1_000_000), (150 * GIB, 1_000_000)]);
        let stays = |depth| counts(&wish(depth, true), &roomy)[&1] == 600;
        assert_eq!([0, 1].map(stays), [false, true]);
    }

    #[test]
    fn further_shards_go_to_the_next_mdts_while_these_are_balanced() {
        let even = mdts(&[(100 * GIB, 1_000_000); 4]);
        let mut allocator = MdtAllocator::new(7);
        let mut others = |first, count, mdts: &[Mdt]| {
            allocator.choose_others((first, count), mdts, &policy(), 0)
        };
        assert_eq!(others(1, 2, &even), [2, 3]);
        assert_eq!(others(2, 2, &even), [3, 0]);
        assert_eq!(others(3, 9, &even), [0, 1, 2], "there are no more");
        let mut closed = even.clone();
        closed[2].usable = false;
        assert_eq!(others(1, 2, &closed), [3, 0]);
        let uneven = mdts(&[(100 * GIB, 1_000_000), (GIB, 1_000), (GIB, 1_000)]);
        assert_eq!(others(0, 2, &uneven), [1, 2], "all are needed");
    }

    #[test]
    fn further_shards_go_to_emptier_mdts_if_these_are_not_balanced() {
        let uneven = mdts(&[(100 * GIB, 1_000_000), (GIB, 100_000), (90 * GIB, 1_000_000)]);
        let mut allocator = MdtAllocator::new(7);
        let mut full = 0;
        for _ in 0..600 {
            let chosen = allocator.choose_others((0, 1), &uneven, &policy(), 0);
            assert_eq!(chosen.len(), 1);
            full += u32::from(chosen == [1]);
        }
        assert!(full < 60, "{full} of 600 on an MDT with a hundredth of the space");
    }

    proptest! {
        #[test]
        fn further_shards_are_on_different_usable_mdts(
            all in proptest::collection::vec((any::<bool>(), proptest::option::of((any::<u64>(), any::<u64>()))), 0..9),
            first in 0u32..9, count in 0usize..12, seed: u64, now: u64,
        ) {
            let space = |(bytes_avail, files_free)| Space { bytes: 0, bytes_avail, files_free };
            let mdts: Vec<Mdt> = (0..)
                .zip(&all)
                .map(|(index, (usable, room))| Mdt { index, usable: *usable, space: room.map(space) })
                .collect();
            let mut chosen =
                MdtAllocator::new(seed).choose_others((first, count), &mdts, &policy(), now);
            let usable = mdts.iter().filter(|mdt| mdt.usable && mdt.index != first).count();
            prop_assert_eq!(chosen.len(), usable.min(count));
            prop_assert!(chosen.iter().all(|mdt| mdts[*mdt as usize].usable && *mdt != first));
            chosen.sort_unstable();
            chosen.dedup();
            prop_assert_eq!(chosen.len(), usable.min(count));
        }

        #[test]
        fn a_usable_mdt_is_chosen_if_there_is_one(
            all in proptest::collection::vec((any::<bool>(), proptest::option::of((any::<u64>(), any::<u64>()))), 0..9),
            parent in 0u32..9, depth: u32, may_turn: bool, seed: u64, now: u64,
        ) {
            let space = |(bytes_avail, files_free)| Space { bytes: 0, bytes_avail, files_free };
            let mdts: Vec<Mdt> = (0..)
                .zip(&all)
                .map(|(index, (usable, room))| Mdt { index, usable: *usable, space: room.map(space) })
                .collect();
            let chosen = MdtAllocator::new(seed)
                .choose(&Wish { parent, depth, may_turn }, &mdts, &policy(), now);
            prop_assert_eq!(chosen.is_some(), mdts.iter().any(|mdt| mdt.usable));
            prop_assert!(chosen.is_none_or(|chosen| mdts[chosen as usize].usable));
        }
    }
}
