//! statfs: room for records. Nothing is locked; the answer is of one moment.

use std::rc::Rc;

use env::LocalFuture;
use osd::StoreError;
use service::Incoming;
use types::Errno;
use wire::{Reply, encode_body};

use crate::target::Mdt;

/// Full is what has not a byte left.
const FULL_BELOW_BYTES: u64 = 1;

pub(crate) fn serve<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(execute(mdt, incoming))
}

async fn execute(mdt: &Mdt, incoming: &Incoming) -> Result<Reply, Errno> {
    let space = || match mdt.engine.store.meta().space() {
        // the disk does not say: no reason to end the target
        Err(StoreError::Failed(_)) => Err(Errno::EIO.into()),
        other => Ok(other?),
    };
    let space = mdt.persist(space).await?;
    let mut body = target::statfs(space, FULL_BELOW_BYTES);
    body.state |= mdt.engine.marks.all();
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body)]))
}
