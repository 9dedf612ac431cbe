//! Bounds of an OST, with their derivation.

/// Bytes of records changed before a commit begins.
pub(crate) const DIRTY_RECORD_BYTES_MAX: u64 = 16 << 20;
/// Bytes of data written before a commit begins: half a second of a fast device.
pub(crate) const DIRTY_DATA_BYTES_MAX: u64 = 256 << 20;
/// Elements of one glimpse: a page of a directory listing has at most 1,024 files, of four stripes
/// here each. Clients send as many, so a later bound must not be lower.
pub(crate) const GLIMPSE_OBJECTS_MAX: usize = wire::grants::VECTOR_MAX;
/// Glimpses that wait for the disk at once.
pub(crate) const GLIMPSE_AT_ONCE: usize = 32;
/// Objects of one destroy.
pub(crate) const DESTROY_OBJECTS_MAX: usize = 65_536;
/// Ranges of ids of one destroy: as many as one request of an MDT names.
pub(crate) const SWEEP_RANGES_MAX: usize = 4_096;
/// Objects of one listing for a sweep: 4 MiB of memory. An MDT has 1.5 million ids swept after a
/// restart, of which few have an object, so one listing is mostly all.
pub(crate) const SWEEP_LISTED_MAX: usize = 1 << 18;
/// Listings kept for sweeps under way: one for each of so many MDTs that restart together.
pub(crate) const LISTINGS_MAX: usize = 8;
/// Objects of one answer to a list: 48 KiB.
pub(crate) const LIST_OBJECTS_MAX: usize = 1_024;
/// Objects destroyed in one transaction: the store must have room for the worst that a set can
/// change.
pub(crate) const DESTROY_OBJECTS_AT_ONCE: usize = 64;
/// Tombstones kept at most, the oldest go first. About 40 bytes of memory each; at 10,000 destroys
/// a second a client that was declared dead has 26 s to send its last write, more than two
/// deadlines of an attempt.
pub(crate) const TOMBSTONES_MAX: usize = 1 << 18;
/// Tombstones removed in one transaction.
pub(crate) const TOMBSTONES_SWEPT_AT_ONCE: usize = 256;
/// Objects whose owner is remembered: some 5 MiB. One more forgets all of them, which costs a read
/// of a record each.
pub(crate) const OWNERS_MAX: usize = 65_536;
/// Clients that are fenced, the oldest go first: 100 bytes of memory each. A day in which 10,000
/// nodes die six times does not fill it.
pub(crate) const FENCES_MAX: usize = 65_536;
/// Longest `commit_interval_ms`: more than this is lost work, not batching.
pub(crate) const COMMIT_INTERVAL_MS_MAX: u64 = 60_000;
/// Objects above this size leave nothing of a large read in the page cache (default of
/// `readcache_max_filesize`): the client keeps the data too, and both copies of large files fill
/// the memory of a node with servers and clients.
pub(crate) const READCACHE_FILE_BYTES_DEFAULT: u64 = 256 << 20;
/// Client nodes of `export_stats`.
pub(crate) const TALLY_NIDS_MAX: usize = 4_096;
/// Jobs of `job_stats`.
pub(crate) const TALLY_JOBS_MAX: usize = 1_024;

/// Room that is reserved for one client at a time: what it keeps of its writes at most.
pub(crate) const RESERVED_OF_CLIENT_MAX: u64 = 64 << 20;
/// A question for room gets at most this part of what is free. So room that runs short is shared.
pub(crate) const RESERVED_SHARE: u64 = 16;
/// Free room that is never promised, at most: a file system takes some for itself as it fills. On a
/// small disk it is a share of the disk.
pub(crate) const RESERVE_FREE_MAX: u64 = 256 << 20;
/// Unit in which a file system gives out space.
pub(crate) const SPACE_UNIT: u64 = 4_096;
/// So long a read-only OST takes what clients had acknowledged before, and not sent: they keep it
/// for 1 s.
pub(crate) const READ_ONLY_GRACE: types::Span = types::Span::secs(3);
/// How old the OST's idea of the free room may be: others may write to the same disk.
pub(crate) const SPACE_AGE: types::Span = types::Span::secs(1);

const _: () = assert!(DESTROY_OBJECTS_AT_ONCE <= DESTROY_OBJECTS_MAX);
