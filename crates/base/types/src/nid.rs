//! Network addresses of nodes: text `addr[:port]@net`; the 64-bit NID carries no port.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// TCP port of a node whose NID names none (Lustre's acceptor port).
pub const PORT_DEFAULT: u16 = 988;

/// Kind and number of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net {
    /// Driver type: 2 tcp, 5 o2ib, 9 lo.
    pub lnd: u16,
    /// Number of the network of that driver.
    pub number: u16,
}

impl Net {
    /// The network `tcp0`, printed as `tcp`.
    pub const TCP: Net = Net { lnd: 2, number: 0 };
    /// The loopback network `lo`: the node itself.
    pub const LO: Net = Net { lnd: 9, number: 0 };
}

/// Address of one interface of a node, compact form: `lnd type 16 | net number 16 | IPv4 32`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid(pub u64);

impl Nid {
    /// `0@lo`.
    pub const LO: Nid = Nid(9 << 48);

    /// On `net`, an IPv4 address.
    #[must_use]
    pub fn new(net: Net, addr: Ipv4Addr) -> Nid {
        Nid((u64::from(net.lnd) << 48) | (u64::from(net.number) << 32) | u64::from(u32::from(addr)))
    }

    /// An address on `tcp`.
    #[must_use]
    pub fn tcp(addr: Ipv4Addr) -> Nid {
        Nid::new(Net::TCP, addr)
    }

    /// Whether it is an address of the machine that asks, by which no other machine is reached.
    #[must_use]
    pub fn is_on_this_machine(self) -> bool {
        self.net().lnd == Net::LO.lnd || self.addr().is_loopback()
    }

    /// Driver and number of its network.
    #[must_use]
    pub fn net(self) -> Net {
        Net { lnd: (self.0 >> 48) as u16, number: (self.0 >> 32) as u16 }
    }

    /// The low 32 bits as an IPv4 address.
    #[must_use]
    pub fn addr(self) -> Ipv4Addr {
        Ipv4Addr::from(self.0 as u32)
    }

    /// CPU partition of the peer with this NID: the sum of its eight bytes modulo `cpts` (as Lustre
    /// does from 2.15 on).
    #[must_use]
    pub fn cpt(self, cpts: std::num::NonZeroU32) -> crate::CptIndex {
        let sum: u32 = self.0.to_le_bytes().iter().map(|byte| u32::from(*byte)).sum();
        crate::CptIndex(sum % cpts.get())
    }

    /// The same over the partitions that an interface is bound to; those of `cpts` where it is
    /// bound to none.
    #[must_use]
    pub fn cpt_among(
        self,
        bound: &[crate::CptIndex],
        cpts: std::num::NonZeroU32,
    ) -> crate::CptIndex {
        match u32::try_from(bound.len()).ok().and_then(std::num::NonZeroU32::new) {
            Some(count) => bound[self.cpt(count).0 as usize],
            None => self.cpt(cpts),
        }
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let net = self.net();
        match net.lnd {
            9 => write!(f, "{}@lo", self.0 as u32),
            2 => write!(f, "{}@tcp", self.addr()),
            5 => write!(f, "{}@o2ib", self.addr()),
            other => write!(f, "{}@lnd{other}_", self.addr()),
        }?;
        if net.number != 0 { write!(f, "{}", net.number) } else { Ok(()) }
    }
}

impl fmt::Debug for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is no NID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a NID: expected ADDRESS[:PORT]@NET, e.g. 10.0.0.1@tcp")]
pub struct ParseNidError(String);

/// Where to reach a node: its NID and the port that the NID itself has no room for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NidAddr {
    /// Without the port.
    pub nid: Nid,
    /// TCP port; [`PORT_DEFAULT`] where the text named none.
    pub port: u16,
}

impl fmt::Display for NidAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.nid.to_string();
        match text.split_once('@') {
            Some((addr, net)) if self.port != PORT_DEFAULT => {
                write!(f, "{addr}:{}@{net}", self.port)
            }
            _ => f.write_str(&text),
        }
    }
}

impl fmt::Debug for NidAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for NidAddr {
    type Err = ParseNidError;

    fn from_str(text: &str) -> Result<NidAddr, ParseNidError> {
        let bad = || ParseNidError(text.chars().take(80).collect());
        let (addr, net) = text.split_once('@').ok_or_else(bad)?;
        let split = net.find(|c: char| c.is_ascii_digit() && net != "o2ib").unwrap_or(net.len());
        let (name, number) = if let Some(rest) = net.strip_prefix("o2ib") {
            ("o2ib", rest)
        } else {
            net.split_at(split)
        };
        let number = if number.is_empty() { 0 } else { number.parse().map_err(|_| bad())? };
        let lnd = match name {
            "tcp" => 2,
            "o2ib" => 5,
            "lo" => 9,
            _ => return Err(bad()),
        };
        let (addr, port) = match addr.split_once(':') {
            Some((addr, port)) => (addr, port.parse().map_err(|_| bad())?),
            None => (addr, PORT_DEFAULT),
        };
        let addr = if lnd == 9 {
            Ipv4Addr::from(addr.parse::<u32>().map_err(|_| bad())?)
        } else {
            addr.parse().map_err(|_| bad())?
        };
        Ok(NidAddr { nid: Nid::new(Net { lnd, number }, addr), port })
    }
}

impl FromStr for Nid {
    type Err = ParseNidError;

    fn from_str(text: &str) -> Result<Nid, ParseNidError> {
        text.parse::<NidAddr>().map(|at| at.nid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_there_and_back() {
        for text in [
            "10.0.0.1@tcp",
            "10.0.0.1:1988@tcp",
            "10.2.0.7@tcp1",
            "172.18.1.128@o2ib",
            "10.1.1.1@o2ib3",
            "0@lo",
        ] {
            assert_eq!(text.parse::<NidAddr>().map(|nid| nid.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("10.0.0.1@tcp0".parse::<Nid>(), "10.0.0.1@tcp".parse::<Nid>());
        for text in [
            "",
            "10.0.0.1",
            "x@tcp",
            "10.0.0.1@ib",
            "10.0.0.1:x@tcp",
            "10.0.0@tcp",
            "10.0.0.1@tcp99999",
        ] {
            assert!(text.parse::<NidAddr>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_hash_matches_the_published_vectors() {
        let four = std::num::NonZeroU32::new(4).expect("four");
        let cpt = |text: &str| text.parse::<Nid>().map(|nid| nid.cpt(four).0);
        assert_eq!(cpt("192.168.1.10@tcp"), Ok(1));
        assert_eq!(cpt("172.18.1.128@o2ib"), Ok(0));
        assert_eq!(cpt("0@lo"), Ok(1));
        let row: Vec<_> =
            (1..=8).map(|host| cpt(&format!("10.0.0.{host}@tcp")).expect("a NID")).collect();
        assert_eq!(
            row,
            [1, 2, 3, 0, 1, 2, 3, 0],
            "consecutive addresses go to consecutive partitions"
        );
    }

    #[test]
    fn a_bound_interface_hashes_over_its_own_partitions() {
        let four = std::num::NonZeroU32::new(4).expect("four");
        let nid: Nid = "192.168.1.10@tcp".parse().expect("a NID"); // 373
        let bound = |list: &[u32]| {
            nid.cpt_among(&list.iter().map(|cpt| crate::CptIndex(*cpt)).collect::<Vec<_>>(), four).0
        };
        assert_eq!([bound(&[]), bound(&[3]), bound(&[0, 2]), bound(&[1, 2, 3])], [1, 3, 2, 2]);
    }
}
