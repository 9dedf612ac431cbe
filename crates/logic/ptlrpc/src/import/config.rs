//! Settings of an import.

use types::{ClientId, Span};

use crate::limits;

planted::bugs! {
    /// Switches that break a promise on purpose: the simulation must find each one.
    pub struct Bugs in "ptlrpc" {
        /// A lease counts from when the reply comes, not from when its request was sent.
        lease_from_reply,
    }
}

/// Settings of an [`Import`](crate::Import), the same for every target of a client.
#[derive(Clone, Debug)]
pub struct ImportConfig {
    /// Identity for the client's whole life.
    pub client: ClientId,
    /// Name for people: host and mount.
    pub name: String,
    /// A server's own connection: nothing waits for its recovery.
    pub is_server: bool,
    /// Time that one attempt has.
    pub attempt: Span,
    /// Requests in flight to one target.
    pub rpcs_in_flight: u32,
    /// Modifying requests in flight to one target; what exceeds `rpcs_in_flight` is for unlocks.
    pub tags: u32,
    /// Silence after which an idle connection is pinged.
    pub ping_every: Span,
    /// The same while changes are not known to be durable.
    pub ping_dirty: Span,
    /// Pause before the second attempt to connect; doubles from there.
    pub reconnect_min: Span,
    /// Longest pause between attempts to connect.
    pub reconnect_max: Span,
    /// Faults to plant, for tests of the tests.
    pub bugs: Bugs,
}

impl Default for ImportConfig {
    fn default() -> ImportConfig {
        ImportConfig {
            client: ClientId(0),
            name: String::new(),
            is_server: false,
            attempt: Span::secs(10),
            rpcs_in_flight: limits::RPCS_IN_FLIGHT_DEFAULT,
            tags: limits::TAGS_DEFAULT,
            ping_every: Span::secs(10),
            ping_dirty: Span::secs(1),
            reconnect_min: Span::millis(50),
            reconnect_max: limits::RECONNECT_MAX,
            bugs: Bugs::default(),
        }
    }
}
