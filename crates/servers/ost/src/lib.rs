//! The object storage target: objects of bytes, changed in the order of history (Lustre: `ofd`,
//! `ost`).
//!
//! An operation holds the object's extent lock for its whole length. It moves the data. Then it
//! puts its place in history (transno), its reply and its decisions into the record store's running
//! transaction, and answers. The answer means: in the page cache or on disk. The client keeps the
//! bytes until a commit made them durable, and replays them to the next instance otherwise.
//!
//! Invariants
//! - A commit syncs the objects first and the records then. The records say up to which transno the
//!   *data* is durable. After a restart, `last_committed` is that mark, never the last transno of a
//!   record.
//! - Replays above the mark are executed again with their transno. Writes, punches and destroys are
//!   idempotent.
//! - A destroyed object has a tombstone as long as a client may send a late write, which gets
//!   ESTALE.
//! - An object is shown to and changed for only the file and MDT store for which it was made.
//! - A client whose session with the MDT has ended is refused, from the answer to the MDT's fence
//!   on.
//! - A failure of the storage ends the instance ([`Failure`](::target::Failure)).
//!
//! An object is made by its first write or truncate. There are no objects of files that were never
//! written.

// the fuzzer instruments all programs of a package: each links what instrumented code calls
#[cfg(test)]
use bolero as _;

mod boot;
mod check;
mod commit;
mod config;
mod fences;
#[doc(hidden)]
pub mod fuzz;
mod limits;
mod listing;
mod locks;
mod mdts;
mod new_file;
mod op;
mod owned;
mod owners;
mod params;
mod record;
mod reserve;
mod serve;
mod sizes;
mod swept;
mod tally;
mod target;
mod tombstones;
mod transact;

pub use check::{Recorded, owned_by, recorded};
pub use config::{Bugs, OstConfig};
pub use listing::{Listed, objects};
pub use target::Ost;
