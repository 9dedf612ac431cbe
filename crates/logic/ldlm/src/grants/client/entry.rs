//! A client's knowledge of one file.

use queues::{Chained, Key, NIL, Vacant};
use types::{Fid, Instant, Transno};

use super::ends::Ends;
use super::question::Question;
use crate::grants::{BITS, Bits, Number};

/// The list that an entry is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum List {
    /// It holds nothing.
    #[default]
    None,
    /// Used once.
    Probation,
    /// Used more than once.
    Kept,
}

/// A grant at the client, or what is remembered of one that is gone.
pub(super) struct Entry {
    pub(super) fid: Fid,
    /// Of the last gift that was taken.
    pub(super) number: Number,
    /// Of the gift since which its names are known to stand for it, without a break.
    pub(super) named: Number,
    /// Since when its data may be kept without a break ([`super::Cache::cached_since`]).
    pub(super) cached: u32,
    /// Gifts with numbers up to this one were given up.
    pub(super) dead: Number,
    /// The last change that the value of each bit knows of.
    as_of: [Transno; BITS],
    pub(super) bits: Bits,
    /// Asked back, not acknowledged.
    pub(super) dying: Bits,
    /// Held, but the value is not known.
    pub(super) stale: Bits,
    /// Of `bits`: end by time.
    pub(super) timed: Bits,
    pub(super) list: List,
    /// Of `timed`.
    ends: Ends,
    /// The kernel keeps something of it until then.
    pub(super) told_until: Instant,
    pub(super) used: Instant,
    /// The last question under way when it became empty.
    pub(super) ghost: Question,
    chain: u32,
    pub(super) previous: u32,
    pub(super) next: u32,
}

const _: () = assert!(
    size_of::<Entry>() + 2 * size_of::<u32>() <= crate::grants::CLIENT_GRANT_BYTES_MAX / 2,
    "memory of a grant, with as much again for attributes"
);

impl Entry {
    pub(super) fn new(fid: Fid, now: Instant) -> Entry {
        Entry { fid, used: now, ..Entry::vacant() }
    }

    /// Of `bits`, those whose value is not newer than `as_of`.
    pub(super) fn newer(&self, bits: Bits, as_of: Transno, is_ignored: bool) -> Bits {
        let takes = |place: &usize| is_ignored || as_of >= self.as_of[*place];
        bits.places().filter(takes).fold(Bits::empty(), |newer, place| newer | Bits::at(place))
    }

    /// Of `bits`, those whose value is older than `as_of`.
    pub(super) fn older(&self, bits: Bits, as_of: Transno) -> Bits {
        let is_older = |place: &usize| as_of > self.as_of[*place];
        bits.places().filter(is_older).fold(Bits::empty(), |older, place| older | Bits::at(place))
    }

    /// The values of `bits` are as of this change.
    pub(super) fn set(&mut self, bits: Bits, as_of: Transno) {
        bits.places().for_each(|place| self.as_of[place] = as_of);
    }

    /// A gift until a recall; of `newer` the values come with it.
    pub(super) fn join(&mut self, bits: Bits, newer: Bits) {
        self.stale |= bits - self.bits - newer;
        self.bits |= bits;
        self.timed -= bits;
    }

    /// A gift until a time. A bit that is called back stays so: its end is not earlier.
    pub(super) fn join_timed(&mut self, bits: Bits, until: Instant, now: Instant) {
        self.give_up(self.timed - self.lasting(now));
        for place in bits.places() {
            let is_longer = self.timed.contains(Bits::at(place)) && self.ends.get(place) > until;
            if !is_longer {
                self.ends.set(place, until);
            }
        }
        self.timed |= bits - (self.bits - self.timed);
        self.bits |= bits;
    }

    /// Whether that its names stand for it has not ended by time.
    pub(super) fn lasting_names(&self, now: Instant) -> bool {
        !self.timed.contains(Bits::LOOKUP) || self.lasting(now).contains(Bits::LOOKUP)
    }

    /// Of `timed`, those that have not ended.
    pub(super) fn lasting(&self, now: Instant) -> Bits {
        self.ends.lasting(self.timed, now)
    }

    /// When the first of those of `bits` ends that end by time.
    pub(super) fn timed_end(&self, bits: Bits) -> Option<Instant> {
        self.ends.first(self.timed & bits)
    }

    /// These bits are held no longer.
    pub(super) fn give_up(&mut self, bits: Bits) {
        for held in [&mut self.bits, &mut self.dying, &mut self.stale, &mut self.timed] {
            *held -= bits;
        }
    }

    /// Bits whose value knows of changes from `from` on.
    pub(super) fn from(&self, from: Transno) -> Bits {
        let is_late = |place: &usize| self.as_of[*place] >= from;
        let late = self.bits.places().filter(is_late);
        late.fold(Bits::empty(), |late, place| late | Bits::at(place))
    }
}

impl Vacant for Entry {
    fn vacant() -> Entry {
        Entry {
            fid: Fid::ZERO,
            number: Number(0),
            named: Number(0),
            cached: 0,
            dead: Number(0),
            as_of: [Transno::NONE; BITS],
            bits: Bits::empty(),
            dying: Bits::empty(),
            stale: Bits::empty(),
            timed: Bits::empty(),
            list: List::None,
            ends: Ends::default(),
            told_until: Instant::default(),
            used: Instant::default(),
            ghost: Question(0),
            chain: NIL,
            previous: NIL,
            next: NIL,
        }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.chain
    }
}

pub(super) fn key(fid: Fid) -> Key {
    [fid.seq, (u64::from(fid.oid) << 32) | u64::from(fid.ver)]
}

impl Chained for Entry {
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
