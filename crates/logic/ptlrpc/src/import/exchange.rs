//! The types that an import and its driver exchange.

use types::{Errno, Xid};
use wire::{Reply, Request};

use crate::Keep;

/// Where the session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Never connected.
    New,
    /// Connect is under way.
    Connecting,
    /// Replaying to a restarted target.
    Replay,
    ReplayLocks,
    /// Done; the others are not.
    ReplayWait,
    Full,
    /// Lost; a new attempt follows.
    Disconn,
}

impl State {
    /// As the `import` parameter prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::New => "NEW",
            State::Connecting => "CONNECTING",
            State::Replay => "REPLAY",
            State::ReplayLocks => "REPLAY_LOCKS",
            State::ReplayWait => "REPLAY_WAIT",
            State::Full => "FULL",
            State::Disconn => "DISCONN",
        }
    }

    pub(super) fn is_connected(self) -> bool {
        !matches!(self, State::New | State::Connecting | State::Disconn)
    }
}

/// A request to submit. Its header needs opcode, flags (MODIFIES, SYNC), identity and label; the
/// import fills in the rest.
pub struct Submit<B, W> {
    /// The request. Boxed: from here on it stays where it is.
    pub request: Box<Request>,
    /// What must be at hand when it is sent, again and again.
    pub bulk: B,
    /// Given back with the answer.
    pub waiter: W,
    /// How long it stays in the replay list.
    pub keep: Keep,
    /// Somebody else may wait for it: it has a place when all others are taken.
    pub urgent: bool,
}

/// To be sent now: header complete except for the bulk id, which the driver draws.
pub struct Transmit<'a, B> {
    pub request: &'a mut Request,
    pub bulk: &'a mut B,
}

pub struct Completed<B, W> {
    pub xid: Xid,
    /// Who waits; none for the import's own requests.
    pub waiter: Option<W>,
    /// Its bulk data, unless it is kept for replay.
    pub bulk: Option<B>,
    pub reply: Box<Reply>,
}

/// What a reply led to.
pub enum Handled<B, W> {
    /// Its request is done.
    Done(Completed<B, W>),
    /// Nothing to do for the driver but to poll.
    Progress,
    /// The session must be opened again.
    Reconnect,
}

/// Why changes that were answered are undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// Their session ended before they were durable, and the target restarted without them.
    Evicted,
    /// The restarted target refused to repeat them.
    Refused(Errno),
}

/// What the driver should know.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<B, W> {
    /// The session was lost with everything in it.
    Evicted,
    /// A change whose outcome is unknown and will stay so.
    Lost(W),
    /// A change that was taken back, and that the target has not executed and will not.
    Withdrawn {
        waiter: W,
        bulk: B,
    },
    /// Changes that were answered and that the target will not have, in their order, each with the
    /// buffers of its reply behind its own.
    Undone {
        changes: Vec<Request>,
        why: Undone,
    },
    /// State locks again: [`restate`](crate::Import::restate) each, then
    /// [`restated`](crate::Import::restated).
    AskRestate,
    /// What the target gave with numbers below the floor of [`Import::lease`](crate::Import::lease)
    /// is void.
    Voided,
    Full,
}
