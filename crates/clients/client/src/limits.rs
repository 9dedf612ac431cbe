//! Bounds of the client, with their derivation.

use types::Span;

/// Pause between questions to an MGS that does not know the file system yet: targets register one
/// by one.
pub const MOUNT_RETRY: Span = Span::millis(100);

/// How long a mount asks the MGS before it looks whether that machine refuses it: attempts to
/// connect are at most a second apart.
pub const REFUSED_LOOK: Span = Span::secs(2);

/// How long a mount that gives up some day asks an MGS that knows nothing of its file system. The
/// first target of a fresh one registers within seconds; a wrong name never does.
pub const UNKNOWN_WAIT: Span = Span::secs(10);

/// After this long the log says that the MGS knows no MDT of the file system.
pub const UNKNOWN_QUIET: Span = Span::millis(1_500);

/// Two reads of the configuration are at least this far apart, however many connects fail.
pub const REFRESH_MIN: Span = Span::millis(200);

/// Patience of a refresh: the MGS may be away for ever, and the next round asks again.
pub const REFRESH_PATIENCE: Span = Span::secs(5);

/// How long an unmount waits for what its servers have not made durable: a server that restarts is
/// back well within it, and an administrator sees what is waited for meanwhile.
pub const UNMOUNT_WAIT_DEFAULT: Span = Span::secs(300);

/// Pause between two attempts of an unmount to have everything made durable, where a server
/// refused.
pub const SETTLE_PAUSE: Span = Span::secs(1);

/// How long an unmount that gives up asks for the names of files.
pub const GIVEN_UP_NAME_WAIT: Span = Span::secs(2);

/// How long a close waits for another request with closes that is under way at its MDT. Most are
/// answered within a fraction of it, and one that waits for a commit or for other MDTs must not
/// delay all others.
pub const CLOSES_WAIT: Span = Span::millis(10);

/// Closes that wait at a time, for each MDT. Further ones are sent at once. They fill as many
/// requests as may be in flight to a target.
pub const CLOSES_WAITING_MAX: usize = 64 * wire::body::CLOSES_MAX;

/// How old the mode may be by which a write decides whether set-user-id must fall: as long as a
/// short lease, so that one question serves all writes of that time.
pub const MODE_AGE: Span = Span::millis(50);

/// How long a write waits for the answer, and how long it then goes without asking.
pub const MODE_PATIENCE: Span = Span::secs(1);

/// How long an MDT may hold back the answer to a lock request, below the deadline of an attempt.
pub const LOCK_WAIT_MS: u32 = 4_000;

/// Lock requests that may wait at the MDT at a time: a quarter of the requests in flight, so that
/// unlocks and everything else always find a place. Further waiters are called.
pub const LOCK_WAITS_MAX: usize = 16;

/// Attempts to follow a name to a file at another MDT, where that has no such file: the name is
/// being moved meanwhile. Together with the pauses longer than an operation of two MDTs takes.
pub const MOVING_TRIES: u32 = 20;

/// Attempts to reach a new shard of a directory that its MDT does not have yet. Together with the
/// pauses longer than the recovery of an MDT that has to complete the change.
pub const SHARD_TRIES: u32 = 3_000;

/// Names of a listing that are remembered, 32 bytes each. Of more of them, some may be listed twice
/// while the directory's names move to other shards.
pub const LISTED_MAX: usize = 4 << 20;

/// Pause between two of them.
pub const MOVING_PAUSE: Span = Span::millis(10);

/// How long a kernel believes a name at most. After a rename to another MDT that one counts the
/// name for it.
pub const KERNEL_BELIEF_MAX: Span = Span::secs(10);

/// Pause before a request is repeated that the server cannot carry out yet: its peers are still
/// registering.
pub const IN_PROGRESS_PAUSE: Span = Span::millis(50);

/// How long an open or a truncate asks again that met a program that runs elsewhere, or one that
/// is being written there (ETXTBSY): a kernel tells of the last close of a file somewhat after its
/// `close` has returned, or its program has ended.
pub const TEXT_BUSY_WAIT: Span = Span::millis(1_000);

/// Pause between two of these questions.
pub const TEXT_BUSY_PAUSE: Span = Span::millis(10);

/// Between looks whether the MDT is back, where a change needs a lock that it gave.
pub const LEASE_LOOK: Span = Span::millis(100);

/// A waiter that is called asks again after this long anyhow: its call may be lost, and the MDT
/// keeps its place for 10 s. As often as requests that wait at the MDT.
pub const LOCK_ASK_AGAIN: Span = Span::secs(4);

