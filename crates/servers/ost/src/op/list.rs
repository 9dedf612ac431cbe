//! List: objects that have a record, in the order of their FIDs. Only servers may ask.

use service::Incoming;
use types::Errno;
use wire::body::{OstListRep, OstListReq, OstListed};
use wire::{Reply, Request, encode_body};
use zerocopy::IntoBytes;

use crate::limits::LIST_OBJECTS_MAX;
use crate::listing;
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let from = incoming.request.body::<OstListReq>().from.into();
    let max = wanted(&incoming.request);
    if max == 0 {
        return Err(Errno::EINVAL);
    }
    let listed = ost.store.look(|view| listing::objects(view, from, max)).await?;
    let mut entries = Vec::with_capacity(listed.len());
    for listing::Listed { object, file, store } in listed {
        let attr = ost.objects.attr(object).await?;
        let size = attr.map_or(0, |attr| attr.size);
        entries.push(OstListed { object: object.into(), parent: file.into(), store, size });
    }
    let body = OstListRep { count: entries.len() as u32, reserved: 0 };
    let array = bytes::Bytes::copy_from_slice(entries.as_bytes());
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body), array]))
}

fn wanted(request: &Request) -> usize {
    (request.body::<OstListReq>().count as usize).min(LIST_OBJECTS_MAX)
}

/// What a correct answer holds.
pub(crate) fn answer_bytes(request: &Request) -> u64 {
    (wanted(request) * size_of::<OstListed>()) as u64
}
