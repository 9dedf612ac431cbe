//! A client of a recovery: how long it has to come back, and which of its changes have arrived.

use std::collections::{BTreeMap, BTreeSet};

use types::{Errno, Instant, Span, Transno, Xid};

use crate::limits;

/// What is known of a client from before the restart: how long it is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// It was there: it has the window.
    #[default]
    Present,
    /// It was gone without a word, and has [`limits::SILENT_RETURN`].
    Silent,
    /// It is a server, and has [`limits::SERVER_RETURN`].
    Server,
}

impl Known {
    /// Its time from the first sign of anybody, or from when it was last there; none: the window.
    fn time_to_return(self) -> Option<Span> {
        match self {
            Known::Present => None,
            Known::Silent => Some(limits::SILENT_RETURN),
            Known::Server => Some(limits::SERVER_RETURN),
        }
    }
}

#[derive(Default)]
pub(super) struct Client {
    pub(super) known: Known,
    pub(super) present: bool,
    /// When its link went down last.
    pub(super) left: Option<Instant>,
    pub(super) done: bool,
    /// Every change of this client up to here has arrived.
    pub(super) offered: Transno,
    /// Replays of this connection that arrived without a hole.
    pub(super) arrived: u32,
    /// Those behind a hole.
    pub(super) ahead: BTreeMap<u32, Transno>,
    /// Durable opens that were repeated: offered again after a reconnect they must not undo a close
    /// replayed since.
    pub(super) reopened: BTreeSet<Xid>,
    /// Replays that were refused.
    pub(super) refused: BTreeMap<Xid, Errno>,
}

impl Client {
    /// Has nothing to say about what was before `head`: who is done had an answer to everything
    /// that it offered.
    pub(super) fn is_beyond(&self, head: Transno) -> bool {
        self.done || (self.present && self.offered >= head)
    }

    /// Until when it has to come back, if it has less than the window for that.
    pub(super) fn returns_by(&self, started: Instant) -> Option<Instant> {
        let time = self.known.time_to_return().filter(|_| !self.present && !self.done)?;
        Some(self.left.unwrap_or(started) + time)
    }

    pub(super) fn offer(&mut self, index: u32, transno: Transno) {
        if index <= self.arrived || index - self.arrived > limits::REPLAYS_AHEAD_MAX {
            return;
        }
        self.ahead.insert(index, transno);
        while let Some(transno) = self.ahead.remove(&(self.arrived + 1)) {
            self.arrived += 1;
            self.offered = self.offered.max(transno);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replays_too_far_ahead_of_a_hole_are_not_counted() {
        let mut client = Client::default();
        let last = limits::REPLAYS_AHEAD_MAX;
        client.offer(last + 1, Transno(5));
        assert!(client.ahead.is_empty());
        client.offer(last, Transno(4));
        assert_eq!(client.ahead.len(), 1);
        client.offer(1, Transno(1));
        client.offer(1, Transno(9));
        assert_eq!((client.arrived, client.offered), (1, Transno(1)), "it had come already");
        client.offer(last + 1, Transno(5));
        assert_eq!(client.ahead.len(), 2, "counted from what has arrived");
    }
}
