//! The endpoint.
use std::rc::Rc;
use env::Env;
use types::TargetId;
use crate::{EndpointConfig, Remote, Resolve};

/// One client.
pub struct Endpoint {}

impl Endpoint {
    /// New.
    pub fn new(_env: &Env, _config: EndpointConfig, _resolve: Rc<dyn Resolve>) -> Rc<Endpoint> { Rc::new(Endpoint {}) }
    /// Remote.
    pub fn remote(self: &Rc<Self>, _target: TargetId) -> Rc<Remote> { unimplemented!() }
    /// Shutdown.
    pub async fn shutdown(&self) {}
}
