//! statfs: room for records. Nothing is locked; the answer is of one moment.

use env::LocalFuture;
use service::Incoming;
use types::Errno;
use wire::{Reply, encode_body};

use crate::target::Mdt;

/// Full is what has not a byte left.
const FULL_BELOW_BYTES: u64 = 1;

pub(crate) fn serve<'a>(
    mdt: &'a Mdt,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(execute(mdt, incoming))
}

async fn execute(mdt: &Mdt, incoming: &Incoming) -> Result<Reply, Errno> {
    let space = mdt.persist(|| Ok(mdt.engine.store.meta().space()?)).await?;
    let body = target::statfs(space, FULL_BELOW_BYTES);
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body)]))
}
