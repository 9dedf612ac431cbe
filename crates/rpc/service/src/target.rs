//! What a target implements.

use std::rc::Rc;

use env::LocalFuture;
use types::{Errno, Extent, Fid, TargetId};
use wire::{Reply, Request};

use crate::{ClientRecord, Exports, Incoming, ServiceSpec, Session, limits};

/// Where a request queues, and the object data that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Which service handles it.
    pub service: &'static ServiceSpec,
    /// Whether it goes to the high-priority head.
    pub high_priority: bool,
    /// For a read or a write of object data: what it moves.
    pub io: Option<ObjectIo>,
}

impl Class {
    /// In the regular head of `service`, moving no object data.
    #[must_use]
    pub const fn of(service: &'static ServiceSpec) -> Class {
        Class { service, high_priority: false, io: None }
    }
}

/// Data of one object that a request asks to read or write. Policies order requests by it and
/// statistics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectIo {
    /// Which way the data goes.
    pub direction: Direction,
    pub object: Fid,
    /// From its first to behind its last byte; nothing for no bytes or an offset out of range.
    pub range: Option<Extent>,
    /// How many bytes the request asks for.
    pub bytes: u64,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Read,
    /// To the object.
    Write,
}

/// A target as a [`crate::Node`] serves it.
pub trait Target: 'static {
    fn id(&self) -> TargetId;
    fn exports(&self) -> Rc<Exports>;
    /// Requests in flight that a client of it is told to keep to.
    fn rpcs_in_flight(&self) -> u32 {
        limits::RPCS_IN_FLIGHT_MAX
    }
    /// Which service handles `request`, and which data it moves. Asked once, when the request
    /// arrives: nothing else in the service decodes a body.
    fn class(&self, request: &Request) -> Class;
    /// Where on its device `range` of `object` begins, bytes; asked before a read is queued, where
    /// a policy sorts by it. Nothing: it cannot tell.
    fn locate(self: Rc<Self>, _object: Fid, _range: Extent) -> LocalFuture<'static, Option<u64>> {
        Box::pin(async { None })
    }
    /// Executes a request. Resends that were executed before, and committed replays, do not come
    /// here.
    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply>;
    /// Makes `record` durable; awaited before Connect is answered.
    fn remember_client(
        self: Rc<Self>,
        record: ClientRecord,
    ) -> LocalFuture<'static, Result<(), Errno>>;
    /// Drops what the session holds, forgets its client record and its reply records durably.
    fn session_ended(
        self: Rc<Self>,
        session: Rc<Session>,
        evicted: bool,
    ) -> LocalFuture<'static, ()>;
    /// Completes with the reason when its storage failed. It is served no longer then; other
    /// targets of the node are.
    fn failed(&self) -> LocalFuture<'static, String> {
        Box::pin(std::future::pending())
    }
    /// Everybody who came back has replayed: sweep what nobody re-opened. Normal requests wait for
    /// the end of this.
    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()>;
}
