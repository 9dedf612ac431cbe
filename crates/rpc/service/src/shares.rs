//! Bytes that the peers of a node hold together, counted by address.
//!
//! Invariants
//! - Bytes that [`Shares::has_room`] admits never bring the sum above the maximum.
//! - No address is admitted to more than it leaves free. So one address that takes all it can get
//!   has half of the maximum, two have three quarters, and others still find room.
//!
//! Pure: no clock, no link.

use std::collections::BTreeMap;

use types::Nid;

/// See the head of the file.
pub(crate) struct Shares {
    max: u64,
    total: u64,
    by_address: BTreeMap<Nid, u64>,
}

impl Shares {
    pub(crate) fn new(max: u64) -> Shares {
        Shares { max, total: 0, by_address: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn is_half_full(&self) -> bool {
        self.total > self.max / 2
    }

    /// Whether the peers at `nid` may hold `bytes` more.
    pub(crate) fn has_room(&self, nid: Nid, bytes: u64) -> bool {
        let held = self.by_address.get(&nid).copied().unwrap_or_default();
        held.saturating_add(bytes) <= self.max.saturating_sub(self.total)
    }

    /// Whether a quarter of the maximum stays free beside `bytes` more.
    pub(crate) fn leaves_a_quarter(&self, bytes: u64) -> bool {
        self.total.saturating_add(bytes) <= self.max - self.max / 4
    }

    /// A peer at `nid` that held `before` holds `now`, admitted or not.
    pub(crate) fn change(&mut self, nid: Nid, before: u64, now: u64) {
        let less = |held: u64| held.checked_sub(before).expect("what is given back was taken");
        self.total = less(self.total) + now;
        let held = self.by_address.entry(nid).or_default();
        *held = less(*held) + now;
        assert!(*held <= self.total, "an address holds a part of the sum");
        if *held == 0 {
            self.by_address.remove(&nid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn nid(last: u8) -> Nid {
        Nid::tcp(Ipv4Addr::new(10, 0, 0, last))
    }

    /// Takes all that an address can get, one by one.
    fn fill(shares: &mut Shares, nid: Nid) -> u64 {
        let mut held = 0;
        while shares.has_room(nid, 1) {
            shares.change(nid, 0, 1);
            held += 1;
        }
        held
    }

    #[test]
    fn an_address_has_no_more_than_it_leaves_free() {
        let mut shares = Shares::new(64);
        let held: Vec<u64> = (1..=4).map(|last| fill(&mut shares, nid(last))).collect();
        assert_eq!(held, [32, 16, 8, 4]);
        assert!(!shares.has_room(nid(5), 5) && shares.has_room(nid(5), 4));
        shares.change(nid(1), 32, 0);
        assert!(shares.has_room(nid(5), 32) && !shares.has_room(nid(5), 37));
        assert_eq!(shares.total(), 28);
    }

    #[test]
    fn what_was_not_admitted_is_counted_too() {
        let mut shares = Shares::new(64);
        shares.change(nid(1), 0, 100);
        assert!(!shares.has_room(nid(2), 1));
        shares.change(nid(1), 100, 0);
        assert!(shares.has_room(nid(2), 64) && shares.by_address.is_empty());
    }
}