/// How long a wait for a lock that is given up goes on until the MDT has forgotten it: many times a
/// round trip, and short for the user who presses Ctrl-C while the MDT is away.
pub const LOCK_GIVE_UP: Span = Span::secs(1);

/// First pause of a lock request that found no place to wait, at an MDT that does not call its
/// client. It doubles.
pub const LOCK_POLL: Span = Span::millis(20);

/// Longest such pause: 200 blocked programs of a mount send 600 requests a second.
pub const LOCK_POLL_MAX: Span = Span::millis(320);

/// Entries of a glimpse request: as many as OSTs have always taken. An entry has 24 bytes, and 72
/// bytes in the reply, which stays within one frame.
pub const GLIMPSE_BATCH_MAX: usize = wire::grants::VECTOR_MAX;

/// Objects of one request that raises their version. The OST locks 64 of them at a time.
pub const RAISE_BATCH_MAX: usize = 1_024;

/// Files of one getattr of many by FIDs, as MDTs bound it. The reply holds those that fit.
pub const GETATTRS_MAX: usize = wire::grants::VECTOR_MAX;

/// Files of one getattr of many by names, each of up to 256 bytes.
pub const GETATTRS_NAMES_MAX: usize = 1_024;

/// Such requests that one call keeps in flight.
pub const GETATTRS_IN_FLIGHT: usize = 8;

/// Names of a series that are asked ahead at most, unless set otherwise. Lustre: 128.
pub const STATAHEAD_DEFAULT: u32 = 128;

/// So long a lookup waits for an answer that was asked ahead. Others of the same request may need
/// a server that is away, and the MDT does not wait long for a kernel that holds a directory.
pub const AHEAD_WAIT: Span = Span::millis(20);

/// Calls at a time that ask the objects of files whose names were asked ahead. An OST that is away
/// holds them up.
pub const AGL_IN_FLIGHT: u32 = 4;

/// So long a client that is asked for sizes sends what it keeps of the files.
pub const TELL_WAIT: Span = Span::millis(300);

/// And at most of all. Lustre: 2,048; here one request.
pub const STATAHEAD_MAX: u32 = GETATTRS_NAMES_MAX as u32;

/// Metadata requests that one batch call keeps in flight: half of what a connection takes.
pub const BATCH_RPCS_MAX: usize = 32;

/// Bytes of one directory page at most, as the servers bound it.
pub const READDIR_BYTES_MAX: u32 = 1 << 20;

/// And at least: room for several entries of the longest name.
pub const READDIR_BYTES_MIN: u32 = 4 << 10;

/// Patience with a target that is connected, or not known to be away, when only its space is asked.
pub const STATFS_CONNECTED_WAIT: Span = Span::secs(5);

/// A dirty file that was not written for so many seconds may have lost its writer: its size is
/// offered to the MDT.
pub const QUIET_SECS: i64 = 10;

/// Offers remembered: forgetting one costs a request.
pub const OFFERED_MAX: usize = 1_024;

/// Bytes that one call copies at most, so that it can be interrupted within a second or so: the
/// caller asks again.
pub const COPY_BYTES_MAX: u64 = 256 << 20;

/// How long a new directory waits for MDTs that this client knows and the parent's MDT does not:
/// all hear of a new MDT from the MGS, one somewhat later than the other.
pub const NEW_MDT_WAIT: Span = Span::secs(3);

/// Between two attempts.
pub const NEW_MDT_PAUSE: Span = Span::millis(20);

/// Bytes of a copy in memory at a time: enough for a few requests in flight to each side.
pub const COPY_PIECE_BYTES: u64 = 8 << 20;

/// How long a migration lets others wait, where what they write can be copied so fast.
pub const MIGRATE_PAUSE: Span = Span::millis(200);

/// Rounds of a migration: what others still change by then is copied while they wait.
pub const MIGRATE_ROUNDS_MAX: u32 = 5;

/// The longest wait of a migration's last pass for a server that does not answer: longer than a
/// restart with its recovery. Other callers wait for the pass.
pub const MIGRATE_STALL: Span = Span::secs(30);

/// Between looks whether the last pass of a migration goes on.
pub const MIGRATE_LOOK: Span = Span::secs(1);

/// Pieces of [`COPY_PIECE_BYTES`] that a migration reads and writes side by side.
pub const MIGRATE_PIECES: usize = 4;

