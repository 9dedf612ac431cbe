//! A pass over a directory whose names may move between shards meanwhile.
//!
//! ```text
//!  places   [ d | s0 s1 s2 s3 ]    cookie = place 8 | hash 47 | number 8
//!             ^ d is read until its end, then s0, ...
//! ```
//! Names move from earlier places to later ones only, because new shards come last. So a name that
//! exists throughout is in a place that is still to be read, or was read before. The pass remembers
//! where it has returned each name, and leaves out names that a later place has again. A position
//! stays usable when shards come and go.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hasher};

use queues::FixedMap;
use types::Fid;

use super::striped::cookie;
use crate::limits::{LISTED_MAX, PLACES_MAX};

/// What one reader of a directory has seen. To be kept for as long as its handle.
pub struct Listing {
    dir: Fid,
    pass: RefCell<Pass>,
}

#[derive(Default)]
struct Pass {
    places: Vec<Fid>,
    /// Names may be in several places. Otherwise cookies are those of the directory.
    is_spread: bool,
    /// Positions of names, by their hashes.
    seen: FixedMap<u64, u64>,
    /// The same of the last page, of which the reader may not have taken all.
    page: Vec<(u64, u64)>,
}

impl Listing {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(dir: Fid) -> Listing {
        Listing { dir, pass: RefCell::default() }
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> Fid {
        self.dir
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.pass.borrow().places.is_empty()
    }

    /// A pass begins: names are in these places. `may_spread`: the file system has several MDTs.
    pub(super) fn begin(&self, places: Vec<Fid>, may_spread: bool) {
        let is_spread = may_spread || places != [self.dir];
        *self.pass.borrow_mut() = Pass { places, is_spread, ..Pass::default() };
    }

    pub(super) fn is_spread(&self) -> bool {
        self.pass.borrow().is_spread
    }

    /// Whether all names are in the directory itself, as far as is known.
    pub(super) fn is_plain(&self) -> bool {
        self.pass.borrow().places == [self.dir]
    }

    pub(super) fn places(&self) -> usize {
        self.pass.borrow().places.len()
    }

    pub(super) fn place(&self, number: usize) -> Option<Fid> {
        self.pass.borrow().places.get(number).copied()
    }

    /// Names are in these places now, when the place of this number is read. Those that are new are
    /// read last. So is the directory itself if names come back to it and others were read since:
    /// it is the one place that returns.
    pub(super) fn extend(&self, number: usize, places: &[Fid]) {
        let mut pass = self.pass.borrow_mut();
        let comes_back = places.last() == Some(&self.dir);
        for place in places {
            let last = pass.places.iter().rposition(|known| known == place);
            let is_new = match last {
                Some(last) => comes_back && *place == self.dir && last < number,
                None => true,
            };
            if is_new && pass.places.len() < PLACES_MAX {
                pass.places.push(*place);
            }
        }
    }

    /// The reader goes on behind this position: it has not taken names behind it, which may be in a
    /// later place by now.
    pub(super) fn goes_on(&self, cookie: u64) {
        let Pass { page, seen, .. } = &mut *self.pass.borrow_mut();
        for (hash, position) in page.drain(..).filter(|(_, position)| *position > cookie) {
            if seen.get(&hash) == Some(&position) {
                seen.remove(&hash);
            }
        }
    }

    /// Whether a name at this position is to be returned: no earlier place has had it.
    pub(super) fn is_due(&self, name: &[u8], position: u64) -> bool {
        let mut pass = self.pass.borrow_mut();
        let hash = hash_of(name);
        let place = |position| cookie::inside(position).0;
        if pass.seen.get(&hash).is_some_and(|seen| place(*seen) < place(position)) {
            planted::reached("client: a name was listed in two shards");
            return false;
        }
        if pass.seen.len() < LISTED_MAX || pass.seen.contains_key(&hash) {
            pass.seen.insert(hash, position);
            pass.page.push((hash, position));
        }
        true
    }
}

fn hash_of(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(number: u32) -> Fid {
        Fid::new(0x2_0000_0400, number)
    }

    #[test]
    fn a_name_that_moves_to_a_later_place_is_listed_once() {
        let listing = Listing::new(fid(1));
        listing.begin(vec![fid(1)], true);
        let at = |place: usize, hash: u64| cookie::outside(place, hash << 16);
        assert!(listing.is_due(b"a", at(0, 5)) && listing.is_due(b"b", at(0, 7)));
        listing.extend(0, &[fid(1), fid(2), fid(3)]);
        assert_eq!((listing.places(), listing.place(2)), (3, Some(fid(3))));
        assert!(!listing.is_due(b"a", at(2, 9)), "it was in the first place");
        assert!(listing.is_due(b"c", at(2, 10)));
        assert!(listing.is_due(b"b", at(0, 7)), "a reader that goes back reads it again");
        listing.begin(vec![fid(2), fid(3)], true);
        assert!(listing.is_due(b"a", at(1, 9)), "another pass");
    }

    #[test]
    fn a_name_that_was_not_taken_is_listed_in_a_later_place() {
        let listing = Listing::new(fid(1));
        listing.begin(vec![fid(1), fid(2)], true);
        let at = |place: usize, hash: u64| cookie::outside(place, hash << 16);
        assert!(listing.is_due(b"taken", at(0, 5)) && listing.is_due(b"left", at(0, 7)));
        listing.goes_on(at(0, 5)); // the page was too long for the reader
        assert!(listing.is_due(b"left", at(1, 3)), "it has moved meanwhile");
        assert!(!listing.is_due(b"taken", at(1, 4)));
    }

    #[test]
    fn a_directory_to_which_names_come_back_is_read_again() {
        let listing = Listing::new(fid(1));
        listing.begin(vec![fid(1), fid(2)], true);
        listing.extend(1, &[fid(2), fid(1)]);
        assert_eq!((listing.places(), listing.place(2)), (3, Some(fid(1))));
        listing.extend(1, &[fid(1)]);
        listing.extend(2, &[fid(1)]);
        assert_eq!(listing.places(), 3, "it is to be read, or is being read");
        listing.extend(2, &[fid(1), fid(5)]);
        assert_eq!(listing.place(3), Some(fid(5)), "names leave it: it was just read");
    }
}
