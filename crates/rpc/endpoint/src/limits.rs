//! Bounds of an endpoint, with their derivation.

pub use ptlrpc::limits::RPCS_IN_FLIGHT_DEFAULT;

/// Written bytes of one target that may wait for its commit: 16 transfers of 4 MiB.
pub const UNSTABLE_BYTES_MAX_DEFAULT: u64 = 64 << 20;

/// Bytes of changes kept for replay, data not counted: some 60,000 creates, so that a commit is
/// asked for only where the target's own interval and bound do not hold.
pub const REPLAY_BYTES_MAX_DEFAULT: u64 = 64 << 20;

const _: () = assert!(UNSTABLE_BYTES_MAX_DEFAULT >= wire::BULK_BYTES_MAX as u64);

/// Frames that a reader handles before those who were answered ask again and what they send leaves.
/// With 64 requests in flight a batch of 64 has either side idle while the other works; half of it
/// keeps both busy.
pub const BATCH_FRAMES_MAX: usize = 32;

/// Targets of one endpoint.
pub const REMOTES_MAX: usize = ptlrpc::limits::LANES_MAX as usize;

/// Longest wait for the answers to Disconnect: an unmount must not hang on a dead server.
pub const SHUTDOWN_WAIT: types::Span = types::Span::secs(2);
