//! Fence: from now on the OST refuses a client whose session with the MDT has ended. Only servers
//! may ask.
//!
//! It is answered when the client's changes that had begun are over, and when they and the fence
//! are durable. Other clients then find that client's changes. Repeating it is harmless.
//!
//! A fence is taken during recovery too. Replays of the client that come later are then refused.
//! Replays that were executed before are in the commit that the answer waits for, like every other
//! prefix of history.
//!
//! A fenced client may not have come back in this run. Recovery no longer waits for it if each MDT
//! knows that it has no later session there ([`crate::mdts`]). Everything that the client could
//! replay would be refused. An MDT must have learnt that in this run. Earlier knowledge may be
//! outdated. A later session of the client may have used an earlier run of this OST, whose answers
//! are to be replayed.

use service::Incoming;
use types::{ClientId, Errno};
use wire::body::{Claim, OstFenceRep, OstFenceReq};
use wire::{Reply, encode_body};

use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstFenceReq = incoming.request.body();
    let client = ClientId((u128::from(body.client_high) << 64) | u128::from(body.client_low));
    if body.store == 0 || body.session == 0 {
        return Err(Errno::EINVAL);
    }
    let set = ost.fences.borrow_mut().add(client, body.store, body.session);
    ost.under_way.over(client).await;
    ost.apply(&set).await?;
    ost.commit_all().await?;
    planted::reached("ost: a client was fenced");
    let exports = &ost.exports;
    tracing::info!(target_id = %exports.name(), %client, session = body.session, "fenced");
    if exports.is_recovering() {
        planted::reached("ost: a client was fenced during recovery");
    }
    if body.instance == exports.instance().0 {
        let is_awaited = exports.awaits(client);
        if is_awaited && ost.mdts.borrow_mut().gave_up(client, body.store) {
            exports.give_up_absent(client);
        } else if is_awaited {
            planted::reached("ost: recovery waited for a client that one MDT had given up");
        }
        return Ok(answer(incoming, false));
    }
    Ok(answer(incoming, exports.awaits(client)))
}

fn answer(incoming: &Incoming, waits: bool) -> Reply {
    let body = OstFenceRep { waits: u32::from(waits), reserved: 0 };
    Reply::ok(&incoming.request.header, vec![encode_body(&body)])
}

impl Ost {
    /// Refuses a client whose session with the MDT has ended.
    pub(crate) fn check_fence(&self, incoming: &Incoming, claim: &Claim) -> Result<(), Errno> {
        if !self.fences.borrow().refuses(incoming.session.client, claim) {
            return Ok(());
        }
        planted::reached("ost: a fenced client was refused");
        Err(Errno::EKEYREVOKED)
    }
}
