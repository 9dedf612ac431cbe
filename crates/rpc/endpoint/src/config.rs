//! Settings of an endpoint, and the trait that gives it the addresses of targets.

use ptlrpc::ImportConfig;
use types::{Nid, NidAddr, TargetId};

use crate::limits;

/// Settings of an [`crate::Endpoint`].
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Own address, where several clients share a machine.
    pub nid: Option<Nid>,
    /// Of the connection to each target.
    pub import: ImportConfig,
    /// Bulk data up to this size rides inside the request, and inside the reply where the server
    /// agrees.
    pub inline_bytes: u32,
    /// Written bytes that one target may hold without having made them durable.
    pub unstable_bytes_max: u64,
    /// Bytes of changes kept for replay beyond which the target is asked to commit.
    pub replay_bytes_max: u64,
}

impl Default for EndpointConfig {
    fn default() -> EndpointConfig {
        EndpointConfig {
            nid: None,
            import: ImportConfig::default(),
            inline_bytes: wire::INLINE_BYTES_DEFAULT,
            unstable_bytes_max: limits::UNSTABLE_BYTES_MAX_DEFAULT,
            replay_bytes_max: limits::REPLAY_BYTES_MAX_DEFAULT,
        }
    }
}

pub trait Resolve {
    /// Addresses of `target`, best first; asked before each attempt to connect, so that a change is
    /// seen.
    fn addrs(&self, target: TargetId) -> Vec<NidAddr>;

    /// Name of `target` in the log, with that of its file system where it is known.
    fn name(&self, target: TargetId) -> String {
        target.to_string()
    }

    /// Indexes of the MDTs of the file system.
    fn mdts(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Whether a target was taken out of use for good.
    fn is_off(&self, _target: TargetId) -> bool {
        false
    }

    /// Identity of its storage, zero where it is not known: whoever listens at an address that was
    /// another target's refuses.
    fn uuid(&self, _target: TargetId) -> u128 {
        0
    }
}
