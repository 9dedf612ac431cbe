//! Read: data of one object. Shared lock of the range; changes nothing.
//!
//! A missing object reads as empty, because the file has a hole there. If the MDT knows that the
//! object must exist, a missing one is EIO. A destroyed object is ESTALE, because no layout of its
//! file names it any more.

use ldlm::Mode;
use osd::IoMode;
use service::Incoming;
use types::{Errno, Extent};
use wire::body::{IoFlags, OstIoReq};
use wire::{BULK_BYTES_MAX, Reply, encode_body};

use super::{reply_attr, valid_object};
use crate::owners::claimed;
use crate::record::object_record;
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstIoReq = incoming.request.body();
    let object = valid_object(body.object.into())?;
    let owner = claimed(body.parent, &body.claim)?;
    if body.length > BULK_BYTES_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let end = body.offset.checked_add(u64::from(body.length)).ok_or(Errno::EFBIG)?;
    let mode = match body.flags.contains(IoFlags::DIRECT) {
        true => IoMode::Direct,
        false => IoMode::Stream { above: ost.readcache_max.get() },
    };
    let extent = Extent::new(body.offset, end);
    if let Some(extent) = extent {
        ost.transfer(device::Kind::Read, object, extent).await;
    }
    let held = match extent {
        Some(extent) => Some(ost.locks.lock(incoming, object, extent, Mode::Shared).await),
        None => None,
    };
    ost.check_fence(incoming, &body.claim)?;
    ost.check_owner(incoming, object, owner, body.layout_version).await?;
    ost.check_there(object)?;
    let data = ost.objects.read(object, body.offset, body.length as usize, mode).await?;
    let attr = ost.objects.attr(object).await?;
    drop(held);
    if data.is_none() && body.flags.contains(IoFlags::MUST_EXIST) {
        tracing::warn!(%object, parent = %types::Fid::from(body.parent), "an object that must be here is missing");
        planted::reached("ost: a lost object was missed");
        return Err(Errno::EIO);
    }
    let record = match attr {
        Some(_) => ost.store.look(|view| object_record(view, object)).await?,
        None => None,
    };
    let data = data.unwrap_or_default();
    assert!(data.len() <= body.length as usize, "a store reads what was asked for at most");
    let length = u32::try_from(data.len()).expect("the store gives at most what was asked for");
    let rep = wire::body::OstAttr { length, ..reply_attr(attr, record) };
    let mut reply = Reply::ok(&incoming.request.header, vec![encode_body(&rep)]);
    incoming.push(&mut reply, data);
    Ok(reply)
}
