//! Glimpse: size, blocks and times of a batch of objects. It takes no lock. Each object's answer is
//! of one moment after the request came, and includes every write that was answered before. An
//! object that was made for another MDT's store does not exist for the caller. For a destroyed
//! object, the answer says that no layout names it.

use osd::ObjAttr;
use service::Incoming;
use types::{Errno, Fid, Role};
use wire::body::{ObjectRange, OstAttr, OstBatchReq};
use wire::{Reply, Request, encode_body};
use zerocopy::IntoBytes;

use super::{ranges, reply_attr};
use crate::limits::{GLIMPSE_AT_ONCE, GLIMPSE_OBJECTS_MAX};
use crate::owners::is_foreign;
use crate::record::{ObjectRecord, object_record};
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let store = incoming.request.body::<OstBatchReq>().store;
    if store == 0 && incoming.session.role() < Role::Server {
        return Err(Errno::EPROTO);
    }
    let ranges = ranges(incoming)?;
    if ranges.len() > GLIMPSE_OBJECTS_MAX {
        return Err(Errno::E2BIG);
    }
    let objects: Vec<Fid> =
        ranges.iter().map(|range| Fid::from(range.base).stripe(range.first)).collect();
    let mut attrs = Vec::with_capacity(objects.len());
    for some in objects.chunks(GLIMPSE_AT_ONCE) {
        attrs.extend(attrs_of(ost, some).await);
    }
    let attrs: Vec<Option<ObjAttr>> = attrs.into_iter().collect::<Result<_, _>>()?;
    let records = ost
        .store
        .look(|view| {
            objects.iter().map(|object| object_record(view, *object)).collect::<Result<Vec<_>, _>>()
        })
        .await?;
    let mdts = ost.mdts.borrow();
    let shown = |(attr, record): (Option<ObjAttr>, Option<ObjectRecord>)| {
        let foreign = is_foreign(record.as_ref(), store, &mdts);
        reply_attr(attr.filter(|_| !foreign), record.filter(|_| !foreign))
    };
    let mut reps: Vec<_> = attrs.into_iter().zip(records).map(shown).collect();
    let stones = ost.tombstones.borrow();
    for (rep, _) in reps.iter_mut().zip(&objects).filter(|(_, object)| stones.holds(**object)) {
        rep.layout_version = u32::MAX;
    }
    drop(stones);
    let body = OstBatchReq { count: reps.len() as u32, ..OstBatchReq::default() };
    let array = bytes::Bytes::copy_from_slice(reps.as_bytes());
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body), array]))
}

/// What a correct answer holds.
pub(crate) fn answer_bytes(request: &Request) -> u64 {
    let objects = request.buf(1).len() / size_of::<ObjectRange>();
    (objects.min(GLIMPSE_OBJECTS_MAX) * size_of::<OstAttr>()) as u64
}

/// All at once: what is not in memory waits for the disk side by side.
async fn attrs_of(ost: &Ost, objects: &[Fid]) -> Vec<Result<Option<ObjAttr>, Errno>> {
    env::join_all(objects.iter().map(|object| ost.objects.attr(*object)).collect()).await
}
