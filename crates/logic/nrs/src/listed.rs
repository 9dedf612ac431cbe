//! A head's report of its policies: counts, states, and which of them broke.

use types::Span;

use crate::{HeadKind, Part, PolicyState};

/// A policy was disabled; worth one line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disabled {
    pub head: HeadKind,
    pub partition: Part,
    pub policy: &'static str,
    pub arg: String,
    /// The call at which it broke.
    pub call: &'static str,
    pub why: String,
    /// Its requests, which FIFO now has.
    pub requests: usize,
}

/// Counters of a policy on a head since it was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests it holds.
    pub queued: u64,
    /// Taken from it and not yet finished.
    pub active: u64,
    /// Taken from it in all.
    pub started: u64,
    /// Not taken by it and left to FIFO.
    pub declined: u64,
    /// Removed while queued: aborted.
    pub removed: u64,
    /// Removed while queued: promoted.
    pub promoted: u64,
    /// Of those started: overdue, against its limits.
    pub forced: u64,
    /// Sum of the times from arrival to start.
    pub waited: Span,
    /// The longest of them.
    pub waited_max: Span,
}

impl Counters {
    /// A request that waited so long leaves to be handled.
    #[inline]
    pub(crate) fn start(&mut self, waited: Span) {
        self.started += 1;
        self.waited = Span(self.waited.0.saturating_add(waited.0));
        self.waited_max = self.waited_max.max(waited);
    }

    /// Sums over partitions.
    pub(crate) fn add(&mut self, other: &Counters) {
        self.queued += other.queued;
        self.active += other.active;
        self.started += other.started;
        self.declined += other.declined;
        self.removed += other.removed;
        self.promoted += other.promoted;
        self.forced += other.forced;
        self.waited = Span(self.waited.0.saturating_add(other.waited.0));
        self.waited_max = self.waited_max.max(other.waited_max);
    }
}

/// A policy as `nrs_policies` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: &'static str,
    /// Its argument, empty if none.
    pub arg: String,
    pub state: PolicyState,
    /// It takes what the policy that is selected declines.
    pub fallback: bool,
    pub counters: Counters,
}
