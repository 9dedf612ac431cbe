//! OST.
use std::rc::Rc;
use env::{Env, LocalFuture};
use osd::{MetaStore, ObjStore};
use types::Span;
use crate::{OstConfig, StartError};

/// One OST being served.
pub struct Ost {}

impl Ost {
    /// Boots: raises the epoch durably, reads what is known of clients, starts committing.
    pub async fn start(_env: &Env, _config: OstConfig, _meta: Rc<dyn MetaStore>, _objects: Rc<dyn ObjStore>) -> Result<Rc<Ost>, StartError> { unimplemented!() }
    /// Commits everything and marks the end as clean. Serve nothing afterwards.
    pub async fn stop(&self) -> Result<(), StartError> { unimplemented!() }
    /// Completes with the reason when the storage failed: the instance must end and boot anew.
    pub fn failed(&self) -> LocalFuture<'static, String> { unimplemented!() }
    /// How long acknowledged changes may wait for their commit.
    pub fn set_commit_interval(&self, _span: Span) {}
}

impl service::Target for Ost {
    fn id(&self) -> types::TargetId { unimplemented!() }
    fn exports(&self) -> Rc<service::Exports> { unimplemented!() }
    fn class(&self, _request: &wire::Request) -> service::Class { unimplemented!() }
    fn handle(self: Rc<Self>, _incoming: service::Incoming) -> LocalFuture<'static, wire::Reply> { unimplemented!() }
    fn remember_client(self: Rc<Self>, _record: service::ClientRecord) -> LocalFuture<'static, Result<(), types::Errno>> { unimplemented!() }
    fn session_ended(self: Rc<Self>, _session: Rc<service::Session>, _evicted: bool) -> LocalFuture<'static, ()> { unimplemented!() }
    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> { unimplemented!() }
}
