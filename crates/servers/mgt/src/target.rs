//! MGT.
use std::rc::Rc;
use env::{Env, LocalFuture};
use osd::MetaStore;
use crate::{MgtConfig, StartError};

/// The MGT being served.
pub struct Mgt {}

impl Mgt {
    /// Boots: raises the epoch durably.
    pub async fn start(_env: &Env, _config: MgtConfig, _meta: Rc<dyn MetaStore>) -> Result<Rc<Mgt>, StartError> { unimplemented!() }
    /// Commits everything. Serve nothing afterwards.
    pub async fn stop(&self) -> Result<(), StartError> { unimplemented!() }
    /// Completes with the reason when the storage failed: the instance must end and boot anew.
    pub fn failed(&self) -> LocalFuture<'static, String> { unimplemented!() }
}

impl service::Target for Mgt {
    fn id(&self) -> types::TargetId { unimplemented!() }
    fn exports(&self) -> Rc<service::Exports> { unimplemented!() }
    fn class(&self, _request: &wire::Request) -> service::Class { unimplemented!() }
    fn handle(self: Rc<Self>, _incoming: service::Incoming) -> LocalFuture<'static, wire::Reply> { unimplemented!() }
    fn remember_client(self: Rc<Self>, _record: service::ClientRecord) -> LocalFuture<'static, Result<(), types::Errno>> { unimplemented!() }
    fn session_ended(self: Rc<Self>, _session: Rc<service::Session>, _evicted: bool) -> LocalFuture<'static, ()> { unimplemented!() }
    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> { unimplemented!() }
}
