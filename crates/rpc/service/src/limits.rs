//! Bounds of a server node, with their derivation.

use types::Span;

/// What a request is counted with beside its buffers: its header and place in the session, its
/// state, its slots in a head and a policy. `examples/crowd.rs` measures it.
pub const REQUEST_BYTES: u64 = 1_024;

/// `req_bytes_max` at the start: 1,000,000 requests without data, with an eighth and more beside.
pub const REQ_BYTES_DEFAULT: u64 = 2 << 30;

/// `req_bytes_max` at least: a request of the largest size has room in an idle node.
pub const REQ_BYTES_MIN: u64 = 64 << 20;

/// `req_bytes_max` at most: more than the memory of a machine is no bound.
pub const REQ_BYTES_MAX: u64 = 1 << 40;

/// Eighths of a node's bytes that one service may have: the others keep the rest.
pub const SERVICE_PARTS: u64 = 7;

/// A session may hold this part of what it leaves free in a service: 7 MiB at the start, which is
/// 64 requests in flight with 64 KiB of data each, or some 7,000 without.
pub const SESSION_PART: u64 = 256;

/// A request of more than this has room as the first of its session in a service...
pub const LARGE_BYTES: u64 = 64 << 10;

/// ...where it takes no more than this part of what is free.
pub const FIRST_PART: u64 = 8;

/// First pause that a client is asked for whose request has no room: below what a person notices,
/// and ten questions a second.
pub const BUSY_PAUSE_MIN: Span = Span::millis(100);

/// The longest.
pub const BUSY_PAUSE_MAX: Span = Span::secs(2);

/// For so many bytes that a session holds, its pause is a millisecond longer: the longest from some
/// 4,000 requests on.
pub const BUSY_BYTES_PER_MS: u64 = 2 << 10;

/// Requests that a service starts before others have their turn: those of other services, of links,
/// early replies. At 5 us each, 320 us.
pub const STARTS_MAX: usize = 64;

/// Requests that are looked at, or taken out of heads, before others have their turn.
pub const LOOKS_MAX: usize = 256;

/// Frames of one link that are handled before the replies leave. With 64 requests in flight a batch
/// of 64 has either side idle while the other works; half of it keeps both busy.
pub const BATCH_FRAMES_MAX: usize = 32;

/// Tags per session, agreed at connect: Lustre's `max_mod_rpcs_in_flight`, and unlocks beside it.
pub const TAGS_MAX: u32 = RPCS_IN_FLIGHT_MAX + ptlrpc::limits::GIVING_UP_MAX;

/// Requests in flight per session that a client is told to keep to.
pub const RPCS_IN_FLIGHT_MAX: u32 = 64;

/// Executing and held requests per session: what the client is told, and as many that wait for
/// locks; a client beyond that is told to ask again, or, of requests that need no room, has its
/// link closed. A mount with more blocked lock waiters than this is not a mount.
pub const EXECUTING_MAX: usize = 16_384;

/// Bytes of requests of one session that need no room, held and executing: four times what a client
/// keeps for replay, of which it sends a thousand at once. Beyond it the link is closed.
pub const PASSING_BYTES_MAX: u64 = 256 << 20;

/// Beside it there is this part of `req_bytes_max`: more than a session gets in all services.
pub const PASSING_PART: u64 = 16;

/// The same of all sessions of a node: what 20,000 clients send at once that keep to their requests
/// in flight. No address has more than it leaves free. Beyond it, a session that holds more than
/// [`PASSING_BYTES_SESSION`] is told to ask again, or has its link closed if it replays.
pub const PASSING_BYTES_ALL_MAX: u64 = 2 << 30;

/// What a session may hold of them whatever others hold.
pub const PASSING_BYTES_SESSION: u64 = 64 << 10;

/// A silent client in somebody's way has a tenth of its lease more than it was told: the two count
/// from different moments, by different clocks.
pub const LEASE_GRACE_PART: u64 = 10;

/// Records say in these steps how long a client has been silent: a target that ends counts at most
/// a step, a round of housekeeping and a commit anew. A client whose link goes costs six small
/// records until its lease is over.
pub const SILENCE_STEP: Span = Span::secs(2);

/// A server whose housekeeping did not look for so long stood still: three rounds of it.
pub(crate) const INATTENTION_MAX: Span = Span::secs(3);

/// Afterwards a client whose link broke meanwhile is not called silent for so long: it connects
/// again within a pause (`reconnect_max`, 1 s) and a round trip.
pub(crate) const RETURN_MAX: Span = Span::secs(3);

/// Clients that the log and `recovery_status` name of those for whom a recovery waits.
pub const AWAITED_NAMES_MAX: usize = 16;

