//! Operations that the kernel has: the tasks that wait for them, and their results.

use std::task::{Context, Poll, Waker};

enum Slot<T> {
    Free,
    UnderWay(T, Option<Waker>),
    /// Under way, and nobody waits.
    Left(T),
    Done(T, i32),
}

/// A fixed number of slots.
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    under_way: usize,
}

impl<T> Slots<T> {
    pub(super) fn new(count: usize) -> Slots<T> {
        Slots {
            slots: (0..count).map(|_| Slot::Free).collect(),
            free: (0..count).rev().collect(),
            under_way: 0,
        }
    }

    /// Operations that have not come back.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// A slot for `op`, if there is one.
    pub(super) fn take(&mut self, op: T) -> Option<usize> {
        let slot = self.free.pop()?;
        self.slots[slot] = Slot::UnderWay(op, None);
        self.under_way += 1;
        Some(slot)
    }

    /// An operation that comes back.
    pub(super) fn op(&self, slot: usize) -> &T {
        match &self.slots[slot] {
            Slot::UnderWay(op, _) | Slot::Left(op) => op,
            Slot::Free | Slot::Done(..) => panic!("the kernel gives back once what it was given"),
        }
    }

    /// It came back with `result`.
    pub(super) fn finish(&mut self, slot: usize, result: i32) {
        self.under_way -= 1;
        match std::mem::replace(&mut self.slots[slot], Slot::Free) {
            Slot::UnderWay(op, waker) => {
                self.slots[slot] = Slot::Done(op, result);
                waker.into_iter().for_each(Waker::wake);
            }
            Slot::Left(_) => self.free.push(slot),
            Slot::Free | Slot::Done(..) => panic!("the kernel gives back once what it was given"),
        }
    }

    /// What became of it, once; the slot is still the caller's until it leaves.
    pub(super) fn poll(&mut self, slot: usize, cx: &Context<'_>) -> Poll<(T, i32)> {
        match &mut self.slots[slot] {
            Slot::UnderWay(_, waker) => {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Slot::Done(..) => {}
            Slot::Left(_) | Slot::Free => {
                panic!("a slot belongs to whoever waits until they leave")
            }
        }
        let Slot::Done(op, result) = std::mem::replace(&mut self.slots[slot], Slot::Free) else {
            unreachable!("looked at")
        };
        Poll::Ready((op, result))
    }

    /// Whoever has taken it waits no longer.
    pub(super) fn leave(&mut self, slot: usize) {
        match std::mem::replace(&mut self.slots[slot], Slot::Free) {
            Slot::UnderWay(op, _) => self.slots[slot] = Slot::Left(op),
            Slot::Done(..) | Slot::Free => self.free.push(slot),
            Slot::Left(_) => panic!("a slot is left once"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(slots: &mut Slots<u8>, slot: usize) -> Poll<(u8, i32)> {
        slots.poll(slot, &Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_operation_is_told_once_and_its_slot_is_used_again() {
        let mut slots = Slots::new(1);
        let slot = slots.take(7).expect("room");
        assert_eq!((slots.take(8), poll(&mut slots, slot)), (None, Poll::Pending));
        assert_eq!(*slots.op(slot), 7);
        slots.finish(slot, 4_096);
        assert_eq!((slots.under_way(), poll(&mut slots, slot)), (0, Poll::Ready((7, 4_096))));
        assert_eq!(slots.take(9), None, "not before the caller leaves");
        slots.leave(slot);
        assert_eq!(slots.take(9), Some(slot));
    }

    #[test]
    fn what_nobody_waits_for_is_kept_until_it_comes_back() {
        let mut slots = Slots::new(2);
        let [early, late] = [slots.take(1), slots.take(2)].map(|slot| slot.expect("room"));
        slots.leave(early);
        assert_eq!((slots.under_way(), slots.take(3)), (2, None));
        slots.finish(early, -5);
        assert_eq!(slots.take(3), Some(early));
        slots.finish(late, 0);
        slots.leave(late);
        assert_eq!((slots.under_way(), slots.take(4)), (1, Some(late)));
    }
}
