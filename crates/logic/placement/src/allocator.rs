//! The order in which an MDT looks for OSTs: an explicit list, an explicit start, free space if
//! OSTs are not balanced, else round robin.

use layout::{STRIPE_COUNT_DEFAULT, STRIPE_COUNT_MAX, Template};
use types::SplitMix64;

use crate::weighted::{Weighted, is_balanced};
use crate::{Ost, PlacementError, Policy, RoundRobin};

/// Chooses OSTs; kept between calls.
#[derive(Clone, Debug)]
pub struct Allocator {
    sound: Picker,
    /// Their turns are apart from those of the others, because a ring of another length would
    /// disturb them.
    degraded: Picker,
    rng: SplitMix64,
}

/// The rule that chooses the OSTs of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// They are listed.
    List,
    /// The first one is named, and the others follow it.
    Start,
    /// By free space, because that is not balanced.
    Space,
    /// In turn.
    RoundRobin,
}

/// Memory of the choices out of OSTs that are chosen together.
#[derive(Clone, Debug)]
struct Picker {
    round_robin: RoundRobin,
    weighted: Weighted,
}

impl Picker {
    fn new(seed: u64) -> Picker {
        Picker { round_robin: RoundRobin::new(seed), weighted: Weighted::default() }
    }

    /// By free space if that is not balanced, else in turn.
    fn pick(
        &mut self,
        count: usize,
        osts: &[Ost],
        policy: &Policy,
        now: u64,
        rng: &mut SplitMix64,
    ) -> Result<Vec<u32>, PlacementError> {
        if !is_balanced(osts, policy) {
            return Ok(self.weighted.choose(count, osts, policy, now, rng));
        }
        self.round_robin.next(count, osts)
    }
}

impl Allocator {
    /// Starts anywhere: `seed` keeps many MDTs from starting together, and is all the chance that
    /// there is.
    #[must_use]
    pub fn new(seed: u64) -> Allocator {
        Allocator {
            sound: Picker::new(seed),
            degraded: Picker::new(seed),
            rng: SplitMix64::new(seed),
        }
    }

    /// The rule by which [`Allocator::choose`] chooses.
    #[must_use]
    pub fn rule(template: &Template, osts: &[Ost], policy: &Policy) -> Rule {
        if !template.osts.is_empty() {
            return Rule::List;
        }
        let start = u32::try_from(template.start);
        if start.is_ok_and(|start| is_usable(start, osts) == Ok(true)) {
            return Rule::Start;
        }
        let sound: Vec<Ost> = osts.iter().filter(|ost| !ost.is_degraded).copied().collect();
        let among: &[Ost] = if sound.iter().any(|ost| ost.usable) { &sound } else { osts };
        if is_balanced(among, policy) { Rule::RoundRobin } else { Rule::Space }
    }

    /// OST indices for a file as `template` wants it, stripe 0 first; `now` in seconds, from any
    /// start. A count above the number of usable OSTs gets all of them, a start that is not usable
    /// another one. Degraded OSTs are taken if the others are too few. Where the template is
    /// overstriped, OSTs are taken again until the count is reached.
    ///
    /// # Errors
    /// No OST is known or usable; one that is named does not exist, or one of a list is not usable.
    pub fn choose(
        &mut self,
        template: &Template,
        osts: &[Ost],
        policy: &Policy,
        now: u64,
    ) -> Result<Vec<u32>, PlacementError> {
        if !template.osts.is_empty() {
            return listed(&template.osts, osts);
        }
        let chosen = self.distinct(template, osts, policy, now)?;
        Ok(if template.overstriped { overstriped(template.stripe_count, chosen) } else { chosen })
    }

    /// The same without an OST twice.
    fn distinct(
        &mut self,
        template: &Template,
        osts: &[Ost],
        policy: &Policy,
        now: u64,
    ) -> Result<Vec<u32>, PlacementError> {
        let count = match template.stripe_count {
            0 => STRIPE_COUNT_DEFAULT,
            wanted => u16::try_from(wanted).unwrap_or(STRIPE_COUNT_MAX),
        };
        let count = usize::from(count.min(STRIPE_COUNT_MAX));
        if let Ok(start) = u32::try_from(template.start)
            && is_usable(start, osts)?
        {
            return Ok(from_start(start, count, osts));
        }
        let rng = &mut self.rng;
        if !osts.iter().any(|ost| ost.is_degraded) {
            return self.sound.pick(count, osts, policy, now, rng);
        }
        let (degraded, sound): (Vec<Ost>, Vec<Ost>) = osts.iter().partition(|ost| ost.is_degraded);
        if !sound.iter().any(|ost| ost.usable) {
            return self.degraded.pick(count, &degraded, policy, now, rng);
        }
        let mut chosen = self.sound.pick(count, &sound, policy, now, rng)?;
        if chosen.len() < count && degraded.iter().any(|ost| ost.usable) {
            let left = count - chosen.len();
            chosen.extend(self.degraded.pick(left, &degraded, policy, now, rng)?);
        }
        Ok(chosen)
    }
}

