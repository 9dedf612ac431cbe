//! The control socket of a daemon: what `lctl` and `lfs` ask it.
//!
//! One JSON object a line, answered by one line: `{"ok": ANSWER}` or `{"err": {"errno": 22, "text":
//! "..."}}`. Everybody may read; changing anything takes root or the daemon's own user, known by
//! the socket's peer credentials.

pub mod ask;
mod proto;
pub mod server;

pub use proto::{Ask, Device, Failure, Name, Outcome, Reply, Room, Space, Target, Value, Who};
