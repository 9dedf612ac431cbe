//! Bounds of the scheduler and where each comes from.

use types::Span;

/// Characters of a policy's name at most (Lustre: `NRS_POL_NAME_MAX` 16 with the NUL).
pub const NAME_CHARS_MAX: usize = 15;

/// Characters of a policy's argument at most (Lustre: `NRS_POL_ARG_MAX` 16 with the NUL).
pub const ARG_CHARS_MAX: usize = 15;

/// Bytes of one value written to a parameter at most (Lustre: a page without the NUL).
pub const VALUE_BYTES_MAX: usize = 4_095;

/// How long a start with another argument waits for the old instance to drain before it says EBUSY.
pub const DRAIN_WAIT: Span = Span::secs(30);

/// Policies registered on one head at most: those of this crate, with room for as many external
/// ones. A head asks each of them once per dispatch in the worst case.
pub const POLICIES_MAX: usize = 16;

/// A policy that holds requests back may be asked again no sooner than this after it was asked,
/// whatever it says: a time in the past would otherwise be a busy loop.
pub const WAIT_MIN: Span = Span::millis(1);

/// Largest quantum of a round robin policy, in its unit (Lustre: 16 bits).
pub(crate) const QUANTUM_MAX: u64 = 65_535;

/// Most idle groups that a policy can be told to keep: 136 bytes each.
pub(crate) const GROUPS_IDLE_LIMIT: u64 = 1 << 20;

/// Bytes allocated at once. A queue that grows to millions never copies what it holds: it gets one
/// more chunk, which the allocator maps without touching it. 128 KiB go back to the kernel in some
/// ten microseconds.
pub(crate) const CHUNK_BYTES: usize = 128 << 10;

/// A list of chunks that has the first many makes room for the second many: 33 million slots of 64
/// bytes before it is copied again.
pub(crate) const CHUNKS_LISTED: (usize, usize) = (64, 16_384);

/// Things that a slab makes before they are needed, for [`SLAB_LEAD`] a slab and for
/// [`BESIDE_LEAD`] what stands beside one, and how far behind the middle of a chunk the next chunk
/// is got. A page begins every 64 slots, every 16 blocks of ids and every 256 of their bits, and a
/// block begins every 64 slots: with these numbers no two pages and no two chunks of one lane are
/// touched for the first time by the same request.
pub(crate) const SLAB_LEAD: u32 = 24;

/// See [`SLAB_LEAD`].
pub(crate) const BESIDE_LEAD: u32 = 5;

/// See [`SLAB_LEAD`].
pub(crate) const CHUNK_LEAD: usize = 8;

/// Buckets of an index allocated at once.
pub(crate) const CHUNK: usize = 4_096;

/// Chunks that an empty slab keeps.
pub(crate) const CHUNKS_IDLE: usize = 4;
