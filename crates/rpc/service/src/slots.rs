//! The worker slots of a partition: how many exist and how many are taken.
//!
//! Invariants
//! - High-priority requests are among the active ones.
//! - A slot is given back once: [`Slot::release`] consumes it.
//!
//! After the number of slots was lowered, there may be more active requests than slots.

use std::cell::Cell;
use std::rc::Rc;

use nrs::{Load, PolicyIndex};
use types::Instant;

/// The slots of one partition.
pub(crate) struct Slots {
    has_hp: bool,
    count: Cell<u32>,
    max: Cell<u32>,
    active: Cell<u32>,
    active_hp: Cell<u32>,
}

/// The head that a request came from: it is told when the request is done.
pub(crate) trait Source {
    /// A request that `policy` gave is answered, dropped or parked.
    fn finished(&self, hp: bool, policy: PolicyIndex, now: Instant);
}

/// A taken slot, and the policy that is told when its request is done.
pub(crate) struct Slot {
    slots: Rc<Slots>,
    source: Rc<dyn Source>,
    hp: bool,
    policy: PolicyIndex,
}

impl Slots {
    /// `min` of them at first, at most `max`.
    pub(crate) fn new(has_hp: bool, min: u32, max: u32) -> Rc<Slots> {
        assert!(min <= max, "a partition starts within its bounds");
        Rc::new(Slots {
            has_hp,
            count: Cell::new(min),
            max: Cell::new(max),
            active: Cell::new(0),
            active_hp: Cell::new(0),
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count.get()
    }

    /// How many are taken.
    pub(crate) fn active(&self) -> u32 {
        self.active.get()
    }

    /// From now on at least `min` and at most `max`.
    pub(crate) fn set_bounds(&self, min: u32, max: u32) {
        assert!(min <= max, "bounds are checked where a user sets them");
        self.max.set(max);
        self.count.set(self.count.get().clamp(min, max));
    }

    /// One more slot when those that are there are busy; they never become fewer by themselves.
    pub(crate) fn grow(&self) {
        let (count, spare) = (self.count.get(), 1 + u32::from(self.has_hp));
        if self.active.get() + spare >= count && count < self.max.get() {
            self.count.set(count + 1);
        }
    }

    pub(crate) fn load(&self, pending_hp: bool, pending_reg: bool) -> Load {
        Load {
            slots: self.count.get(),
            active: self.active.get(),
            active_hp: self.active_hp.get(),
            pending_hp,
            pending_reg,
            has_hp: self.has_hp,
        }
    }

    /// Takes a slot for a request that `policy` of `source` gave.
    pub(crate) fn take(
        self: &Rc<Self>,
        source: Rc<dyn Source>,
        hp: bool,
        policy: PolicyIndex,
    ) -> Slot {
        assert!(
            self.has_hp || !hp,
            "a request is of high priority only where there is such a head"
        );
        self.active.set(self.active.get() + 1);
        self.active_hp.set(self.active_hp.get() + u32::from(hp));
        Slot { slots: Rc::clone(self), source, hp, policy }
    }
}

impl Slot {
    /// Gives the slot back; the policy learns that its request is done.
    pub(crate) fn release(self, now: Instant) {
        let slots = &self.slots;
        assert!(slots.active.get() > 0, "a slot that is given back was taken");
        slots.active.set(slots.active.get() - 1);
        slots.active_hp.set(slots.active_hp.get() - u32::from(self.hp));
        assert!(slots.active_hp.get() <= slots.active.get(), "HP requests are among the active");
        self.source.finished(self.hp, self.policy, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Told(Cell<u32>);

    impl Source for Told {
        fn finished(&self, _hp: bool, _policy: PolicyIndex, _now: Instant) {
            self.0.set(self.0.get() + 1);
        }
    }

    fn take(slots: &Rc<Slots>, told: &Rc<Told>, hp: bool) -> Slot {
        let source = Rc::clone(told) as Rc<dyn Source>;
        slots.take(source, hp, PolicyIndex::FIFO)
    }

    #[test]
    fn a_taken_slot_is_counted_and_reported_once() {
        let (slots, told) = (Slots::new(true, 3, 8), Rc::new(Told::default()));
        let (hp, reg) = (take(&slots, &told, true), take(&slots, &told, false));
        let load = slots.load(true, false);
        assert_eq!((load.slots, load.active, load.active_hp), (3, 2, 1));
        hp.release(Instant::default());
        let load = slots.load(true, false);
        assert_eq!((load.active, load.active_hp, told.0.get()), (1, 0, 1));
        reg.release(Instant::default());
        assert_eq!((slots.active(), told.0.get()), (0, 2));
    }

    #[test]
    fn slots_grow_one_by_one_while_all_but_the_spare_ones_are_taken() {
        let (slots, told) = (Slots::new(true, 3, 5), Rc::new(Told::default()));
        slots.grow();
        assert_eq!(slots.count(), 3, "nothing is taken");
        let mut taken = Vec::new();
        for count in [4, 5, 5, 5] {
            taken.push(take(&slots, &told, false));
            slots.grow();
            assert_eq!(slots.count(), count);
        }
    }

    #[test]
    fn bounds_below_what_is_taken_hold_once_slots_come_back() {
        let (slots, told) = (Slots::new(false, 4, 8), Rc::new(Told::default()));
        let taken: Vec<Slot> = (0..4).map(|_| take(&slots, &told, false)).collect();
        slots.set_bounds(2, 2);
        assert_eq!((slots.count(), slots.active()), (2, 4));
        taken.into_iter().for_each(|slot| slot.release(Instant::default()));
        assert_eq!((slots.count(), slots.active()), (2, 0));
    }

    #[test]
    #[should_panic(expected = "only where there is such a head")]
    fn a_high_priority_slot_needs_a_high_priority_head() {
        take(&Slots::new(false, 2, 2), &Rc::default(), true);
    }
}
