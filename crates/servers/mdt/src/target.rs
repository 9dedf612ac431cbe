//! The target as the service layer sees it.

use std::rc::Rc;

use endpoint::Endpoint;
use env::{Env, LocalFuture};
use osd::MetaStore;
use service::{Class, ClientRecord, Exports, Incoming, Session, Target};
use types::{Errno, TargetId};
use wire::{Reply, Request};

use crate::MdtConfig;

/// Why an MDT does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store refuses.
    #[error("the store of the MDT cannot be used: {0}")]
    Store(#[from] osd::StoreError),
    /// A record that this version does not understand.
    #[error("record {0} of the MDT is broken or newer than this version")]
    Record(&'static str),
}

/// A running MDT.
pub struct Mdt {}

impl Mdt {
    /// Opens what `store` holds (a fresh store gets its root directory), raises the epoch and starts the background
    /// tasks. `osts`: asking side for destroys; `ost_list`: indices of the active OSTs.
    pub async fn start(
        _env: &Env,
        _config: MdtConfig,
        _store: Rc<dyn MetaStore>,
        _osts: Option<Rc<Endpoint>>,
        _ost_list: Rc<dyn Fn() -> Vec<u32>>,
    ) -> Result<Rc<Mdt>, StartError> {
        unimplemented!()
    }

    /// `hook` is called once, with the reason, when the store failed: the instance must be restarted.
    pub fn failed(&self, _hook: Rc<dyn Fn(&str)>) {
        unimplemented!()
    }

    /// Commits and ends the background tasks.
    pub async fn stop(self: &Rc<Self>) {
        unimplemented!()
    }
}

impl Target for Mdt {
    fn id(&self) -> TargetId {
        unimplemented!()
    }
    fn exports(&self) -> Rc<Exports> {
        unimplemented!()
    }
    fn class(&self, _request: &Request) -> Class {
        unimplemented!()
    }
    fn handle(self: Rc<Self>, _incoming: Incoming) -> LocalFuture<'static, Reply> {
        unimplemented!()
    }
    fn remember_client(self: Rc<Self>, _record: ClientRecord) -> LocalFuture<'static, Result<(), Errno>> {
        unimplemented!()
    }
    fn session_ended(self: Rc<Self>, _session: Rc<Session>, _evicted: bool) -> LocalFuture<'static, ()> {
        unimplemented!()
    }
    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        unimplemented!()
    }
}
