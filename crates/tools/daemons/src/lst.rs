//! The self-test's processes: a console per session, and nodes that do nothing else.
//!
//! `lst new_session` starts a console in the background; it keeps the session's groups, batches and
//! connections, keeps its nodes from dropping it, and ends with the session. The other commands
//! find it by `LST_SESSION`, in the run directory: `lst/KEY.sock`. One line of JSON is a command,
//! one is its answer. It obeys its own user and root.

mod console;
mod node;

use rustix::process::{Resource, getrlimit, setrlimit};

pub use console::console;
pub(crate) use node::listen_beside;
pub use node::{NodeOptions, node};

/// Every descriptor that the system allows: a node has three sockets to each other, and one process
/// may be many nodes, or serve many.
pub(crate) fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the number of descriptors stays as it is");
    }
}
