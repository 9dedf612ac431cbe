//! A client's messages about its grants: recalls that it acknowledges, grants that it gives back
//! unasked, and, after a restart, the grants that it holds, with its handles for reading.
//! Acknowledging or shedding a grant that the client does not hold is not an error, because it may
//! have crossed the end of the grant.

use std::rc::Rc;

use env::LocalFuture;
use ldlm::grants::Bits;
use osd::{StoreError, Table, View};
use service::Incoming;
use types::{Errno, Fid};
use wire::body::{GrantAck, GrantWord, GrantsFlags, OpenWord, stated_opens};
use wire::{Reply, SizeState, grants};

use super::stated;
use crate::engine::Engine;
use crate::grants::ATTRS;
use crate::limits::JUDGED_AT_ONCE;
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
        Ok(view) => {
            let fids: Vec<Fid> = held.iter().map(|held| held.fid.into()).collect();
            let here = engine.config.index;
            let found = fids.chunks(JUDGED_AT_ONCE).flat_map(|some| inodes(&*view, some, here));
            fids.iter().zip(found).map(|(fid, inode)| credible(engine, *fid, inode)).collect()
        }
        Err(error) => {
            tracing::debug!(%error, "grants that a client states are not taken");
            vec![Bits::empty(); held.len()]
        }
    }
}

/// What a client may hold of a file after a restart. Data that it may write the MDT knows from the
/// replay of its open. The attributes and data of a file that is open for writing it gives no
/// client, and of a file that is not here only its names.
fn credible(engine: &Engine, fid: Fid, inode: Option<Inode>) -> Bits {
    if fid.mdt_index() != engine.config.index {
        return Bits::LOOKUP;
    }
    let Some(inode) = inode else {
        return Bits::empty(); // it is gone, or damaged
    };
    let may_be_written = engine.state.borrow().opens.writers(fid) > 0
        || (inode.attr.is_file() && inode.attr.size_state() == SizeState::Dirty);
    match may_be_written {
        true => Bits::LOOKUP,
        false => ATTRS | Bits::LOOKUP | Bits::CACHE,
    }
}

/// The inodes of files of this MDT that are there and can be read, one for each FID. Clients state
/// files by rising FIDs, and files that were made one after the other have close ones. Then one
/// scan finds them all, in a fraction of the time that a search for each takes.
fn inodes(view: &dyn View, fids: &[Fid], here: u32) -> Vec<Option<Inode>> {
    if are_close(fids)
        && let Ok(found) = scanned(view, fids)
    {
        return found;
    }
    let one = |fid: &Fid| {
        let is_here = fid.mdt_index() == here;
        let stored = is_here.then(|| view.get(Table::Inodes, &fid.to_key()).ok().flatten());
        stored.flatten().and_then(|stored| Inode::decode(&stored))
    };
    fids.iter().map(one).collect()
}

/// Whether a scan from the first to the last one passes few others.
fn are_close(fids: &[Fid]) -> bool {
    let (Some(first), Some(last)) = (fids.first(), fids.last()) else { return false };
    let is_dense = u64::from(last.oid.saturating_sub(first.oid)) < 2 * fids.len() as u64;
    first.seq == last.seq && is_dense && fids.is_sorted_by(|one, next| one < next)
}

/// The same by one scan. An error: one record, of these files or between them, cannot be read.
fn scanned(view: &dyn View, fids: &[Fid]) -> Result<Vec<Option<Inode>>, StoreError> {
    let mut found = Vec::with_capacity(fids.len());
    let mut left = fids.iter().peekable();
    let from = fids.first().map_or_else(Vec::new, |fid| fid.to_key().to_vec());
    view.scan(Table::Inodes, &from, &mut |key, value| {
        let Some(at) = Fid::from_key(key) else { return false };
        while left.next_if(|fid| **fid < at).is_some() {
            found.push(None);
        }
        if left.next_if(|fid| **fid == at).is_some() {
            found.push(Inode::decode(value));
        }
        left.peek().is_some()
    })?;
    found.extend(left.map(|_| None));
    assert_eq!(found.len(), fids.len(), "each file has its place");
    Ok(found)
}

fn decoded<T: grants::Element>(incoming: &Incoming) -> Result<(Vec<T>, GrantsFlags), Errno> {
    grants::decode(&incoming.request.bufs).map_err(|_nonsense| Errno::EPROTO)
}

/// `go_on`: grants that the client goes on holding.
fn reply(incoming: &Incoming, go_on: &[GrantWord]) -> Reply {
    Reply::ok(&incoming.request.header, grants::encode(go_on, GrantsFlags::LAST))
}
