//! Lists of NIDs as administrators write them: `192.168.1.[1-128]@tcp 0@lo 10.1.0.0/16@tcp *`.
//!
//! ```text
//! list    = item { " " item }
//! item    = "*" | addr "@" net
//! addr    = "*" | octet "." octet "." octet "." octet | IPv4 "/" 0..32 | NUMBER (on lo)
//! octet   = 0..255 | "*" | "[" term { "," term } "]"
//! term    = N | A "-" B [ "/" STRIDE ]
//! net     = ("tcp" | "o2ib" | "lo") [ NUMBER ]
//! ```
//! Invariants
//! - A list that can be enumerated matches exactly the NIDs that it enumerates.
//! - A list prints as it was written, with one space between items, and parses back to an equal
//!   list.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::{Net, Nid};

/// Longest text of a list, bytes: room for two thousand plain addresses.
pub const NID_LIST_BYTES_MAX: usize = 65_536;

/// Most NIDs that a list is expanded to: a /16.
pub const NID_LIST_NIDS_MAX: usize = 65_536;

/// Text that is no NID list, and which word of it is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NidListError {
    /// No item at all.
    #[error("an empty NID list")]
    Empty,
    /// Longer than [`NID_LIST_BYTES_MAX`].
    #[error("a NID list of {0} bytes; at most {NID_LIST_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// An item without an `@`.
    #[error("'{0}' names no network: expected ADDRESS@NET, e.g. 10.0.0.[1-16]@tcp")]
    NoNet(String),
    /// The text behind `@` names no known network.
    #[error("'{0}' is not a network: expected tcp, o2ib or lo, with a number or none")]
    BadNet(String),
    /// An address that does not parse.
    #[error(
        "'{0}' is not an address range: expected four of 0..255, * or [a,b-c/stride], or ADDRESS/BITS"
    )]
    BadAddress(String),
    /// One number, bracket or prefix in an address.
    #[error("'{word}' in '{item}' is not a number or range of 0..255")]
    BadOctet {
        /// The part that was not understood.
        word: String,
        /// The item of the list that it is part of.
        item: String,
    },
}

/// A list that names too many NIDs to be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{list}' names more than {NID_LIST_NIDS_MAX} NIDs")]
pub struct TooManyNids {
    list: String,
}

/// The values one octet may take: bit n for value n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Octet([u64; 4]);

impl Octet {
    const NONE: Octet = Octet([0; 4]);
    const ANY: Octet = Octet([u64::MAX; 4]);

    fn insert(&mut self, value: u8) {
        self.0[usize::from(value >> 6)] |= 1 << (value & 63);
    }

    fn contains(self, value: u8) -> bool {
        self.0[usize::from(value >> 6)] & (1 << (value & 63)) != 0
    }