/// Bytes of answers that are put together at once for one link: eight reads of the largest size. As
/// much as a link's queue holds (`queue_bytes_max`, 8 MiB) may stand there beside them, so a peer
/// that takes nothing costs some 40 MiB, however much it asks for.
pub const ANSWER_BYTES_MAX: u64 = 32 << 20;

/// Bytes of one answer: data of the largest size, and as much beside it.
pub(crate) const ANSWER_BYTES_ONE_MAX: u64 = 2 * wire::BULK_BYTES_MAX as u64;

/// An answer of no more than this is not counted in [`ANSWER_BYTES_MAX`]: it is put together when
/// its link has room, and stands in the link's queue at once.
pub const ANSWER_BYTES_SMALL: u64 = 16 << 10;

/// Bytes of answers of all links of a node, assembled and in queues: those of 25 peers that take
/// nothing, or of one that takes all of a 100 Gbit/s network for 80 ms. No address holds more than
/// it leaves free, but each of its links may have one answer while a quarter stays free: 32 links
/// of one address with the largest answers. Beyond it a request is told to ask again.
pub const ANSWER_BYTES_ALL_MAX: u64 = 1 << 30;

/// So much of the queue of each link is not counted in [`ANSWER_BYTES_ALL_MAX`]: as much as a link
/// reads ahead, and the replies to a batch of requests.
pub const ANSWER_BYTES_LINK: u64 = 64 << 10;

/// Links whose queues are looked at for each question after room in [`ANSWER_BYTES_ALL_MAX`]. A
/// question adds one link at most, so those that have emptied their queues leave soon.
pub(crate) const LINK_LOOKS_MAX: usize = 8;

/// How often the reader of a link looks whether there is room again. A thousand links that wait
/// cost 10,000 looks a second.
pub(crate) const CROWDED_LOOK: Span = Span::millis(100);

/// Sessions of one target: some 2 KiB each while they are idle, so 128 MiB. Lustre's largest
/// installations have 50,000 clients.
pub const SESSIONS_MAX: usize = 65_536;

/// Whether there is a place for one more session where there are `total`, `of_address` of them from
/// its address. No address has more than it leaves free: one that takes all it can get has half,
/// two have three quarters, so that a newcomer finds a place beside sixteen of them.
pub(crate) fn has_place(total: usize, of_address: usize) -> bool {
    of_address < SESSIONS_MAX.saturating_sub(total)
}

/// Characters of a client's name, which is for people: more of it is not kept.
pub const NAME_CHARS_MAX: usize = 128;

/// Bytes that they may have.
pub(crate) const NAME_BYTES_MAX: usize = NAME_CHARS_MAX * 4;

/// How often a target's housekeeping looks around.
pub const TICK: Span = Span::secs(1);

/// A client that does not send what it offered is given so long, and never more than half of the
/// time that its attempt has: the resend then does better than the wait.
pub const PULL_WAIT_MAX: Span = Span::secs(10);

/// `req_buffer_history_max` at most: 200 bytes each, 13 MiB.
pub const HISTORY_MAX: usize = 65_536;

/// `req_buffers_max` at most: what a head has been measured with.
pub const BUFFERS_MAX: usize = 10_000_000;

/// Longest of the times that adaptive timeouts are set with: a day.
pub const AT_SECS_MAX: u64 = 86_400;

/// Highest `at_unhealthy_factor`.
pub const UNHEALTHY_FACTOR_MAX: u32 = 1_000;

/// Granularity of the account of pulled bytes.
pub(crate) const BULK_UNIT: usize = 4_096;

const _: () = assert!(ANSWER_BYTES_ALL_MAX >= 8 * ANSWER_BYTES_MAX);
const _: () = assert!(ANSWER_BYTES_ALL_MAX / 4 >= 16 * ANSWER_BYTES_ONE_MAX);
const _: () = assert!(ANSWER_BYTES_LINK >= ANSWER_BYTES_SMALL);
const _: () = assert!(TAGS_MAX <= ptlrpc::limits::TAGS_MAX);
const _: () = assert!(PASSING_PART < SESSION_PART / 12);
const _: () = assert!(PASSING_BYTES_ALL_MAX / 2 > PASSING_BYTES_MAX);
const _: () = assert!(PASSING_BYTES_SESSION >= RPCS_IN_FLIGHT_MAX as u64 * REQUEST_BYTES);
const _: () = assert!(RPCS_IN_FLIGHT_MAX as usize <= EXECUTING_MAX);
const _: () = assert!(REQ_BYTES_DEFAULT / 8 * SERVICE_PARTS > 1_000_000 * REQUEST_BYTES);
const _: () = assert!(SILENCE_STEP.0 >= TICK.0 && SILENCE_STEP.0.is_multiple_of(TICK.0));
const _: () = assert!(INATTENTION_MAX.0 > 2 * TICK.0);
