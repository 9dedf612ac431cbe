//! sync: every change that was answered before is durable when this is answered. A sync of the
//! whole file system also waits, for a bounded time, until the room of removed files can be used
//! again. A client that syncs a file asks all MDTs that have names of it for the file, so none of
//! them waits for that. The answer of the file's MDT lists the others.

use std::rc::Rc;

use env::LocalFuture;
use osd::{Table, View};
use service::{Incoming, Target};
use target::Decided;
use types::{Errno, FID_FIRST_NORMAL_SEQ, FID_SEQUENCES_PER_MDT_BITS, Fid, MDTS_MAX};
use wire::body::{FidReq, SyncRep};
use wire::{Reply, encode_body, updates};

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
    let fid = Fid::from(incoming.request.body::<FidReq>().fid);
    let is_whole = fid == Fid::ZERO;
    if mdt.osts.is_some() && is_whole {
        room_is_back(mdt).await;
        // a client asks for this when its write found no room
        mdt.engine.state.borrow().spaces.doubt();
    }
    let read = || others_with_names(&*mdt.engine.store.meta().running()?, fid);
    let others = if is_whole { Vec::new() } else { mdt.persist(read).await? };
    let body = SyncRep { last_committed: mdt.exports().last_committed().0, reserved: 0 };
    let mut bufs = vec![encode_body(&body)];
    if !others.is_empty() {
        bufs.push(updates::encode(&others).into());
    }
    Ok(Reply::ok(&incoming.request.header, bufs))
}

/// MDTs that have names of a file, except its own one. Back-links to directories of one MDT are
/// neighbours, so one of them is read for each MDT.
fn others_with_names(view: &dyn View, fid: Fid) -> Decided<Vec<u32>> {
    let prefix = fid.to_key();
    let (mut others, mut from) = (Vec::new(), prefix.to_vec());
    loop {
        let mut dir = None;
        view.scan_within((Table::Links, &prefix), &from, &mut |key, _| {
            dir = key.get(prefix.len()..).and_then(Fid::from_key);
            false
        })?;
        let mdt = dir.map(Fid::mdt_index).filter(|mdt| *mdt < MDTS_MAX);
        let Some(mdt) = mdt else { return Ok(others) };
        others.extend(Some(mdt).filter(|mdt| *mdt != fid.mdt_index()));
        from = [prefix, first_of(mdt + 1).to_key()].concat();
    }
}

/// The lowest FID of an MDT. The first MDT has lower ones.
fn first_of(mdt: u32) -> Fid {
    Fid::new(FID_FIRST_NORMAL_SEQ + (u64::from(mdt) << FID_SEQUENCES_PER_MDT_BITS), 0)
}

#[cfg(test)]
mod tests {
    use osd::{MetaStore, WriteSet};

    use super::*;
    use crate::keys;
    use crate::tests::store::TestStore;

    #[test]
    fn mdts_with_names_are_found_once_each() {
        let meta = TestStore::default();
        let fid = |mdt, oid| Fid { oid, ..first_of(mdt) };
        let file = fid(1, 5);
        let mut set = WriteSet::new();
        for dir in [Fid::ROOT, fid(0, 9), fid(1, 3), fid(1, 4), fid(3, 1), fid(3, 2)] {
            set.put(Table::Links, keys::link(file, dir, 3), *b"name");
            set.put(Table::Links, keys::link(file, dir, 4), *b"more");
        }
        set.put(Table::Links, keys::link(fid(1, 6), fid(2, 1), 3), *b"name");
        meta.apply(&set).expect("applied");
        let found =
            |fid| others_with_names(&*meta.running().expect("a view"), fid).expect("sound records");
        assert_eq!(found(file), [0, 3]);
        assert_eq!(found(fid(1, 6)), [2]);
        assert_eq!(found(fid(1, 7)), [0; 0]);
    }
}
