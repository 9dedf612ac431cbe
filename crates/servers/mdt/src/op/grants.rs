//! A client's messages about its grants: recalls that it acknowledges, grants that it gives back
//! unasked, and, after a restart, the grants that it holds, with its handles for reading.
//! Acknowledging or shedding a grant that the client does not hold is not an error, because it may
//! have crossed the end of the grant.

use std::rc::Rc;

use env::LocalFuture;
use ldlm::grants::Bits;
use osd::{Table, View};
use service::Incoming;
use types::{Errno, Fid};
use wire::body::{GrantAck, GrantWord, GrantsFlags, OpenWord, stated_opens};
use wire::{Reply, SizeState, grants};

use super::stated;
use crate::engine::Engine;
use crate::grants::ATTRS;
use crate::record::Inode;
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
    Box::pin(async move {
        let opens = stated_opens(&incoming.request).ok_or(Errno::EPROTO)?;
        if !opens.is_empty() {
            take_opens(mdt, incoming, &opens).await?;
        }
        let _turn = mdt.recalls.stating.lock().await;
        until_readable(mdt).await;
        restated(mdt, incoming)
    })
}

/// Waits for a store that is busy: no replay would bring these handles back. Nothing is taken after
/// the end of the session, because its handles were let go during the wait. Nothing is taken after
/// the end of the recovery either: the client may have closed some handles since.
async fn take_opens(mdt: &Mdt, incoming: &Incoming, opens: &[OpenWord]) -> Result<(), Errno> {
    let session = &incoming.session;
    let take = || match session.is_ended() || !mdt.exports.is_recovering() {
        true => Err(Errno::ESTALE.into()),
        false => stated::take(&mdt.engine, (session.client, session.id), opens),
    };
    mdt.persist(take).await
}

/// Waits for the end of the moment in which a commit begins, where the store cannot be read: its
/// client would have to give up all grants of the vector.
async fn until_readable(mdt: &Mdt) {
    let _unless_it_failed = mdt.persist(|| Ok(mdt.engine.store.meta().running().map(drop)?)).await;
}

fn restated(mdt: &Mdt, incoming: &Incoming) -> Result<Reply, Errno> {
    let (held, flags): (Vec<GrantWord>, _) = decoded(incoming)?;
    let (session, is_last) = (incoming.session.id, flags.contains(GrantsFlags::LAST));
    let judged = judged(&mdt.engine, &held);
    let go_on = mdt.recalls.restate(session, &held, &judged, is_last).map_err(|_misbehaved| {
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

/// What of each may be true, by the records of the files. Nothing if the store cannot be read: the
/// client has stated what it holds all the same, and holds none of it any more.
pub(crate) fn judged(engine: &Engine, held: &[GrantWord]) -> Vec<Bits> {
    match engine.store.meta().running() {
        Ok(view) => held.iter().map(|held| credible(engine, &*view, held.fid.into())).collect(),
        Err(error) => {
            tracing::debug!(%error, "grants that a client states are not taken");
            vec![Bits::empty(); held.len()]
        }
    }
}

/// What a client may hold of a file after a restart. Data that it may write the MDT knows from the
/// replay of its open. The attributes and data of a file that is open for writing it gives no
/// client, and of a file that is not here only its names.
fn credible(engine: &Engine, view: &dyn View, fid: Fid) -> Bits {
    if fid.mdt_index() != engine.config.index {
        return Bits::LOOKUP;
    }
    let stored = view.get(Table::Inodes, &fid.to_key()).ok().flatten();
    let Some(inode) = stored.and_then(|stored| Inode::decode(&stored)) else {
        return Bits::empty(); // it is gone, or damaged
    };
    let may_be_written = engine.state.borrow().opens.writers(fid) > 0
        || (inode.attr.is_file() && inode.attr.size_state() == SizeState::Dirty);
    match may_be_written {
        true => Bits::LOOKUP,
        false => ATTRS | Bits::LOOKUP | Bits::CACHE,
    }
}

fn decoded<T: grants::Element>(incoming: &Incoming) -> Result<(Vec<T>, GrantsFlags), Errno> {
    grants::decode(&incoming.request.bufs).map_err(|_nonsense| Errno::EPROTO)
}

/// `go_on`: grants that the client goes on holding.
fn reply(incoming: &Incoming, go_on: &[GrantWord]) -> Reply {
    Reply::ok(&incoming.request.header, grants::encode(go_on, GrantsFlags::LAST))
}
