//! Selects the grants that are given back unasked: the least recently used first, in two lists. So
//! a scan of a large directory does not drive out grants that are used again and again.
//!
//! A new grant is on probation; a use moves it to the kept ones. If there are too many kept ones,
//! the least recently used of them returns to probation. A grant that the kernel may still rely on
//! is not given back, because the kernel would have to be notified.

use queues::NIL;
use types::Instant;

use super::Cache;
use super::entry::List;
use crate::grants::limits::{LRU_KEPT_PERCENT, VECTOR_MAX};
use crate::grants::{Bits, Stated};

impl Cache {
    /// An entry that holds something is in a list.
    pub(super) fn list(&mut self, place: u32) {
        let entry = self.slab.get(place);
        if entry.list == List::None && !entry.bits.is_empty() {
            self.lists.push(&mut self.slab, place, List::Probation);
        }
    }

    pub(super) fn unlist(&mut self, place: u32) {
        self.lists.remove(&mut self.slab, place);
    }

    /// A grant is used.
    pub(super) fn touch(&mut self, place: u32, now: Instant) {
        self.slab.get_mut(place).used = now;
        self.lists.remove(&mut self.slab, place);
        self.lists.push(&mut self.slab, place, List::Kept);
        let kept_max = self.config.lru_size / 100 * LRU_KEPT_PERCENT;
        let kept = self.lists.0[1];
        if kept.count > kept_max.max(1) {
            self.lists.remove(&mut self.slab, kept.first);
            self.lists.push(&mut self.slab, kept.first, List::Probation);
        }
    }

    /// Grants to give back to the MDT, at most a vector of them; to be asked until it is empty.
    pub fn shed(&mut self, now: Instant) -> Vec<Stated> {
        let mut shed = Vec::new();
        for list in 0..2 {
            let mut at = self.lists.0[list].first;
            for _ in 0..VECTOR_MAX {
                if at == NIL || shed.len() == VECTOR_MAX || !self.may_shed(at, now) {
                    break;
                }
                let next = self.slab.get(at).next;
                if !self.is_in_use(at, now) {
                    shed.extend(self.shed_one(at));
                }
                at = next;
            }
        }
        shed
    }

    /// Gives back everything that the kernel does not keep (`lru_size=clear`).
    pub fn shed_all(&mut self, now: Instant) -> Vec<Stated> {
        let places = self.lists.places(&self.slab).into_iter();
        let free = places.filter(|place| !self.is_in_use(*place, now));
        free.collect::<Vec<_>>().into_iter().filter_map(|place| self.shed_one(place)).collect()
    }

    /// Too many grants, or this one is too old.
    fn may_shed(&self, place: u32, now: Instant) -> bool {
        let is_old = now - self.slab.get(place).used > self.config.lru_max_age;
        is_old || self.lists.len() > self.config.lru_size as usize
    }

    /// The kernel keeps something of it, or a recall or a change of it is under way.
    fn is_in_use(&self, place: u32, now: Instant) -> bool {
        let entry = self.slab.get(place);
        entry.told_until > now || !entry.dying.is_empty() || self.changing.contains_key(&entry.fid)
    }

    /// What is called back goes to the MDT; what ends by time is nobody's business.
    fn shed_one(&mut self, place: u32) -> Option<Stated> {
        let entry = self.slab.get(place);
        let stated =
            Stated { fid: entry.fid, bits: entry.bits - entry.timed, number: entry.number };
        self.give_up_at(place, Bits::all());
        (!stated.bits.is_empty()).then_some(stated)
    }
}
