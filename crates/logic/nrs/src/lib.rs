//! The request scheduler (spec rpc part 4): policies that order the requests of one head, and the rule by which a
//! partition's workers choose between the high-priority and the regular head.
//!
//! Pure: no clock, no lock, no I/O. A service partition owns up to two [`Head`]s and a [`Pick`].

#![warn(missing_docs)]

mod fifo;
mod head;
mod pick;

pub use fifo::Fifo;
pub use head::{Head, Policy, PolicyState};
pub use pick::{Load, Pick, Turn};
