//! The request scheduler (spec rpc part 4): policies that order the requests of one head, and the rule by which a
//! partition's workers choose between the high-priority and the regular head.
//!
//! Pure: no clock, no lock, no I/O. A service partition owns up to two [`Head`]s and a [`Pick`].

#![warn(missing_docs)]

mod command;
mod control;
mod fifo;
mod guard;
mod head;
mod limits;
mod pick;
mod policy;
mod queue;
mod request;
mod slab;
mod state;

pub use command::{Command, Heads, number_in, print_policies, print_stats};
pub use control::{Moment, Partitions, Restart, Selected};
pub use head::{Counters, Dequeued, Disabled, Head, Listed, PolicyIndex, Taken, promote};
pub use limits::{ARG_CHARS_MAX, DRAIN_WAIT, NAME_CHARS_MAX, POLICIES_MAX, VALUE_BYTES_MAX, WAIT_MIN};
pub use pick::{Load, Pick, Turn};
pub use policy::{Broken, Descriptor, Form, HeadKind, Make, Mode, Next, Policy, Refusal, Refused, Removal, Start, Tunable};
pub use queue::{Handle, Id, Links, List, Queue};
pub use request::{ID_NONE, Io, Request};
pub use state::PolicyState;
