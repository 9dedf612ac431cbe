//! Parts of all operations that change an object: the checks under its lock, its record and the
//! reply.

use ldlm::Mode;
use osd::{ObjAttr, Table, View, WriteSet};
use service::Incoming;
use types::{Errno, Extent, Fid, Instant, Timespec, Transno};
use wire::body::{Claim, IoFlags, ObjectRange, OstAttr, OstIoReq, StatfsState};
use wire::{Opcode, Reply, Request, encode_body};
use zerocopy::{FromBytes, IntoBytes};

use crate::limits::READ_ONLY_GRACE;
use crate::owners::record_after;
use crate::record::{ObjectRecord, Owner, object_record};
use crate::target::Ost;

/// What a request says of the object that it changes.
pub(super) struct Told {
    pub(super) object: Fid,
    /// Locked while it changes.
    pub(super) extent: Extent,
    /// For whom it is changed.
    pub(super) owner: Owner,
    /// On whose word.
    pub(super) claim: Claim,
    /// The version of the layout by which it was found.
    pub(super) layout_version: u32,
    /// The client's time of the change.
    pub(super) mtime: Timespec,
}

/// What becomes of a change.
enum Fate {
    Make,
    Overtaken,
}

/// Attributes as a reply tells them. The time of the last write is the client's word, kept in the
/// object's record.
pub(super) fn reply_attr(attr: Option<ObjAttr>, record: Option<ObjectRecord>) -> OstAttr {
    let layout_version = record.map_or(0, |record| record.layout_version());
    let Some(attr) = attr else { return OstAttr { layout_version, ..OstAttr::default() } };
    let mtime = record.map_or(attr.mtime, |record| record.mtime());
    let changed = record.map_or(0, |record| record.changed().0);
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
        layout_version,
        changed,
        ..OstAttr::default()
    }
}

impl Ost {
    /// Changes one object by `change`, with its range locked, and puts the object's record and the
    /// reply into history. `change` answers the attributes, or nothing where no object is there.
    pub(super) async fn change(
        &self,
        incoming: &Incoming,
        told: &Told,
        change: impl AsyncFnOnce() -> Result<Option<ObjAttr>, Errno>,
    ) -> Result<Reply, Errno> {
        let object = told.object;
        assert!(!object.is_zero(), "an operation has checked its object");
        let asked = self.env.now();
        let _held = self.locks.lock(incoming, object, told.extent, Mode::Exclusive).await;
        let is_lost = self.config.bugs.lose_overlap() && self.env.now() > asked;
        self.check_owner(incoming, object, told.owner, told.layout_version).await?;
        if let Fate::Overtaken = self.may_change(incoming, object, &told.claim)? {
            tracing::debug!(
                target_id = %self.exports.name(),
                %object,
                client = %incoming.session.client,
                transno = incoming.request.header.transno,
                "a replay changes nothing: its object was destroyed since"
            );
            return self.repeat_answer(incoming).await;
        }
        let _under_way = self.under_way.begin(incoming.session.client);
        let attr = if is_lost { self.objects.attr(object).await? } else { change().await? };
        let mtime = self.change_time(incoming, told.mtime);
        let is_unordered = is_reserved(&incoming.request);
        let body = reply_attr(attr, Some(ObjectRecord::new(told.owner, mtime)));
        let mut reply = Reply::ok(&incoming.request.header, vec![encode_body(&body)]);
        let record = |view: &dyn View, transno: Transno| {
            let mut set = WriteSet::new();
            if attr.is_some() {
                let mut record = record_after(view, object, told.owner, mtime)?;
                if is_unordered {
                    record = record.not_before(object_record(view, object)?);
                }
                let record = record.changed_by(transno);
                set.put(Table::Objects, object.to_key(), record.as_bytes());
                self.mdts.borrow().remember(&told.owner, &mut set);
            }
            Ok(set)
        };
        self.transact(incoming, &mut reply, record).await?;
        if attr.is_some() {
            self.mdts.borrow_mut().remembered(&told.owner);
        }
        Ok(reply)
    }

