//! Write: data of one object, which is made if it is not there.
//!
//! The data is pulled first, so that no lock waits for a client; then the exclusive lock of the
//! range, the data, and the record. A failure before the record leaves bytes behind that nobody was
//! told of: as after a failed `write` anywhere. Replay: the same bytes with the same transno. A
//! destroyed object is ESTALE and stays destroyed.

use ldlm::Mode;
use osd::{IoMode, Table, WriteSet};
use service::Incoming;
use types::{Errno, Extent, Timespec};
use wire::body::{OstIoReq, io};
use wire::{BULK_BYTES_MAX, Reply, encode_body};
use zerocopy::IntoBytes;

use super::{Change, object_record, reply_attr, valid_object};
use crate::record::ObjectRecord;
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstIoReq = incoming.request.body();
    let object = valid_object(body.object.into())?;
    if body.length > BULK_BYTES_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let end = body.offset.checked_add(u64::from(body.length)).ok_or(Errno::EFBIG)?;
    let extent = Extent::new(body.offset, end).ok_or(Errno::EINVAL)?;
    let data = incoming.pull().await?;
    if data.len() != body.length as usize {
        return Err(Errno::EPROTO);
    }
    ost.transfer(u64::from(body.length)).await;
    let mode = if body.flags & io::DIRECT != 0 { IoMode::Direct } else { IoMode::Auto };

    let held = ost.locks.lock(object, extent, Mode::Exclusive).await;
    if let Change::Overtaken = ost.may_change(incoming, object)? {
        return ost.repeat_answer(incoming).await;
    }
    let attr = ost.objects.write(object, body.offset, data, mode).await?;
    ost.changed(u64::from(body.length));
    let mtime = ost.change_time(incoming, Timespec::new(body.mtime, body.mtime_nsec));
    let record = ObjectRecord::new(body.parent.into(), mtime);
    let mut reply = Reply::ok(
        &incoming.request.header,
        vec![encode_body(&reply_attr(Some(attr), Some(record)))],
    );
    ost.transact(incoming, &mut reply, |view| {
        let mut set = WriteSet::new();
        // The first write says whose object it is.
        let record = match object_record(view, object)? {
            Some(old) => ObjectRecord::new(old.parent(), mtime),
            None => record,
        };
        set.put(Table::Objects, object.to_key(), record.as_bytes());
        Ok(set)
    })
    .await?;
    drop(held);
    if body.flags & io::SYNC != 0 {
        ost.commit_upto(reply.transno()).await?;
    }
    Ok(reply)
}
