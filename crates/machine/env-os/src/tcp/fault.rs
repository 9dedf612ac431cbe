//! Why a link ends.

use std::time::Duration;

use wire::{FrameError, FrameKind};

/// Why a link ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The peer closed it, or the network did.
    #[error("connection lost: {0}")]
    Lost(#[from] std::io::Error),
    /// The peer sent what is no frame.
    #[error("the peer misbehaved: {0}")]
    Frame(#[from] FrameError),
    /// The peer sent a frame where it does not belong.
    #[error("the peer misbehaved: {0:?} frame on the {1} connection")]
    Channel(FrameKind, &'static str),
    /// Nothing was heard, or nothing was taken, for `peer_timeout`.
    #[error("no news from the peer for {0:?}")]
    Silent(Duration),
    /// It takes nothing, and messages to others wait for the credits of what it was sent.
    #[error("the peer has taken nothing for {0:?}, and others wait for credits of the interface")]
    InTheWay(Duration),
    /// Somebody sends without asking for room.
    #[error("{0} bytes are queued")]
    Overrun(usize),
}

impl Fault {
    /// An end that happens to every link is no news.
    pub(super) fn is_news(&self) -> bool {
        !matches!(self, Fault::Lost(_))
    }
}

/// The peer closed a connection between two frames.
pub(super) fn ended() -> Fault {
    Fault::Lost(std::io::ErrorKind::UnexpectedEof.into())
}
