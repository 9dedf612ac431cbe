//! The fault model of the network: which faults may happen, how often, and which ones did.
//!
//! A link here is meaner than TCP on purpose: single messages vanish, come twice or overtake each
//! other. Code that survives that survives every LND. One fault never happens: a message altered so
//! that its checksum still fits.

use types::Span;

/// Probabilities, in parts per million of the messages (or connects) that they concern. All zero: a
/// healthy network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The message vanishes.
    pub loss_ppm: u32,
    /// It arrives twice, each with a delay of its own.
    pub duplicate_ppm: u32,
    /// It may overtake or be overtaken, control frames too.
    pub reorder_ppm: u32,
    /// It takes up to `delay_max` longer.
    pub delay_ppm: u32,
    pub delay_max: Span,
    /// The link is reset instead of carrying it.
    pub reset_ppm: u32,
    /// A connect is refused although somebody listens.
    pub refuse_ppm: u32,
}

impl Faults {
    /// A bad day: everything happens, nothing so often that work stops.
    #[must_use]
    pub fn stormy() -> Faults {
        Faults {
            loss_ppm: 3_000,
            duplicate_ppm: 10_000,
            reorder_ppm: 20_000,
            delay_ppm: 30_000,
            delay_max: Span::millis(300),
            reset_ppm: 500,
            refuse_ppm: 20_000,
        }
    }
}

/// What was in fact done to the nodes: a test asserts on these, so that no fault is tested in name
/// only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Messages that came, for comparison.
    pub delivered: u64,
    pub lost: u64,
    /// Came twice.
    pub duplicated: u64,
    /// Left out of order.
    pub reordered: u64,
    /// Delayed beyond the normal.
    pub delayed: u64,
    /// Swallowed by a partition.
    pub partitioned: u64,
    /// Links reset by the network.
    pub resets: u64,
    /// Connects refused, for want of a listener too.
    pub refused: u64,
    /// Connects that timed out.
    pub connect_timeouts: u64,
    pub kills: u64,
    /// Ends of links that the peer did not see at once.
    pub silent_ends: u64,
    /// Times that a node stood still.
    pub pauses: u64,
}

/// Which way a partition cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing passes from the first to the second.
    OneWay,
    /// Nothing passes at all.
    BothWays,
}
