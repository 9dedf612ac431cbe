//! Ids of files and objects, from ranges that are durable before their first use.
//!
//! The store holds the end of the reserved range. A restart begins there. The rest of the range is
//! burnt, so that no id is given twice. The next range is reserved while half of the last one is
//! left. Only a storm of creates in one commit interval waits for a commit.

use types::{FID_FIRST_NORMAL_SEQ, Fid};

use crate::limits::{ID_RANGE, SEQUENCES_PER_MDT};

/// One kind of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    seq: u64,
    next: u32,
    durable_end: u32,  // ids below may be given out
    reserved_end: u32, // this is in the running transaction, or durable
}

/// First sequence of the files and of the objects of an MDT.
pub(crate) fn first_sequences(mdt_index: u32) -> (u64, u64) {
    let first = FID_FIRST_NORMAL_SEQ + u64::from(mdt_index) * SEQUENCES_PER_MDT;
    (first, first + SEQUENCES_PER_MDT / 2)
}

/// Where the ids of a store begin that has lost count of them: no store of this MDT has given out
/// what lies there, as long as the clock does not go back. Each day has a sequence, each second of
/// it [`IDS_PER_SECOND`] ids, more than an MDT makes; the first sequence is what a fresh store has.
pub(crate) fn place_at(first_seq: u64, unix_seconds: u64) -> (u64, u32) {
    let (day, second) = (unix_seconds / DAY_SECONDS, unix_seconds % DAY_SECONDS);
    let second = u32::try_from(second).expect("a day has fewer seconds");
    let seq = first_seq + 1 + day.saturating_sub(DAY_FIRST) % DAYS;
    assert!(seq < first_seq + SEQUENCES_PER_MDT / 2, "each kind of ids has its own sequences");
    (seq, second * IDS_PER_SECOND + 1)
}

/// A place as the store holds it.
pub(crate) fn encode_place((seq, end): (u64, u32)) -> Vec<u8> {
    [&seq.to_le_bytes()[..], &end.to_le_bytes()].concat()
}

const DAY_SECONDS: u64 = 86_400;
/// 2020-01-01.
const DAY_FIRST: u64 = 18_262;
/// Sequences of one kind of ids, without the first one: 179 years.
const DAYS: u64 = SEQUENCES_PER_MDT / 2 - 1;
const IDS_PER_SECOND: u32 = 1 << 15;

const _: () = assert!((DAY_SECONDS as u32) * IDS_PER_SECOND < u32::MAX - 2 * ID_RANGE);

impl Ids {
    /// From what the store holds (`encoded`), or a fresh sequence. The range is not usable before
    /// it is [`Ids::durable`].
    pub(crate) fn open(encoded: Option<&[u8]>, first_seq: u64, reuse: bool) -> Option<Ids> {
        let (mut seq, mut next) = (first_seq, 1);
        if let Some(encoded) = encoded {
            seq = u64::from_le_bytes(encoded.get(..8)?.try_into().ok()?);
            next = u32::from_le_bytes(encoded.get(8..12)?.try_into().ok()?);
        }
        if reuse {
            next = next.saturating_sub(ID_RANGE).max(1);
        }
        if next > u32::MAX - 2 * ID_RANGE {
            (seq, next) = (seq.checked_add(1)?, 1);
        }
        assert!(next <= u32::MAX - 2 * ID_RANGE, "two ranges fit the rest of a sequence");
        Some(Ids { seq, next, durable_end: next, reserved_end: next + ID_RANGE })
    }

    /// The first id that a fresh start gives out.
    pub(crate) fn first(&self) -> Fid {
        Fid::new(self.seq, self.next)
    }

    /// Whether this store has given `fid` out, as far as its count says: an id of these sequences
    /// below the next one.
    pub(crate) fn may_have_given(&self, fid: Fid) -> bool {
        let kind = SEQUENCES_PER_MDT / 2;
        let of_kind = |seq: u64| seq.checked_sub(FID_FIRST_NORMAL_SEQ).map(|seq| seq / kind);
        let is_before = (fid.seq, fid.oid) < (self.seq, self.next);
        of_kind(fid.seq) == of_kind(self.seq) && is_before && fid.oid > 0 && fid.ver == 0
    }

    /// Whether an id is not far behind the next one. Then a restart burns it, also if the range has
    /// grown meanwhile.
    pub(crate) fn is_recent(&self, fid: Fid) -> bool {
        fid.seq == self.seq && self.next.saturating_sub(fid.oid) <= ID_RANGE / 2
    }

