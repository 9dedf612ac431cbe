//! Which bits of which file are contended: after 16 conflicts in 4 s they are not granted for 30 s.

use queues::FixedMap;
use types::{Fid, Instant};

use super::limits::{CONTENDED, CONTENDED_MAX, CONTENTION_CONFLICTS, CONTENTION_WINDOW};
use super::{Bits, Want};

#[derive(Clone, Copy)]
struct Count {
    since: Instant,
    conflicts: u32,
    bits: Bits,
    contended_until: Instant,
}

/// Conflicts of one MDT.
#[derive(Default)]
pub(super) struct Contention {
    counts: FixedMap<Fid, Count>,
}

impl Contention {
    /// A change has to wait for a holder.
    pub(super) fn note(&mut self, want: Want, now: Instant) {
        self.make_room(now);
        let fresh = Count {
            since: now,
            conflicts: 0,
            bits: Bits::empty(),
            contended_until: Instant::default(),
        };
        let count = self.counts.entry(want.fid).or_insert(fresh);
        if now - count.since > CONTENTION_WINDOW && count.contended_until <= now {
            *count = fresh;
        }
        count.conflicts += 1;
        count.bits |= want.bits;
        if count.conflicts >= CONTENTION_CONFLICTS {
            count.contended_until = now + CONTENDED;
        }
    }

    /// Bits of a file that are not granted now.
    pub(super) fn bits(&self, fid: Fid, now: Instant) -> Bits {
        match self.counts.get(&fid) {
            Some(count) if count.contended_until > now => count.bits,
            _ => Bits::empty(),
        }
    }

    fn make_room(&mut self, now: Instant) {
        if self.counts.len() < CONTENDED_MAX {
            return;
        }
        self.counts.retain(|_, count| count.contended_until > now);
        if self.counts.len() >= CONTENDED_MAX {
            self.counts.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Span;

    #[test]
    fn many_conflicts_in_a_short_time_make_bits_contended_for_a_while() {
        let at = |ms| Instant(0) + Span::millis(ms);
        let want = Want { fid: Fid::ROOT, bits: Bits::UPDATE };
        let mut contention = Contention::default();
        let noted = |contention: &mut Contention, step: u64, from: u64| {
            (0..u64::from(CONTENTION_CONFLICTS))
                .for_each(|conflict| contention.note(want, at(from + conflict * step)));
        };
        noted(&mut contention, 400, 0);
        assert_eq!(contention.bits(Fid::ROOT, at(6_001)), Bits::empty(), "too far apart");
        noted(&mut contention, 100, 20_000);
        assert_eq!(contention.bits(Fid::ROOT, at(21_500)), Bits::UPDATE);
        assert_eq!(contention.bits(Fid::ROOT, at(51_499)), Bits::UPDATE);
        assert_eq!(contention.bits(Fid::ROOT, at(51_500)), Bits::empty());
    }
}
