//! The two lists of a client's grants.

use queues::{NIL, Slab};

use super::entry::{Entry, List};

#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
}

/// Both lists, the least used first.
pub(super) struct Lists(pub(super) [Ends; 2]);

impl Default for Lists {
    fn default() -> Lists {
        Lists([Ends { first: NIL, last: NIL, count: 0 }; 2])
    }
}

impl Lists {
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|ends| ends.count as usize).sum()
    }

    /// The places in both, probation first. Those of entries that stay are the same while others
    /// go.
    pub(super) fn places(&self, slab: &Slab<Entry>) -> Vec<u32> {
        let mut places = Vec::with_capacity(self.len());
        for ends in &self.0 {
            let mut at = ends.first;
            while at != NIL {
                places.push(at);
                at = slab.get(at).next;
            }
        }
        places
    }

    fn ends(&mut self, list: List) -> Option<&mut Ends> {
        match list {
            List::None => None,
            List::Probation => Some(&mut self.0[0]),
            List::Kept => Some(&mut self.0[1]),
        }
    }

    pub(super) fn push(&mut self, slab: &mut Slab<Entry>, place: u32, list: List) {
        let ends = self.ends(list).expect("a list to be in");
        let last = std::mem::replace(&mut ends.last, place);
        ends.count += 1;
        if last == NIL {
            ends.first = place;
        } else {
            slab.get_mut(last).next = place;
        }
        let entry = slab.get_mut(place);
        (entry.list, entry.previous, entry.next) = (list, last, NIL);
    }

    pub(super) fn remove(&mut self, slab: &mut Slab<Entry>, place: u32) {
        let Entry { list, previous, next, .. } = *slab.get(place);
        let Some(ends) = self.ends(list) else { return };
        ends.count -= 1;
        if previous == NIL {
            ends.first = next;
        } else {
            slab.get_mut(previous).next = next;
        }
        if next == NIL {
            self.ends(list).expect("it is in one").last = previous;
        } else {
            slab.get_mut(next).previous = previous;
        }
        let entry = slab.get_mut(place);
        (entry.list, entry.previous, entry.next) = (List::None, NIL, NIL);
    }
}
