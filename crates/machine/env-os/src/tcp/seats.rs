//! Whether an address may have one more connection that is not part of a link yet.
//!
//! Invariants
//! - Strangers have `HALF_OPEN_MAX` together, one address no more than `HALF_OPEN_OF_ADDRESS_MAX`.
//! - An address from which a whole link came before, in this run or an earlier one, finds
//!   `HALF_OPEN_RESERVE` more, which strangers cannot take. So strangers that connect and say
//!   nothing keep no known peer out.
//! - At most `KNOWN_MAX` addresses are known; the one that came longest ago is forgotten.
//!
//! Pure: the acceptor asks before it takes a connection, and reports when the connection is over.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use crate::limits::{
    HALF_OPEN_MAX, HALF_OPEN_OF_ADDRESS_MAX, HALF_OPEN_OF_ADDRESS_PLENTY, HALF_OPEN_PLENTY,
    HALF_OPEN_RESERVE, KNOWN_MAX,
};

#[derive(Default)]
pub(super) struct Seats {
    taken: BTreeMap<Ipv4Addr, usize>,
    total: usize,
    /// In the order in which they came last.
    known: VecDeque<Ipv4Addr>,
}

impl Seats {
    /// Takes a seat for a connection from `source`; says whether there was one. `came_before` says
    /// whether it came to an earlier run.
    pub(super) fn take(&mut self, source: Ipv4Addr, came_before: impl FnOnce() -> bool) -> bool {
        let of_source = self.taken.get(&source).copied().unwrap_or(0);
        let is_full = self.total >= HALF_OPEN_MAX;
        let has_reserve = is_full && (self.known.contains(&source) || came_before());
        let all = HALF_OPEN_MAX + if has_reserve { HALF_OPEN_RESERVE } else { 0 };
        if of_source >= HALF_OPEN_OF_ADDRESS_MAX || self.total >= all {
            return false;
        }
        *self.taken.entry(source).or_default() += 1;
        self.total += 1;
        true
    }

    /// Whether so few seats are taken that a connection from `source` is in nobody's way.
    pub(super) fn are_plenty(&self, source: Ipv4Addr) -> bool {
        let of_source = self.taken.get(&source).copied().unwrap_or(0);
        of_source <= HALF_OPEN_OF_ADDRESS_PLENTY && self.total <= HALF_OPEN_PLENTY
    }

    /// The connection is over, or part of a link.
    pub(super) fn leave(&mut self, source: Ipv4Addr) {
        let of_source =
            self.taken.get_mut(&source).expect("a seat is left once, after it was taken");
        *of_source -= 1;
        if *of_source == 0 {
            self.taken.remove(&source);
        }
        self.total -= 1;
        assert!(self.taken.len() <= self.total, "an address is counted while it has a seat");
    }

    /// A whole link came from `source`.
    pub(super) fn know(&mut self, source: Ipv4Addr) {
        if let Some(at) = self.known.iter().position(|known| *known == source) {
            self.known.remove(at);
        }
        self.known.push_back(source);
        if self.known.len() > KNOWN_MAX {
            self.known.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: usize) -> Ipv4Addr {
        Ipv4Addr::from(0x0a00_0000 + u32::try_from(last).expect("few"))
    }

    #[test]
    fn strangers_who_say_nothing_keep_no_known_peer_out() {
        let mut seats = Seats::default();
        let (known, newcomer) = (at(1_000_000), at(1_000_001));
        seats.know(known);
        let strangers =
            (0..10 * HALF_OPEN_MAX).filter(|stranger| seats.take(at(*stranger), || false)).count();
        assert_eq!(strangers, HALF_OPEN_MAX);
        assert!(!seats.take(newcomer, || false));
        for _ in 0..HALF_OPEN_RESERVE {
            assert!(seats.take(known, || false));
        }
        assert!(!seats.take(known, || false), "the reserve is bounded too");
        seats.leave(known);
        assert!(!seats.take(newcomer, || false) && seats.take(known, || false));
        (0..HALF_OPEN_RESERVE).for_each(|_| seats.leave(known));
        (0..HALF_OPEN_MAX).for_each(|stranger| seats.leave(at(stranger)));
        assert!(seats.take(newcomer, || false) && seats.total == 1 && seats.taken.len() == 1);
    }

    #[test]
    fn strangers_keep_no_peer_of_an_earlier_run_out() {
        let mut seats = Seats::default();
        let taken = (0..10 * HALF_OPEN_MAX).filter(|stranger| seats.take(at(*stranger), || false));
        assert_eq!(taken.count(), HALF_OPEN_MAX);
        let earlier = at(1_000_000);
        assert!(!seats.take(earlier, || false) && seats.take(earlier, || true));
    }

    #[test]
    fn one_address_takes_half_of_the_places_at_most() {
        let mut seats = Seats::default();
        let taken = (0..2 * HALF_OPEN_MAX).filter(|_| seats.take(at(7), || false)).count();
        assert_eq!(taken, HALF_OPEN_OF_ADDRESS_MAX);
        assert!(seats.take(at(8), || false));
    }

    #[test]
    fn seats_are_plenty_until_three_quarters_are_taken() {
        let mut seats = Seats::default();
        for _ in 0..HALF_OPEN_OF_ADDRESS_PLENTY {
            assert!(seats.take(at(7), || false) && seats.are_plenty(at(7)));
        }
        assert!(seats.take(at(7), || false) && !seats.are_plenty(at(7)) && seats.are_plenty(at(8)));
        let others =
            (100..).take_while(|other| seats.take(at(*other), || false) && seats.are_plenty(at(8)));
        assert_eq!(others.count() + HALF_OPEN_OF_ADDRESS_PLENTY + 1, HALF_OPEN_PLENTY);
        assert!(seats.take(at(8), || false), "there are some left");
    }

    #[test]
    fn who_came_longest_ago_is_forgotten() {
        let mut seats = Seats::default();
        (0..KNOWN_MAX).for_each(|peer| seats.know(at(peer)));
        seats.know(at(0));
        seats.know(at(KNOWN_MAX));
        assert!(seats.known.contains(&at(0)) && !seats.known.contains(&at(1)));
        assert_eq!(seats.known.len(), KNOWN_MAX);
    }
}
