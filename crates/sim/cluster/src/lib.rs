//! The whole system in one thread, from a seed: servers on disks that outlive them, clients that
//! compare every answer with a reference file system, and a nemesis.
//!
//! # Fault model
//! - **Network**: messages are lost, doubled, reordered and delayed; links are reset, also those
//!   of two servers; clients are cut off from servers, one way or both, for up to 5 s. No message
//!   is altered undetected. Faults come in storms with calm between them.
//! - **Servers**: at most two at a time are killed, process or machine, and come back within 3 s.
//!   They die between two actions, or right after the n-th message, applied set or commit. A
//!   machine's death loses the unsynced data of its disk, torn at 4 KiB.
//! - **Clients**: one may die for ever (the ghost). Some die at work, also with the n-th message
//!   that they send or receive, and others take their place (`shared`). In the end all clients lose
//!   power together with all servers (blackout).
//! - **Directed runs** (`share`, `late`, `resend`): a client dies together with the MDT while
//!   another one has built on its uncommitted changes; a client that lost its MDT session writes to
//!   a removed file; an answer is lost and its MDT dies.
//! - **Sessions** (`hard`): nodes freeze and are cut off from each other, servers too, for 1 ms to
//!   300 s; clocks drift by 200 ppm and jump by 100 s; disks are full, slow or cannot be read;
//!   messages of a node are slow. Calls may fail then. No server is killed meanwhile.
//! - **Lost work** (`hard`, some runs): servers are killed meanwhile, and clients kept away from
//!   them. Lost work is reported.
//! - **A hostile client** (`hostile`) sends messages that no client may send.
//! - **Several MDTs** (`mdts`, `forest`): single ones are killed, stopped for up to 5 s, and cut
//!   off from each other. Names of directories move between them (`moves`, `splits`).
//! - **Stores**: a commit or a sync fails, and its data may or may not be durable. The MDT's store
//!   has no space left for a while (`shared`). Then an operation that would create a name is
//!   refused and has no effect, and no other operation is refused. In one of eight seeds of some
//!   scenarios servers are on `osd-disk`, on a tmpfs ([`Stores`]).
//!
//! # What must hold
//! - No error reaches a client that lives and keeps its sessions; every answer equals the model's.
//! - In races every operation takes effect exactly once ([`races`](self)).
//! - Some order of the users' calls on common files explains all their answers ([`shared`](self)).
//! - An MDT's records are consistent before each start, after each recovery and at peace. So are
//!   those of several MDTs together after each recovery and at peace, and no operation of several
//!   MDTs is left undone at peace.
//! - After peace everything finishes within a bounded time, and a fresh client finds exactly the
//!   models' trees.
//! - After a blackout each user's tree is a state since its last sync, and fsynced bytes are there.
//!   Each block of a file is as it was or has some of the changes since.
//! - When everything is removed, no inode and no object is left.

mod blackout;
mod directed;
mod fixture;
mod fsck;
mod hostile;
mod marks;
mod nemesis;
mod one_core;
mod planted;
mod races;
pub mod rates;
mod restriper;
mod run;
mod scenario;
mod schedule;
mod server;
mod shared;
mod shrink;
mod store;
mod suite;
mod totals;
mod user;

pub use directed::{DIED_AGAIN, pair_rows};
pub use fixture::Cluster;
pub use marks::MARKS;
pub use planted::{PLANTED, Planted, SEEDS_MAX};
pub use run::{run, run_part, run_recorded};
pub use scenario::{Granted, Report, Scenario, Script, Stores};
pub use schedule::{Numbers, Ops, ParseScheduleError, Recording, Schedule};
pub use shrink::shrink;
pub use suite::{ParseSliceError, Slice, draw_seeds, suite};
pub use totals::Totals;
