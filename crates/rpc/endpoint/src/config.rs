//! Settings of an endpoint, and who tells it where targets are.

use types::{ClientId, Nid, NidAddr, Span, TargetId};

use crate::limits;

/// Settings of an [`crate::Endpoint`].
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Own address, where several clients share a machine.
    pub nid: Option<Nid>,
    /// Identity for the endpoint's whole life.
    pub client: ClientId,
    /// Name for people: host and mount.
    pub name: String,
    /// A server's own connection: nothing waits for its recovery.
    pub is_server: bool,
    /// Deadline of one attempt.
    pub attempt: Span,
    /// Requests in flight to one target.
    pub rpcs_in_flight: u32,
    /// Modifying requests in flight to one target.
    pub tags: u32,
    /// Bulk data up to this size rides inside the request, and inside the reply where the server
    /// agrees.
    pub inline_bytes: u32,
    /// A connection idle for so long is pinged.
    pub ping_every: Span,
    /// The same while changes are not known to be durable.
    pub ping_dirty: Span,
    /// Written bytes that one target may hold without having made them durable.
    pub unstable_bytes_max: u64,
    /// Bytes of changes kept for replay beyond which the target is asked to commit.
    pub replay_bytes_max: u64,
    /// Pause before the second attempt to connect; doubles from there.
    pub reconnect_min: Span,
    /// Longest pause between attempts to connect.
    pub reconnect_max: Span,
}

impl Default for EndpointConfig {
    fn default() -> EndpointConfig {
        EndpointConfig {
            nid: None,
            client: ClientId(0),
            name: String::new(),
            is_server: false,
            attempt: Span::secs(10),
            rpcs_in_flight: limits::RPCS_IN_FLIGHT_DEFAULT,
            tags: limits::TAGS_DEFAULT,
            inline_bytes: wire::INLINE_BYTES_DEFAULT,
            ping_every: Span::secs(10),
            ping_dirty: Span::secs(1),
            unstable_bytes_max: limits::UNSTABLE_BYTES_MAX_DEFAULT,
            replay_bytes_max: limits::REPLAY_BYTES_MAX_DEFAULT,
            reconnect_min: Span::millis(50),
            reconnect_max: Span::secs(1),
        }
    }
}

pub trait Resolve {
    /// Addresses of `target`, best first; asked before each attempt to connect, so that a change is
    /// seen.
    fn addrs(&self, target: TargetId) -> Vec<NidAddr>;

    /// Identity of its storage, zero where it is not known: whoever listens at an address that was
    /// another target's refuses.
    fn uuid(&self, _target: TargetId) -> u128 {
        0
    }
}
