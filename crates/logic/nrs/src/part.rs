//! The part of a service's requests that a head holds.

use std::fmt;

use types::{CptIndex, TargetId};

/// A part of a service's requests, with heads of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those of a CPT; of the first, where all share their heads.
    Cpt(CptIndex),
    /// Those of a target.
    Target(TargetId),
    /// Those of all targets that have no heads of their own.
    Others,
}

/// Number of the first target's part: there are fewer CPTs.
const TARGETS_FROM: u32 = 1 << 30;

impl Part {
    /// A number that no other part of the service has.
    pub(crate) fn number(self) -> u32 {
        match self {
            Part::Cpt(cpt) => cpt.0,
            Part::Target(target) => TARGETS_FROM + target.to_u32(),
            Part::Others => u32::MAX,
        }
    }
}

impl From<CptIndex> for Part {
    fn from(cpt: CptIndex) -> Part {
        Part::Cpt(cpt)
    }
}

/// As parameters title what they show of it.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Cpt(cpt) => write!(f, "CPT {}", cpt.0),
            Part::Target(target) => write!(f, "{target}"),
            Part::Others => f.write_str("others"),
        }
    }
}
