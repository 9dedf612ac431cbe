//! Punch: the size of one object. The whole object is locked.
//!
//! A missing object is made only if it is asked for and the size is above zero; else there is
//! nothing to cut, and the answer says so. Replay: the same size with the same transno.

use ldlm::Mode;
use osd::{Table, WriteSet};
use service::Incoming;
use types::{Errno, Extent, Timespec};
use wire::body::{OstPunchReq, punch};
use wire::{Reply, encode_body};
use zerocopy::IntoBytes;

use super::{Change, object_record, reply_attr, valid_object};
use crate::record::ObjectRecord;
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstPunchReq = incoming.request.body();
    let object = valid_object(body.object.into())?;
    let create = body.flags & punch::CREATE != 0 && body.size > 0;

    let held = ost.locks.lock(object, Extent::ALL, Mode::Exclusive).await;
    if let Change::Overtaken = ost.may_change(incoming, object)? {
        return ost.repeat_answer(incoming).await;
    }
    let attr = ost.objects.truncate(object, body.size, create).await?;
    let mtime = ost.change_time(incoming, Timespec::new(body.mtime, body.mtime_nsec));
    let record = ObjectRecord::new(body.parent.into(), mtime);
    let mut reply =
        Reply::ok(&incoming.request.header, vec![encode_body(&reply_attr(attr, Some(record)))]);
    ost.transact(incoming, &mut reply, |view| {
        let mut set = WriteSet::new();
        if attr.is_some() {
            let record = match object_record(view, object)? {
                Some(old) => ObjectRecord::new(old.parent(), mtime),
                None => record,
            };
            set.put(Table::Objects, object.to_key(), record.as_bytes());
        }
        Ok(set)
    })
    .await?;
    drop(held);
    Ok(reply)
}
