//! The arguments and the outcome of a call: [`Call`], [`Answer`], [`CallError`].

use std::any::Any;
use std::rc::Rc;

use bytes::Bytes;
use types::{Creds, Errno, Span, Xid};
use wire::{Opcode, PROJID_NONE, Reply};

/// One request to a target, in the caller's words.
#[derive(Clone, Debug)]
pub struct Call {
    pub opcode: Opcode,
    /// Body first.
    pub bufs: Vec<Bytes>,
    /// On whose behalf.
    pub creds: Creds,
    /// Project of the file that it is about.
    pub projid: u32,
    /// Label of the job, NUL padded.
    pub jobid: [u8; 32],
    /// Data that goes with it.
    pub bulk: Bulk,
    /// May change state: gets a tag, is kept for replay, is executed exactly once.
    pub modifies: bool,
    /// Answer only once the change is durable.
    pub sync: bool,
    /// How long it stays in the replay list.
    pub keep: Keep,
    /// Somebody else may wait for it: it has a place when all others are taken.
    pub urgent: bool,
    /// Gives up after so long with [`CallError::TimedOut`]; `None`: waits for ever.
    pub patience: Option<Span>,
    /// Dropped once the target has executed the change or never will, and not before.
    pub hold: Hold,
}

/// What lives until the fate of a change is known, whoever waits for it.
#[derive(Clone, Default)]
pub struct Hold(pub Option<Rc<dyn Any>>);

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Hold(..)" } else { "Hold" })
    }
}

impl Call {
    /// As root, without a project and bulk data.
    #[must_use]
    pub fn new(opcode: Opcode, bufs: Vec<Bytes>) -> Call {
        Call {
            opcode,
            bufs,
            creds: Creds::root(),
            projid: PROJID_NONE,
            jobid: [0; 32],
            bulk: Bulk::None,
            modifies: opcode.modifies(),
            sync: false,
            keep: Keep::No,
            urgent: false,
            patience: None,
            hold: Hold::default(),
        }
    }

    /// Without a tag: executing this one twice does no harm, though its opcode modifies.
    #[must_use]
    pub fn repeatable(self) -> Call {
        Call { modifies: false, ..self }
    }
}

/// Data beside the request. The server moves it once its scheduler has picked the request.
#[derive(Clone, Debug, Default)]
pub enum Bulk {
    #[default]
    None,
    /// The server pulls these bytes; they are kept until the change is durable.
    Source(Vec<Bytes>),
    /// The server pushes at most so many bytes.
    Sink(usize),
}

impl Bulk {
    /// Bytes to pull, or room for bytes to be pushed.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Bulk::None => 0,
            Bulk::Source(parts) => parts.iter().map(Bytes::len).sum(),
            Bulk::Sink(len) => *len,
        }
    }

    /// Whether the call names no data at all.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Bulk::None)
    }

    /// Whether there is nothing to transfer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

pub use ptlrpc::Keep;

#[derive(Clone, Debug)]
pub struct Answer {
    /// The reply; its status is zero.
    pub reply: Box<Reply>,
    /// What was pushed, or inline data of the same meaning; empty without [`Bulk::Sink`].
    pub data: Bytes,
    /// Number of the request: names an open in [`Keep::Close`].
    pub xid: Xid,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("the server answered: {0}")]
    Errno(Errno),
    /// The session was lost, and whether the change was made is not known.
    #[error("this client was evicted by the target")]
    Evicted,
    /// An administrator took the target out of use.
    #[error("the target is inactive")]
    Inactive,
    /// The caller's patience ended.
    #[error("no answer in time")]
    TimedOut,
    /// Nobody waited for it any more, and the target has not executed it.
    #[error("withdrawn before it began")]
    Withdrawn,
    /// The endpoint was shut down.
    #[error("the endpoint is shut down")]
    Shutdown,
}

impl CallError {
    /// As an application sees it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            CallError::Errno(errno) => *errno,
            CallError::Evicted | CallError::Inactive => Errno::EIO,
            CallError::TimedOut => Errno::ETIMEDOUT,
            CallError::Withdrawn => Errno::EINTR,
            CallError::Shutdown => Errno::ESHUTDOWN,
        }
    }
}
