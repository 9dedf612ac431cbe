//! The answering side of an RPC.

#![warn(missing_docs)]

mod exports;
mod incoming;
mod node;
pub mod spec;
mod target;

pub use exports::{ClientRecord, Exports, ExportsConfig, Session};
pub use incoming::Incoming;
pub use node::{Node, NodeConfig};
pub use spec::ServiceSpec;
pub use target::{Class, Target};
