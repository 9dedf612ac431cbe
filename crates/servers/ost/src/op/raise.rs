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

use super::{destroy, object_record, valid_object};
use crate::limits::DESTROY_OBJECTS_AT_ONCE;
use crate::owners::{claimed, record_after};
use crate::record::{NO_LAYOUT, Owner};
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
    Ok(destroy::reply(incoming, objects.len()))
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
            let mut records = Vec::with_capacity(objects.len());
            let mut set = WriteSet::new();
            for object in objects {
                let record = raised(&*view, *object, owner, body.layout_version)?;
                set.put(Table::Objects, object.to_key(), record.as_bytes());
                records.push((*object, record));
            }
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

fn raised(
    view: &dyn View,
    object: Fid,
    owner: Owner,
    layout_version: u32,
) -> Result<crate::record::ObjectRecord, osd::StoreError> {
    let mtime = object_record(view, object)?.map_or(Timespec::default(), |record| record.mtime());
    let record = record_after(view, object, owner, mtime)?;
    Ok(record.since_version(record.layout_version().max(layout_version)))
}