/// As many as are wanted, or so many on each, of OSTs that were chosen in this order.
fn overstriped(wanted: i32, chosen: Vec<u32>) -> Vec<u32> {
    let on_each = wanted.unsigned_abs() as usize;
    let count = if wanted < 0 { chosen.len() * on_each } else { on_each };
    let count = count.clamp(chosen.len(), usize::from(STRIPE_COUNT_MAX).max(chosen.len()));
    chosen.iter().copied().cycle().take(count).collect()
}

/// Exactly these.
fn listed(wanted: &[u32], osts: &[Ost]) -> Result<Vec<u32>, PlacementError> {
    for index in wanted {
        if !is_usable(*index, osts)? {
            return Err(PlacementError::Unusable(*index));
        }
    }
    Ok(wanted.to_vec())
}

/// The one at `start`, which is usable, then upwards by index and around: what a user who names a
/// start expects to see. Degraded ones come last.
fn from_start(start: u32, count: usize, osts: &[Ost]) -> Vec<u32> {
    let usable = osts.iter().filter(|ost| ost.usable);
    let place = |ost: &Ost| (ost.is_degraded && ost.index != start, ost.index < start, ost.index);
    let mut ring: Vec<_> = usable.map(place).collect();
    ring.sort_unstable();
    ring.into_iter().take(count).map(|(.., index)| index).collect()
}

