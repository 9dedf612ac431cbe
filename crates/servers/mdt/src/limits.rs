//! Bounds of an MDT.

use types::Span;
use wire::updates;

/// Hard links of one file. As ext4 has it: programs that probe for EMLINK find it in reasonable
/// time.
pub(crate) const NLINK_MAX: u32 = 65_000;

/// Entries of one readdir slice: some 150 us of scanning, so that nobody waits long behind it.
pub(crate) const READDIR_ENTRIES_MAX: usize = 1_024;

/// A page or a vector that takes longer, because its records come from the disk, is answered with
/// what there is. The thread serves others then, and the caller asks on. A page of records in
/// memory takes less than a tenth of this.
pub(crate) const LONG_ANSWER_MAX: Span = Span::millis(10);

/// Inodes that one scan reads for grants that a client states: so many that its start costs little,
/// and so few that files of different times have scans of their own.
pub(crate) const JUDGED_AT_ONCE: usize = 256;

/// Records that the closes of one request remove: some milliseconds. A file without a name goes
/// with its last close, and one of 2,000 stripes has as many records.
pub(crate) const CLOSES_CHANGES_MAX: usize = 1_024;

/// Bytes of one readdir reply.
pub(crate) const READDIR_BYTES_MAX: usize = 1 << 20;

/// Files of one getattr of many: as many as one vector asks a writer for. Records in memory take
/// less than half of [`LONG_ANSWER_MAX`], which ends the answer.
pub(crate) const GETATTRS_MAX: usize = wire::grants::VECTOR_MAX;

/// Bytes of the answer, but for one file.
pub(crate) const GETATTRS_BYTES_MAX: usize = READDIR_BYTES_MAX;

/// How long a writer may take to tell the sizes of its files, before their objects are asked:
/// longer than a queue at a busy client, and shorter than a reader notices.
pub(crate) const WRITER_PATIENCE: Span = Span::millis(500);

/// So long a writer is not asked again that has not told a size in time.
pub(crate) const WRITER_REST: Span = Span::secs(10);

/// Such writers that are remembered, 24 bytes each.
pub(crate) const WRITERS_SILENT_MAX: usize = 4_096;

/// Callbacks that a client has not answered from which on it is not asked for sizes: recalls need
/// the places that are left.
pub(crate) const GLIMPSES_UNANSWERED_MAX: usize = ptlrpc::limits::CALLBACKS_IN_FLIGHT / 2;

/// Client nodes of `export_stats`: a KiB each.
pub(crate) const TALLY_NIDS_MAX: usize = 4_096;
/// Jobs of `job_stats`: a KiB each.
pub(crate) const TALLY_JOBS_MAX: usize = 1_024;

/// Name of an extended attribute (XATTR_NAME_MAX).
pub(crate) const XATTR_NAME_BYTES_MAX: usize = 255;

/// Value of an extended attribute (XATTR_SIZE_MAX).
pub(crate) const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// Names of one file's extended attributes together (XATTR_LIST_MAX).
pub(crate) const XATTR_LIST_BYTES_MAX: usize = 64 << 10;

/// Ids that are made durable ahead of their use. At 50,000 creates a second and a commit each
/// second half of it lasts ten seconds; burning the rest at each restart leaves 4,000 restarts per
/// sequence, and sequences abound.
pub(crate) const ID_RANGE: u32 = 1 << 20;

/// Sequences of one MDT: the lower half for files, the upper for objects.
pub(crate) const SEQUENCES_PER_MDT: u64 = 1 << types::FID_SEQUENCES_PER_MDT_BITS;

/// Objects that are written for one create. After each of them something else came in its way; then
/// its client makes the file without its bytes.
pub(crate) const PUT_WRITES_MAX: u32 = 3;

/// Before the object of a file that was not made is removed again, after its data target could not.
pub(crate) const PUT_REMOVE_PAUSE: Span = Span::secs(1);

/// Records of removed files that go to an OST in one request.
pub(crate) const DESTROY_BATCH_MAX: usize = 4_096;

/// Objects of the records that are looked at together: all may be on one OST. Fewer records of wide
/// files make a batch.
pub(crate) const DESTROY_BATCH_OBJECTS: usize = 1 << 18;

/// Records of removed files that are counted for a parameter: some ten milliseconds of work.
pub(crate) const DESTROYS_COUNTED_MAX: u64 = 65_536;

const _: () = assert!(DESTROY_BATCH_MAX <= osd::RANGE_RECORDS_MAX, "they go in one set");

/// A sync waits no longer than this for OSTs to destroy what was removed: it promises durability,
/// not room.
pub(crate) const ROOM_WAIT: Span = Span::secs(3);

/// Changed keys that commit on share remembers; one more forces a commit.
pub(crate) const SHARED_KEYS_MAX: usize = 262_144;

/// Files whose open-for-write count is kept although nobody has them open; beyond, all of them are
/// forgotten together.
pub(crate) const IDLE_EPOCHS_MAX: usize = 65_536;

