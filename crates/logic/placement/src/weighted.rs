//! Choice by free space, for OSTs that are not balanced: at random, with emptier OSTs more likely,
//! and no OST taken twice.
//!
//! weight = room - penalty(OST) - penalty(node), at least zero. Penalties spread successive
//! choices. With each choice, the penalties of the chosen OST and of its node are halved and raised
//! by a use of all. Then every penalty falls by one use.
//!
//! Invariants
//! - Only usable OSTs are chosen, and none of them twice.
//! - An OST without weight is chosen only when all that are left have none.
//! - Without priority for spreading (`prio_free_percent` 100), chances are proportional to room.
//!
//! Pure: the caller passes in the time and the seed. Lustre: `lod_ost_alloc_qos`, `lu_qos`.

use std::collections::BTreeMap;

use types::SplitMix64;

use crate::{Ost, Policy};

/// A penalty that nobody renews is halved after so many `maxage_secs`, and again and again.
const IDLE_AGES: u64 = 8;

/// What an OST or a node has against it, in KiB of room.
#[derive(Clone, Copy, Debug, Default)]
struct Penalty {
    kib: u64,
    /// When it was last used or halved, seconds.
    touched: u64,
}

impl Penalty {
    /// One use, which weighs `per_use` for each of `count` like it.
    fn used(&mut self, per_use: u64, count: u64, now: u64) {
        self.kib = (self.kib / 2).saturating_add(per_use.saturating_mul(count));
        self.touched = now;
    }

    fn fade(&mut self, per_use: u64) {
        self.kib = self.kib.saturating_sub(per_use);
    }

    /// Halved once for each time that it was idle.
    fn idle(&mut self, now: u64, secs: u64) {
        let times = now.saturating_sub(self.touched) / secs.max(1);
        if times > 0 {
            self.kib = self.kib.checked_shr(u32::try_from(times).unwrap_or(u32::MAX)).unwrap_or(0);
            self.touched += times * secs.max(1);
        }
    }
}

/// Memory of the choices so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weighted {
    osts: BTreeMap<u32, Penalty>,
    nodes: BTreeMap<u64, Penalty>,
}

/// An OST that may be chosen.
#[derive(Clone, Copy)]
struct Candidate {
    index: u32,
    node: u64,
    /// KiB of room.
    room: u64,
    /// Penalty that a use costs: on the OST, on its node.
    per_use: (u64, u64),
}

/// Whether every usable OST has room of which the smallest is more than the largest less the
/// threshold; also where somebody's room is not known.
pub(crate) fn is_balanced(osts: &[Ost], policy: &Policy) -> bool {
    let kept = 100 - u128::from(policy.threshold_rr_percent.min(100));
    let (mut max, mut min) = (0, u64::MAX);
    for ost in osts.iter().filter(|ost| ost.usable) {
        let Some(room) = ost.bytes_avail else { return true };
        (max, min) = (room.max(max), room.min(min));
    }
    max <= min || kept == 0 || u128::from(max) * kept < u128::from(min) * 100
}

impl Weighted {
    /// Up to `count` OSTs, in the order in which they were drawn.
    pub(crate) fn choose(
        &mut self,
        count: usize,
        osts: &[Ost],
        policy: &Policy,
        now: u64,
        rng: &mut SplitMix64,
    ) -> Vec<u32> {
        let all = candidates(osts, policy);
        self.remember(&all, now, u64::from(policy.maxage_secs) * IDLE_AGES);
        let mut left = all.clone();
        let mut chosen = Vec::new();
        while chosen.len() < count && !left.is_empty() {
            let at = self.draw(&left, rng);
            let one = left.remove(at);
            self.chose(&one, &all, now);
            chosen.push(one.index);
        }
        chosen
    }

    /// Drops what is gone, and what idle ones had against them.
    fn remember(&mut self, all: &[Candidate], now: u64, idle_secs: u64) {
        self.osts.retain(|index, _| all.iter().any(|one| one.index == *index));
        self.nodes.retain(|node, _| all.iter().any(|one| one.node == *node));
        for one in all {
            self.osts
                .entry(one.index)
                .or_insert(Penalty { kib: 0, touched: now })
                .idle(now, idle_secs);
            self.nodes
                .entry(one.node)
                .or_insert(Penalty { kib: 0, touched: now })
                .idle(now, idle_secs);
        }
    }