/// Whether the OST at `index` may be used; it must exist.
fn is_usable(index: u32, osts: &[Ost]) -> Result<bool, PlacementError> {
    osts.iter()
        .find(|ost| ost.index == index)
        .map(|ost| ost.usable)
        .ok_or(PlacementError::Unknown(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn osts(rooms: &[Option<u64>]) -> Vec<Ost> {
        (0u32..)
            .zip(rooms)
            .map(|(index, room)| Ost {
                index,
                node: 0,
                usable: true,
                is_degraded: false,
                bytes_avail: *room,
            })
            .collect()
    }

    fn choose(template: &Template, osts: &[Ost]) -> Result<Vec<u32>, PlacementError> {
        Allocator::new(0).choose(template, osts, &Policy::default(), 0)
    }

    #[test]
    fn a_start_and_a_list_are_taken_at_their_word() {
        let mut osts = osts(&[None; 4]);
        osts[1].usable = false;
        let choose = |start, count, list: &[u32]| {
            choose(
                &Template {
                    start,
                    stripe_count: count,
                    osts: list.to_vec(),
                    ..Template::default()
                },
                &osts,
            )
        };
        assert_eq!(choose(2, 3, &[]), Ok(vec![2, 3, 0]));
        assert_eq!(choose(-1, 0, &[3, 0, 3]), Ok(vec![3, 0, 3]));
        assert!(
            choose(1, 2, &[]).is_ok_and(|file| file.len() == 2 && !file.contains(&1)),
            "a start that cannot be is replaced"
        );
        assert_eq!(choose(7, 1, &[]), Err(PlacementError::Unknown(7)));
        assert_eq!(choose(-1, 0, &[0, 1]), Err(PlacementError::Unusable(1)));
        assert_eq!(PlacementError::Unusable(1).errno(), types::Errno::EREMOTEIO);
    }

    #[test]
    fn degraded_osts_come_after_all_others() {
        let mut osts = osts(&[None; 4]);
        (osts[1].is_degraded, osts[3].is_degraded) = (true, true);
        let (mut allocator, policy) = (Allocator::new(1), Policy::default());
        let mut next = |osts: &[Ost], stripe_count, start| {
            let template = Template { stripe_count, start, ..Template::default() };
            allocator.choose(&template, osts, &policy, 0).expect("room")
        };
        for _ in 0..9 {
            let mut two = next(&osts, 2, -1);
            two.sort_unstable();
            assert_eq!(two, [0, 2]);
            let three = next(&osts, 3, -1);
            assert!(three[2] % 2 == 1 && three.len() == 3, "{three:?}");
        }
        assert_eq!(next(&osts, -1, -1).len(), 4, "a file on all OSTs has them, too");
        assert_eq!(next(&osts, 3, 1), [1, 2, 0], "it was named");
        assert_eq!(next(&osts, 4, 2), [2, 0, 3, 1]);
        osts.iter_mut().for_each(|ost| ost.is_degraded = true);
        assert_eq!(next(&osts, 1, -1).len(), 1, "better than none");
    }

    #[test]
    fn a_degraded_ost_does_not_disturb_the_turns_of_the_others() {
        let mut osts = osts(&[None; 4]);
        osts[3].is_degraded = true;
        let (mut allocator, mut uses) = (Allocator::new(0), [0; 4]);
        let mut next = |stripe_count| {
            let template = Template { stripe_count, ..Template::default() };
            allocator.choose(&template, &osts, &Policy::default(), 0).expect("room")
        };
        for _ in 0..9 {
            assert_eq!(next(-1).len(), 4);
            uses[next(1)[0] as usize] += 1;
        }
        assert_eq!(uses, [3, 3, 3, 0]);
    }

    #[test]
    fn overstriped_files_take_osts_again() {
        let mut osts = osts(&[None; 4]);
        osts[3].usable = false;
        let sorted = |stripe_count, start, overstriped| {
            let template = Template { stripe_count, start, overstriped, ..Template::default() };
            let mut chosen = choose(&template, &osts).expect("room");
            if start < 0 {
                chosen.sort_unstable();
            }
            chosen
        };
        assert_eq!(sorted(5, 1, true), [1, 2, 0, 1, 2]);
        assert_eq!(sorted(5, 1, false), [1, 2, 0]);
        assert_eq!(sorted(-2, -1, true), [0, 0, 1, 1, 2, 2]);
        assert_eq!(sorted(-1, -1, true), [0, 1, 2]);
        assert_eq!((sorted(2, -1, true).len(), sorted(0, -1, true).len()), (2, 1));
        assert_eq!(sorted(2_000, -1, true).len(), 2_000);
        let many: Vec<Ost> = (0..100).map(|index| Ost { index, ..osts[0] }).collect();
        let all = Template { stripe_count: -32, overstriped: true, ..Template::default() };
        assert_eq!(choose(&all, &many).expect("room").len(), 2_000, "as many as a file may have");
    }

    #[test]
    fn the_rule_is_the_first_that_fits() {
        let mut even = osts(&[Some(1 << 30), Some(1 << 30)]);
        let uneven = osts(&[Some(1 << 20), Some(1 << 30)]);
        let rule =
            |template: &Template, osts: &[Ost]| Allocator::rule(template, osts, &Policy::default());
        let any = Template::default();
        let list = Template { stripe_count: 1, osts: vec![1], ..Template::default() };
        let start = Template { start: 1, ..Template::default() };
        assert_eq!([rule(&any, &even), rule(&any, &uneven)], [Rule::RoundRobin, Rule::Space]);
        assert_eq!([rule(&list, &even), rule(&start, &uneven)], [Rule::List, Rule::Start]);
        even[1].usable = false;
        assert_eq!(rule(&start, &even), Rule::RoundRobin, "another one");
        let mut degraded = uneven;
        degraded[0].is_degraded = true;
        assert_eq!(rule(&any, &degraded), Rule::RoundRobin, "it is the only sound one");
    }

    #[test]
    fn unbalanced_osts_are_chosen_by_room() {
        let osts = osts(&[Some(1 << 20), Some(1 << 50), Some(1 << 20)]);
        let mut allocator = Allocator::new(5);
        let (template, policy) =
            (Template::default(), Policy { prio_free_percent: 100, ..Policy::default() });
        let mut next =
            |policy: &Policy| allocator.choose(&template, &osts, policy, 0).expect("room")[0];
        assert!((0..50).all(|_| next(&policy) == 1));
        let off = Policy { threshold_rr_percent: 100, ..policy };
        let used: std::collections::BTreeSet<u32> = (0..3).map(|_| next(&off)).collect();
        assert_eq!(used.len(), 3);
    }

    proptest! {
        #[test]
        fn balanced_osts_are_taken_round_robin(
            rooms in proptest::collection::vec(900u64..1_000, 1..12), count in 1i32..14, number in 1usize..30, seed: u64,
        ) {
            let osts = osts(&rooms.iter().map(|room| Some(*room)).collect::<Vec<_>>());
            let (mut allocator, mut robin) = (Allocator::new(seed), RoundRobin::new(seed));
            let template = Template { stripe_count: count, ..Template::default() };
            for _ in 0..number {
                let file = allocator.choose(&template, &osts, &Policy::default(), 0);
                prop_assert_eq!(file, robin.next(count as usize, &osts));
            }
        }

        #[test]
        fn a_file_never_meets_an_ost_twice_or_an_unusable_one(
            osts in proptest::collection::vec((any::<[bool; 2]>(), proptest::option::of(any::<u64>())), 1..20),
            count in 1i32..25, start in -1i32..20, seed: u64, now: u64,
        ) {
            let osts: Vec<_> = (0u32..)
                .zip(&osts)
                .map(|(index, ([usable, is_degraded], room))| Ost { index, node: 0, usable: *usable, is_degraded: *is_degraded, bytes_avail: *room })
                .collect();
            let template = Template { stripe_count: count, start, ..Template::default() };
            if let Ok(file) = Allocator::new(seed).choose(&template, &osts, &Policy::default(), now) {
                let mut unique = file.clone();
                unique.sort_unstable();
                unique.dedup();
                prop_assert_eq!(unique.len(), file.len());
                prop_assert!(file.iter().all(|index| osts[*index as usize].usable));
                prop_assert_eq!(file.len(), (count as usize).min(osts.iter().filter(|ost| ost.usable).count()));
            }
        }
    }
}
