//! A hierarchical timing wheel (Varghese and Lauck 1987): O(1) insertion and removal, 1 ms ticks.
//!
//! ```text
//! level 0   64 slots of 1 ms      entries whose tick differs from the present one in its lowest six bits only
//! level 1   64 slots of 64 ms     ... in bits 6..12 at most
//! level 10  covers every tick a clock can show
//! ```
//! An entry goes down a level when the present reaches its slot, so at most ten times in its life.
//!
//! Invariants
//! - No entry leaves before its time. It leaves no later than the first look that comes at least a
//!   tick after its time.
//! - Everything in a lower level is due before anything in a higher one. So the earliest entry is
//!   in the first occupied slot of the lowest occupied level.
//! - Entries of one tick leave in the order in which they were inserted. When the present reaches a
//!   slot, the slot is emptied downwards before anything of its ticks can be inserted on a lower
//!   level.

use types::{Instant, Span};

/// Length of a tick.
pub const TICK: Span = Span::millis(1);

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Enough for 64-bit ticks.
const LEVELS: usize = 11;
const NONE: u32 = u32::MAX;
/// Place of what is due: behind the slots of all levels.
const DUE: u16 = (LEVELS * SLOTS) as u16;

/// Names an entry until it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WheelHandle(u32);

impl WheelHandle {
    /// As a number, for an owner that keeps it in a word.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// From [`WheelHandle::number`].
    #[must_use]
    pub fn from_number(number: u32) -> WheelHandle {
        WheelHandle(number)
    }
}

#[derive(Clone, Copy)]
struct Entry<T> {
    value: Option<T>,
    tick: u64,
    place: u16,
    prev: u32,
    next: u32, // of a free entry: the next free one
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NONE, tail: NONE };

/// See the head of the file.
pub struct Wheel<T> {
    present: u64, // tick up to which entries have been moved to `DUE`
    entries: Vec<Entry<T>>,
    free: u32,
    len: usize,
    lists: Box<[List]>,
    occupied: [u64; LEVELS],
    in_order: Option<usize>, // a place whose entries are in the order of their ticks
    #[cfg(test)]
    looks: usize, // at entries, to find the earliest
}

impl<T: Copy> Wheel<T> {
    /// Begins at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Wheel<T> {
        Wheel {
            present: now.0 / TICK.0,
            entries: Vec::new(),
            free: NONE,
            len: 0,
            lists: vec![EMPTY; LEVELS * SLOTS + 1].into_boxed_slice(),
            occupied: [0; LEVELS],
            in_order: None,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry that is due at `at`.
    ///
    /// # Panics
    /// If 2^32 - 1 entries are in it.
    pub fn insert(&mut self, at: Instant, value: T) -> WheelHandle {
        let entry = Entry {
            value: Some(value),
            tick: at.0.div_ceil(TICK.0),
            place: 0,
            prev: NONE,
            next: NONE,
        };
        let index = if self.free == NONE {
            let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 entries");
            self.entries.push(entry);
            index
        } else {
            let index = self.free;
            self.free = self.entries[index as usize].next;
            self.entries[index as usize] = entry;
            index
        };
        self.len += 1;
        self.link(index);
        WheelHandle(index)
    }

    /// Takes an entry out.
    ///
    /// # Panics
    /// If `handle` names none.
    pub fn remove(&mut self, handle: WheelHandle) -> T {
        self.unlink(handle.0);
        let entry = &mut self.entries[handle.0 as usize];
        let value = entry.value.take().expect("a handle names an entry of the wheel");
        entry.next = self.free;
        self.free = handle.0;
        self.len -= 1;
        if self.len == 0 {
            self.entries.clear();
            self.free = NONE;
        }
        value
    }

    /// Takes out an entry that is due at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<T> {
        self.advance(now.0 / TICK.0);
        let head = self.lists[usize::from(DUE)].head;
        (head != NONE).then(|| self.remove(WheelHandle(head)))
    }

    /// Takes out the entry that is due first, now or later. Its slot is put in order for the first
    /// such entry, and again after an insertion.
    pub fn pop_earliest(&mut self) -> Option<T> {
        let first = self.first_place()?;
        if first != usize::from(DUE) && self.in_order != Some(first) {
            self.put_in_order(first);
        }
        Some(self.remove(WheelHandle(self.lists[first].head)))
    }

