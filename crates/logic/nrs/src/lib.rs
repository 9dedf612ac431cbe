//! The request scheduler (`docs/design/nrs.md`). Policies order the requests of one head. A rule
//! chooses between a partition's high-priority and regular head.
//!
//! Pure: no clock, no lock, no I/O. A service partition owns up to two [`Head`]s and a [`Pick`].
//! The only state of a thread is a count of guarded calls, because a policy that panics ends itself
//! alone ([`in_guarded_call`]).

mod batches;
mod command;
mod control;
mod crre;
mod crrn;
mod delay;
mod fifo;
mod guard;
mod head;
mod limits;
mod listed;
mod order;
mod orr;
mod part;
mod pick;
mod policy;
mod queue;
mod request;
mod rounds;
mod state;
mod stats;
mod sweep;
mod tbf;
#[cfg(test)]
mod testing;
mod trr;
mod turns;

pub use command::{Command, WhichHeads, number_in, print_policies};
pub use control::{Moment, Restart, Selected, ServiceHeads};
pub use crre::crre;
pub use crrn::crrn;
pub use delay::delay;
pub use guard::in_guarded_call;
pub use head::{Dequeued, Head, PolicyIndex, Taken, promote};
pub use limits::{
    ARG_CHARS_MAX, DRAIN_WAIT, NAME_CHARS_MAX, POLICIES_MAX, VALUE_BYTES_MAX, WAIT_MIN,
};
pub use listed::{Counters, Disabled, Listed};
pub use orr::orr;
pub use part::Part;
pub use pick::{Load, Pick, Turn};
pub use policy::{
    Broken, Descriptor, Form, HeadKind, Make, Mode, Next, Policy, Refusal, Refused, Removal, Start,
    Tunable,
};
pub use queue::{Handle, Id, Links, List, Queue};
pub use request::{ID_NONE, Io, Request};
pub use state::PolicyState;
pub use stats::{HeadStats, NrsStats, PolicyStats};
pub use tbf::{TbfNode, TbfParam, TbfSpeed, check_tbf_rule, parse_tbf_rule, tbf_mixes_clients};
pub use trr::trr;

use std::rc::Rc;

/// The policies of this crate beside FIFO, in the order in which Lustre registers them, and then
/// those it has not; for one service of a node.
#[must_use]
pub fn policies_of<R: Request + 'static>(node: &Rc<TbfNode>) -> Vec<Descriptor<R>> {
    vec![crrn(), orr(), trr(), node.descriptor(), delay(), crre()]
}

/// The same for a node with a single service.
#[must_use]
pub fn policies<R: Request + 'static>() -> Vec<Descriptor<R>> {
    policies_of(&Rc::new(TbfNode::default()))
}
