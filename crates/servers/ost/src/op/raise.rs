//! Raise: from now on the objects of a file are used under a later layout. Clients that map by an
//! older one are refused, and ask the MDT.
//!
//! Each object is locked whole, so all writes under an older layout are complete when this is
//! answered. The raise is durable then, because the caller next takes bytes away from the objects,
//! at the MDT. An object that does not exist yet gets a record, so that no client makes it under an
//! older layout. Repeating it is harmless, and the version never goes back.
//!
//! A raise may also lend the objects to files of another MDT, because their file is about to move
//! there ([`crate::owners`]). The file that asks owns them from then on. Version 0 raises nothing
//! then. Programs that know of no lending refuse that version.

use ldlm::Mode;
use osd::{Table, View, WriteSet};
use service::Incoming;
use types::{Errno, Extent, Fid, MDTS_MAX, Timespec};
use wire::Reply;
use wire::body::{Claim, OstRaiseReq};
use zerocopy::IntoBytes;

use super::{destroy, removal, valid_object};
use crate::limits::DESTROY_OBJECTS_AT_ONCE;
use crate::owners::{claimed, record_after};
use crate::record::{NO_LAYOUT, ObjectRecord, Owner, object_record};
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstRaiseReq = incoming.request.body();
    let owner = claimed(body.parent, &body.claim)?;
    let lent = lent(&body, &incoming.request.buf(2))?;
    let version = body.layout_version;
    if version == NO_LAYOUT || (version == 0 && lent.is_none()) {
        return Err(Errno::EINVAL); // 0 is any layout
    }
    let objects = destroy::named(incoming)?;
    for some in objects.chunks(DESTROY_OBJECTS_AT_ONCE) {
        raise(ost, incoming, some, (owner, lent), body).await?;
    }
    ost.commit_all().await?;
    Ok(removal::reply(incoming, objects.len()))
}

/// An MDT to which objects are lent: its index, and the number of its store.
type Borrower = (u32, u64);

/// The MDT whose files are to use the objects, too.
fn lent(body: &OstRaiseReq, store: &[u8]) -> Result<Option<Borrower>, Errno> {
    let Some(mdt) = body.lent.checked_sub(1) else { return Ok(None) };
    let store = store.try_into().map_or(0, u64::from_le_bytes);
    let is_another = mdt < MDTS_MAX && mdt != Fid::from(body.parent).mdt_index();
    if is_another && store != 0 { Ok(Some((mdt, store))) } else { Err(Errno::EPROTO) }
}

async fn raise(
    ost: &Ost,
    incoming: &Incoming,
    objects: &[Fid],
    (owner, lent): (Owner, Option<Borrower>),
    body: OstRaiseReq,
) -> Result<(), Errno> {
    assert!(objects.is_sorted(), "whoever locks many objects does it in one order");
    let mut held = Vec::with_capacity(objects.len());
    for object in objects {
        let object = valid_object(*object)?;
        held.push(ost.locks.lock(incoming, object, Extent::ALL, Mode::Exclusive).await);
        ost.check_owned(incoming, object, owner).await?;
    }
    may_raise(ost, incoming, objects, &body.claim)?;
    let records = ost
        .persist(|| {
            let view = ost.store.meta().running()?;
            let to = lent.map(|(mdt, _)| mdt);
            let (mut set, records) = told(&*view, objects, (owner, to), body.layout_version)?;
            drop(view);
            if let Some(mdt) = lent {
                ost.mdts.borrow().remember_store(mdt, &mut set);
            }
            ost.store.meta().apply(&set)?;
            Ok(records)
        })
        .await?;
    records.iter().for_each(|(object, record)| ost.note_record(*object, record));
    if let Some(mdt) = lent {
        ost.mdts.borrow_mut().remembered_store(mdt);
    }
    ost.changed(0);
    Ok(())
}

/// As a change: nobody raises for a session that is over, or a destroyed object.
fn may_raise(ost: &Ost, incoming: &Incoming, objects: &[Fid], claim: &Claim) -> Result<(), Errno> {
    if incoming.session.is_ended() {
        return Err(Errno::ESTALE);
    }
    ost.check_fence(incoming, claim)?;
    objects.iter().try_for_each(|object| ost.check_there(*object))
}

