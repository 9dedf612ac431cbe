//! Room that is reserved for clients, so that writes that they acknowledge before they send them
//! find room.
//!
//! Invariants
//! - The room of all sessions together is free: other writes are refused (ENOSPC) where they would
//!   take some of it, and `statfs` does not show it.
//! - The sum of promises to a session falls only when the session gives room back. The room that it
//!   has used is at most that sum.
//! - A client gets less and less where room is short, and nothing at the end. It then sends each
//!   write at once, and gets the OST's own answer.
//! - An admitted write without reserved room keeps its bytes in the account until it is done, even
//!   if the disk reports less room. Bytes that were written since a look at the disk began do not
//!   count as free.
//!
//! Pure: the caller looks at the disk and passes in the result. Lustre: `ofd` and `osc` grants.

use std::collections::BTreeMap;

use types::{Instant, Span};

use crate::limits::{RESERVE_FREE_MAX, RESERVED_OF_CLIENT_MAX, RESERVED_SHARE, SPACE_AGE};

/// Of one session.
#[derive(Clone, Copy, Debug, Default)]
struct Of {
    promised: u64,
    used: u64,
    /// Of the latest question.
    number: u32,
}

impl Of {
    fn unused(&self) -> u64 {
        self.promised - self.used
    }
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    sessions: BTreeMap<u64, Of>,
    /// Of all sessions, and not used.
    total: u64,
    /// Of writes without room that were let in and are not done.
    under_way: u64,
    /// Of all writes that are done.
    done: u64,
    /// What the disk had, less what was written since.
    free: u64,
    /// Room that is never promised.
    kept_free: u64,
    seen: Instant,
}

impl Reserved {
    /// What is done, to be handed to [`Reserved::saw`] by a look at the disk that begins now.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// The disk has so much, by a look that began when so much was done.
    pub(crate) fn saw(&mut self, bytes: u64, free: u64, done: u64, now: Instant) {
        let since = self.done.wrapping_sub(done);
        (self.free, self.seen) = (free.saturating_sub(since), now);
        self.kept_free = (bytes / RESERVED_SHARE).min(RESERVE_FREE_MAX);
    }

    /// Room that is promised and not used.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether the disk has to be looked at before a write of so many bytes that has no room.
    pub(crate) fn must_look(&self, bytes: u64, now: Instant) -> bool {
        let is_tight = self.unpromised() < bytes.saturating_add(self.kept_free);
        self.total > 0 && (is_tight || now - self.seen > SPACE_AGE)
    }

    /// Room that is neither promised nor about to be taken.
    fn unpromised(&self) -> u64 {
        self.free.saturating_sub(self.total.saturating_add(self.under_way))
    }

    /// Whether a write without room may take so many bytes. It has them until [`Reserved::ended`].
    pub(crate) fn may_take(&mut self, bytes: u64) -> bool {
        let is_free = self.total == 0 || self.unpromised() >= bytes;
        if is_free {
            self.under_way = self.under_way.saturating_add(bytes);
        }
        is_free
    }

    /// A write that took so many bytes is done, or has failed.
    pub(crate) fn ended(&mut self, bytes: u64) {
        self.under_way = self.under_way.saturating_sub(bytes);
        self.wrote(bytes);
    }

    fn wrote(&mut self, bytes: u64) {
        self.free = self.free.saturating_sub(bytes);
        self.done = self.done.wrapping_add(bytes);
    }

    /// A session wants so much in all. Returns what it has.
    pub(crate) fn ask(&mut self, session: u64, number: u32, wanted: u64) -> u64 {
        let left = self.unpromised().saturating_sub(self.kept_free) / RESERVED_SHARE;
        let of = self.sessions.entry(session).or_default();
        if number < of.number {
            return of.promised;
        }
        of.number = number;
        let most = of.used.saturating_add(RESERVED_OF_CLIENT_MAX);
        let more = wanted.min(most).saturating_sub(of.promised).min(left);
        of.promised += more;
        self.total += more;
        of.promised
    }

    /// A session of the run before was promised so much, and has used nothing of it.
    pub(crate) fn restate(&mut self, session: u64, number: u32, owed: u64) -> u64 {
        self.end(session);
        let promised = owed.min(RESERVED_OF_CLIENT_MAX);
        self.sessions.insert(session, Of { promised, used: 0, number });
        self.total += promised;
        promised
    }

    /// A session has sent everything, and uses nothing beyond a total. Returns what it has. Writes
    /// that never came used what the OST has not seen of it.
    pub(crate) fn give_back(&mut self, session: u64, number: u32, total: u64) -> u64 {
        let Some(of) = self.sessions.get_mut(&session) else { return 0 };
        if number >= of.number {
            of.number = number;
            self.total -= of.unused();
            of.promised = total.clamp(of.used, of.promised);
            of.used = of.promised;
        }
        of.promised
    }

    /// A session gets nothing any more, and may not use what it has. Returns what it has used.
    pub(crate) fn close(&mut self, session: u64) -> u64 {
        let Some(of) = self.sessions.get_mut(&session) else { return 0 };
        self.total -= of.unused();
        of.promised = of.used;
        of.promised
    }

