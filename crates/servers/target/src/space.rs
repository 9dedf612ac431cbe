//! Free space of a target, as statfs reports it.

use osd::Space;
use wire::body::{StatfsRep, StatfsState};

/// Bytes of a block, as statfs counts them.
const BLOCK_BYTES: u64 = 4_096;

/// The answer of a target that counts as full with less than `full_below` bytes left.
#[must_use]
pub fn statfs(space: Space, full_below: u64) -> StatfsRep {
    let free = space.bytes_free / BLOCK_BYTES;
    StatfsRep {
        block_bytes: BLOCK_BYTES,
        blocks: space.bytes / BLOCK_BYTES,
        blocks_free: free,
        blocks_avail: free,
        files: space.files,
        files_free: space.files_free,
        state: StatfsState::FULL.when(space.bytes_free < full_below),
        reserved: 0,
    }
}
