//! Operations of an OST, a file each: decode - lock - check - move data - record - reply.

pub(crate) mod destroy;
pub(crate) mod fallocate;
pub(crate) mod glimpse;
pub(crate) mod punch;
pub(crate) mod read;
pub(crate) mod seek;
pub(crate) mod statfs;
pub(crate) mod sweep;
pub(crate) mod sync;
pub(crate) mod write;

use osd::{ObjAttr, StoreError, Table, View, WriteSet};
use service::Incoming;
use types::{Errno, Fid, Timespec};
use wire::Reply;
use wire::body::{ObjectRange, OstAttr};
use zerocopy::FromBytes;

use crate::record::ObjectRecord;
use crate::target::Ost;

/// What becomes of a change.
enum Change {
    Make,
    Overtaken,
}

/// Attributes as a reply tells them. The time of the last write is the client's word, kept in the
/// object's record.
fn reply_attr(attr: Option<ObjAttr>, record: Option<ObjectRecord>) -> OstAttr {
    let Some(attr) = attr else { return OstAttr::default() };
    let mtime = record.map_or(attr.mtime, |record| record.mtime());
    OstAttr {
        exists: 1,
        size: attr.size,
        blocks: attr.blocks,
        mtime: mtime.sec,
        mtime_nsec: mtime.nsec,
        atime: attr.atime.sec,
        atime_nsec: attr.atime.nsec,
        ctime: attr.ctime.sec,
        ctime_nsec: attr.ctime.nsec,
        ..OstAttr::default()
    }
}

fn object_record(view: &dyn View, object: Fid) -> Result<Option<ObjectRecord>, StoreError> {
    Ok(view.get(Table::Objects, &object.to_key())?.and_then(|bytes| ObjectRecord::decode(&bytes)))
}

impl Ost {
    /// Checked under the object's lock, at once before it is changed: nobody writes for a session
    /// that is over, or to a destroyed object. A change that was answered before and is replayed
    /// now is `Overtaken` by the destroy then.
    fn may_change(&self, incoming: &Incoming, object: Fid) -> Result<Change, Errno> {
        if incoming.session.is_ended() {
            return Err(Errno::ESTALE);
        }
        match self.tombstones.borrow().holds(object) {
            false => Ok(Change::Make),
            true if incoming.is_replay() => Ok(Change::Overtaken),
            true => Err(Errno::ESTALE),
        }
    }

    /// Answers a replay as the first time, changes nothing, and gives it its place in history.
    async fn repeat_answer(&self, incoming: &Incoming) -> Result<Reply, Errno> {
        let body = incoming.request.replay_buf(0).unwrap_or_default();
        let mut reply = Reply::ok(&incoming.request.header, vec![body]);
        self.transact(incoming, &mut reply, |_| Ok(WriteSet::new())).await?;
        Ok(reply)
    }

    /// The client's time of a change, as the first execution took it; the server's where the client
    /// tells none.
    fn change_time(&self, incoming: &Incoming, told: Timespec) -> Timespec {
        if told != Timespec::default() {
            return told;
        }
        match incoming.request.replay_buf(0) {
            Some(first) => {
                let first: OstAttr = wire::decode_body(&first);
                Timespec::new(first.mtime, first.mtime_nsec)
            }
            None => self.env.wall(),
        }
    }
}

/// Every FID but the one that names nothing.
fn valid_object(object: Fid) -> Result<Fid, Errno> {
    if object.is_zero() { Err(Errno::EINVAL) } else { Ok(object) }
}

/// The ranges of a batch: buffer 1.
fn ranges(incoming: &Incoming) -> Result<Vec<ObjectRange>, Errno> {
    let buffer = incoming.request.buf(1);
    let pieces = buffer.chunks_exact(size_of::<ObjectRange>());
    if !pieces.remainder().is_empty() {
        return Err(Errno::EPROTO);
    }
    pieces.map(|piece| ObjectRange::read_from_bytes(piece).map_err(|_| Errno::EPROTO)).collect()
}