    fn weight(&self, one: &Candidate) -> u64 {
        let penalty = |found: Option<&Penalty>| found.map_or(0, |penalty| penalty.kib);
        let against =
            penalty(self.osts.get(&one.index)).saturating_add(penalty(self.nodes.get(&one.node)));
        one.room.saturating_sub(against)
    }

    /// Position of the one that chance took.
    fn draw(&self, left: &[Candidate], rng: &mut SplitMix64) -> usize {
        let weights: Vec<u64> = left.iter().map(|one| self.weight(one)).collect();
        let total = weights.iter().fold(0u64, |sum, weight| sum.saturating_add(*weight));
        if total == 0 {
            return rng.below(left.len() as u64) as usize;
        }
        let mut at = rng.below(total);
        let found = weights.iter().position(|weight| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        found.expect("chance is below the sum")
    }

    fn chose(&mut self, one: &Candidate, all: &[Candidate], now: u64) {
        let (ost_count, node_count) = (self.osts.len() as u64, self.nodes.len() as u64);
        if let Some(penalty) = self.osts.get_mut(&one.index) {
            penalty.used(one.per_use.0, ost_count, now);
        }
        if let Some(penalty) = self.nodes.get_mut(&one.node) {
            penalty.used(one.per_use.1, node_count, now);
        }
        let per_node: BTreeMap<u64, u64> =
            all.iter().map(|one| (one.node, one.per_use.1)).collect();
        for (node, penalty) in &mut self.nodes {
            penalty.fade(per_node.get(node).copied().unwrap_or(0));
        }
        for other in all {
            if let Some(penalty) = self.osts.get_mut(&other.index) {
                penalty.fade(other.per_use.0);
            }
        }
    }
}

/// The usable ones with what a use of them costs: (1 - prio) * room / (OSTs - 1) / 2, and for their
/// nodes (1 - prio) * the node's room / (its OSTs * (nodes - 1)) / 2.
fn candidates(osts: &[Ost], policy: &Policy) -> Vec<Candidate> {
    let spread = 100 - u64::from(policy.prio_free_percent.min(100));
    let usable: Vec<&Ost> = osts.iter().filter(|ost| ost.usable).collect();
    let room = |ost: &Ost| ost.bytes_avail.unwrap_or(0) >> 10;
    let mut nodes: BTreeMap<u64, (u64, u64)> = BTreeMap::new(); // room and OSTs of each
    for ost in &usable {
        let node = nodes.entry(ost.node).or_default();
        *node = (node.0.saturating_add(room(ost)), node.1 + 1);
    }
    let share = |room: u64, among: u64| (room / 100 * spread / 2).checked_div(among).unwrap_or(0);
    let others = usable.len().saturating_sub(1) as u64;
    let of_node = |node: u64| {
        let (room, own) = nodes[&node];
        share(room, own * (nodes.len() as u64 - 1))
    };
    let one = |ost: &&Ost| Candidate {
        index: ost.index,
        node: ost.node,
        room: room(ost),
        per_use: (share(room(ost), others), of_node(ost.node)),
    };
    usable.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn osts(rooms: &[u64]) -> Vec<Ost> {
        (0u32..)
            .zip(rooms)
            .map(|(index, room)| Ost {
                index,
                node: u64::from(index / 2),
                usable: true,
                is_degraded: false,
                bytes_avail: Some(*room),
            })
            .collect()
    }

    fn policy(prio_free_percent: u8) -> Policy {
        Policy { prio_free_percent, ..Policy::default() }
    }

    /// How often each of them is chosen in `number` files of one stripe.
    fn uses(rooms: &[u64], prio: u8, number: usize, seed: u64) -> Vec<usize> {
        let (mut weighted, mut rng, osts) =
            (Weighted::default(), SplitMix64::new(seed), osts(rooms));
        let mut uses = vec![0; rooms.len()];
        for _ in 0..number {
            uses[weighted.choose(1, &osts, &policy(prio), 0, &mut rng)[0] as usize] += 1;
        }
        uses
    }

    #[test]
    fn the_threshold_is_lustres() {
        let balanced = |rooms: &[u64], percent| {
            is_balanced(
                &osts(rooms),
                &Policy { threshold_rr_percent: percent, ..Policy::default() },
            )
        };
        assert!(balanced(&[100, 84], 17) && !balanced(&[100, 83], 17));
        assert!(
            balanced(&[100, 0], 100)
                && balanced(&[0, 0], 17)
                && balanced(&[5, 5], 0)
                && balanced(&[], 17)
        );
        let mut unknown = osts(&[100, 1]);
        unknown[1].bytes_avail = None;
        assert!(is_balanced(&unknown, &Policy::default()));
        unknown[1] = Ost { usable: false, ..unknown[1] };
        assert!(is_balanced(&unknown, &Policy::default()), "who is full does not count");
    }

    #[test]
    fn an_emptier_ost_gets_as_many_more_files() {
        let uses = uses(&[1 << 40, 3 << 40], 100, 8_000, 42);
        assert!((1_850..2_150).contains(&uses[0]), "a quarter of 8,000: {uses:?}");
    }

    #[test]
    fn penalties_spread_files_further_than_room_alone() {
        let runs = |uses: &[usize]| uses.iter().max().copied().unwrap_or(0);
        let rooms = [1 << 40, 1 << 40, 1 << 40, 2 << 40];
        let (by_room, spread) = (uses(&rooms, 100, 4_000, 7), uses(&rooms, 0, 4_000, 7));
        assert!(runs(&spread) < runs(&by_room), "{spread:?} against {by_room:?}");
    }

    #[test]
    fn idle_penalties_halve_with_time_and_go() {
        let mut penalty = Penalty { kib: 1_024, touched: 100 };
        penalty.idle(139, 40);
        assert_eq!(penalty.kib, 1_024);
        penalty.idle(180, 40);
        assert_eq!((penalty.kib, penalty.touched), (256, 180));
        penalty.idle(u64::MAX, 40);
        assert_eq!(penalty.kib, 0);
    }

    /// Files of 1 GiB until half of all is used: each OST is about half full, where round robin
    /// would have filled one.
    #[test]
    fn all_fill_up_together() {
        let before = [200, 500, 1_000, 350];
        let mut osts = osts(&before.map(|gib| gib << 30));
        let (mut weighted, mut rng) = (Weighted::default(), SplitMix64::new(3));
        for _ in 0..before.iter().sum::<u64>() / 2 {
            let index = weighted.choose(1, &osts, &Policy::default(), 0, &mut rng)[0];
            let room = &mut osts[index as usize].bytes_avail;
            *room = room.map(|room| room - (1 << 30));
        }
        for (ost, gib) in osts.iter().zip(before) {
            let left = (ost.bytes_avail.expect("known") >> 30) * 100 / gib;
            assert!((35..65).contains(&left), "{left} % of {gib} GiB are left: {osts:?}");
        }
    }

    proptest! {
        #[test]
        fn only_usable_osts_and_none_twice(
            rooms in proptest::collection::vec(proptest::option::of(any::<u64>()), 1..20),
            usable: u32, count in 1usize..25, prio in 0u8..=100, seed: u64, now: u64,
        ) {
            let osts: Vec<Ost> = (0u32..)
                .zip(&rooms)
                .map(|(index, room)| Ost { index, node: u64::from(index % 3), usable: usable >> index & 1 == 1, is_degraded: false, bytes_avail: *room })
                .collect();
            let (mut weighted, mut rng) = (Weighted::default(), SplitMix64::new(seed));
            let able = osts.iter().filter(|ost| ost.usable).count();
            for step in 0..5u64 {
                let file = weighted.choose(count, &osts, &policy(prio), now.saturating_add(step * 30), &mut rng);
                prop_assert_eq!(file.len(), count.min(able));
                prop_assert!(file.iter().all(|index| osts[*index as usize].usable));
                let mut unique = file.clone();
                unique.sort_unstable();
                unique.dedup();
                prop_assert_eq!(unique.len(), file.len());
            }
        }

        #[test]
        fn who_has_no_room_is_taken_last(rooms in proptest::collection::vec(1u64 << 20..1 << 50, 1..8), seed: u64) {
            let mut osts = osts(&rooms);
            osts.push(Ost { index: 99, node: 9, usable: true, is_degraded: false, bytes_avail: Some(0) });
            let file = Weighted::default().choose(rooms.len(), &osts, &policy(100), 0, &mut SplitMix64::new(seed));
            prop_assert!(!file.contains(&99));
        }
    }
}