    /// Checked under the object's lock, with nothing awaited from then to the change: nobody writes
    /// for a session that is over, here or at the MDT, or to a destroyed object. A change that was
    /// answered before and is replayed now is `Overtaken` by the destroy then.
    fn may_change(&self, incoming: &Incoming, object: Fid, claim: &Claim) -> Result<Fate, Errno> {
        if incoming.session.is_ended() {
            return Err(Errno::ESTALE);
        }
        self.check_fence(incoming, claim)?;
        if self.is_closed_for(incoming) {
            return Err(Errno::EROFS);
        }
        let is_destroyed = self.tombstones.borrow().holds(object);
        if incoming.is_replay() && (is_destroyed || self.owners.is_gone(object)) {
            return Ok(Fate::Overtaken);
        }
        if is_destroyed { Err(Errno::ESTALE) } else { Ok(Fate::Make) }
    }

    /// Whether this OST is read-only for a change. It takes replays, because their changes were
    /// acknowledged, and for a while writes that may have been acknowledged before it was marked.
    fn is_closed_for(&self, incoming: &Incoming) -> bool {
        let Some(since) = self.read_only_since() else { return false };
        let has_room = || self.reserved.borrow().has_unused(incoming.session.id);
        let is_promised = is_reserved(&incoming.request) && has_room();
        let is_late = self.env.now() - since > READ_ONLY_GRACE;
        !incoming.is_replay() && (is_late || !is_promised)
    }

    /// The first request that it saw since it is read-only. Nothing: it is not.
    fn read_only_since(&self) -> Option<Instant> {
        let is_marked = self.marks.has(StatfsState::READ_ONLY);
        let since = self.read_only_since.get().unwrap_or_else(|| self.env.now());
        self.read_only_since.set(is_marked.then_some(since));
        self.read_only_since.get()
    }

    /// Whether it keeps no promise of room any more, because it is read-only. For a while it takes
    /// what was acknowledged before.
    pub(super) fn has_closed_rooms(&self) -> bool {
        self.read_only_since().is_some_and(|since| self.env.now() - since > READ_ONLY_GRACE)
    }

    /// Refuses to read what was destroyed: whoever still names it has an old layout.
    pub(super) fn check_there(&self, object: Fid) -> Result<(), Errno> {
        let is_gone = self.tombstones.borrow().holds(object);
        if is_gone && !self.config.bugs.believe_old_layouts() {
            return Err(Errno::ESTALE);
        }
        Ok(())
    }

    /// Answers a replay as the first time, changes nothing, and gives it its place in history. Of
    /// what the client brings as the first answer, no more is kept than an answer has.
    async fn repeat_answer(&self, incoming: &Incoming) -> Result<Reply, Errno> {
        let first: OstAttr = wire::decode_body(&incoming.request.replay_buf(0).unwrap_or_default());
        let mut reply = Reply::ok(&incoming.request.header, vec![encode_body(&first)]);
        self.transact(incoming, &mut reply, |_, _| Ok(WriteSet::new())).await?;
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

/// Whether its caller was answered before it was sent. Such writes of one client to different
/// bytes come in any order, and are stamped with the time of the answer.
fn is_reserved(request: &Request) -> bool {
    request.opcode() == Opcode::OstWrite
        && request.body::<OstIoReq>().flags.contains(IoFlags::RESERVED)
}

/// Every FID but the one that names nothing.
pub(super) fn valid_object(object: Fid) -> Result<Fid, Errno> {
    if object.is_zero() { Err(Errno::EINVAL) } else { Ok(object) }
}

/// The ranges of a batch: buffer 1.
pub(super) fn ranges(incoming: &Incoming) -> Result<Vec<ObjectRange>, Errno> {
    let buffer = incoming.request.buf(1);
    let pieces = buffer.chunks_exact(size_of::<ObjectRange>());
    if !pieces.remainder().is_empty() {
        return Err(Errno::EPROTO);
    }
    pieces.map(|piece| ObjectRange::read_from_bytes(piece).map_err(|_| Errno::EPROTO)).collect()
}
