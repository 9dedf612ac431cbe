//! A request on its way through a partition, as the scheduler sees it.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use types::{CptIndex, Extent, Fid, Instant, Nid, OstIndex, TargetId, TargetKind};
use wire::{Opcode, Request};

use crate::in_flight::InFlight;
use crate::served::Served;
use crate::{Direction, ObjectIo, Session};

/// More than this is not copied: it pins less than it is beside it.
const SETTLED_BYTES_MAX: usize = 4_096;

/// A request on its way.
pub(crate) struct Work {
    pub(crate) served: Rc<Served>,
    pub(crate) request: Box<Request>,
    pub(crate) session: Rc<Session>,
    pub(crate) flight: Rc<InFlight>,
    /// Whose queue it is counted in.
    pub(crate) cpt: CptIndex,
    /// Its buffers are its own.
    pub(crate) is_settled: bool,
}

impl Work {
    fn object_io(&self) -> Option<&ObjectIo> {
        self.flight.class.io.as_ref()
    }

    /// It may wait for long: small buffers become its own. As they come they are slices of what was
    /// read from a link, which holds a hundred requests and stays as long as any of them.
    pub(crate) fn settle(&mut self) {
        let length: usize = self.request.bufs.iter().map(Bytes::len).sum();
        if self.is_settled || length == 0 || length > SETTLED_BYTES_MAX {
            return;
        }
        self.is_settled = true;
        let mut own = BytesMut::with_capacity(length);
        self.request.bufs.iter().for_each(|buf| own.extend_from_slice(buf));
        let mut own = own.freeze();
        for buf in &mut self.request.bufs {
            *buf = own.split_to(buf.len());
        }
    }

    /// Object and range of a read, of which a policy may want to know where they lie on the device.
    pub(crate) fn read_range(&self) -> Option<(Fid, Extent)> {
        let io = self.object_io().filter(|io| io.direction == Direction::Read)?;
        Some((io.object, io.range?))
    }
}

const _: () = assert!(wire::PROJID_NONE == nrs::ID_NONE);

impl nrs::Request for Work {
    fn nid(&self) -> Nid {
        self.session.nid.get()
    }

    /// Sessions are numbered per target: the target's kind and index (24 bits here) tell them
    /// apart.
    fn export(&self) -> Option<u64> {
        let target = u64::from(self.served.target.id().to_u32()) << 40;
        Some(target ^ self.session.id)
    }

    fn opcode(&self) -> Opcode {
        self.request.opcode()
    }

    fn io(&self) -> nrs::Io {
        match self.object_io().map(|io| io.direction) {
            Some(Direction::Read) => nrs::Io::Read,
            Some(Direction::Write) => nrs::Io::Write,
            None => nrs::Io::Other,
        }
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
        let TargetId { kind, index } = self.served.target.id();
        (kind == TargetKind::Ost).then_some(OstIndex(index))
    }

    fn object(&self) -> Option<Fid> {
        self.object_io().map(|io| io.object)
    }

    fn range(&self) -> Option<Extent> {
        self.object_io()?.range
    }

    fn physical_start(&self) -> Option<u64> {
        self.flight.physical.get()
    }

    fn bytes(&self) -> u64 {
        self.object_io().map_or(0, |io| io.bytes)
    }

    fn arrival(&self) -> Instant {
        self.flight.arrived
    }

    fn leave_by(&self) -> Instant {
        self.flight.leave_by
    }
}
