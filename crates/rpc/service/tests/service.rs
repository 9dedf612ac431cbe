//! All tests of the RPC service in one binary: each would compile the same crates again.

mod absence;
mod callbacks;
mod cancel;
mod common;
mod crowd;
mod exactly_once;
mod hostile;
mod paths;
mod remembered;
mod scheduler;
mod targets;
mod untaken;