    /// Whether a session was promised room in this run of the OST.
    pub(crate) fn has(&self, session: u64) -> bool {
        self.sessions.get(&session).is_some_and(|of| of.promised > 0)
    }

    /// Whether a session has room that is not used.
    pub(crate) fn has_unused(&self, session: u64) -> bool {
        self.sessions.get(&session).is_some_and(|of| of.unused() > 0)
    }

    /// A write of a session has used so much of its room.
    pub(crate) fn used(&mut self, session: u64, bytes: u64) {
        let Some(of) = self.sessions.get_mut(&session) else { return };
        let used = bytes.min(of.unused());
        of.used += used;
        self.total -= used;
        self.wrote(bytes);
    }

    /// A session is over.
    pub(crate) fn end(&mut self, session: u64) {
        if let Some(of) = self.sessions.remove(&session) {
            self.total -= of.unused();
        }
    }
}

const _: () = assert!(RESERVED_SHARE > 1);
const _: () = assert!(Span::ZERO.0 < SPACE_AGE.0);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn reserved(bytes: u64, free: u64) -> Reserved {
        let mut reserved = Reserved::default();
        reserved.saw(bytes, free, 0, Instant::default());
        reserved
    }

    #[test]
    fn what_is_promised_is_refused_to_others() {
        let mut own = reserved(1_000 * MIB, 200 * MIB);
        let promised = own.ask(1, 1, 16 * MIB);
        assert!(promised > 0 && own.total() == promised);
        assert_eq!(own.ask(1, 1, promised), promised, "asked again");
        assert!(own.may_take(100 * MIB));
        assert!(!own.may_take(100 * MIB), "what is left is promised");
        own.used(1, promised);
        assert_eq!((own.total(), own.has(1)), (0, true));
        own.end(1);
        assert_eq!((own.total(), own.has(1)), (0, false));
    }

    #[test]
    fn a_disk_that_is_nearly_full_promises_nothing() {
        let mut own = reserved(1_000 * MIB, 50 * MIB);
        assert_eq!(own.ask(1, 1, 16 * MIB), 0);
        assert!(own.may_take(50 * MIB), "and has room for who asks");
    }

    #[test]
    fn a_length_that_no_disk_has_finds_no_room() {
        let mut own = reserved(1_000 * MIB, 500 * MIB);
        assert_eq!(own.ask(1, 1, 16 * MIB), 16 * MIB);
        assert!(own.must_look(u64::MAX, Instant::default()) && !own.may_take(u64::MAX));
    }

    #[test]
    fn what_was_let_in_and_is_not_done_is_not_free() {
        let mut own = reserved(1_000 * MIB, 500 * MIB);
        assert_eq!(own.ask(1, 1, 16 * MIB), 16 * MIB);
        assert!(own.may_take(400 * MIB));
        own.saw(1_000 * MIB, 500 * MIB, own.done(), Instant::default());
        assert!(!own.may_take(85 * MIB), "the disk does not have the other one's bytes yet");
        assert!(own.may_take(84 * MIB));
        let done = own.done();
        own.ended(400 * MIB);
        own.saw(1_000 * MIB, 500 * MIB, done, Instant::default());
        assert!(!own.may_take(1), "the look began before they were done");
        own.ended(84 * MIB);
        own.used(1, 16 * MIB);
        own.saw(1_000 * MIB, 20 * MIB, own.done(), Instant::default());
        assert_eq!((own.total(), own.ask(2, 1, MIB)), (0, 0), "too little is left");
        assert!(own.may_take(u64::MAX), "nothing is promised");
        assert!(own.may_take(u64::MAX));
        own.ended(u64::MAX);
    }

    #[test]
    fn what_the_run_before_promised_holds() {
        let mut own = Reserved::default();
        assert_eq!(own.restate(3, 1, 5 * MIB), 5 * MIB);
        assert_eq!(own.restate(3, 1, 5 * MIB), 5 * MIB);
        own.saw(1_000 * MIB, 6 * MIB, own.done(), Instant::default());
        assert!(own.total() == 5 * MIB && own.may_take(MIB) && !own.may_take(MIB));
        own.used(3, 9 * MIB);
        assert_eq!(own.total(), 0);
    }

    #[test]
    fn what_is_given_back_is_free_and_late_questions_take_nothing() {
        let mut own = reserved(1_000 * MIB, 500 * MIB);
        assert_eq!(own.give_back(1, 1, 0), 0, "it has nothing");
        assert_eq!(own.ask(1, 1, 16 * MIB), 16 * MIB);
        own.used(1, 2 * MIB);
        // a write that took 1 MiB was lost at the client
        assert_eq!(own.give_back(1, 2, 3 * MIB), 3 * MIB);
        assert_eq!((own.total(), own.has_unused(1)), (0, false));

        assert_eq!(own.ask(1, 4, 8 * MIB), 8 * MIB);
        assert_eq!(own.give_back(1, 3, 3 * MIB), 8 * MIB, "older than the question");
        assert_eq!(own.ask(1, 2, 16 * MIB), 8 * MIB, "older");
        assert_eq!(own.total(), 5 * MIB);
        own.used(1, MIB);
        assert_eq!((own.close(1), own.total(), own.has_unused(1)), (4 * MIB, 0, false));
    }
}
