//! Free space of a target, as statfs reports it.

use osd::Space;
use wire::body::{StatfsRep, StatfsState};

/// Bytes of a block, as statfs counts them.
const BLOCK_BYTES: u64 = 4_096;

/// Fewer inodes or objects than this are as good as none (as placement has it).
const FILES_LOW: u64 = 32;

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
        state: StatfsState::FULL.when(space.bytes_free < full_below)
            | StatfsState::NO_INODES.when(space.files > 0 && space.files_free < FILES_LOW),
        reserved: 0,
    }
}
