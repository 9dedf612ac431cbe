//! Room that OSTs have reserved for this client, so that no write meets ENOSPC that was
//! acknowledged before it was sent.
//!
//! Both sides count from the begin of a session, and both counts only rise: what the OST has
//! promised in all, and what was used of that. A client uses room when it acknowledges a write, the
//! OST when it executes it. So a repeated question or a late answer counts once.
//!
//! Invariants
//! - What is used is at most what is promised.
//! - After a restart of the OST the client asks for exactly what it has acknowledged and not sent
//!   before it asks for anything else. The OST promises that during its recovery, before any other
//!   client can use the room.
//!
//! Pure.

use crate::limits::{RESERVED_BYTES, RESERVED_LOW_BYTES};

/// At one OST.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Rises with each session at the OST and each run of it.
    period: u64,
    promised: u64,
    used: u64,
    /// Used, and not known to be executed.
    unsent: u64,
    is_asking: bool,
}

impl Room {
    /// Takes `bytes`. False: there is not so much.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let is_there = self.used + bytes <= self.promised;
        if is_there {
            self.used += bytes;
            self.unsent += bytes;
        }
        is_there
    }

    /// What was taken is not used after all.
    pub(super) fn give_back(&mut self, bytes: u64) {
        assert!(bytes <= self.unsent, "only what was taken is given back");
        self.used -= bytes;
        self.unsent -= bytes;
    }

    /// So much of what was taken was executed, or is lost.
    pub(super) fn sent(&mut self, bytes: u64) {
        assert!(bytes <= self.unsent, "only what was taken is sent");
        self.unsent -= bytes;
    }

    /// What to ask for in all, if it is time, and in which period.
    pub(super) fn wants(&mut self) -> Option<(u64, u64)> {
        if self.is_asking || self.promised - self.used >= RESERVED_LOW_BYTES {
            return None;
        }
        self.is_asking = true;
        Some((self.period, self.used + RESERVED_BYTES))
    }

    /// The OST has promised so much in all in this period; nothing: it did not answer.
    pub(super) fn answered(&mut self, period: u64, promised: Option<u64>) {
        if period == self.period {
            self.is_asking = false;
            self.promised = self.promised.max(promised.unwrap_or(0));
        }
    }

    /// A session, or another run of the OST, begins. What to ask for first.
    pub(super) fn begins(&mut self) -> u64 {
        self.period += 1;
        self.is_asking = false;
        (self.promised, self.used) = (self.unsent, self.unsent);
        self.unsent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_is_promised() {
        let mut room = Room::default();
        assert!(!room.take(1));
        assert_eq!((room.wants(), room.wants()), (Some((0, RESERVED_BYTES)), None));
        room.answered(0, Some(100));
        assert!(room.take(60) && !room.take(41) && room.take(40));
        assert_eq!(room.wants(), Some((0, 100 + RESERVED_BYTES)));
        room.answered(0, None);
        assert!(!room.take(1) && room.wants().is_some());
        room.answered(7, Some(1 << 30));
        assert!(!room.take(1), "of another period");
    }

    #[test]
    fn after_a_restart_it_asks_for_what_it_owes() {
        let mut room = Room::default();
        room.answered(0, Some(100));
        assert!(room.take(30) && room.take(20));
        room.sent(30);
        assert_eq!(room.begins(), 20);
        assert!(!room.take(1), "nothing more is promised");
        room.answered(1, Some(50));
        assert!(room.take(30) && !room.take(1));
    }
}
