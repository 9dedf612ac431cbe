//! Sizes of the containers' allocations, and where each comes from.

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
pub(crate) const BUCKETS_CHUNK: usize = 4_096;

/// Chunks that an empty slab keeps.
pub(crate) const CHUNKS_IDLE: usize = 4;
