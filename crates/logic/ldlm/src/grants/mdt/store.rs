//! The table itself: grants in a slab, found by file and holder, listed by holder.
//!
//! Invariants
//! - A holder has at most one grant per file, and that grant has bits.
//! - `dying` is part of `bits`.

use queues::{Chained, Index, Key, NIL, Slab, Vacant};
use types::Fid;

use crate::grants::{Bits, Number};

/// A grant at the MDT.
pub(super) struct Grant {
    pub(super) fid: Fid,
    /// Of the last gift.
    pub(super) number: Number,
    pub(super) holder: u32,
    pub(super) bits: Bits,
    /// Asked back, not acknowledged.
    pub(super) dying: Bits,
    chain: u32,
    previous: u32,
    next: u32,
}

impl Vacant for Grant {
    fn vacant() -> Grant {
        Grant {
            fid: Fid::ZERO,
            number: Number(0),
            holder: NIL,
            bits: Bits::empty(),
            dying: Bits::empty(),
            chain: NIL,
            previous: NIL,
            next: NIL,
        }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.chain
    }
}

impl Chained for Grant {
    fn key(&self) -> Key {
        key(self.fid)
    }
    #[expect(clippy::misnamed_getters, reason = "of the index; the field is of the list")]
    fn next(&self) -> u32 {
        self.chain
    }
    fn set_next(&mut self, place: u32) {
        self.chain = place;
    }
}

fn key(fid: Fid) -> Key {
    [fid.seq, (u64::from(fid.oid) << 32) | u64::from(fid.ver)]
}

/// The first of a holder's grants.
#[derive(Clone, Copy)]
pub(super) struct Listed {
    first: u32,
    pub(super) count: u32,
}

impl Default for Listed {
    fn default() -> Listed {
        Listed { first: NIL, count: 0 }
    }
}

/// All grants of one MDT.
#[derive(Default)]
pub(super) struct Store {
    slab: Slab<Grant>,
    index: Index,
    /// How often [`Store::find`] was called.
    #[cfg(test)]
    pub(super) searches: std::cell::Cell<usize>,
}

impl Store {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn get(&self, place: u32) -> &Grant {
        self.slab.get(place)
    }

    pub(super) fn get_mut(&mut self, place: u32) -> &mut Grant {
        self.slab.get_mut(place)
    }

    pub(super) fn find(&self, fid: Fid, holder: u32) -> Option<u32> {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.index.find_where(&self.slab, key(fid), |place| self.slab.get(place).holder == holder)
    }

    /// All grants of a file.
    pub(super) fn each_of(&self, fid: Fid, mut look: impl FnMut(u32, &Grant)) {
        let looked = std::cell::RefCell::new(&mut look);
        let none = self.index.find_where(&self.slab, key(fid), |place| {
            (looked.borrow_mut())(place, self.slab.get(place));
            false
        });
        assert!(none.is_none(), "the walk accepts no grant");
    }

    /// A grant that is not there yet.
    pub(super) fn insert(&mut self, fid: Fid, holder: u32, listed: &mut Listed) -> u32 {
        let grant = Grant { fid, holder, next: listed.first, ..Grant::vacant() };
        let place = self.slab.insert(grant);
        if listed.first != NIL {
            self.slab.get_mut(listed.first).previous = place;
        }
        (listed.first, listed.count) = (place, listed.count + 1);
        self.index.insert(&mut self.slab, place);
        place
    }

    pub(super) fn remove(&mut self, place: u32, listed: &mut Listed) {
        self.index.remove(&mut self.slab, place);
        let Grant { previous, next, .. } = self.slab.remove(place);
        if previous == NIL {
            assert!(listed.first == place, "the first of a list has none before it");
            listed.first = next;
        } else {
            self.slab.get_mut(previous).next = next;
        }
        if next != NIL {
            self.slab.get_mut(next).previous = previous;
        }
        listed.count -= 1;
    }

    /// The first of a holder's grants.
    pub(super) fn first(&self, listed: &Listed) -> Option<u32> {
        (listed.first != NIL).then_some(listed.first)
    }

    /// Places of all of a holder's grants.
    pub(super) fn places(&self, listed: &Listed) -> impl Iterator<Item = u32> + use<'_> {
        let mut next = listed.first;
        std::iter::from_fn(move || {
            let place = next;
            next = if place == NIL { NIL } else { self.slab.get(place).next };
            (place != NIL).then_some(place)
        })
    }

    /// All grants, for tests.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.slab.iter().map(|(_, grant)| grant).filter(|grant| grant.holder != NIL)
    }

    /// Bytes of the slab; the index has two words of 4 bytes for each grant beside it.
    pub(super) fn bytes(&self) -> usize {
        self.slab.bytes() + self.slab.len() * INDEX_BYTES_EACH
    }
}

/// Two buckets for each thing in an [`Index`].
const INDEX_BYTES_EACH: usize = 2 * size_of::<u32>();

const _: () = assert!(
    size_of::<Grant>() + INDEX_BYTES_EACH <= crate::grants::MDT_GRANT_BYTES_MAX,
    "memory of a grant"
);
