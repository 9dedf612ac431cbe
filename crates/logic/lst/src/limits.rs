//! Bounds of the self-test, with their derivation.

use types::Span;

/// A node that hears nothing of its session for so long drops it (Lustre: `session_timeout` of the
/// module).
pub const MEMBER_SILENCE_MAX: Span = Span::secs(100);

/// A console that gets no command for so long ends its session (Lustre: `lst new_session
/// --timeout`).
pub const SESSION_TIMEOUT_SECS_DEFAULT: u32 = 300;

/// A test's request without an answer is given up after this (Lustre: `rpc_timeout`).
pub const RPC_TIMEOUT: Span = Span::secs(64);

/// A console asks nodes that it has not heard of for so long; ten times within
/// [`MEMBER_SILENCE_MAX`].
pub const PING_EVERY: Span = Span::secs(10);

/// A control request is given up after this.
pub const CONTROL_TIMEOUT: Span = Span::secs(10);

/// Loops for each pair of nodes.
pub const CONCURRENCY_MAX: u32 = 1_024;

/// Bytes of a transfer: LNet's largest message.
pub const BRW_BYTES_MAX: u32 = 1 << 20;

/// Bytes of a transfer that names no size.
pub const BRW_BYTES_DEFAULT: u32 = 4_096;

/// Characters of a name, as in Lustre (`LST_NAME_SIZE` without its NUL).
pub const NAME_CHARS_MAX: usize = 31;

/// Nodes of a session; a control request to all of them is 40 MiB of futures.
pub const NODES_MAX: usize = 4_096;

/// Groups of a session.
pub const GROUPS_MAX: usize = 256;

/// Batches of a session.
pub const BATCHES_MAX: usize = 256;

/// Tests of a batch.
pub const TESTS_MAX: usize = 256;

/// Destinations of all tests of a node, 16 bytes each: 256 tests of all nodes.
pub const DESTINATIONS_MAX: usize = 256 * NODES_MAX;

/// Loops of a node: 4,096 destinations with 16 each; a loop holds at most one transfer.
pub const LOOPS_MAX: u32 = 65_536;

const _: () = assert!(BRW_BYTES_MAX <= wire::BULK_BYTES_MAX);
const _: () = assert!(PING_EVERY.0 * 5 < MEMBER_SILENCE_MAX.0);
