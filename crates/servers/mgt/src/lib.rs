//! The management target: which targets a file system has, their addresses, and its persistent
//! parameters (Lustre: MGS).
//!
//! It serves any number of file systems and is never in the I/O path: a running cluster continues
//! without it. Every change is durable before it is answered and safe to repeat. So there are no
//! transnos, no reply records and no recovery here. A client that comes back after a restart gets a
//! fresh session.
//!
//! Requests
//! - `MgsRegister`, buffer 0: [`wire::config::Register`]. Reply, buffer 1: the configuration.
//! - `MgsConfig`, buffer 0: name of the file system. Reply, buffer 1: [`wire::config::FsConfig`].
//! - `MgsSetParam`, buffer 0: name of the file system, 1: parameter, 2: value (empty: back to the
//!   default).

// the fuzzer instruments all programs of a package: each links what instrumented code calls
#[cfg(test)]
use bolero as _;

mod config;
#[doc(hidden)]
pub mod fuzz;
mod limits;
mod op;
mod record;
mod serve;
mod target;

pub use config::MgtConfig;
pub use op::pool::PoolChange;
pub use record::{begin_anew, registered};
pub use target::Mgt;
