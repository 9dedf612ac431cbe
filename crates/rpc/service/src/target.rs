//! The trait that a target implements.

use std::rc::Rc;

use env::LocalFuture;
use types::{Errno, Extent, Fid, TargetId};
use wire::{Reply, Request};

use crate::{Class, ClientRecord, Exports, Incoming, Session, limits};

/// A target as a [`crate::Node`] serves it.
pub trait Target: 'static {
    fn id(&self) -> TargetId;
    fn exports(&self) -> Rc<Exports>;
    /// Of an MDT: the number that was drawn when its store was made. Clients repeat it where they
    /// use its files' objects. Zero of others.
    fn store_number(&self) -> u64 {
        0
    }
    /// Requests in flight that a client of it is told to keep to.
    fn rpcs_in_flight(&self) -> u32 {
        limits::RPCS_IN_FLIGHT_MAX
    }
    /// Which service handles `request`, and which data it moves. Asked once, when the request
    /// arrives: nothing else in the service decodes a body.
    fn class(&self, request: &Request) -> Class;
    /// Whether another client waits until this request is done: it goes to the high-priority head.
    /// Asked when it arrives, and of what waits in the other head when its client is called back,
    /// or with [`Exports::promote_awaited`].
    fn is_awaited(&self, _session: &Session, _request: &Request) -> bool {
        false
    }
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
    /// Keeps what these records say of their clients' silence, where their sessions go on: durable
    /// with the next commit, which it waits for if `commits`. False: the store did not take them.
    fn note_clients(
        self: Rc<Self>,
        _records: Vec<ClientRecord>,
        _commits: bool,
    ) -> LocalFuture<'static, bool> {
        Box::pin(async { true })
    }
    /// Drops what the sessions hold, forgets their client records and their reply records durably,
    /// all in one commit. Each is of another client.
    fn sessions_ended(
        self: Rc<Self>,
        sessions: Vec<Rc<Session>>,
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
