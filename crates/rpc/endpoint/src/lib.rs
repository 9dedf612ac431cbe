//! The client side of RPC: a thin driver of [`ptlrpc::Import`] over the links of an environment.
//!
//! An [`Endpoint`] is one client (a mount, or a server that uses other servers). It has one
//! [`Remote`] per target and one link per node, shared by the targets there. A [`Remote::call`]
//! waits through restarts and recovery.

mod bulk;
mod call;
mod callbacks;
mod calling;
mod config;
mod directory;
mod endpoint;
pub mod limits;
mod outage;
mod promise;
mod registration;
mod remote;
mod shared;
mod waiter;

pub use call::{Answer, Bulk, Call, CallError, Hold, Keep};
pub use callbacks::{CallbackAnswer, OnCallback};
pub use calling::Calling;
pub use config::{EndpointConfig, Resolve};
pub use directory::{Directory, OtherFileSystem};
pub use endpoint::Endpoint;
pub use ptlrpc::{Bugs as ImportBugs, ImportConfig, Lease, Undone};
pub use registration::Registration;
pub use remote::Remote;
