//! Node.
use std::rc::Rc;
use env::{CptTable, Env, Listener, Task};
use crate::Target;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// CPU partitions.
    pub cpts: CptTable,
    /// Data up to this size rides in a reply.
    pub inline_bytes: u32,
    /// Pulled bytes held at once, per CPT.
    pub bulk_bytes_max: u64,
}

impl NodeConfig {
    /// Defaults over these partitions.
    pub fn new(cpts: CptTable) -> NodeConfig {
        NodeConfig { cpts, inline_bytes: wire::INLINE_BYTES_DEFAULT, bulk_bytes_max: 64 << 20 }
    }
}

/// Server node.
pub struct Node {}

impl Node {
    /// New.
    pub fn new(_env: &Env, _config: NodeConfig) -> Rc<Node> { unimplemented!() }
    /// Add.
    pub fn add_target(&self, _target: Rc<dyn Target>) {}
    /// Serve.
    pub fn serve(self: &Rc<Self>, _listener: Listener) -> Task { unimplemented!() }
    /// Stop.
    pub async fn stop(&self) {}
}
