//! Incoming.
use std::rc::Rc;
use bytes::Bytes;
use types::{Creds, Errno, Nid};
use wire::{Reply, Request};
use crate::Session;

/// A request to be executed.
pub struct Incoming {
    /// The request.
    pub request: Request,
    /// Who asks.
    pub session: Rc<Session>,
}

impl Incoming {
    /// Replay.
    pub fn is_replay(&self) -> bool { unimplemented!() }
    /// Pull.
    pub async fn pull(&self) -> Result<Bytes, Errno> { unimplemented!() }
    /// Push.
    pub fn push(&self, _reply: &mut Reply, _data: Bytes) {}
    /// Park.
    pub fn park(&self) {}
    /// Creds.
    pub fn creds(&self) -> Creds { unimplemented!() }
    /// Peer.
    pub fn peer(&self) -> Nid { unimplemented!() }
}
