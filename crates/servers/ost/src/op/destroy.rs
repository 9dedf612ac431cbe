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

use service::Incoming;
use types::{Errno, Fid};
use wire::Reply;
use wire::body::{BatchFlags, OstBatchReq};

use super::removal::{remove, reply};
use super::{ranges, sweep};
use crate::limits::{DESTROY_OBJECTS_AT_ONCE, DESTROY_OBJECTS_MAX};
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
