//! Settings of an import.

use types::{ClientId, Span, TargetId};

/// Settings of an [`Import`](crate::Import).
#[derive(Clone, Debug)]
pub struct ImportConfig {
    /// The target at the other end.
    pub target: TargetId,
    pub client: ClientId,
    /// Name for people.
    pub name: String,
    /// A server's own connection.
    pub is_server: bool,
    /// Time that one attempt has.
    pub attempt: Span,
    pub rpcs_in_flight: u32,
    /// Modifying requests in flight.
    pub tags: u32,
    /// Silence after which an idle connection is pinged.
    pub ping_every: Span,
    /// The same while changes are not known to be durable.
    pub ping_dirty: Span,
    /// Pause before the second attempt to connect.
    pub reconnect_min: Span,
    pub reconnect_max: Span,
}
