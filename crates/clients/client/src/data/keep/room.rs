//! Room that OSTs have reserved for this client, so that no write meets ENOSPC that was
//! acknowledged before it was sent.
//!
//! Both sides count two sums from the begin of a session: the room that the OST has promised, and
//! the part of it that was used. A client uses room when it acknowledges a write, the OST when it
//! executes it. Questions are numbered and asked one after the other, so a repeated or late one
//! counts once.
//!
//! Invariants
//! - The used room is at most the promised room.
//! - Unused room is given back, so that others may have it. The next write is then sent at once,
//!   and its answer shows the OST's present state.
//! - After a restart of the OST, the client first asks for exactly the room of the writes that it
//!   has acknowledged and not sent. The OST promises that during its recovery, before any other
//!   client can use the room.
//!
//! Pure.

use crate::limits::{RESERVED_BYTES, RESERVED_LOW_BYTES};

/// What an OST is asked: to promise so much in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) number: u32,
    pub(super) total: u64,
    /// The session and run of the OST that it is for.
    pub(super) period: u64,
}

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
    asked: u32,
    /// Since the last look.
    was_used: bool,
    /// Somebody looks from time to time.
    is_watched: bool,
}

impl Room {
    /// Takes `bytes`. False: there is not so much.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let is_there = self.used + bytes <= self.promised;
        if is_there {
            self.used += bytes;
            self.unsent += bytes;
            self.was_used = true;
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

    /// What to ask for, if it is time.
    pub(super) fn wants(&mut self) -> Option<Question> {
        if self.is_asking || self.promised - self.used >= RESERVED_LOW_BYTES {
            return None;
        }
        Some(self.ask(self.used + RESERVED_BYTES))
    }

    /// Uses no more of what is promised.
    pub(super) fn give_up(&mut self) {
        self.promised = self.used;
    }

    /// Gives back what is not used, if nothing was used since the last look and everything is sent.
    /// Returns what to tell the OST.
    pub(super) fn look(&mut self) -> Option<Question> {
        let is_used = std::mem::take(&mut self.was_used) || self.unsent > 0;
        if is_used || self.is_asking || self.promised == self.used {
            return None;
        }
        self.give_up();
        Some(self.ask(self.used))
    }

    /// Whether there is room to look after, and nobody does so far.
    pub(super) fn must_be_watched(&mut self) -> bool {
        self.promised > self.used && !std::mem::replace(&mut self.is_watched, true)
    }

    /// Whether there is still room to look after.
    pub(super) fn is_watched_on(&mut self) -> bool {
        self.is_watched = self.promised > self.used || self.is_asking;
        self.is_watched
    }

    fn ask(&mut self, total: u64) -> Question {
        self.is_asking = true;
        self.asked += 1;
        Question { number: self.asked, total, period: self.period }
    }

    /// The OST has promised so much in all in this period; nothing: it did not answer.
    pub(super) fn answered(&mut self, period: u64, promised: Option<u64>) {
        if period == self.period {
            self.is_asking = false;
            self.promised = self.promised.max(promised.unwrap_or(0));
        }
    }

    /// A session, or another run of the OST, begins. What to ask for first, if anything.
    pub(super) fn begins(&mut self) -> Option<Question> {
        self.period += 1;
        self.is_asking = false;
        (self.promised, self.used) = (self.unsent, self.unsent);
        if self.unsent == 0 {
            return None;
        }
        self.asked += 1;
        Some(Question { number: self.asked, total: self.unsent, period: self.period })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: u32, total: u64, period: u64) -> Option<Question> {
        Some(Question { number, total, period })
    }

    #[test]
    fn no_more_is_taken_than_is_promised() {
        let mut room = Room::default();
        assert!(!room.take(1));
        assert_eq!((room.wants(), room.wants()), (question(1, RESERVED_BYTES, 0), None));
        room.answered(0, Some(100));
        assert!(room.take(60) && !room.take(41) && room.take(40));
        assert_eq!(room.wants(), question(2, 100 + RESERVED_BYTES, 0));
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
        assert_eq!(room.begins(), question(1, 20, 1));
        assert!(!room.take(1), "nothing more is promised");
        room.answered(1, Some(50));
        assert!(room.take(30) && !room.take(1));
    }

    #[test]
    fn what_rests_is_given_back() {
        let mut room = Room::default();
        assert!(room.wants().is_some() && !room.must_be_watched());
        assert_eq!(room.look(), None, "an answer is on its way");
        room.answered(0, Some(100));
        assert!(room.must_be_watched() && !room.must_be_watched());
        assert!(room.take(30));
        assert_eq!(room.look(), None, "it was used since the last look");
        assert_eq!(room.look(), None, "it is not sent");
        room.sent(30);
        assert_eq!(room.look(), question(2, 30, 0));
        assert!(!room.take(1) && room.is_watched_on());
        room.answered(0, Some(30));
        assert!(!room.take(1) && !room.is_watched_on());
        assert_eq!((room.look(), room.begins()), (None, None));
    }
}
