//! A client's messages about its grants: recalls that it acknowledges, grants that it gives back
//! unasked, and, after a restart, the grants that it holds. Acknowledging or shedding a grant that
//! the client does not hold is not an error, because it may have crossed the end of the grant.

use std::rc::Rc;

use env::LocalFuture;
use service::Incoming;
use types::Errno;
use wire::body::{GrantAck, GrantWord, GrantsFlags};
use wire::{Reply, grants};

use crate::target::Mdt;

pub(crate) fn ack<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    let done = decoded(incoming).map(|(acks, _): (Vec<GrantAck>, _)| {
        mdt.recalls.ack(incoming.session.id, &acks);
        reply(incoming, &[])
    });
    Box::pin(std::future::ready(done))
}

pub(crate) fn shed<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    let done = decoded(incoming).map(|(shed, _): (Vec<GrantWord>, _)| {
        mdt.recalls.shed(incoming.session.id, &shed);
        reply(incoming, &[])
    });
    Box::pin(std::future::ready(done))
}

pub(crate) fn restate<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(std::future::ready(restated(mdt, incoming)))
}

fn restated(mdt: &Mdt, incoming: &Incoming) -> Result<Reply, Errno> {
    let (held, flags): (Vec<GrantWord>, _) = decoded(incoming)?;
    let (session, is_last) = (incoming.session.id, flags.contains(GrantsFlags::LAST));
    let go_on = mdt.recalls.restate(session, &held, is_last).map_err(|_misbehaved| {
        let client = incoming.session.client;
        tracing::warn!(
            target: "mdt", %client,
            "the client states grants that were not given to it"
        );
        mdt.exports.evict(session);
        Errno::EPROTO
    })?;
    Ok(reply(incoming, &go_on))
}

fn decoded<T: grants::Element>(incoming: &Incoming) -> Result<(Vec<T>, GrantsFlags), Errno> {
    grants::decode(&incoming.request.bufs).map_err(|_nonsense| Errno::EPROTO)
}

/// `go_on`: grants that the client goes on holding.
fn reply(incoming: &Incoming, go_on: &[GrantWord]) -> Reply {
    Reply::ok(&incoming.request.header, grants::encode(go_on, GrantsFlags::LAST))
}
