//! Bounds and times of grants, and where each comes from.

use types::Span;

/// A session's lease. Everybody else waits for it once when a client freezes; a client renews it
/// four times as often.
pub const LEASE: Span = Span::secs(10);

/// The lease ends this much earlier for the client: answers may be late on their way to the caller.
pub const LEASE_SLACK: Span = Span::secs(1);

/// How much longer the MDT waits for the end of a time than the client counts: clocks of two
/// machines run apart by less.
pub const SKEW_PERCENT: u64 = 10;

/// A client that has not acknowledged a recall by then no longer gets its lease renewed.
pub const CALLBACK_DEADLINE: Span = Span::secs(5);

/// The same of a recall of [`Bits::WRITE`](super::Bits::WRITE). Its client sends data to an OST
/// first, which may be starting again. Nobody can use that data before the OST is back.
pub const FLUSH_DEADLINE: Span = Span::secs(300);

/// A change waits for a client that is dead or frozen no longer than this.
pub const DEAD_WAIT_MAX: Span = Span::secs(11);

/// A change waits for a client that lives and does not give up no longer than this.
pub const SILENT_WAIT_MAX: Span = Span::secs(16);

const _: () = assert!(LEASE.0 / 100 * (100 + SKEW_PERCENT) == DEAD_WAIT_MAX.0);
const _: () = assert!(DEAD_WAIT_MAX.0 + CALLBACK_DEADLINE.0 == SILENT_WAIT_MAX.0);

/// A recall that is not acknowledged is sent again after this, five times before the deadline.
pub const RECALL_RESEND: Span = Span::secs(1);

/// A timed grant, by the client's clock: what the few requests of one system call need.
pub const TIMED: Span = Span::millis(50);

/// A client that was slow to answer its recalls gets timed grants for this long.
pub const SLOW: Span = Span::secs(30);

/// So many conflicts within [`CONTENTION_WINDOW`] make bits of a file contended (Lustre: the
/// detector of contended locks).
pub const CONTENTION_CONFLICTS: u32 = 16;
/// See [`CONTENTION_CONFLICTS`].
pub const CONTENTION_WINDOW: Span = Span::secs(4);
/// Contended bits are not granted for this long.
pub const CONTENDED: Span = Span::secs(30);
/// Files whose conflicts are counted; beyond, all counts are forgotten together.
pub const CONTENDED_MAX: usize = 65_536;

/// Files of which nothing is granted for a while; beyond, all of them are forgotten together.
pub const PAUSED_MAX: usize = 65_536;

/// Holders of one file. A broadcast to more costs longer than waiting for the end of timed grants.
pub const HOLDERS_MAX: u32 = 64;

/// Grants of one session; it is also the largest `lru_size`.
pub const SESSION_GRANTS_MAX: u32 = 1 << 20;

/// Default of the grants of one MDT: at most 80 bytes each, 800 MB.
pub const GRANTS_MAX: u32 = 10_000_000;

/// Recalls, acknowledgements, sheddings and restatements in one message.
pub const VECTOR_MAX: usize = 4_096;

/// Files that one change is about. A rename changes two directories, two files and what the
/// directories are in. A directory whose names move has at most 512 shards, and an operation that
/// moves names is about at most 64 of them, each with its file.
pub const WANTS_MAX: usize = 1_024;

/// Files that are remembered as given up while older requests are under way; beyond, nothing is
/// taken from the answers of these requests.
pub const GHOSTS_MAX: usize = 65_536;

/// Default of `lru_size`: grants that a client keeps before it gives back the least used. At
/// [`CLIENT_GRANT_BYTES_MAX`] each they take 52 MB. The client library keeps values of exactly
/// these files, so this is its limit too.
pub const LRU_SIZE: u32 = 131_072;

/// Default of `lru_max_age`: an unused grant is given back (Lustre has 3,900 s, later 600 s).
pub const LRU_MAX_AGE: Span = Span::secs(600);

/// Share of the grants, in percent, that those used more than once may have: a scan of a large
/// directory cannot drive them out, and they cannot fill the cache.
pub const LRU_KEPT_PERCENT: u32 = 70;

/// A kernel that has not taken an invalidation by then may be waiting for the very change: the
/// client makes all names of the mount stale at once, which never waits, and acknowledges.
pub const NOTIFY_STUCK: Span = Span::millis(20);

/// A directory in which the kernel was stuck gets no validity for this long.
pub const DISTRUSTED: Span = Span::secs(30);

/// Directories that are remembered as [`DISTRUSTED`]; beyond, all of them are forgotten together.
pub const DISTRUSTED_MAX: usize = 4_096;

/// Names of one directory that a client keeps as known; a directory with more is asked for each.
pub const DIR_NAMES_MAX: usize = 1_000_000;

/// Names of all directories that a client keeps as known, about 12 bytes each.
pub const NAMES_MAX: usize = 8_000_000;

/// Starts of a target that numbers tell apart.
pub const EPOCHS_MAX: u32 = 1 << 20;

/// Numbers of one epoch: 5 years of 100,000 gifts a second.
pub const EPOCH_SHIFT: u32 = 44;

/// Memory of a grant at the MDT, bytes, its part of the index included.
pub const MDT_GRANT_BYTES_MAX: usize = 80;

/// Memory of a grant at a client, bytes, its part of the index included.
pub const CLIENT_GRANT_BYTES_MAX: usize = 400;