    /// Sorts the entries of a slot by their ticks; those of one tick keep their order.
    fn put_in_order(&mut self, place: usize) {
        let mut all = Vec::new();
        let mut at = std::mem::replace(&mut self.lists[place], EMPTY).head;
        while at != NONE {
            all.push(at);
            at = self.entries[at as usize].next;
        }
        #[cfg(test)]
        {
            self.looks += all.len();
        }
        all.sort_by_key(|index| self.entries[*index as usize].tick);
        all.into_iter().for_each(|index| self.append(index, place as u16));
        self.in_order = Some(place);
    }

    /// When to look again: no entry is due before. The present, if one is due; exact within a
    /// level's slot width.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let place = self.first_place()?;
        if place == usize::from(DUE) {
            return Some(Instant(self.present * TICK.0));
        }
        Some(Instant(self.start_of(place).saturating_mul(TICK.0)))
    }

    /// First tick of a slot of the wheel.
    fn start_of(&self, place: usize) -> u64 {
        let (level, slot) = (place / SLOTS, place % SLOTS);
        let shift = BITS * level as u32;
        let above = if shift + BITS >= u64::BITS {
            0
        } else {
            self.present >> (shift + BITS) << (shift + BITS)
        };
        above | ((slot as u64) << shift)
    }

    fn first_place(&self) -> Option<usize> {
        if self.lists[usize::from(DUE)].head != NONE {
            return Some(usize::from(DUE));
        }
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        Some(level * SLOTS + self.occupied[level].trailing_zeros() as usize)
    }

    /// Moves the present on to `tick`, slot by occupied slot.
    fn advance(&mut self, tick: u64) {
        while self.present < tick {
            let Some(place) = self.first_place_ahead() else { break };
            let start = self.start_of(place);
            if start > tick {
                break;
            }
            self.present = start;
            self.cascade(place);
        }
        self.present = self.present.max(tick);
    }

    /// The first occupied slot, leaving out what is already due.
    fn first_place_ahead(&self) -> Option<usize> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        Some(level * SLOTS + self.occupied[level].trailing_zeros() as usize)
    }

    /// Places the entries of a slot anew, in their order.
    fn cascade(&mut self, place: usize) {
        let mut at = std::mem::replace(&mut self.lists[place], EMPTY).head;
        self.occupied[place / SLOTS] &= !(1 << (place % SLOTS));
        while at != NONE {
            let next = self.entries[at as usize].next;
            self.link(at);
            at = next;
        }
    }

    fn place_of(&self, tick: u64) -> u16 {
        if tick <= self.present {
            return DUE;
        }
        let level = (u64::BITS - 1 - (tick ^ self.present).leading_zeros()) / BITS;
        let slot = (tick >> (BITS * level)) as usize % SLOTS;
        (level as usize * SLOTS + slot) as u16
    }

    fn link(&mut self, index: u32) {
        let place = self.place_of(self.entries[index as usize].tick);
        if self.in_order == Some(usize::from(place)) {
            self.in_order = None;
        }
        self.append(index, place);
    }

    fn append(&mut self, index: u32, place: u16) {
        let list = &mut self.lists[usize::from(place)];
        let tail = std::mem::replace(&mut list.tail, index);
        if tail == NONE {
            list.head = index;
        } else {
            self.entries[tail as usize].next = index;
        }
        let entry = &mut self.entries[index as usize];
        (entry.place, entry.prev, entry.next) = (place, tail, NONE);
        if place != DUE {
            self.occupied[usize::from(place) / SLOTS] |= 1 << (usize::from(place) % SLOTS);
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry { place, prev, next, .. } = self.entries[index as usize];
        if prev != NONE {
            self.entries[prev as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].prev = prev;
        }
        let list = &mut self.lists[usize::from(place)];
        if prev == NONE {
            list.head = next;
        }
        if next == NONE {
            list.tail = prev;
        }
        if list.head == NONE && place != DUE {
            self.occupied[usize::from(place) / SLOTS] &= !(1 << (usize::from(place) % SLOTS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use types::SplitMix64;

    /// Random insertions, removals and looks, against a map ordered by time.
    #[test]
    fn it_agrees_with_an_ordered_map() {
        for seed in 0..20 {
            let mut chance = SplitMix64::new(seed);
            let mut now = Instant(chance.bits() >> chance.below(40).min(30));
            let mut wheel = Wheel::new(now);
            let mut reference: BTreeMap<(u64, u64), WheelHandle> = BTreeMap::new();
            for step in 0..20_000_u64 {
                match chance.below(8) {
                    0..4 => {
                        let ahead = chance.bits() >> (20 + chance.below(44));
                        let at = Instant(now.0.saturating_add(ahead).min(u64::MAX - TICK.0));
                        let handle = wheel.insert(at, step);
                        reference.insert((at.0.div_ceil(TICK.0), step), handle);
                    }
                    4 if !reference.is_empty() => {
                        let at = chance.below(reference.len() as u64) as usize;
                        let (key, handle) = reference
                            .iter()
                            .nth(at.min(50))
                            .map(|(key, handle)| (*key, *handle))
                            .expect("there");
                        reference.remove(&key);
                        assert_eq!(wheel.remove(handle), key.1);
                    }
                    5 if !reference.is_empty() && chance.below(20) == 0 => {
                        let value = wheel.pop_earliest().expect("not empty");
                        let first =
                            reference.first_key_value().map(|(key, _)| key.0).expect("not empty");
                        let due =
                            reference.keys().find(|key| key.1 == value).copied().expect("known");
                        assert!(
                            due.0 == first || due.0 <= now.0 / TICK.0,
                            "the earliest, or one that is due already"
                        );
                        reference.remove(&due);
                    }
                    _ => {
                        now =
                            Instant(now.0.saturating_add(chance.bits() >> (30 + chance.below(34))));
                        let tick = now.0 / TICK.0;
                        let mut last = 0;
                        while let Some(value) = wheel.pop(now) {
                            let due = reference
                                .keys()
                                .find(|key| key.1 == value)
                                .copied()
                                .expect("known");
                            assert!(due.0 <= tick, "not before its time");
                            last = last.max(due.0);
                            reference.remove(&due);
                        }
                        let left = reference.first_key_value().map(|(key, _)| key.0);
                        assert!(left.is_none_or(|left| left > tick), "all that are due leave");
                        assert_eq!(wheel.next().is_none(), left.is_none());
                        if let (Some(next), Some(left)) = (wheel.next(), left) {
                            assert!(
                                next > now && next.0 <= left.saturating_mul(TICK.0),
                                "a time ahead that is not too late"
                            );
                        }
                    }
                }
                assert_eq!(wheel.len(), reference.len());
            }
        }
    }

    #[test]
    fn entries_leave_by_time_and_not_a_tick_early() {
        let mut wheel = Wheel::new(Instant(0));
        let at = |us: u64| Instant(us * 1_000);
        for (value, us) in [(3, 5_000_000), (1, 1_500), (2, 70_000)] {
            wheel.insert(at(us), value);
        }
        assert_eq!(wheel.next(), Some(at(2_000)), "the first tick that is not before it");
        assert_eq!(
            (wheel.pop(at(1_999)), wheel.pop(at(2_000)), wheel.pop(at(2_000))),
            (None, Some(1), None)
        );
        assert_eq!(
            (wheel.pop(at(69_999)), wheel.next(), wheel.pop(at(70_000))),
            (None, Some(at(70_000)), Some(2))
        );
        assert_eq!((wheel.pop_earliest(), wheel.pop_earliest(), wheel.len()), (Some(3), None, 0));
    }
    #[test]
    fn all_that_leave_early_are_found_with_few_looks() {
        const COUNT: usize = 10_000;
        let (mut wheel, mut chance) = (Wheel::new(Instant(0)), SplitMix64::new(3));
        let mut due = Vec::new();
        for number in 0..COUNT {
            let at = Instant(chance.below(300 * 1_000_000_000));
            wheel.insert(at, number);
            due.push((at.0.div_ceil(TICK.0), number));
        }
        due.sort_unstable();
        for (_, number) in due {
            assert_eq!(wheel.pop_earliest(), Some(number));
        }
        assert!(wheel.looks <= 2 * COUNT, "{} looks", wheel.looks);
    }
}
