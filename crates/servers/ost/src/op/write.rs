//! Write: data of one object, which is made if it does not exist.
//!
//! The data is pulled first, so that no lock waits for a client. Then come the exclusive lock of
//! the range, the data, and the record. A failure before the record leaves bytes behind that were
//! never reported, as after a failed `write` anywhere. Replay: the same bytes with the same
//! transno. A destroyed object is ESTALE and stays destroyed.

use osd::IoMode;
use service::Incoming;
use types::{Errno, Extent, Timespec};
use wire::body::{IoFlags, OstIoReq};
use wire::{BULK_BYTES_MAX, Reply};

use super::{Told, valid_object};
use crate::owners::claimed;
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstIoReq = incoming.request.body();
    let object = valid_object(body.object.into())?;
    let owner = claimed(body.parent, &body.claim)?;
    if body.length > BULK_BYTES_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let end = body.offset.checked_add(u64::from(body.length)).ok_or(Errno::EFBIG)?;
    let extent = Extent::new(body.offset, end).ok_or(Errno::EINVAL)?;
    let data = incoming.pull().await?;
    if data.len() != body.length as usize {
        return Err(Errno::EPROTO);
    }
    let session = incoming.session.id;
    let has_room = body.flags.contains(IoFlags::RESERVED) && ost.reserved.borrow().has(session);
    let mut taking = match has_room {
        true => None,
        false => ost.take_room(incoming, u64::from(body.length)).await?,
    };
    ost.transfer(device::Kind::Write, object, extent).await;
    let mode = if body.flags.contains(IoFlags::DIRECT) { IoMode::Direct } else { IoMode::Auto };

    let told = Told {
        object,
        extent,
        owner,
        claim: body.claim,
        layout_version: body.layout_version,
        mtime: Timespec::new(body.mtime, body.mtime_nsec),
    };
    let write = async || {
        let attr = ost.objects.write(object, body.offset, data, mode).await?;
        drop(taking.take()); // a look at the disk sees them from now on
        ost.changed(u64::from(body.length));
        Ok(Some(attr))
    };
    let reply = ost.change(incoming, &told, write).await?;
    if has_room && !incoming.is_replay() {
        ost.reserved.borrow_mut().used(session, body.room);
    }
    if body.flags.contains(IoFlags::SYNC) {
        ost.commit_upto(reply.transno()).await?;
    }
    Ok(reply)
}
