//! Fence: from now on a client is refused whose session with the MDT has ended. Only servers ask.
//!
//! Answered when the changes of that client that had begun are over, and when they and the fence
//! are durable: what the client did is then part of what others find. Repeating it is harmless.

use service::Incoming;
use types::{ClientId, Errno};
use wire::Reply;
use wire::body::OstFenceReq;

use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    if !incoming.session.is_server {
        return Err(Errno::EPERM);
    }
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
    tracing::info!(target_id = %ost.exports.target, %client, session = body.session, "fenced");
    Ok(Reply::ok(&incoming.request.header, Vec::new()))
}
