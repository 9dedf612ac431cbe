//! Bounds of the state machines, with their derivation.

use types::Span;

/// Requests in flight to one target: at 10 us a request, 64 of them hide 640 us of latency.
pub const RPCS_IN_FLIGHT_DEFAULT: u32 = 64;

/// Tags of changes to one target: as many as requests in flight, so that tags are never the tighter
/// bound, and those of unlocks beside them.
pub const TAGS_DEFAULT: u32 = RPCS_IN_FLIGHT_DEFAULT + GIVING_UP_MAX;

/// Requests in flight or tags that one session may have: a reply record is about 400 bytes, so a
/// session's records stay below half a megabyte.
pub const TAGS_MAX: u32 = 1_024;

/// Requests of one import that wait to be sent. Each has a caller that waits; a mount has at most a
/// few thousand.
pub const QUEUED_MAX: usize = 65_536;

/// Pause before a request is sent again that the server answered with "recovering".
pub const RECOVERING_RETRY: Span = Span::millis(500);

/// Pause before a request is sent again that the server had no room for: at least this, whatever it
/// said, so that nobody asks without end.
pub const BUSY_RETRY_MIN: Span = Span::millis(10);

/// The same, at most: a server that names more is asked sooner, because it may have been wrong.
pub const BUSY_RETRY_MAX: Span = Span::secs(10);

/// Imports of one endpoint: 12 bits of an xid, four times the targets of the largest installations;
/// 31 bits of seconds and 20 of counter stand above.
pub const LANES_MAX: u32 = 4_096;

/// How far a replay may run ahead of one that is missing: what a client may have in flight.
pub const REPLAYS_AHEAD_MAX: u32 = TAGS_MAX;

/// Refused replays of one client that a recovery remembers. A client with more is evicted, and
/// counts everything as lost that was not durable.
pub const REFUSALS_MAX: usize = 65_536;

/// How long a restarted target waits for other servers that it knows as clients, from the first
/// sign of anybody: a living one tries at least once a second, so it has two tries; a dead one must
/// not hold everybody up.
pub const SERVER_RETURN: Span = Span::secs(2);

/// How long a restarted target waits for a client whose link was gone before the target ended, from
/// the first sign of anybody. One that lives has tried anew by then, whatever became of its last
/// Connect; it could not connect before, and most of those that cannot are dead. With the start of
/// the target and the end of its recovery, a call waits for a dead client for less than 5 s.
pub const SILENT_RETURN: Span = Span::millis(4_200);

/// Who was connected when a target ended and has not come back for so long is silent. The target's
/// machine may have died without a sign: then a client that lives waits for the end of an attempt
/// first (`Config::attempt`, 10 s), and may pause before the next one.
pub const MISSING_AFTER: Span = Span::millis(11_200);

/// How long a client waits for the answer to a Connect that resumes its session: what a dead target
/// was sent nobody answers.
pub const RESUME_ATTEMPT: Span = Span::secs(3);

/// Longest pause between two attempts to connect.
pub const RECONNECT_MAX: Span = Span::secs(1);

const _: () = assert!(RESUME_ATTEMPT.0 + RECONNECT_MAX.0 < SILENT_RETURN.0, "in time for its wait");

/// Times its longest window a recovery lasts at most, from the first sign of anybody: in the first
/// one who has to replay has all its time, in the second everybody who goes on is spared. At 120 s
/// that is 240 s; a client keeps 64 MiB of data and as much of other changes, which takes seconds.
pub const HARD_ENDS: u64 = 2;

/// A server's estimate up to this (its `at_min`, Lustre's default) says nothing but that it is not
/// slow.
pub const ESTIMATE_QUIET: Span = Span::secs(5);

/// Longest time that an attempt is given at once, whatever a server says it needs: what one early
/// reply asks for (`at_extra`), so that a server which died is not waited for longer than one that
/// asked for time. Whoever needs more asks with early replies.
pub const ATTEMPT_MAX: Span = Span::secs(30);

/// Longest extension that an early reply may ask for: `at_max` of Lustre. A peer that names more is
/// believed so far.
pub const EARLY_LEASE_MAX: Span = Span::secs(600);

/// Bytes of what an early reply says of the clients that a request waits for.
pub const AWAITED_BYTES_MAX: usize = 256;

/// Pings of an idle client in one lease: three may be lost.
pub const HEARTBEATS_IN_LEASE: u64 = 4;

/// Opcodes whose estimates an import remembers; there are fewer.
pub const ESTIMATES_MAX: usize = 128;

/// Requests that give something up, in flight beside all others: each takes thousands of grants, so
/// one would do; four do not wait for one that is lost.
pub const GIVING_UP_MAX: u32 = 4;

/// Callbacks in flight to one client: each is a vector, so that they are few.
pub const CALLBACKS_IN_FLIGHT: usize = 8;

/// Callbacks of one session without an answer, those in flight among them.
pub const CALLBACKS_MAX: usize = 256;

/// Their bytes, buffers only: those in flight may all have the longest vector. A client that never
/// answers costs this until the callers' patience ends.
pub const CALLBACK_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// A callback that is not answered is sent again after so long: links get it there or end, so only
/// one that the client had no place for, or that crossed its Connect, comes again.
pub const CALLBACK_RESEND: Span = Span::secs(1);

/// Callbacks that a client handles at once, of one target: all that may be in flight, and as many
/// that a target has given up since.
pub const CALLBACK_SLOTS: usize = 2 * CALLBACKS_IN_FLIGHT;

/// Longest answer to a callback: a vector of the longest elements and its head.
pub const CALLBACK_ANSWER_MAX: usize =
    wire::grants::VECTOR_MAX * size_of::<wire::body::GrantSize>() + 4_096;

const _: () = assert!(
    CALLBACKS_IN_FLIGHT * (wire::grants::VECTOR_MAX * size_of::<wire::body::GrantWord>())
        <= CALLBACK_BYTES_MAX
);
