//! The counters of a service's policies, as `nrs_stats` shows them.

use std::fmt;

use crate::command::head_title;
use crate::{Counters, HeadKind, Part};

/// The policies of a service over all partitions. Prints the text of `nrs_stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NrsStats(pub Vec<HeadStats>);

/// The policies of one kind of head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadStats {
    pub kind: HeadKind,
    pub policies: Vec<PolicyStats>,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStats {
    pub name: &'static str,
    /// Sums over the partitions.
    pub counters: Counters,
    /// What the policy shows of itself in a partition, beside the counters: `NAME: VALUE` each.
    pub parts: Vec<(Part, Vec<String>)>,
}

impl fmt::Display for NrsStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|head| {
            f.write_str(head_title(head.kind))?;
            head.policies.iter().try_for_each(|policy| write!(f, "{policy}"))
        })
    }
}

/// Times in microseconds.
impl fmt::Display for PolicyStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = self.counters;
        writeln!(
            f,
            "  - {{ name: {}, queued: {}, active: {}, started: {}, declined: {}, removed: {}, \
             promoted: {}, forced: {}, waited_us: {}, waited_us_max: {} }}",
            self.name,
            c.queued,
            c.active,
            c.started,
            c.declined,
            c.removed,
            c.promoted,
            c.forced,
            c.waited.0 / 1_000,
            c.waited_max.0 / 1_000
        )?;
        self.parts
            .iter()
            .try_for_each(|(part, pairs)| writeln!(f, "    {part}: {{ {} }}", pairs.join(", ")))
    }
}
