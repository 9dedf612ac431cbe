//! Sync: every change that was answered before is durable when this is answered. One commit makes
//! all objects durable, and a second caller shares it.

use service::Incoming;
use types::Errno;
use wire::body::SyncRep;
use wire::{Reply, encode_body};

use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    if !ost.config.bugs.ack_sync_before_commit() {
        ost.commit_all().await?;
    }
    let body = SyncRep { last_committed: ost.exports.last_committed().0, reserved: 0 };
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body)]))
}
