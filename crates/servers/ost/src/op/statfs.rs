//! Statfs: free space for objects, and the states that the administrator gave the OST.

use service::Incoming;
use types::Errno;
use wire::{Reply, encode_body};

use crate::target::Ost;

/// Less than the largest transfer is as good as nothing.
const FULL_BELOW_BYTES: u64 = wire::BULK_BYTES_MAX as u64;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let mut body = target::statfs(ost.objects.space().await?, FULL_BELOW_BYTES);
    let reserved = ost.reserved.borrow().total().div_ceil(body.block_bytes.max(1));
    body.blocks_free = body.blocks_free.saturating_sub(reserved);
    body.blocks_avail = body.blocks_avail.saturating_sub(reserved);
    body.state |= ost.marks.all();
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body)]))
}
