//! Which classes `nrs_tbf_stats` shows, and in which order.

use super::classes::Class;
use crate::{Refusal, number_in};

/// Classes that `nrs_tbf_stats` shows unless it is told how many.
const STATS_CLASSES_DEFAULT: usize = 64;
/// Classes that it shows at most.
const STATS_CLASSES_MAX: u64 = 100_000;

/// `top:N[:COLUMN]`: the N classes with the most in that column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) count: usize,
    pub(super) by: Column,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Wait,
    Queued,
    Dispatched,
    Throttled,
    Seen,
}

impl Column {
    const ALL: [(&'static str, Column); 5] = [
        ("wait", Column::Wait),
        ("queued", Column::Queued),
        ("dispatched", Column::Dispatched),
        ("throttled", Column::Throttled),
        ("seen", Column::Seen),
    ];

    pub(super) fn value(self, class: &Class) -> u64 {
        match self {
            Column::Wait => class.counters.wait_ns,
            Column::Queued => class.queue.len() as u64,
            Column::Dispatched => class.counters.dispatched,
            Column::Throttled => class.counters.throttled,
            Column::Seen => class.counters.last_seen.0,
        }
    }
}

impl Default for Selection {
    fn default() -> Selection {
        Selection { count: STATS_CLASSES_DEFAULT, by: Column::Wait }
    }
}

impl Selection {
    pub(super) fn parse(text: &str) -> Result<Selection, Refusal> {
        let wrong = || {
            Refusal::invalid(format!(
                "'{text}': top:N or top:N:wait|queued|dispatched|throttled|seen is expected"
            ))
        };
        let rest = text.trim().strip_prefix("top:").ok_or_else(wrong)?;
        let (count, by) = rest.split_once(':').unwrap_or((rest, "wait"));
        let count = number_in(super::STATS, count, 1..=STATS_CLASSES_MAX)?;
        let by = Column::ALL.into_iter().find(|(name, _)| *name == by).ok_or_else(wrong)?.1;
        Ok(Selection { count: usize::try_from(count).expect("at most STATS_CLASSES_MAX"), by })
    }
}
