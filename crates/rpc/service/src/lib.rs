//! The server side of RPC: from a link to a target's handler and back.
//!
//! ```text
//! link reader -> decode -> session, epoch, instance -> resend filter -> recovery gate -> NRS head -> slot -> handler
//! ```
//! A [`Node`] serves links for its [`Target`]s. A target's [`Exports`] hold its sessions, the
//! answers kept for resends, and the recovery after a restart. On the idle path a request is
//! handled and answered in the reader's own turn.

mod account;
mod admission;
mod answers;
mod ask_again;
mod attention;
mod busy;
mod callbacks;
mod class;
mod connect;
mod control;
mod exports;
mod handling;
mod housekeeping;
mod in_flight;
mod incoming;
pub mod limits;
mod memory;
mod node;
mod params;
mod partition;
mod peer;
mod reader;
mod scheduled;
mod scheduler;
mod seldom;
mod served;
mod services;
mod session;
mod shares;
mod slots;
pub mod spec;
mod stats;
mod target;
mod terms;
mod threads;

pub use callbacks::{CallbackError, CallingBack};
pub use class::{Class, Direction, ObjectIo};
pub use exports::{Exports, ExportsConfig};
pub use incoming::Incoming;
pub use node::{Node, NodeConfig};
pub use seldom::Seldom;
pub use services::{HeadScope, ServiceStats};
pub use session::{ClientRecord, Session};
pub use spec::ServiceSpec;
pub use target::Target;
