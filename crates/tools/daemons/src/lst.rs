//! The self-test's processes: one console per session, and nodes that do nothing else.
//!
//! `lst new_session` starts a console in the background. The console holds the session's groups,
//! batches and connections, prevents its nodes from dropping the session, and ends with it. The
//! other commands find it by `LST_SESSION`, in the run directory: `lst/KEY.sock`. A command is one
//! line of JSON, and so is its answer. The console accepts commands from its own user and root.

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
