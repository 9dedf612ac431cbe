//! Removal of objects: their locks, tombstones and records, and the answer.

use ldlm::Mode;
use osd::{Table, View, WriteSet};
use service::Incoming;
use types::{Errno, Extent, Fid};
use wire::body::{BatchFlags, OstBatchReq};
use wire::{Reply, encode_body};
use zerocopy::IntoBytes;

use crate::limits::DESTROY_OBJECTS_AT_ONCE;
use crate::locks::Held;
use crate::owners::is_foreign;
use crate::record::{ObjectRecord, TombstoneRecord, object_record};
use crate::target::Ost;

/// The answer to a destroy of so many objects.
pub(super) fn reply(incoming: &Incoming, objects: usize) -> Reply {
    let count = u32::try_from(objects).unwrap_or(u32::MAX);
    let body = OstBatchReq { count, ..OstBatchReq::default() };
    Reply::ok(&incoming.request.header, vec![encode_body(&body)])
}

/// Locks and removes objects; the locks, and the set to be applied while they are held.
pub(super) async fn remove(
    ost: &Ost,
    incoming: &Incoming,
    objects: &[Fid],
) -> Result<(Vec<Held>, WriteSet), Errno> {
    assert!(objects.is_sorted(), "all destroys take their locks in one order");
    let mut held = Vec::with_capacity(objects.len());
    for object in objects {
        // In the order of FIDs, so that two destroys do not wait for each other.
        held.push(ost.locks.lock(incoming, *object, Extent::ALL, Mode::Exclusive).await);
    }
    let own = own(ost, objects, incoming.request.body()).await?;
    for (object, _) in &own {
        ost.objects.destroy(*object).await?;
    }
    Ok((held, forget(ost, &own)))
}

/// Those of `objects` that are not another store's, with their records. A sweep leaves those that
/// were lent, because only an MDT that does not ask may know their file.
async fn own(
    ost: &Ost,
    objects: &[Fid],
    body: OstBatchReq,
) -> Result<Vec<(Fid, Option<ObjectRecord>)>, Errno> {
    let (store, is_sweep) = (body.store, body.flags.contains(BatchFlags::OIDS));
    let mine = |view: &dyn View| {
        let mdts = ost.mdts.borrow();
        let mut own = Vec::with_capacity(objects.len());
        for object in objects {
            let record = object_record(view, *object)?;
            if is_sweep && record.is_some_and(|record| record.lent().is_some()) {
                continue;
            }
            if is_foreign(record.as_ref(), store, &mdts) {
                tracing::error!(%object, store, "not destroyed: it belongs to another MDT's store");
            } else {
                own.push((*object, record));
            }
        }
        Ok(own)
    };
    ost.store.look(mine).await
}

/// The records of objects that are gone, as they become.
pub(crate) fn forget(ost: &Ost, objects: &[(Fid, Option<ObjectRecord>)]) -> WriteSet {
    assert!(objects.len() <= DESTROY_OBJECTS_AT_ONCE, "a store has room for this");
    let mut set = WriteSet::new();
    for (object, record) in objects {
        ost.owners.forget(*object);
        match record.filter(|record| record.layout_version() > 0) {
            Some(told) => set.put(Table::Objects, object.to_key(), told.gone().as_bytes()),
            None => set.delete(Table::Objects, object.to_key()),
        }
        if !ost.config.bugs.skip_tombstones() {
            let number = ost.tombstones.borrow_mut().add(*object);
            set.put(Table::Tombstones, object.to_key(), TombstoneRecord::new(number).as_bytes());
        }
    }
    set
}
