//! Portal rotor: which partition gets a request, and therefore which workers handle it.
//!
//! A service is a portal; a partition that serves it has a buffer posted there. Lustre:
//! `lnet_mt_of_match`.

use std::num::NonZeroU32;

use types::{CptIndex, Nid};

/// Values of Lustre's `portal_rotor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortalRotor {
    /// The partition of the link: that of its peer's NID.
    Off,
    /// Round robin over all partitions, for every request.
    On,
    /// Round robin for what came through a router, else as [`PortalRotor::Off`].
    RrRt,
    /// What came through a router goes by its source NID, else as [`PortalRotor::Off`].
    #[default]
    HashRt,
}

impl PortalRotor {
    /// As written and shown: `OFF`, `ON`, `RR_RT`, `HASH_RT`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PortalRotor::Off => "OFF",
            PortalRotor::On => "ON",
            PortalRotor::RrRt => "RR_RT",
            PortalRotor::HashRt => "HASH_RT",
        }
    }

    /// As Lustre's `portal_rotor` reads.
    #[must_use]
    pub fn render(self) -> String {
        let description = match self {
            PortalRotor::Off => "Turn off message rotor for wildcard portals",
            PortalRotor::On => "round-robin dispatch all PUT messages for wildcard portals",
            PortalRotor::RrRt => "round-robin dispatch routed PUT message for wildcard portals",
            PortalRotor::HashRt => {
                "dispatch routed PUT message by hashing source NID for wildcard portals"
            }
        };
        format!("{{\n\tportals: all\n\trotor: {}\n\tdescription: {description}\n}}", self.as_str())
    }
}

impl std::str::FromStr for PortalRotor {
    type Err = String;

    fn from_str(text: &str) -> Result<PortalRotor, String> {
        let all = [PortalRotor::Off, PortalRotor::On, PortalRotor::RrRt, PortalRotor::HashRt];
        let found = all.into_iter().find(|mode| mode.as_str().eq_ignore_ascii_case(text.trim()));
        found.ok_or_else(|| "expected OFF, ON, RR_RT or HASH_RT".to_owned())
    }
}

/// A request on its way to a portal.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Partition of the link that it came by.
    pub link_cpt: CptIndex,
    /// NID of the node that sent it, not of a router on the way.
    pub source: Nid,
    /// It came through a router.
    pub is_routed: bool,
}

/// One portal: the partitions that serve it, and its counter.
#[derive(Clone, Debug)]
pub struct Portal {
    enabled: Vec<CptIndex>,
    cpts: NonZeroU32,
    counter: u32,
}

impl Portal {
    /// Served by `enabled` (sorted, each once, not empty) of `cpts` partitions.
    ///
    /// # Panics
    /// When no partition serves it, or one that does not exist.
    #[must_use]
    pub fn new(enabled: Vec<CptIndex>, cpts: NonZeroU32) -> Portal {
        assert!(!enabled.is_empty(), "somebody serves a portal");
        assert!(
            enabled.iter().all(|cpt| cpt.0 < cpts.get()),
            "only partitions that exist serve a portal"
        );
        Portal { enabled, cpts, counter: 0 }
    }

    /// Partitions that serve it.
    #[must_use]
    pub fn enabled(&self) -> &[CptIndex] {
        &self.enabled
    }

    /// Where this request goes; always one of [`Portal::enabled`].
    pub fn choose(&mut self, mode: PortalRotor, arrival: &Arrival) -> CptIndex {
        let spreads = match mode {
            PortalRotor::Off => false,
            PortalRotor::On => true,
            PortalRotor::RrRt | PortalRotor::HashRt => arrival.is_routed,
        };
        if !spreads && self.serves(arrival.link_cpt) {
            return arrival.link_cpt;
        }
        let turn = self.counter;
        self.counter = turn.wrapping_add(1);
        let chosen = if mode == PortalRotor::HashRt && arrival.is_routed {
            arrival.source.cpt(self.cpts)
        } else {
            CptIndex(turn % self.cpts.get())
        };
        if self.serves(chosen) { chosen } else { self.enabled[turn as usize % self.enabled.len()] }
    }

    fn serves(&self, cpt: CptIndex) -> bool {
        self.enabled.binary_search(&cpt).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where twelve requests of one peer, on a link of partition 1, go.
    fn check(mode: PortalRotor, enabled: &[u32], cpts: u32, is_routed: bool, expected: &str) {
        let cpts = NonZeroU32::new(cpts).expect("not zero");
        let mut portal = Portal::new(enabled.iter().map(|cpt| CptIndex(*cpt)).collect(), cpts);
        let source = "192.168.1.10@tcp".parse().expect("a NID"); // 373: partition 1 of 4
        let arrival = Arrival { link_cpt: CptIndex(1 % cpts.get()), source, is_routed };
        let got: Vec<_> = (0..6).map(|_| portal.choose(mode, &arrival).0.to_string()).collect();
        assert_eq!(got.join(" "), expected, "{mode:?} {enabled:?} of {cpts}, routed: {is_routed}");
    }

    #[test]
    fn requests_stay_with_their_link_where_it_is_served() {
        for mode in [PortalRotor::Off, PortalRotor::RrRt, PortalRotor::HashRt] {
            check(mode, &[0, 1, 2, 3], 4, false, "1 1 1 1 1 1");
            check(mode, &[0], 1, false, "0 0 0 0 0 0");
        }
        check(PortalRotor::Off, &[0, 1, 2, 3], 4, true, "1 1 1 1 1 1");
    }

    #[test]
    fn on_goes_round_all_partitions() {
        check(PortalRotor::On, &[0, 1, 2, 3], 4, false, "0 1 2 3 0 1");
        check(PortalRotor::On, &[0, 1], 2, true, "0 1 0 1 0 1");
    }

    #[test]
    fn routed_requests_go_round_or_by_their_source() {
        check(PortalRotor::RrRt, &[0, 1, 2, 3], 4, true, "0 1 2 3 0 1");
        check(PortalRotor::HashRt, &[0, 1, 2, 3], 4, true, "1 1 1 1 1 1");
        check(PortalRotor::HashRt, &[0, 1, 2], 3, true, "1 1 1 1 1 1"); // 373 mod 3
    }

    #[test]
    fn a_partition_that_does_not_serve_hands_round_to_those_that_do() {
        for mode in [PortalRotor::Off, PortalRotor::RrRt, PortalRotor::HashRt] {
            check(mode, &[2, 3], 4, false, "2 3 2 3 2 3");
        }
        check(PortalRotor::On, &[1, 2, 3], 4, false, "1 1 2 3 2 1"); // turns 0 and 4 fall on partition 0: 0 mod 3, 4 mod 3
        check(PortalRotor::HashRt, &[2, 3], 4, true, "2 3 2 3 2 3");
    }

    #[test]
    fn the_four_words_are_understood() {
        for word in ["OFF", "ON", "RR_RT", "HASH_RT"] {
            assert_eq!(word.parse::<PortalRotor>().map(PortalRotor::as_str), Ok(word));
        }
        assert_eq!(" on\n".parse(), Ok(PortalRotor::On));
        assert_eq!(PortalRotor::default(), PortalRotor::HashRt);
        assert!("2".parse::<PortalRotor>().is_err());
    }
}