    /// What the store must hold.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode_place((self.seq, self.reserved_end))
    }

    /// The end of the reservation that stands in the running transaction, for [`Ids::durable`].
    pub(crate) fn mark(&self) -> (u64, u32) {
        (self.seq, self.reserved_end)
    }

    /// A commit made the reservation `mark` durable.
    pub(crate) fn durable(&mut self, mark: (u64, u32)) {
        if mark.0 == self.seq {
            self.durable_end = self.durable_end.max(mark.1);
            assert!(self.durable_end <= self.reserved_end, "what is durable was reserved");
        }
    }

    /// The next id; none before a commit.
    pub(crate) fn draw(&mut self) -> Option<Fid> {
        if self.next >= self.durable_end {
            return None;
        }
        let fid = Fid::new(self.seq, self.next);
        self.next += 1;
        assert!(self.next <= self.durable_end, "an id is durable before its first use");
        Some(fid)
    }

    /// Whether the range should grow; if so it has grown, and [`Ids::encode`] must go into the
    /// running transaction.
    pub(crate) fn extend(&mut self) -> bool {
        if self.reserved_end > self.durable_end || self.durable_end - self.next > ID_RANGE / 2 {
            return false;
        }
        match self.reserved_end.checked_add(ID_RANGE) {
            Some(end) => self.reserved_end = end,
            None if self.next >= self.durable_end => {
                (self.seq, self.next) = (self.seq + 1, 1);
                (self.durable_end, self.reserved_end) = (1, 1 + ID_RANGE);
            }
            None => return false,
        }
        assert!(self.reserved_end > self.durable_end, "a reservation grew, and is not durable yet");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_given_twice_over_restarts() {
        let mut given = std::collections::BTreeSet::new();
        let mut stored: Option<Vec<u8>> = None;
        for _ in 0..5 {
            let mut ids =
                Ids::open(stored.as_deref(), first_sequences(0).0, false).expect("our own bytes");
            assert_eq!(ids.draw(), None, "nothing before it is durable");
            stored = Some(ids.encode());
            ids.durable(ids.mark());
            for _ in 0..100 {
                assert!(given.insert(ids.draw().expect("a range")));
            }
        }
    }

    #[test]
    fn a_range_grows_before_it_ends_and_a_sequence_follows_another() {
        let mut ids =
            Ids { seq: 9, next: 1, durable_end: u32::MAX - 10, reserved_end: u32::MAX - 10 };
        ids.next = ids.durable_end - 1;
        assert!(!ids.extend(), "the sequence is used up first");
        assert!(ids.draw().is_some());
        assert!(ids.extend());
        assert_eq!(ids.draw(), None);
        ids.durable(ids.mark());
        assert_eq!(ids.draw(), Some(Fid::new(10, 1)));
        ids.next = 1 + ID_RANGE / 2;
        assert!(ids.extend() && !ids.extend());
        ids.durable(ids.mark());
        assert_eq!(ids.durable_end, 1 + 2 * ID_RANGE);
    }

    #[test]
    fn a_store_that_lost_count_begins_where_none_has_been() {
        let (files, objects) = first_sequences(0);
        let now = 1_800_000_000;
        let places = [now, now + 1, now + DAY_SECONDS].map(|at| place_at(files, at));
        assert!(places[0].0 > files && places[0] < places[1] && places[1] < places[2]);
        for (seq, oid) in [place_at(files, u64::MAX), place_at(files, 0), places[1]] {
            assert!(seq > files && seq < objects);
            let stored = encode_place((seq, oid));
            let ids = Ids::open(Some(&stored), files, false).expect("our own bytes");
            assert_eq!(ids.first(), Fid::new(seq, oid));
        }
    }

    #[test]
    fn an_id_that_was_never_given_is_told_from_one_that_may_have_been() {
        let (files, objects) = first_sequences(0);
        let ids = Ids { seq: files + 1, next: 50, durable_end: 90, reserved_end: 90 };
        for (seq, oid) in [(files + 1, 49), (files + 1, 1), (files, u32::MAX)] {
            assert!(ids.may_have_given(Fid::new(seq, oid)));
        }
        let others = [(files + 1, 50), (files + 2, 1), (files, 0), (objects, 1), (7, 1), (0, 1)];
        for (seq, oid) in others.into_iter().chain([(first_sequences(1).0, 1), (files - 1, 1)]) {
            assert!(!ids.may_have_given(Fid::new(seq, oid)), "{seq:x}");
        }
        assert!(!ids.may_have_given(Fid { ver: 1, ..Fid::new(files, 1) }), "a stripe");
    }

    #[test]
    fn mdts_have_sequences_of_their_own() {
        assert_eq!(first_sequences(0), (0x2_0000_0400, 0x2_0001_0400));
        assert!(first_sequences(0).1 < first_sequences(1).0);
    }
}