/// How long an operation may be held back while the lock is not free, whatever the client says.
pub(crate) const LOCK_WAIT_MS_MAX: u32 = 30_000;

/// How long a client may take to answer a call that its locks are free. It asks again by itself
/// after as long.
pub(crate) const LOCK_CALL_PATIENCE: Span = Span::secs(4);

/// How often one that waits for a lock looks whether a dead client is in its way: adds a fifth to
/// the time after which a client counts as dead.
pub(crate) const DEAD_CLIENT_CHECK: Span = Span::secs(1);

/// Levels of directories that a walk to the root visits before it calls the tree broken.
pub(crate) const DEPTH_MAX: usize = 16_384;

/// Paths of one file that fid2path tells.
pub(crate) const FID2PATH_PATHS_MAX: usize = 64;

/// Bytes of one path of fid2path, and of all of them.
pub(crate) const FID2PATH_BYTES_MAX: usize = 256 << 10;

/// Largest size of a file.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

const _: () = assert!(READDIR_BYTES_MAX < wire::BULK_BYTES_MAX as usize);
const _: () =
    assert!(GETATTRS_BYTES_MAX + wire::stats::LAYOUT_BYTES_MAX < wire::BULK_BYTES_MAX as usize);
const _: () = assert!(XATTR_VALUE_BYTES_MAX < wire::BULK_BYTES_MAX as usize);
const _: () = assert!(16 + XATTR_NAME_BYTES_MAX <= osd::KEY_BYTES_MAX);

/// How far ahead a client's clock may be and still order what it does, seconds.
pub(crate) const CLOCK_AHEAD_SECS: i64 = 60;

/// Fences that OSTs are to be told, an OST and an ended session each: a kilobyte with its task, so
/// 64 MiB. At the bound nobody gets a new session, so that nobody new can lapse.
pub(crate) const FENCES_UNTOLD_MAX: usize = 65_536;

/// Those of one client, which gets no new session at this bound: one that comes and goes leaves
/// room for fifteen others of its kind.
pub(crate) const FENCES_UNTOLD_OF_CLIENT_MAX: usize = FENCES_UNTOLD_MAX / 16;

/// Handles of one session: 180 MiB, each with a file of its own. A process has 1,024 by default.
pub(crate) const OPENS_OF_SESSION_MAX: usize = 1 << 18;

/// Handles of all sessions: 2.8 GiB. A session that has all it may leaves fifteen others as much.
pub(crate) const OPENS_MAX: usize = 1 << 22;

const _: () = assert!(OPENS_OF_SESSION_MAX * 16 <= OPENS_MAX);

/// How long an operation of several MDTs waits for keys that another one has reserved, before it
/// frees its own: some hundred times what an operation takes.
pub(crate) const HELD_WAIT: Span = Span::millis(500);

/// How often it does so before its caller is told to try again.
pub(crate) const HELD_ROUNDS_MAX: u32 = 1_000;

/// How often the longest random pause of an operation doubles that keys are not free for: from a
/// tenth of a millisecond.
pub(crate) const HELD_DOUBLINGS: u32 = 8;

/// How long another MDT may take to prepare an operation before it is looked whether the caller
/// still waits.
pub(crate) const PREPARE_PATIENCE: Span = Span::secs(2);

/// How long a new directory waits for an MDT that is away.
pub(crate) const PREPARE_WAIT: Span = Span::secs(4);

/// How long a read waits for the part of an operation of several MDTs before it asks whether there
/// will be one: some ten times what a part takes.
pub(crate) const HALF_LOOK: Span = Span::millis(20);

/// How long a read waits for the coordinator of such an operation: as long as for a recovery.
pub(crate) const HALF_WAIT_MAX: Span = Span::secs(120);

/// How long one attempt to reach another MDT lasts.
pub(crate) const DELIVER_PATIENCE: Span = Span::secs(2);

/// Before another attempt.
pub(crate) const DELIVER_PAUSE: Span = Span::millis(100);

/// Before an MDT that recovery went on without is asked again for as long as a recovery waits, and
/// before one is asked again that has answered with an error.
pub(crate) const ROLL_PAUSE: Span = Span::secs(5);

/// How long operations with an MDT that was forgotten go on as before. Its last messages arrive
/// meanwhile, and other MDTs read twice which MDTs there are.
pub(crate) const FORGOTTEN_PAUSE: Span = Span::secs(10);

/// How often it is looked whether operations are durable everywhere.
pub(crate) const DONE_LOOK: Span = Span::millis(500);

/// Records of operations that are removed in one set: some ten milliseconds.
pub(crate) const FORGET_MAX: usize = 4_096;

const _: () = assert!(FORGET_MAX <= osd::RANGE_RECORDS_MAX);

/// The same on a full store: its reserve has room for a removal of a few records in any table.
pub(crate) const FORGET_FULL_MAX: usize = 16;

const _: () = assert!(FORGET_FULL_MAX < FORGET_MAX);

/// Pause before the next such set.
pub(crate) const FORGET_PAUSE: Span = Span::millis(10);

