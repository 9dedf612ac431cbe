//! The RPC protocol above frames, as state machines without I/O. A client has an [`Import`] of a
//! target. A target has an [`Export`] to each client with a [`Lane`] of callbacks, and a
//! [`Recovery`] after a restart (`docs/design/recovery.md`).
//!
//! None of them has a clock, a link or a task: time comes in as an argument, messages go out
//! through `poll_*`.

pub mod adaptive;
mod credible;
mod export;
mod import;
mod kept;
mod lane;
pub mod limits;
mod recovery;

pub use adaptive::{AtConfig, Estimate};
pub use credible::check_past;
pub use export::{Admission, Cancelled, Export};
pub use import::{
    Bugs, Completed, Event, Handled, Import, ImportConfig, Lease, State, Submit, Transmit, Undone,
    XidSource,
};
pub use kept::Keep;
pub use lane::{Crowded, Lane};
pub use recovery::{
    Awaited, Known, Progress, Recovery, RecoveryConfig, RecoveryPhase, RecoveryStatus, Repeated,
    Replay,
};

/// What a peer did that no correct peer does. Its link is dropped; nobody else notices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerMisbehaved {
    /// A server that is older than one already seen: a stale twin.
    #[error("reply from instance {got}, instance {seen} was seen before")]
    StaleInstance {
        got: u64,
        /// Seen before.
        seen: u64,
    },
    /// Request and reply together are no message: the change could not be replayed.
    #[error("a reply of {0} buffers to a change cannot be replayed")]
    TooManyBuffers(usize),
    /// A reply to Connect that grants nothing.
    #[error("the answer to connect is unusable: {0}")]
    Connect(&'static str),
    /// A request about a past that cannot have been.
    #[error("{0}")]
    Past(&'static str),
}
