//! A client's messages about its grants: recalls that it acknowledges, grants that it gives back
//! unasked, and, after a restart, the grants that it holds. Acknowledging or shedding a grant that
//! the client does not hold is not an error, because it may have crossed the end of the grant.

use std::rc::Rc;

use env::LocalFuture;
use service::Incoming;
use types::Errno;
use wire::body::{GrantAck, GrantWord, GrantsFlags};
use wire::{MessageError, Opcode, Reply, grants};

use crate::target::Mdt;

pub(crate) fn serve<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(std::future::ready(execute(mdt, incoming)))
}

fn execute(mdt: &Mdt, incoming: &Incoming) -> Result<Reply, Errno> {
    let (request, session) = (&incoming.request, incoming.session.id);
    let nonsense = |_: MessageError| Errno::EPROTO;
    let mut go_on: Vec<GrantWord> = Vec::new();
    match request.opcode() {
        Opcode::MdtAck => {
            let (acks, _) = grants::decode::<GrantAck>(&request.bufs).map_err(nonsense)?;
            mdt.recalls.ack(session, &acks);
        }
        Opcode::MdtShed => {
            let (shed, _) = grants::decode::<GrantWord>(&request.bufs).map_err(nonsense)?;
            mdt.recalls.shed(session, &shed);
        }
        _ => {
            let (held, flags) = grants::decode::<GrantWord>(&request.bufs).map_err(nonsense)?;
            let is_last = flags.contains(GrantsFlags::LAST);
            let stated = mdt.recalls.restate(session, &held, is_last);
            go_on = stated.map_err(|_misbehaved| {
                tracing::warn!(target: "mdt", client = %incoming.session.client, "the client states grants that were not given to it");
                mdt.exports.evict(session);
                Errno::EPROTO
            })?;
        }
    }
    Ok(Reply::ok(&request.header, grants::encode(&go_on, GrantsFlags::LAST)))
}
