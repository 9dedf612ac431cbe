//! When the bits of a timed grant end. Each bit has an end of its own. A name may be granted again
//! while the attributes are refused, because another client waits to change them.
//!
//! The latest end is kept in full, the others as distances from it, in microseconds. Distances are
//! rounded up, so no bit ends too late. A distance that does not fit belongs to an end that is long
//! over, because no end is later than [`TIMED`] from now.

use types::{Instant, Span};

use crate::grants::{BITS, Bits, TIMED};

#[derive(Clone, Copy, Default)]
pub(super) struct Ends {
    latest: Instant,
    /// By how many microseconds each is earlier than that.
    earlier: [u16; BITS],
}

const MICRO: Span = Span::micros(1);

const _: () = assert!(TIMED.0 / MICRO.0 < u16::MAX as u64, "a distance that does not fit is over");

impl Ends {
    /// The bit at `place` ends then.
    pub(super) fn set(&mut self, place: usize, until: Instant) {
        if until > self.latest {
            let shift = distance(self.latest, until);
            self.earlier.iter_mut().for_each(|earlier| *earlier = earlier.saturating_add(shift));
            self.latest = until;
        }
        self.earlier[place] = distance(until, self.latest);
    }

    pub(super) fn get(&self, place: usize) -> Instant {
        Instant(self.latest.0.saturating_sub(u64::from(self.earlier[place]) * MICRO.0))
    }

    /// Of `bits`, those that have not ended.
    pub(super) fn lasting(&self, bits: Bits, now: Instant) -> Bits {
        let lasting = bits.places().filter(|place| self.get(*place) > now);
        lasting.fold(Bits::empty(), |lasting, place| lasting | Bits::at(place))
    }

    /// When the first of `bits` ends.
    pub(super) fn first(&self, bits: Bits) -> Option<Instant> {
        bits.places().map(|place| self.get(place)).min()
    }
}

fn distance(from: Instant, to: Instant) -> u16 {
    let Span(nanos) = to - from;
    u16::try_from(nanos.div_ceil(MICRO.0)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_has_an_end_of_its_own() {
        let at = |ms| Instant(1_000_000_000) + Span::millis(ms);
        let mut ends = Ends::default();
        ends.set(0, at(50));
        ends.set(1, at(80));
        ends.set(2, at(60));
        assert_eq!([0, 1, 2].map(|place| ends.get(place)), [50, 80, 60].map(at));
        let bits = Bits::at(0) | Bits::at(1) | Bits::at(2);
        assert_eq!(ends.lasting(bits, at(60)), Bits::at(1));
        assert_eq!((ends.first(bits), ends.first(Bits::empty())), (Some(at(50)), None));
        ends.set(1, at(100_000));
        assert_eq!(ends.lasting(bits, at(99_950)), Bits::at(1), "the others are too far to tell");
        ends.set(0, at(100_000));
        assert_eq!(ends.lasting(bits, at(99_950)), Bits::at(0) | Bits::at(1));
    }

    #[test]
    fn an_end_is_never_kept_as_a_later_one() {
        let at = |nanos: u64| Instant(1_000_000_000 + nanos);
        let mut ends = Ends::default();
        ends.set(0, at(1));
        ends.set(1, at(2));
        assert_eq!([0, 1].map(|place| ends.get(place)), [at(2).0 - 1_000, at(2).0].map(Instant));
        ends.set(2, at(1));
        assert!(ends.get(2) <= at(1), "also if it is set after a later one");
    }
}
