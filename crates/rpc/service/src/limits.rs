//! Bounds of a server node, with their derivation.

use types::Span;

/// Requests that may wait in the queues of one CPT before its links are not read further: a request
/// is below 1 KiB without inline data, so 16 MiB; 256 clients with 64 requests each. Inline data of
/// 64 KiB in each would be 1 GiB.
pub const QUEUED_MAX: usize = 16_384;

/// Frames of one link that are handled before its reader looks at backpressure again and the
/// replies leave. With 64 requests in flight a batch of 64 has either side idle while the other
/// works; half of it keeps both busy.
pub const BATCH_FRAMES_MAX: usize = 32;

/// Modifying requests in flight per session, Lustre's `max_mod_rpcs_in_flight`. Agreed at connect.
pub const TAGS_MAX: u32 = 64;

/// Requests in flight per session that a client is told to keep to.
pub const RPCS_IN_FLIGHT_MAX: u32 = 64;

/// Executing and held requests per session: what the client is told, and as many that wait for
/// locks; a client beyond that has its link closed. A mount with more blocked lock waiters than
/// this is not a mount.
pub const EXECUTING_MAX: usize = 16_384;

/// A silent client in somebody's way has a tenth of its lease more than it was told: the two count
/// from different moments, by different clocks.
pub const LEASE_GRACE_PART: u64 = 10;

/// A server whose housekeeping did not look for so long stood still: three rounds of it.
pub(crate) const INATTENTION_MAX: Span = Span::secs(3);

/// Afterwards a client whose link broke meanwhile is not called silent for so long: it connects
/// again within a pause (`reconnect_max`, 1 s) and a round trip.
pub(crate) const RETURN_MAX: Span = Span::secs(3);

/// Clients that the log and `recovery_status` name of those for whom a recovery waits.
pub const AWAITED_NAMES_MAX: usize = 16;

/// How often a target's housekeeping looks around.
pub const TICK: Span = Span::secs(1);

/// A client that does not send what it offered is given so long, and never more than half of the
/// time that its attempt has: the resend then does better than the wait.
pub const PULL_WAIT_MAX: Span = Span::secs(10);

/// `req_buffer_history_max` at most: 200 bytes each, 13 MiB.
pub const HISTORY_MAX: usize = 65_536;

/// `req_buffers_max` at most: more than a CPT takes is no bound.
pub const BUFFERS_MAX: usize = QUEUED_MAX;

/// Longest of the times that adaptive timeouts are set with: a day.
pub const AT_SECS_MAX: u64 = 86_400;

/// Highest `at_unhealthy_factor`.
pub const UNHEALTHY_FACTOR_MAX: u32 = 1_000;

/// Granularity of the account of pulled bytes.
pub(crate) const BULK_UNIT: usize = 4_096;

const _: () = assert!(TAGS_MAX <= ptlrpc::limits::TAGS_MAX);
const _: () = assert!(RPCS_IN_FLIGHT_MAX as usize <= EXECUTING_MAX);
const _: () = assert!(INATTENTION_MAX.0 > 2 * TICK.0);
