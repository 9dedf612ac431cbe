//! What a target implements.

use std::rc::Rc;

use env::LocalFuture;
use types::{Errno, Extent, Fid, TargetId};
use wire::{Reply, Request};

use crate::{ClientRecord, Exports, Incoming, ServiceSpec, Session, limits};

/// Where a request queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Which service handles it.
    pub service: &'static ServiceSpec,
    /// Whether it goes to the high-priority head.
    pub high_priority: bool,
}

/// A target as a [`crate::Node`] serves it.
pub trait Target: 'static {
    /// Which one.
    fn id(&self) -> TargetId;
    /// Its sessions.
    fn exports(&self) -> Rc<Exports>;
    /// Requests in flight that a client of it is told to keep to.
    fn rpcs_in_flight(&self) -> u32 {
        limits::RPCS_IN_FLIGHT_MAX
    }
    /// Which service handles `request`.
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
    /// Everybody who came back has replayed: sweep what nobody re-opened. Normal requests wait for
    /// the end of this.
    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()>;
}