/// How often a request of another MDT looks whether this one's clients have replayed.
pub(crate) const REPLAYS_LOOK: Span = Span::millis(10);

/// Names that move to another shard in one operation at most. Requests about them wait for its end,
/// some milliseconds.
pub(crate) const MOVE_NAMES_MAX: usize = 64;

/// Names of the first such operation. Later ones have as many as [`MOVE_HOLD_MAX`] allows.
pub(crate) const MOVE_NAMES_FIRST: usize = 16;

/// Names of such an operation at least, unless fewer are left: each operation takes two round trips
/// to another MDT.
pub(crate) const MOVE_NAMES_LEAST: usize = 8;

const _: () = assert!(MOVE_NAMES_LEAST <= MOVE_NAMES_FIRST && MOVE_NAMES_FIRST <= MOVE_NAMES_MAX);

/// How long one such operation is to keep the MDT's thread. [`MOVES_AT_ONCE`] of them may do so one
/// after the other, before a request gets its turn.
pub(crate) const MOVE_HOLD_MAX: Span = Span::millis(2);

/// Operations that move names of one directory at the same time, each to another new shard.
pub(crate) const MOVES_AT_ONCE: usize = 4;

/// Least pause after such operations, so that requests of clients get in between.
pub(crate) const MOVE_PAUSE: Span = Span::millis(1);

/// Moves wait while more than this part of what begins a commit is dirty. Each name changes pages
/// that no other name does, so a large commit would hold up requests for longer than the moves do.
pub(crate) const MOVE_DIRTY_PART: u64 = 2;

/// How often they look whether that commit has begun: its pages are written out in a few times
/// this.
pub(crate) const MOVE_DIRTY_LOOK: Span = Span::millis(2);

/// How often directories whose names move are looked at, while nothing can be moved here.
pub(crate) const MOVES_LOOK: Span = Span::millis(200);

/// Names that cannot move are tried again after [`MOVES_LOOK`], then more and more rarely, and at
/// last this often: they are damaged.
pub(crate) const MOVES_STUCK: Span = Span::secs(60);

/// A directory that was split by itself becomes plain again when it has fewer names than this part
/// of what splits it. It must grow a lot before it is split again.
pub(crate) const SPLIT_TO_MERGE: u64 = 4;

/// Directories whose size is remembered because they may be split or merged by themselves; of more
/// of them, all are counted again.
pub(crate) const WATCHED_MAX: usize = 65_536;

/// Names that are known to be absent in shards that names leave, some 200 bytes each. A lookup
/// finds that out for the create that follows, so few are enough.
pub(crate) const ABSENT_NAMES_MAX: usize = 4_096;

/// Names of a directory that are counted in one step.
pub(crate) const COUNT_SLICE: usize = 4_096;

/// After so many of them, it is looked whether the step takes longer than [`MOVE_HOLD_MAX`]: they
/// are in a few pages.
pub(crate) const COUNT_LOOK: usize = 128;

const _: () = assert!(COUNT_LOOK < COUNT_SLICE);

/// Names of a directory or a file that are counted to mend a count while clients are served: some
/// ten milliseconds.
pub(crate) const MEND_NAMES_MAX: u32 = 65_536;

const _: () = assert!(MEND_NAMES_MAX > NLINK_MAX);

/// The same of a mend, as [`HELD_ROUNDS_MAX`]: its caller waits some ten seconds. A later check
/// finds the breach again.
pub(crate) const MEND_ROUNDS_MAX: u32 = 20;

const _: () = assert!(MEND_ROUNDS_MAX < HELD_ROUNDS_MAX);

/// Names of a file that are looked at to mend one of them. Each is a key that its MDT reserves, and
/// so is its directory.
pub(crate) const MEND_LINKS_MAX: usize = 64;

const _: () = assert!(2 * MEND_LINKS_MAX + 2 < updates::KEYS_MAX);

/// Names of a file that moves to another MDT. Each is a key that its MDT reserves.
pub(crate) const INODE_NAMES_MAX: usize = 256;

const _: () = assert!(INODE_NAMES_MAX + layout::dir::SHARDS_MAX < updates::KEYS_MAX);

/// Files in the list of what one session holds, 16 bytes each. A session that holds more has none.
pub(crate) const LISTED_MAX: usize = 4_096;

/// The same of all lists of one set: 1 MiB.
pub(crate) const LISTED_ALL_MAX: usize = 16 * LISTED_MAX;

/// Records of a table that `mdt.*.held` counts.
pub(crate) const HELD_MAX: u32 = 1_000;

/// Records in one reply, if it has more than one.
pub(crate) const RECORDS_BYTES_MAX: usize = updates::RECORD_BYTES_MAX / 4;

/// Operations of several MDTs that one run names: their numbers have 32 bits. At 10,000 a second
/// that is five days.
pub(crate) const OPS_OF_RUN_MAX: u64 = (1 << 32) - 1;

/// Of these, numbers that are left when the run is ended: far more than are drawn until then.
pub(crate) const OPS_LEFT_AT_END: u64 = 1 << 24;
