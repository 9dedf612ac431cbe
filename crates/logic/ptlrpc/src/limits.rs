//! Bounds of the machines, with their derivation.

use types::Span;

/// Requests in flight or tags that one session may have: a reply record is about 400 bytes, so a session's records stay
/// below half a megabyte.
pub const TAGS_MAX: u32 = 1_024;

/// Requests of one import that wait to be sent. Each has a caller that waits; a mount has at most a few thousand.
pub const QUEUED_MAX: usize = 65_536;

/// Pause before a request is sent again that the server answered with "recovering".
pub const RECOVERING_RETRY: Span = Span::millis(500);

/// Imports of one endpoint: 12 bits of an xid, four times the targets of the largest installations; 31 bits of
/// seconds and 20 of counter stand above.
pub const LANES_MAX: u32 = 4_096;

/// How far a replay may run ahead of one that is missing: what a client may have in flight.
pub const REPLAYS_AHEAD_MAX: u32 = TAGS_MAX;

/// How long a restarted target waits for other servers that it knows as clients, from the first sign of anybody: a
/// living one tries at least once a second, so it has two tries; a dead one must not hold everybody up.
pub const SERVER_RETURN: Span = Span::secs(2);
