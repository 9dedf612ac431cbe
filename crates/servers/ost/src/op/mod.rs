//! Operations of an OST, one file and one row each: decode - lock - check - move data - record -
//! reply.

pub(crate) mod destroy;
pub(crate) mod fallocate;
pub(crate) mod fence;
pub(crate) mod glimpse;
pub(crate) mod list;
pub(crate) mod punch;
pub(crate) mod raise;
pub(crate) mod read;
pub(crate) mod reserve;
pub(crate) mod seek;
pub(crate) mod statfs;
pub(crate) mod sweep;
pub(crate) mod sync;
pub(crate) mod write;

use ldlm::Mode;
use osd::{ObjAttr, StoreError, Table, View, WriteSet};
use service::spec::{MDT_IO, MDT_OUT, OST, OST_CREATE, OST_IO};
use service::{Direction, Incoming, ServiceSpec};
use types::{Errno, Extent, Fid, Instant, TargetId, TargetKind, Timespec, Transno};
use wire::body::{Claim, IoFlags, ObjectRange, OstAttr, OstIoReq, StatfsState};
use wire::{Opcode, Reply, Request, encode_body};
use zerocopy::{FromBytes, IntoBytes};

use crate::limits::READ_ONLY_GRACE;
use crate::owners::record_after;
use crate::record::{ObjectRecord, Owner};
use crate::tally::Kind;
use crate::target::Ost;

/// One operation, apart from how it is executed. Whether it changes something is said by
/// [`Opcode::modifies`]. Locks live as long as the operation and are taken in its file.
#[derive(Debug)]
pub(crate) struct Row {
    /// Where its requests queue.
    pub(crate) service: &'static ServiceSpec,
    /// Which head of the queue they go to.
    pub(crate) head: Head,
    /// Which way it moves an object's data, if it does.
    pub(crate) moves: Option<Direction>,
    /// Most that its answer holds.
    pub(crate) answer: Length,
    /// What statistics count it as.
    pub(crate) kind: Kind,
}

/// A head of a service's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Regular,
    HighPriority,
}

/// Most that an answer holds, data of objects not counted.
#[derive(Debug)]
pub(crate) enum Length {
    /// At most [`service::limits::ANSWER_BYTES_SMALL`].
    Small,
    /// What a correct answer to this request holds.
    Of(fn(&Request) -> u64),
}

/// Most that the answer to a request holds; zero where it is small.
pub(crate) fn answer_bytes(row: &Row, request: &Request) -> u64 {
    match row.answer {
        Length::Small => 0,
        Length::Of(bytes) => bytes(request),
    }
}

/// Where requests of a service queue at `target`. At the data target of an MDT I/O and all else
/// have a service each, apart from that of the MDT, whose requests wait for some of these.
pub(crate) fn queue(service: &'static ServiceSpec, target: TargetId) -> &'static ServiceSpec {
    match service {
        own if !target.is_dom() => own,
        io if *io == OST_IO => &MDT_IO,
        _ => &MDT_OUT,
    }
}

macro_rules! operations {
    ($(
        $opcode:ident =>
            $file:ident, $service:ident, $head:expr, $moves:expr, $answer:expr, $kind:expr;
    )*) => {
        /// The row of an operation; none for what is not an OST's.
        pub(crate) const fn row(opcode: Opcode) -> Option<&'static Row> {
            match opcode {
                $(Opcode::$opcode => {
                    const ROW: &Row = &Row {
                        service: &$service,
                        head: $head,
                        moves: $moves,
                        answer: $answer,
                        kind: $kind,
                    };
                    Some(ROW)
                })*
                _ => None,
            }
        }

        /// Executes a request by the file of its operation.
        pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
            incoming.check_role()?;
            match incoming.request.opcode() {
                $(Opcode::$opcode => $file::execute(ost, incoming).await,)*
                _ => Err(Errno::EOPNOTSUPP),
            }
        }
    };
}

use Head::{HighPriority, Regular};
use Length::{Of, Small};

const NO_DATA: Option<Direction> = None;
const READS: Option<Direction> = Some(Direction::Read);
const WRITES: Option<Direction> = Some(Direction::Write);

operations! {
    OstRead => read, OST_IO, Regular, READS, Small, Kind::Read;
    OstWrite => write, OST_IO, Regular, WRITES, Small, Kind::Write;
    OstPunch => punch, OST_IO, Regular, NO_DATA, Small, Kind::Punch;
    OstFallocate => fallocate, OST_IO, Regular, NO_DATA, Small, Kind::Prealloc;
    OstSeek => seek, OST_IO, Regular, NO_DATA, Small, Kind::Other;
    OstGlimpse => glimpse, OST, HighPriority, NO_DATA, Of(glimpse::answer_bytes), Kind::Getattr;
    OstDestroy => destroy, OST_CREATE, Regular, NO_DATA, Small, Kind::Destroy;
    OstFence => fence, OST, HighPriority, NO_DATA, Small, Kind::Other;
    OstList => list, OST, Regular, NO_DATA, Of(list::answer_bytes), Kind::Other;
    OstRaise => raise, OST, Regular, NO_DATA, Small, Kind::Other;
    OstReserve => reserve, OST, Regular, NO_DATA, Small, Kind::Other;
    OstStatfs => statfs, OST, Regular, NO_DATA, Small, Kind::Statfs;
    OstSync => sync, OST, Regular, NO_DATA, Small, Kind::Sync;
}

// An opcode of OSTs without a row does not compile, nor does a row of another target's.
const _: () = {
    let mut at = 0;
    while at < Opcode::ALL.len() {
        let opcode = Opcode::ALL[at];
        let is_ours = matches!(opcode.target(), Some(TargetKind::Ost));
        assert!(row(opcode).is_some() == is_ours, "every operation of OSTs has its row");
        at += 1;
    }
};

/// What a request says of the object that it changes.
struct Told {
    object: Fid,
    /// Locked while it changes.
    extent: Extent,
    /// For whom it is changed.
    owner: Owner,
    /// On whose word.
    claim: Claim,
    /// The version of the layout by which it was found.
    layout_version: u32,
    /// The client's time of the change.
    mtime: Timespec,
}

/// What becomes of a change.
enum Fate {
    Make,
    Overtaken,
}

/// Attributes as a reply tells them. The time of the last write is the client's word, kept in the
/// object's record.
fn reply_attr(attr: Option<ObjAttr>, record: Option<ObjectRecord>) -> OstAttr {
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

pub(crate) fn object_record(
    view: &dyn View,
    object: Fid,
) -> Result<Option<ObjectRecord>, StoreError> {
    Ok(view.get(Table::Objects, &object.to_key())?.and_then(|bytes| ObjectRecord::decode(&bytes)))
}

impl Ost {
    /// Changes one object by `change`, with its range locked, and puts the object's record and the
    /// reply into history. `change` answers the attributes, or nothing where no object is there.
    async fn change(
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
    fn has_closed_rooms(&self) -> bool {
        self.read_only_since().is_some_and(|since| self.env.now() - since > READ_ONLY_GRACE)
    }

    /// Refuses to read what was destroyed: whoever still names it has an old layout.
    fn check_there(&self, object: Fid) -> Result<(), Errno> {
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
    row(request.opcode()).is_some_and(|row| row.moves == WRITES)
        && request.body::<OstIoReq>().flags.contains(IoFlags::RESERVED)
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
