//! Object ids that a restart burnt, until the OSTs have no object of them.
//!
//! An id that an earlier run gave out may belong to a create that was lost with its client. Then no
//! file names its objects. Pure: decides which ids those may be, how the store holds them, and
//! which ranges lie between the ids that files hold.

use std::collections::BTreeSet;

use types::Fid;
use wire::body::ObjectRange;

use crate::limits::ID_RANGE;

/// Bytes of a stored range.
const RECORD_BYTES: usize = 16;

/// Ids `first .. end` of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) seq: u64,
    pub(crate) first: u32,
    pub(crate) end: u32,
}

/// Ranges that are to be swept, in order, apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Burnt(pub(crate) Vec<Range>);

impl Burnt {
    /// Nothing where the bytes are none of ours.
    pub(crate) fn decode(stored: &[u8]) -> Option<Burnt> {
        let pieces = stored.chunks_exact(RECORD_BYTES);
        let whole = pieces.remainder().is_empty();
        let range = |piece: &[u8]| {
            Some(Range {
                seq: u64::from_le_bytes(piece.get(..8)?.try_into().ok()?),
                first: u32::from_le_bytes(piece.get(8..12)?.try_into().ok()?),
                end: u32::from_le_bytes(piece.get(12..)?.try_into().ok()?),
            })
        };
        let ranges = pieces.map(range).collect::<Option<Vec<_>>>()?;
        let ours = whole && ranges.iter().all(|range| range.first < range.end);
        ours.then_some(Burnt(ranges))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let one = |range: &Range| {
            [&range.seq.to_le_bytes()[..], &range.first.to_le_bytes(), &range.end.to_le_bytes()]
                .concat()
        };
        self.0.iter().flat_map(one).collect()
    }

    /// Adds the ids of the run before this one that a crash may have lost: `stored` is where its
    /// reservation ended, `next` the first id of this run.
    ///
    /// A reservation grows once half a range is left and is durable together with all creates
    /// before it, except files that are being made with their bytes. The ids of those were drawn at
    /// most half a range before. So what is lost is no further back than two ranges.
    pub(crate) fn add(&mut self, stored: &[u8], next: Fid) {
        let word = |at: usize, len: usize| stored.get(at..at + len);
        let Some(seq) =
            word(0, 8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
        else {
            return;
        };
        let Some(end) =
            word(8, 4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
        else {
            return;
        };
        let end = if next.seq == seq { end.min(next.oid) } else { end };
        let first = end.saturating_sub(2 * ID_RANGE).max(1);
        self.0.push(Range { seq, first, end });
        self.0.retain(|range| range.first < range.end);
        self.0.sort_unstable();
        self.0.dedup_by(|later, kept| {
            let joins = later.seq == kept.seq && later.first <= kept.end;
            if joins {
                kept.end = kept.end.max(later.end);
            }
            joins
        });
        let apart = self.0.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(apart, "ranges lie apart from each other, in order");
    }

    pub(crate) fn holds(&self, id: Fid) -> bool {
        self.0.iter().any(|range| range.seq == id.seq && (range.first..range.end).contains(&id.oid))
    }

    /// Everything but `live`, as a destroy by ranges names it.
    pub(crate) fn without(&self, live: &BTreeSet<(u64, u32)>) -> Vec<ObjectRange> {
        let mut gaps = Vec::new();
        let mut gap = |seq, first: u32, end: u32| {
            if first < end {
                gaps.push(ObjectRange {
                    base: Fid::new(seq, first).into(),
                    first: 0,
                    count: end - first,
                });
            }
        };
        for range in &self.0 {
            let mut at = range.first;
            for (_, oid) in live.range((range.seq, range.first)..(range.seq, range.end)) {
                gap(range.seq, at, *oid);
                at = oid + 1;
            }
            assert!(at <= range.end, "what lives lies inside its range");
            gap(range.seq, at, range.end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;

    fn stored(seq: u64, end: u32) -> Vec<u8> {
        [&seq.to_le_bytes()[..], &end.to_le_bytes()].concat()
    }

    #[test]
    fn ranges_that_end_before_they_begin_are_refused() {
        let range = |first, end| Burnt(vec![Range { seq: 7, first, end }]);
        assert_eq!(Burnt::decode(&range(5, 6).encode()), Some(range(5, 6)));
        assert_eq!(Burnt::decode(&range(6, 6).encode()), None);
        assert_eq!(Burnt::decode(&range(6, 5).encode()), None);
    }

    #[test]
    fn ids_given_out_after_the_last_commit_are_burnt() {
        let mut ids = Ids::open(None, 9, false).expect("fresh");
        let mut durable = ids.encode();
        ids.durable(ids.mark());
        for round in 0..6u32 {
            let mut lost = Vec::new();
            for count in 0..(round + 1) * ID_RANGE / 2 {
                lost.extend(ids.draw());
                if ids.extend() {
                    // the commit of this reservation is the last one that the run sees through
                    durable = ids.encode();
                    ids.durable(ids.mark());
                    lost.clear();
                }
                assert!(count < 4 * ID_RANGE);
            }
            ids = Ids::open(Some(&durable), 9, false).expect("our own bytes");
            let mut burnt = Burnt::default();
            burnt.add(&durable, ids.first());
            assert!(lost.iter().all(|id| burnt.holds(*id)), "round {round}");
            durable = ids.encode();
            ids.durable(ids.mark());
            assert!(!burnt.holds(ids.draw().expect("a range")));
        }
    }

    #[test]
    fn ranges_that_were_not_swept_yet_are_kept_and_joined() {
        let mut burnt = Burnt::default();
        burnt.add(&stored(5, 100), Fid::new(5, 100));
        burnt.add(&stored(5, 300), Fid::new(5, 200));
        burnt.add(&stored(6, 10), Fid::new(7, 1));
        assert_eq!(
            burnt.0,
            [Range { seq: 5, first: 1, end: 200 }, Range { seq: 6, first: 1, end: 10 }]
        );
        assert_eq!(Burnt::decode(&burnt.encode()), Some(burnt.clone()));
        assert_eq!(Burnt::decode(&burnt.encode()[..20]), None);
        assert!(
            burnt.holds(Fid::new(5, 199))
                && !burnt.holds(Fid::new(5, 200))
                && !burnt.holds(Fid::new(7, 1))
        );
    }

    #[test]
    fn gaps_lie_around_every_id_that_lives() {
        let burnt =
            Burnt(vec![Range { seq: 5, first: 1, end: 10 }, Range { seq: 6, first: 4, end: 6 }]);
        let live = BTreeSet::from([(5, 1), (5, 2), (5, 7), (5, 9), (6, 4), (6, 5), (6, 6)]);
        let gaps: Vec<_> =
            burnt.without(&live).iter().map(|gap| (Fid::from(gap.base), gap.count)).collect();
        assert_eq!(gaps, [(Fid::new(5, 3), 4), (Fid::new(5, 8), 1)]);
        assert_eq!(burnt.without(&BTreeSet::new()).len(), 2);
    }
}
