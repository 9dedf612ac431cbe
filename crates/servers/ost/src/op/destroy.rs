//! Destroy: a batch of ranges of objects. Only servers may ask. Each object is locked whole while
//! it is removed and its tombstone is written.
//!
//! The work is done in pieces, each in one transaction; the last one carries the transno. A crash
//! in between leaves some objects destroyed, and the resend or replay destroys the rest: both are
//! idempotent. A missing object gets its tombstone too, so that a write on its way does not make
//! it. An object that was made for another MDT's store stays, because the caller means another
//! object.
//!
//! If an object has received a layout version (`raise`), its record stays and says that no layout
//! may use it. Its file lives and has other objects, but a client that has the file open may use
//! the old ones at any time. A tombstone is not enough there: it goes when the sessions of its time
//! have ended, or when there are too many.

use ldlm::Mode;
use osd::{Table, View, WriteSet};
use service::Incoming;
use types::{Errno, Extent, Fid};
use wire::body::{BatchFlags, OstBatchReq};
use wire::{Reply, encode_body};
use zerocopy::IntoBytes;

use super::{object_record, ranges, sweep};
use crate::limits::{DESTROY_OBJECTS_AT_ONCE, DESTROY_OBJECTS_MAX};
use crate::locks::Held;
use crate::owners::is_foreign;
use crate::record::{ObjectRecord, TombstoneRecord};
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    if incoming.request.body::<OstBatchReq>().flags.contains(BatchFlags::OIDS) {
        return sweep::execute(ost, incoming).await;
    }
    let objects = named(incoming)?;
    let mut reply = reply(incoming, objects.len());
    let last = (objects.len() - 1) / DESTROY_OBJECTS_AT_ONCE;
    for (piece, some) in objects.chunks(DESTROY_OBJECTS_AT_ONCE).enumerate() {
        let (_held, set) = remove(ost, incoming, some).await?;
        if piece == last {
            ost.transact(incoming, &mut reply, |_, _| Ok(set.clone())).await?;
        } else {
            ost.apply(&set).await?; // without a transno
        }
    }
    Ok(reply)
}

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
    let store = incoming.request.body::<OstBatchReq>().store;
    let own = own(ost, objects, store).await?;
    for (object, _) in &own {
        ost.objects.destroy(*object).await?;
    }
    Ok((held, forget(ost, &own)))
}

/// The objects of the request, sorted, each once.
pub(super) fn named(incoming: &Incoming) -> Result<Vec<Fid>, Errno> {
    let mut objects = Vec::new();
    for range in ranges(incoming)? {
        let end = range.first.checked_add(range.count).ok_or(Errno::EINVAL)?;
        if objects.len() + range.count as usize > DESTROY_OBJECTS_MAX {
            return Err(Errno::E2BIG);
        }
        objects.extend((range.first..end).map(|stripe| Fid::from(range.base).stripe(stripe)));
    }
    objects.sort_unstable();
    objects.dedup();
    if objects.is_empty() { Err(Errno::EINVAL) } else { Ok(objects) }
}

/// Those of `objects` that are not another store's, with their records.
async fn own(
    ost: &Ost,
    objects: &[Fid],
    store: u64,
) -> Result<Vec<(Fid, Option<ObjectRecord>)>, Errno> {
    let mine = |view: &dyn View| {
        let mut own = Vec::with_capacity(objects.len());
        for object in objects {
            let record = object_record(view, *object)?;
            if is_foreign(record.as_ref(), store) {
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
