//! Raise: from now on the objects of a file are used under a later layout. Clients that map by an
//! older one are refused, and ask the MDT.
//!
//! Each object is locked whole, so all writes under an older layout are complete when this is
//! answered. The raise is durable then, because the caller next takes bytes away from the objects,
//! at the MDT. An object that does not exist yet gets a record, so that no client makes it under an
//! older layout. Repeating it is harmless, and the version never goes back.

use ldlm::Mode;
use osd::{Table, View, WriteSet};
use service::Incoming;
use types::{Errno, Extent, Fid, Timespec};
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
    if [0, NO_LAYOUT].contains(&body.layout_version) {
        return Err(Errno::EINVAL); // 0 is any layout
    }
    let objects = destroy::named(incoming)?;
    for some in objects.chunks(DESTROY_OBJECTS_AT_ONCE) {
        raise(ost, incoming, some, owner, body).await?;
    }
    ost.commit_all().await?;
    Ok(removal::reply(incoming, objects.len()))
}

async fn raise(
    ost: &Ost,
    incoming: &Incoming,
    objects: &[Fid],
    owner: Owner,
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
            let (set, records) = told(&*view, objects, owner, body.layout_version)?;
            drop(view);
            ost.store.meta().apply(&set)?;
            Ok(records)
        })
        .await?;
    records.iter().for_each(|(object, record)| ost.note_record(*object, record));
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

/// What is to be stored so that `objects` are used from this version on, and their records.
///
/// Where each has a record, a full store takes the set from its reserve. Files are moved away from
/// such an OST, so what was told is destroyed soon, and the new records take no room beside the old
/// ones.
fn told(
    view: &dyn View,
    objects: &[Fid],
    owner: Owner,
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
    use super::*;
    use crate::listing::tests::Records;

    #[test]
    fn a_full_store_takes_the_raise_of_objects_that_have_records() {
        let owner = Owner { parent: Fid::new(1, 1), store: 7 };
        let [there, missing] = [1, 2].map(|oid| Fid::new(2, oid));
        let record = ObjectRecord::new(owner, Timespec::new(5, 0));
        let stored = (there.to_key().to_vec(), record.as_bytes().to_vec());
        let view = Records([stored].into());
        let (set, records) = told(&view, &[there], owner, 4).expect("it is read");
        assert!(set.frees_space());
        assert_eq!(records.len(), 1);
        assert_eq!((records[0].0, records[0].1.layout_version()), (there, 4));
        for objects in [&[missing][..], &[there, missing]] {
            let (set, records) = told(&view, objects, owner, 4).expect("it is read");
            assert!(!set.frees_space(), "a record more takes room");
            assert_eq!(records.len(), objects.len());
        }
    }
}
