//! sync: every change that was answered before is durable when this is answered. A sync of the
//! whole file system also waits, for a bounded time, until the room of removed files can be used
//! again.

use std::rc::Rc;

use env::LocalFuture;
use service::{Incoming, Target};
use types::{Errno, Fid};
use wire::body::{FidReq, SyncRep};
use wire::{Reply, encode_body};

use crate::background::destroy::room_is_back;
use crate::target::Mdt;

pub(crate) fn serve<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(execute(mdt, incoming))
}

async fn execute(mdt: &Mdt, incoming: &Incoming) -> Result<Reply, Errno> {
    if !mdt.engine.config.bugs.ack_sync_before_commit() {
        mdt.commit().await?; // joins a commit under way; costs nothing where nothing is dirty
    }
    let is_whole = Fid::from(incoming.request.body::<FidReq>().fid) == Fid::ZERO;
    if mdt.osts.is_some() && is_whole {
        room_is_back(mdt).await;
        // a client asks for this when its write found no room
        mdt.engine.state.borrow().spaces.doubt();
    }
    let body = SyncRep { last_committed: mdt.exports().last_committed().0, reserved: 0 };
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body)]))
}
