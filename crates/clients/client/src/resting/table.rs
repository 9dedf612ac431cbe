//! Which handles rest, and which of them goes first.
//!
//! Pure: time comes in as an argument.

use std::collections::BTreeMap;

use types::{Fid, Instant, Span};

/// Handles at rest, one per file.
pub(super) struct Table<T> {
    by_file: BTreeMap<Fid, Rest<T>>,
    /// The files in the order in which their handles came to rest.
    by_age: BTreeMap<u64, Fid>,
    last: u64,
}

struct Rest<T> {
    handle: T,
    number: u64,
    since: Instant,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { by_file: BTreeMap::new(), by_age: BTreeMap::new(), last: 0 }
    }
}

impl<T> Table<T> {
    /// A handle comes to rest. Returns the one that has to make room: an older one of the file, or
    /// the oldest of all where there are more than `most`.
    pub(super) fn put(&mut self, fid: Fid, handle: T, now: Instant, most: usize) -> Option<T> {
        let older = self.take(fid);
        self.last += 1;
        self.by_age.insert(self.last, fid);
        self.by_file.insert(fid, Rest { handle, number: self.last, since: now });
        assert_eq!(self.by_age.len(), self.by_file.len(), "each handle has an age");
        if older.is_some() || self.by_file.len() <= most {
            return older;
        }
        let oldest = self.by_age.values().next().copied();
        oldest.and_then(|fid| self.take(fid))
    }

    /// The handle of a file, which rests no more.
    pub(super) fn take(&mut self, fid: Fid) -> Option<T> {
        let rest = self.by_file.remove(&fid)?;
        self.by_age.remove(&rest.number);
        Some(rest.handle)
    }

    /// Whether a handle of this file rests.
    pub(super) fn has(&self, fid: Fid) -> bool {
        self.by_file.contains_key(&fid)
    }

    pub(super) fn len(&self) -> usize {
        self.by_file.len()
    }

    /// Handles that have rested for `age`, and those that are of no use any more, by file.
    pub(super) fn take_over(
        &mut self,
        now: Instant,
        age: Span,
        is_useful: impl Fn(Fid, &T) -> bool,
    ) -> Vec<(Fid, T)> {
        let is_over =
            |fid: Fid, rest: &Rest<T>| rest.since + age <= now || !is_useful(fid, &rest.handle);
        let over = self.by_file.iter().filter(|(fid, rest)| is_over(**fid, rest));
        let over: Vec<Fid> = over.map(|(fid, _)| *fid).collect();
        over.into_iter().filter_map(|fid| Some((fid, self.take(fid)?))).collect()
    }

    pub(super) fn clear(&mut self) {
        self.by_file.clear();
        self.by_age.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 3;

    fn fid(oid: u32) -> Fid {
        Fid::new(0x400, oid)
    }

    fn at(secs: u64) -> Instant {
        Instant(0) + Span::secs(secs)
    }

    fn full() -> Table<u32> {
        let mut table = Table::default();
        for oid in 0..MOST as u32 {
            assert_eq!(table.put(fid(oid), oid, at(oid.into()), MOST), None);
        }
        table
    }

    #[test]
    fn a_file_has_one_handle_at_rest_the_last_one() {
        let mut table = full();
        assert_eq!(table.put(fid(1), 11, at(9), MOST), Some(1));
        assert_eq!((table.take(fid(1)), table.take(fid(1)), table.len()), (Some(11), None, 2));
    }

    #[test]
    fn the_handle_that_rests_longest_makes_room() {
        let mut table = full();
        assert_eq!(table.put(fid(0), 10, at(5), MOST), Some(0), "used again, so it is the last");
        assert_eq!(table.put(fid(7), 7, at(6), MOST), Some(1));
        assert_eq!((table.has(fid(0)), table.has(fid(1)), table.len()), (true, false, MOST));
    }

    #[test]
    fn handles_end_by_age_or_because_they_are_of_no_use() {
        let mut table = full();
        assert_eq!(table.take_over(at(4), Span::secs(4), |_, _| true), [(fid(0), 0)]);
        assert_eq!(table.take_over(at(4), Span::secs(4), |_, handle| *handle != 2), [(fid(2), 2)]);
        assert_eq!((table.len(), table.has(fid(1))), (1, true));
        table.clear();
        assert_eq!((table.len(), table.take(fid(1))), (0, None));
    }
}
