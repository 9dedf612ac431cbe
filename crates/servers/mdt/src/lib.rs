//! The metadata target: names, inodes, layouts, open files and locks of one MDT.

mod anew;
mod attempt;
mod background;
mod boot;
mod burnt;
mod commit;
mod config;
mod cross;
mod effect;
mod ended;
mod engine;
mod fences;
#[doc(hidden)]
pub mod fsck;
#[doc(hidden)]
pub mod fuzz;
mod grants;
mod handle_seal;
mod hash;
mod ids;
mod keys;
mod limits;
mod listed;
mod locks;
mod mdts;
mod mend;
mod moves;
mod named;
mod on_open;
mod op;
mod opens;
mod params;
mod perm;
mod puts;
mod putting;
mod recalls;
mod record;
mod serve;
mod share;
mod silent;
mod som;
mod spaces;
mod start;
mod state;
mod tally;
mod target;
#[cfg(test)]
mod tests;
mod tx;
mod unnamed;
mod writers;

pub use self::target::{Counts, Mdt};
pub use anew::{HighestIds, ids_anew, sessions_anew, size_anew};
pub use config::{Bugs, Dirs, Lod, MdtConfig, SomConfig, Split};
pub use ldlm::grants::Mode as GrantMode;
pub use named::{Stripe, names_object, path, stripes};
pub use spaces::OstAt;
pub use unnamed::{Unnamed, UnnamedError, UnnamedPage, list_objects};
