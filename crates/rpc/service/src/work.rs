//! A request on its way through a partition, as the scheduler sees it.

use std::rc::Rc;

use nrs::PolicyIndex;
use types::{CptIndex, Extent, Fid, Instant, Nid, OstIndex, TargetId, TargetKind};
use wire::body::OstIoReq;
use wire::{Opcode, Request};

use crate::Session;
use crate::incoming::Transport;
use crate::node::Entry;
use crate::partition::{Heads, Partition};

/// A request on its way.
pub(crate) struct Work {
    pub(crate) entry: Rc<Entry>,
    pub(crate) request: Box<Request>,
    pub(crate) session: Rc<Session>,
    pub(crate) transport: Rc<Transport>,
    /// Whose queue it is counted in.
    pub(crate) cpt: CptIndex,
}

/// Where in its partition a request is.
#[derive(Default)]
pub(crate) enum Place {
    /// Held by recovery, parked, or done.
    #[default]
    Nowhere,
    /// In a head.
    Queued(Queued),
    /// In a worker slot.
    Slot(Slot),
}

/// A place in a head.
#[derive(Clone)]
pub(crate) struct Queued {
    pub(crate) partition: Rc<Partition>,
    pub(crate) hp: bool,
    pub(crate) handle: nrs::Handle,
}

impl Queued {
    /// Whether the request still waits there and `wanted` holds for it.
    pub(crate) fn holds(&self, wanted: impl Fn(&Work) -> bool) -> bool {
        self.partition.heads.borrow().head(self.hp).borrow().get(self.handle).is_some_and(wanted)
    }
}

/// A worker slot, and the policy that is told when the request is done.
pub(crate) struct Slot {
    pub(crate) partition: Rc<Partition>,
    pub(crate) heads: Rc<Heads>,
    pub(crate) hp: bool,
    pub(crate) policy: PolicyIndex,
}

fn moves_data(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::OstRead | Opcode::OstWrite)
}

impl Work {
    fn io(&self) -> Option<OstIoReq> {
        moves_data(self.request.opcode()).then(|| self.request.body())
    }

    /// Object and range of a read, of which a policy may want to know where they lie on the device.
    pub(crate) fn read_range(&self) -> Option<(Fid, Extent)> {
        (self.request.opcode() == Opcode::OstRead).then_some(())?;
        Some((nrs::Request::object(self)?, nrs::Request::range(self)?))
    }
}

impl nrs::Request for Work {
    fn nid(&self) -> Nid {
        self.session.nid.get()
    }

    /// Sessions are numbered per target: the target's kind and index (24 bits here) tell them
    /// apart.
    fn export(&self) -> Option<u64> {
        let target = u64::from(self.entry.target.id().to_u32()) << 40;
        Some(target ^ self.session.id)
    }

    fn opcode(&self) -> Opcode {
        self.request.opcode()
    }

    fn uid(&self) -> u32 {
        self.request.header.uid
    }

    fn gid(&self) -> u32 {
        self.request.header.gid
    }

    fn projid(&self) -> u32 {
        self.request.header.projid
    }

    fn jobid(&self) -> &str {
        let jobid = &self.request.header.jobid;
        let end = jobid.iter().position(|byte| *byte == 0).unwrap_or(jobid.len());
        std::str::from_utf8(&jobid[..end]).unwrap_or_default()
    }

    fn ost_index(&self) -> Option<OstIndex> {
        let TargetId { kind, index } = self.entry.target.id();
        (kind == TargetKind::Ost).then_some(OstIndex(index))
    }

    fn object(&self) -> Option<Fid> {
        self.io().map(|body| body.object.into())
    }

    fn range(&self) -> Option<Extent> {
        let body = self.io()?;
        Extent::new(body.offset, body.offset.checked_add(u64::from(body.length))?)
    }

    fn physical_start(&self) -> Option<u64> {
        self.transport.physical.get()
    }

    fn bytes(&self) -> u64 {
        self.io().map_or(0, |body| u64::from(body.length))
    }

    fn arrival(&self) -> Instant {
        self.transport.arrived
    }

    fn leave_by(&self) -> Instant {
        self.transport.leave_by
    }
}