/// What is to be stored so that `objects` are used from this version on, and their records. They
/// are lent to files of an MDT if one is named.
///
/// Where each has a record, a full store takes the set from its reserve. Files are moved away from
/// such an OST, so what was told is destroyed soon, and the new records take no room beside the old
/// ones.
fn told(
    view: &dyn View,
    objects: &[Fid],
    (owner, lent): (Owner, Option<u32>),
    layout_version: u32,
) -> Result<(WriteSet, Vec<(Fid, ObjectRecord)>), osd::StoreError> {
    let (mut set, mut records) = (WriteSet::new(), Vec::with_capacity(objects.len()));
    let mut are_there = true;
    for object in objects {
        let before = object_record(view, *object)?;
        are_there &= before.is_some();
        let mtime = before.map_or(Timespec::default(), |record| record.mtime());
        let record = record_after(view, *object, owner, mtime)?;
        let record = record.since_version(record.layout_version().max(layout_version));
        let record = lent.map_or(record, |mdt| record.lent_to(owner, mdt));
        set.put(Table::Objects, object.to_key(), record.as_bytes());
        records.push((*object, record));
    }
    if are_there {
        target::reserve(&mut set);
    }
    Ok((set, records))
}

#[cfg(test)]
mod tests {
    use types::{FID_FIRST_NORMAL_SEQ, FID_SEQUENCES_PER_MDT_BITS};

    use super::*;
    use crate::listing::tests::Records;

    #[test]
    fn a_full_store_takes_the_raise_of_objects_that_have_records() {
        let owner = Owner { parent: Fid::new(1, 1), store: 7 };
        let [there, missing] = [1, 2].map(|oid| Fid::new(2, oid));
        let record = ObjectRecord::new(owner, Timespec::new(5, 0));
        let stored = (there.to_key().to_vec(), record.as_bytes().to_vec());
        let view = Records([stored].into());
        let (set, records) = told(&view, &[there], (owner, None), 4).expect("it is read");
        assert!(set.frees_space());
        assert_eq!(records.len(), 1);
        assert_eq!((records[0].0, records[0].1.layout_version()), (there, 4));
        for objects in [&[missing][..], &[there, missing]] {
            let (set, records) = told(&view, objects, (owner, None), 4).expect("it is read");
            assert!(!set.frees_space(), "a record more takes room");
            assert_eq!(records.len(), objects.len());
        }
    }
    #[test]
    fn the_file_that_lends_an_object_owns_it() {
        let seq = |mdt: u64| FID_FIRST_NORMAL_SEQ + (mdt << FID_SEQUENCES_PER_MDT_BITS);
        let first = Owner { parent: Fid::new(seq(0), 1), store: 7 };
        let next = Owner { parent: Fid::new(seq(1), 1), store: 8 };
        let object = Fid::new(seq(0), 2);
        let record = ObjectRecord::new(first, Timespec::new(5, 0)).lent_to(first, 1);
        let view = Records([(object.to_key().to_vec(), record.as_bytes().to_vec())].into());
        let (_, records) = told(&view, &[object], (next, Some(2)), 0).expect("it is read");
        assert_eq!((records[0].1.owner(), records[0].1.lent()), (Some(next), Some(2)));
        let (_, records) = told(&view, &[object], (next, None), 4).expect("it is read");
        let raised = records[0].1;
        assert_eq!((raised.owner(), raised.lent()), (Some(first), Some(1)), "as it was");
        assert_eq!(raised.layout_version(), 4);
    }

    #[test]
    fn objects_are_lent_to_another_mdt_with_a_store() {
        let parent = Fid::new(FID_FIRST_NORMAL_SEQ, 1).into();
        let body = |lent| OstRaiseReq { parent, lent, ..OstRaiseReq::default() };
        let store = 9_u64.to_le_bytes();
        assert_eq!(lent(&body(0), &[]), Ok(None));
        assert_eq!(lent(&body(3), &store), Ok(Some((2, 9))));
        let store = &store[..];
        for (mdt, store) in [(1, store), (3, &[][..]), (3, &[0; 8][..]), (MDTS_MAX + 1, store)] {
            assert_eq!(lent(&body(mdt), store), Err(Errno::EPROTO), "{mdt}");
        }
    }
}
