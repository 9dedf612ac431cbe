//! The LNet self-test (`docs/design/lst.md`): sessions, groups, batches, pairing, data checks,
//! percentiles.
//!
//! ```text
//! console:  Book    groups, batches, states of nodes        | renders what `lst` prints
//! node:     Member  one session at a time, tests, counters  | says what to start and to stop
//! both:     pattern, pairs, Histogram
//! tool:     command, what `lst` asks a console
//! ```
//! Pure: a driver (`selftest`) owns sockets, clocks and tasks. Lustre: `lnet/selftest`, `lst`.

mod book;
pub mod command;
mod latency;
pub mod limits;
mod member;
mod pairs;
pub mod pattern;
mod rates;

pub use book::{Batch, Book, BookError, COUNTS_TITLE, NodeState, Test};
pub use latency::{Histogram, Percentiles};
pub use member::{Action, Member, Run};
pub use pairs::{Distribute, ParseDistributeError};
pub use rates::{Interval, RateOptions, render_net, render_rpc};