/// Generations by which a migration that failed raises the file's layout, a request each: more than
/// a layout of full size has components, of which each raised the copy's generation by one.
pub const MIGRATE_RENEWALS_MAX: u32 = 4_096;

/// Files and directories of which lost work is remembered until somebody has heard of it: 32 bytes
/// each. Of more of them every handle of the mount hears.
pub const LOST_FILES_MAX: usize = 65_536;

/// Lines of the log about the work that one eviction lost: a screen of them names what matters, the
/// rest is counted.
pub const LOST_LOGGED_MAX: usize = 1_000;

/// Files whose paths are asked for and logged, of the work that one eviction lost.
pub const LOST_NAMED_MAX: usize = 64;

/// How long those paths are waited for.
pub const LOST_NAME_WAIT: Span = Span::secs(60);

/// Layouts of a file under which one call is tried: each is one that somebody changed meanwhile.
pub const LAYOUTS_TRIED_MAX: u32 = 16;

/// Access times are stored once in this many seconds (relatime).
pub const ATIME_SECS: i64 = 24 * 3_600;

/// A write of so many bytes is sent at once: it has the rate of a stream already, and keeping it
/// would cost a copy.
pub const KEPT_WRITE_BYTES: usize = 1 << 20;

/// A run of kept writes is sent when it has so many bytes: one request of full size.
pub const RUN_BYTES: usize = 1 << 20;

/// A run is sent when no write has joined it for this long.
pub const KEPT_IDLE: Span = Span::millis(100);

/// No acknowledged write is kept for longer: this is what a daemon that dies may lose.
pub const KEPT_AGE: Span = Span::secs(1);

/// Bytes of a mount that are acknowledged and not sent, or on their way: what an OST writes in half
/// a second. A write beyond them waits for the OSTs, like any large write.
pub const KEPT_BYTES_MAX: usize = 64 << 20;

/// Room at an OST that is asked for at a time: some runs for each of a few files.
pub const RESERVED_BYTES: u64 = 16 << 20;

/// More is asked for when less than this is left.
pub const RESERVED_LOW_BYTES: u64 = 8 << 20;

/// Room of which nothing was used for so long is given back.
pub const ROOM_REST: Span = Span::secs(5);

/// What a file system takes at least for bytes of an object.
pub const ROOM_UNIT: u64 = 4_096;

/// Room that a run takes besides: an object, and what the file system keeps of its extents.
pub const ROOM_OF_RUN: u64 = 16 << 10;

/// So long a directory's new files are not offered to the MDT with their bytes once it has refused
/// one: a default layout changes rarely, and a request with bytes costs little more than one.
pub const PUT_REFUSED_FOR: Span = Span::secs(10);

/// Such directories that are remembered, 40 bytes each.
pub const PUT_REFUSED_MAX: usize = 64;

/// So long after a close that brought the bytes of its file an open counts as one that has to wait
/// for a commit: a little more than MDTs take between commits.
pub const BROUGHT_FOR: Span = Span::millis(1_500);

/// Files with such closes that are remembered, 40 bytes each.
pub const BROUGHT_FILES_MAX: usize = 4_096;

/// Pause of kept writes that met a full disk in spite of their room.
pub const FULL_PAUSE: Span = Span::millis(200);

/// So long they are sent again.
pub const FULL_WAIT: Span = Span::secs(60);

const _: () = assert!(RESERVED_LOW_BYTES < RESERVED_BYTES);
const _: () = assert!(RUN_BYTES < KEPT_BYTES_MAX);

const _: () = assert!(GLIMPSE_BATCH_MAX * size_of::<wire::body::OstAttr>() < wire::FRAME_BYTES_MAX);
const _: () = assert!((LOCK_WAITS_MAX as u32) < endpoint::limits::RPCS_IN_FLIGHT_DEFAULT);
const _: () = assert!(BATCH_RPCS_MAX as u32 <= endpoint::limits::RPCS_IN_FLIGHT_DEFAULT);

/// How often a path may lead from one MDT to another: directories are nested less deeply.
pub(crate) const PATH_MDTS_MAX: u32 = 4_096;

/// Places of one pass over a directory: cookies have 8 bits for them.
pub(crate) const PLACES_MAX: usize = 256;

/// How long a change of a directory of another MDT waits before the kernel forgets the directory's
/// attributes: the MDT that answers may be away for seconds. A call back takes 50 ms at most.
pub const BESIDE_WAIT: Span = Span::millis(50);
