//! lock and unlock: flock, fcntl and file locks, in memory only. A request that has to wait gives
//! its worker slot back, or is answered at once if its client can be called. During recovery
//! clients restate the locks that they hold.

use std::rc::Rc;

use env::LocalFuture;
use ldlm::Kind;
use osd::Table;
use service::Incoming;
use types::{Errno, Fid};
use wire::body::{LockRep, LockReq, lock};
use wire::{Reply, encode_body};

use super::hurried::hurry;
use crate::locks::{Locked, Wanted, called_later};
use crate::target::Mdt;

pub(crate) fn ask<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(execute(mdt, incoming, false))
}

pub(crate) fn give_back<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(execute(mdt, incoming, true))
}

async fn execute(mdt: &Mdt, incoming: &Incoming, gives_back: bool) -> Result<Reply, Errno> {
    let request = &incoming.request;
    let body: LockReq = request.body();
    let mut wanted = Wanted::decode(&body, incoming.session.id)?;
    wanted.unlock |= gives_back;
    let restate = mdt.exports.is_recovering();
    if !wanted.unlock && !restate {
        check_exists(mdt, Fid::from(body.fid)).await?;
    }
    let told = |rep| Reply::ok(&request.header, vec![encode_body(&rep)]);
    let asks = !wanted.unlock && !wanted.is_test() && !restate;
    if asks && !may_be_given(mdt, incoming, &wanted).await? {
        let state = if wanted.waits() { lock::WAITING } else { lock::REFUSED };
        return Ok(told(LockRep { state, ..LockRep::default() }));
    }
    // nothing is awaited from here to the question: a session that ends takes its locks along
    if incoming.session.is_ended() {
        return Err(Errno::ESTALE);
    }
    if restate && mdt.engine.config.bugs.lose_lock_restate() && !wanted.unlock {
        return Ok(told(LockRep { state: lock::GRANTED, ..LockRep::default() }));
    }
    match mdt.locks.ask(&wanted, restate)? {
        Locked::Now(rep) => {
            note_file_lock(mdt, &wanted, restate);
            if rep.state == lock::REFUSED {
                evict_dead(mdt, &wanted);
            }
            Ok(told(rep))
        }
        Locked::Called => {
            // no request waits that would look: it is looked for each time that the client asks
            evict_dead(mdt, &wanted);
            hurry(mdt, &wanted);
            Ok(told(called_later()))
        }
        Locked::Later(parked) => {
            incoming.park();
            hurry(mdt, &wanted);
            Ok(told(parked.answer(|session| mdt.exports.evict_if_dead(session)).await))
        }
    }
}

/// Files whose locks were stated again may be cut until they are given back.
fn note_file_lock(mdt: &Mdt, wanted: &Wanted, restate: bool) {
    if wanted.request.kind != Kind::File || wanted.is_test() {
        return;
    }
    let is_of_wait = wanted.request.cookie != 0; // an unlock of a wait gives no lock back
    let (session, fid) = (wanted.request.owner.session, wanted.request.resource);
    let opens = &mut mdt.engine.state.borrow_mut().opens;
    match wanted.unlock {
        true if is_of_wait => {}
        true => opens.lock_ended(session, fid),
        false if restate => opens.lock_restated(session, fid),
        false => {}
    }
}

/// Ends the sessions of dead clients that are in the way.
fn evict_dead(mdt: &Mdt, wanted: &Wanted) {
    let blockers = mdt.locks.sessions_in_the_way(&wanted.request);
    blockers.into_iter().for_each(|session| mdt.exports.evict_if_dead(session));
}

async fn check_exists(mdt: &Mdt, fid: Fid) -> Result<(), Errno> {
    let found = || Ok(mdt.engine.store.meta().running()?.get(Table::Inodes, &fid.to_key())?);
    mdt.persist(found).await?.map(|_| ()).ok_or(Errno::ESTALE)
}

/// Waits, if the request does, until no client of an earlier run can use what the file lies on:
/// nobody knows what such a client has locked. Says whether that is so.
async fn may_be_given(mdt: &Mdt, incoming: &Incoming, wanted: &Wanted) -> Result<bool, Errno> {
    if !mdt.engine.state.borrow().fences.is_unsure() {
        return Ok(true);
    }
    let osts = mdt.osts_of(wanted.request.resource).await?;
    let is_free = || !mdt.engine.state.borrow().fences.is_unsure_of(&osts);
    if is_free() || !wanted.waits() {
        return Ok(is_free());
    }
    planted::reached("mdt: a lock waited for a fence");
    incoming.park();
    let free = async {
        while !is_free() {
            mdt.fences_fell.notified().await;
        }
    };
    Ok(mdt.env.timeout(wanted.wait, free).await.is_some())
}
