//! The control socket of a daemon, which `lctl` and `lfs` use, and how they find it.
//!
//! | what | module |
//! |---|---|
//! | questions and answers | [`Ask`], [`Reply`] |
//! | the asking side, blocking | [`ask`]; of all daemons at once [`everywhere`] |
//! | the answering side, on the daemon's executor | [`server`] |
//! | where sockets are, and which daemon serves a mount | [`rundir`], [`mounts`] |
//! | NIDs with host names in them | [`names`] |
//! | how a command starts a daemon | [`background`] |
//! | what daemons and commands say on stderr | [`say!`] |
//! | how far a long command is, on a terminal | [`progress`] |
//!
//! The protocol is one JSON object per line, answered by one line: `{"ok": ANSWER}` or
//! `{"err": {"errno": 22, "text": "..."}}`. Every user may read. Changes require root or the
//! daemon's own user, identified by the socket's peer credentials.

pub mod ask;
pub mod background;
pub mod everywhere;
pub mod mounts;
pub mod names;
mod places;
pub mod progress;
mod proto;
pub mod rundir;
pub mod say;
pub mod server;

pub use proto::{
    Ask, Device, Export, Failure, Leaving, Migration, Name, Object, Outcome, PoolChange, Pools,
    RawPath, Reply, Room, Space, Target, Unnamed, Value, Who,
};