    fn count(self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn values(self) -> impl Iterator<Item = u8> {
        (0..=255).filter(move |value| self.contains(*value))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Range {
    /// Every NID of every network.
    All,
    /// Every address of one network.
    Net(Net),
    /// Each octet on its own.
    Octets(Net, Box<[Octet; 4]>),
    /// Addresses that share their first bits.
    Prefix { net: Net, addr: u32, mask: u32 },
    /// Exactly this NID.
    One(Nid),
}

impl Range {
    fn contains(&self, nid: Nid) -> bool {
        match self {
            Range::All => true,
            Range::Net(net) => nid.net() == *net,
            Range::Octets(net, octets) => {
                nid.net() == *net
                    && octets
                        .iter()
                        .zip(nid.addr().octets())
                        .all(|(octet, value)| octet.contains(value))
            }
            Range::Prefix { net, addr, mask } => {
                nid.net() == *net && u32::from(nid.addr()) & mask == *addr
            }
            Range::One(one) => nid == *one,
        }
    }

    fn count(&self) -> u64 {
        match self {
            Range::All => u64::MAX,
            Range::Net(_) => 1 << 32,
            Range::Octets(_, octets) => octets.iter().map(|octet| octet.count()).product(),
            Range::Prefix { mask, .. } => u64::from(!mask) + 1,
            Range::One(_) => 1,
        }
    }

    /// Calls `visit` for each NID; only for ranges whose count was found small enough.
    fn visit(&self, mut visit: impl FnMut(Nid)) {
        match self {
            Range::All | Range::Net(_) => {}
            Range::One(nid) => visit(*nid),
            Range::Prefix { net, addr, mask } => {
                (0..=!mask).for_each(|host| visit(Nid::new(*net, Ipv4Addr::from(addr | host))));
            }
            Range::Octets(net, octets) => {
                for a in octets[0].values() {
                    for b in octets[1].values() {
                        for c in octets[2].values() {
                            octets[3]
                                .values()
                                .for_each(|d| visit(Nid::new(*net, Ipv4Addr::new(a, b, c, d))));
                        }
                    }
                }
            }
        }
    }
}

/// A set of NIDs in the order in which it was written; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NidList {
    items: Vec<(Range, Box<str>)>,
}

impl NidList {
    /// Whether `nid` is in the list.
    #[must_use]
    pub fn contains(&self, nid: Nid) -> bool {
        self.items.iter().any(|(range, _)| range.contains(nid))
    }

    /// The NIDs, if every item names exactly one: what an exact index can hold.
    #[must_use]
    pub fn exact(&self) -> Option<Vec<Nid>> {
        let one = |range: &Range| match range {
            Range::One(nid) => Some(*nid),
            _ => None,
        };
        self.items.iter().map(|(range, _)| one(range)).collect()
    }

    /// Every NID of the list once, in the order written.
    ///
    /// # Errors
    /// The list names more than [`NID_LIST_NIDS_MAX`].
    pub fn nids(&self) -> Result<Vec<Nid>, TooManyNids> {
        let total =
            self.items.iter().fold(0u64, |sum, (range, _)| sum.saturating_add(range.count()));
        if total > NID_LIST_NIDS_MAX as u64 {
            return Err(TooManyNids { list: clip(&self.to_string()) });
        }
        let mut seen = BTreeSet::new();
        let mut out = Vec::new();
        for (range, _) in &self.items {
            range.visit(|nid| {
                if seen.insert(nid) {
                    out.push(nid);
                }
            });
        }
        Ok(out)
    }
}

impl fmt::Display for NidList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (_, text)) in self.items.iter().enumerate() {
            write!(f, "{}{text}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl FromStr for NidList {
    type Err = NidListError;

    fn from_str(text: &str) -> Result<NidList, NidListError> {
        if text.len() > NID_LIST_BYTES_MAX {
            return Err(NidListError::TooLong(text.len()));
        }
        let item = |word: &str| range(word).map(|range| (range, Box::from(word)));
        let items: Vec<_> = text.split_ascii_whitespace().map(item).collect::<Result<_, _>>()?;
        if items.is_empty() { Err(NidListError::Empty) } else { Ok(NidList { items }) }
    }
}

/// A word for an error message: at most 80 characters of it.
fn clip(word: &str) -> String {
    word.chars().take(80).collect()
}

fn range(item: &str) -> Result<Range, NidListError> {
    if item == "*" {
        return Ok(Range::All);
    }
    let (addr, net_text) = item.rsplit_once('@').ok_or_else(|| NidListError::NoNet(clip(item)))?;
    let net = net(net_text).ok_or_else(|| NidListError::BadNet(clip(net_text)))?;
    if addr == "*" {
        return Ok(Range::Net(net));
    }
    let bad_address = || NidListError::BadAddress(clip(addr));
    if net.lnd == Net::LO.lnd {
        let number: u32 = number(addr).ok_or_else(bad_address)?;
        return Ok(Range::One(Nid::new(net, Ipv4Addr::from(number))));
    }
    if let Some((base, bits)) = addr.split_once('/').filter(|(base, _)| !base.contains('[')) {
        let base: Ipv4Addr = base.parse().map_err(|_| bad_address())?;
        let bits: u32 = number(bits).filter(|bits| *bits <= 32).ok_or_else(bad_address)?;
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        return Ok(Range::Prefix { net, addr: u32::from(base) & mask, mask });
    }
    octets(net, addr, item)
}

fn net(text: &str) -> Option<Net> {
    let (name, lnd) = [("tcp", 2), ("o2ib", 5), ("lo", 9)]
        .into_iter()
        .find(|(name, _)| text.starts_with(name))?;
    let rest = &text[name.len()..];
    Some(Net { lnd, number: if rest.is_empty() { 0 } else { number(rest)? } })
}

/// A number in plain digits: no sign, no blank.
fn number<N: FromStr>(text: &str) -> Option<N> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn octets(net: Net, addr: &str, item: &str) -> Result<Range, NidListError> {
    let mut octets = [Octet::NONE; 4];
    let mut words = addr.split('.');
    for octet in &mut octets {
        let word = words.next().ok_or_else(|| NidListError::BadAddress(clip(addr)))?;
        *octet = parse_octet(word)
            .ok_or_else(|| NidListError::BadOctet { word: clip(word), item: clip(item) })?;
    }
    if words.next().is_some() {
        return Err(NidListError::BadAddress(clip(addr)));
    }
    if octets.iter().any(|octet| octet.count() != 1) {
        return Ok(Range::Octets(net, Box::new(octets)));
    }
    let only = octets.map(|octet| octet.values().next().unwrap_or_default());
    Ok(Range::One(Nid::new(net, Ipv4Addr::from(only))))
}

fn parse_octet(word: &str) -> Option<Octet> {
    if word == "*" {
        return Some(Octet::ANY);
    }
    let mut octet = Octet::NONE;
    match word.strip_prefix('[') {
        None => octet.insert(number(word)?),
        Some(rest) => {
            for term in rest.strip_suffix(']')?.split(',') {
                insert_term(&mut octet, term)?;
            }
        }
    }
    Some(octet)
}

fn insert_term(octet: &mut Octet, term: &str) -> Option<()> {
    let Some((first, rest)) = term.split_once('-') else {
        octet.insert(number(term)?);
        return Some(());
    };
    let (last, stride) = rest.split_once('/').unwrap_or((rest, "1"));
    let (first, last, stride): (u8, u8, u8) = (number(first)?, number(last)?, number(stride)?);
    if first > last || stride == 0 {
        return None;
    }
    (first..=last).step_by(usize::from(stride)).for_each(|value| octet.insert(value));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> NidList {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn check(text: &str, inside: &str, outside: &str) {
        let list = list(text);
        for nid in inside.split_whitespace() {
            assert!(list.contains(nid.parse().expect("a NID")), "{nid} is in {text}");
        }
        for nid in outside.split_whitespace() {
            assert!(!list.contains(nid.parse().expect("a NID")), "{nid} is not in {text}");
        }
    }

    #[test]
    fn every_form_matches_what_it_says() {
        check(
            "192.168.1.[1-253/2]@o2ib",
            "192.168.1.1@o2ib 192.168.1.253@o2ib",
            "192.168.1.2@o2ib 192.168.1.255@o2ib 192.168.1.1@tcp",
        );
        check(
            "192.168.*.[0-9,20]@tcp",
            "192.168.77.0@tcp 192.168.0.20@tcp",
            "192.168.0.10@tcp 192.169.0.1@tcp 192.168.0.1@tcp1",
        );
        check("10.1.0.0/16@tcp", "10.1.0.0@tcp 10.1.255.255@tcp", "10.2.0.0@tcp 10.1.0.0@o2ib");
        check("10.1.2.3/0@tcp", "1.2.3.4@tcp", "1.2.3.4@tcp2");
        check("10.1.2.3/32@tcp3", "10.1.2.3@tcp3", "10.1.2.2@tcp3");
        check("*@tcp1 0@lo", "9.9.9.9@tcp1 0@lo", "9.9.9.9@tcp");
        check("*", "1.1.1.1@tcp 0@lo 2.2.2.2@o2ib7", "");
        check(
            "10.0.0.[8,10,12-16]@tcp",
            "10.0.0.8@tcp 10.0.0.16@tcp",
            "10.0.0.9@tcp 10.0.0.17@tcp",
        );
    }

    #[test]
    fn each_nid_is_listed_once_in_the_order_written() {
        let nids = |text: &str| {
            list(text)
                .nids()
                .map(|nids| nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(
            nids("10.0.0.[3,1]@tcp 0@lo 10.0.0.[1-2]@tcp"),
            Ok("10.0.0.1@tcp 10.0.0.3@tcp 0@lo 10.0.0.2@tcp".to_owned())
        );
        assert_eq!(nids("10.0.0.6/31@tcp1"), Ok("10.0.0.6@tcp1 10.0.0.7@tcp1".to_owned()));
        assert_eq!(list("10.1.0.0/16@tcp").nids().map(|nids| nids.len()), Ok(NID_LIST_NIDS_MAX));
        for text in [
            "*",
            "*@tcp",
            "10.0.0.0/15@tcp",
            "10.[0-1].*.*@tcp",
            "10.1.0.0/16@tcp 0@lo",
            "*.*.*.*@tcp * *",
        ] {
            assert!(list(text).nids().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_listed_is_what_matches() {
        for text in ["10.[0-255/51].7.[1,3,200-210/5]@tcp", "10.0.0.0/28@o2ib 10.0.0.9@o2ib"] {
            let list = list(text);
            let nids = list.nids().expect("few");
            assert!(nids.iter().all(|nid| list.contains(*nid)));
            let near = nids.iter().flat_map(|nid| (0..64).map(move |bit| Nid(nid.0 ^ (1 << bit))));
            for nid in near {
                assert_eq!(list.contains(nid), nids.contains(&nid), "{nid} in {text}");
            }
        }
    }

    #[test]
    fn only_single_addresses_are_exact() {
        assert_eq!(list("10.0.0.1@tcp 10.0.0.[2]@tcp").exact().map(|nids| nids.len()), Some(2));
        assert_eq!(list("10.0.0.1@tcp 10.0.0.[2-3]@tcp").exact(), None);
    }

    #[test]
    fn it_prints_as_it_was_written() {
        assert_eq!(
            list("  192.168.1.[1-128]@tcp\t0@lo  10.1.0.0/16@tcp * ").to_string(),
            "192.168.1.[1-128]@tcp 0@lo 10.1.0.0/16@tcp *"
        );
    }

    #[test]
    fn a_wrong_word_is_named() {
        let error = |text: &str| text.parse::<NidList>().expect_err(text).to_string();
        assert_eq!(error(" "), "an empty NID list");
        assert_eq!(
            error("0@lo 10.0.0.1"),
            "'10.0.0.1' names no network: expected ADDRESS@NET, e.g. 10.0.0.[1-16]@tcp"
        );
        assert_eq!(
            error("10.0.0.1@ib0"),
            "'ib0' is not a network: expected tcp, o2ib or lo, with a number or none"
        );
        assert_eq!(
            error("10.0.0.[1-300]@tcp"),
            "'[1-300]' in '10.0.0.[1-300]@tcp' is not a number or range of 0..255"
        );
        for text in [
            "10.0.0@tcp",
            "10.0.0.1.2@tcp",
            "10.0.0.[5-1]@tcp",
            "10.0.0.[1-5/0]@tcp",
            "10.0.0.[]@tcp",
            "10.0.0.[1@tcp",
            "10.0.0.+1@tcp",
            "10.0.0.0/33@tcp",
            "10.0.0.*/8@tcp",
            "x@lo",
            "1.1.1.1@tcp65536",
            "1.1.1.1@tcp-1",
            "@tcp",
            "10.0.0.[1,]@tcp",
            "10.0.0.1@tcp@tcp",
        ] {
            assert!(text.parse::<NidList>().is_err(), "{text}");
        }
        assert!("0@lo ".repeat(NID_LIST_BYTES_MAX / 5 + 1).parse::<NidList>().is_err());
    }
}
