//! Statfs: room for objects.

use service::Incoming;
use types::Errno;
use wire::body::StatfsRep;
use wire::{Reply, encode_body};

use crate::target::Ost;

/// What space is counted in.
const BLOCK_BYTES: u64 = 4_096;
/// Bit of `state`: nothing is left.
const FULL: u64 = 4;
/// Less than the largest transfer is as good as nothing.
const FULL_BYTES: u64 = wire::BULK_BYTES_MAX as u64;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let space = ost.objects.space().await?;
    let free = space.bytes_free / BLOCK_BYTES;
    let body = StatfsRep {
        block_bytes: BLOCK_BYTES,
        blocks: space.bytes / BLOCK_BYTES,
        blocks_free: free,
        blocks_avail: free,
        files: space.files,
        files_free: space.files_free,
        state: if space.bytes_free < FULL_BYTES { FULL } else { 0 },
        reserved: 0,
    };
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body)]))
}
