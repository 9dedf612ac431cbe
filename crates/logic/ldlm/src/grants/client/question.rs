//! The name of a request of a client.

/// A request under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question(pub(super) u64);
