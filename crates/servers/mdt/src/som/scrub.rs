//! The scrub looks at all inodes in turn, while the MDT has little to do, and puts DIRTY files into
//! the queue. It finds files that nothing else remembers: those of writers that a restart has lost,
//! and those that were dropped or given up.
//!
//! A pass over many inodes goes on behind a restart where the last one was, as far as that is
//! stored. Then another pass follows soon, because the restart may have left files before that
//! place.
//!
//! [`Scrub`] decides when to look at which inodes; [`super::scrubbing`] looks.

use types::{Fid, Instant, Span};

/// Inodes that are looked at before others get their turn: half a millisecond.
pub(super) const SLICE: usize = 1_024;

/// From the start to the first pass: recovery and the clients that come back have that time.
const FIRST_REST: Span = Span::secs(10);

/// Between two passes.
const PASS_REST: Span = Span::secs(3_600);

/// Before a pass that has a reason: the queue was full, or the pass before was not a whole one.
const SOON: Span = Span::secs(60);

/// After a slice, in microseconds, also where it was a short one.
const PAUSE_LEAST_US: u64 = 100;

/// Before another look at whether the MDT has little to do and the queue has room.
pub(super) const LOOK: Span = Span::secs(1);

/// While the scrub is off.
const OFF_LOOK: Span = Span::secs(3_600);

/// Requests a second from which on the MDT counts as busy.
const BUSY_REQUESTS: u64 = 200;

/// So many requests between two looks are no sign of that.
const BUSY_REQUESTS_LEAST: u64 = 20;

/// On an MDT that is always busy, a slice has its turn after this long.
const BUSY_MAX: Span = Span::secs(10);

/// Inodes after which the place of a pass is stored.
const STORE_EVERY: u64 = 1 << 18;

/// What the scrub is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before that.
    Wait(Instant),
    /// Look at inodes from this FID on.
    Look(Fid),
}

/// What it depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) now: Instant,
    /// Executed since the start.
    pub(super) requests: u64,
    /// Inodes a second; zero: off.
    pub(super) rate: u64,
    /// The queue takes more files.
    pub(super) has_room: bool,
    /// Files that it has dropped since the start.
    pub(super) dropped: u64,
}

/// What a look at some inodes comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) looked: u64,
    pub(super) dirty: Vec<Fid>,
    /// Where the next one begins.
    pub(super) next: Option<Fid>,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Scrub {
    /// Where the pass is; none between two passes.
    at: Option<Fid>,
    /// The pass did not begin at the first inode.
    is_rest: bool,
    not_before: Instant,
    last_slice: Instant,
    /// When requests were counted last.
    counted: (Instant, u64),
    /// Files that were dropped before the present pass began.
    dropped: u64,
    /// Inodes since the place was stored.
    unstored: u64,
    is_stored: bool,
    passes: u64,
    inodes: u64,
    dirty: u64,
}

impl Scrub {
    pub(super) fn new(now: Instant) -> Scrub {
        Scrub {
            at: None,
            is_rest: false,
            not_before: now + FIRST_REST,
            last_slice: now,
            counted: (now, 0),
            dropped: 0,
            unstored: 0,
            is_stored: false,
            passes: 0,
            inodes: 0,
            dirty: 0,
        }
    }

    /// The place of a pass of an earlier run.
    pub(super) fn resume(&mut self, at: Fid) {
        (self.at, self.is_rest, self.is_stored) = (Some(at), true, true);
    }

    pub(super) fn poll(&mut self, facts: &Facts) -> Step {
        let Facts { now, rate, has_room, dropped, .. } = *facts;
        if rate == 0 {
            return Step::Wait(now + OFF_LOOK);
        }
        if self.at.is_none() && dropped > self.dropped {
            self.not_before = self.not_before.min(now + SOON);
        }
        if now < self.not_before {
            return Step::Wait(self.not_before);
        }
        if !self.is_idle(facts) || !has_room {
            return Step::Wait(now + LOOK);
        }
        if self.at.is_none() {
            (self.inodes, self.dirty, self.dropped) = (0, 0, dropped);
        }
        Step::Look(*self.at.get_or_insert(Fid::ZERO))
    }

    /// Whether the MDT has little to do. Now and then it counts as such whatever it does.
    fn is_idle(&mut self, facts: &Facts) -> bool {
        let (since, before) = std::mem::replace(&mut self.counted, (facts.now, facts.requests));
        let requests = facts.requests.saturating_sub(before); // they are counted anew at will
        let span = facts.now - since;
        let most = (span.as_millis() * BUSY_REQUESTS / 1_000).max(BUSY_REQUESTS_LEAST);
        requests <= most || facts.now - self.last_slice >= BUSY_MAX
    }

    /// Some inodes were looked at.
    pub(super) fn looked(&mut self, slice: &Slice, rate: u64, now: Instant) {
        self.inodes += slice.looked;
        self.unstored += slice.looked;
        self.dirty += slice.dirty.len() as u64;
        (self.at, self.last_slice) = (slice.next, now);
        if slice.next.is_some() {
            let pause = slice.looked.saturating_mul(1_000_000) / rate.max(1);
            self.not_before = now + Span::micros(pause.max(PAUSE_LEAST_US));
            return;
        }
        self.passes += 1;
        let is_rest = std::mem::take(&mut self.is_rest);
        self.not_before = now + if is_rest { SOON } else { PASS_REST };
    }

    /// The inodes cannot be read.
    pub(super) fn failed(&mut self, now: Instant) {
        (self.at, self.is_rest) = (None, false);
        self.not_before = now + PASS_REST;
    }

    /// What is to be stored of its place, if something is: none removes it.
    pub(super) fn store_due(&mut self) -> Option<Option<Fid>> {
        let is_due = match self.at {
            Some(_) => self.unstored >= STORE_EVERY,
            None => self.is_stored,
        };
        if !is_due {
            return None;
        }
        (self.unstored, self.is_stored) = (0, self.at.is_some());
        Some(self.at)
    }

    pub(super) fn state(&self) -> &'static str {
        if self.at.is_some() { "running" } else { "waiting" }
    }

    pub(super) fn position(&self) -> Option<Fid> {
        self.at
    }

    /// Whole passes; inodes and DIRTY files of the present or last one.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.passes, self.inodes, self.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_000;

    fn at(secs: u64) -> Instant {
        Instant::default() + Span::secs(secs)
    }

    fn fid(oid: u32) -> Fid {
        Fid::new(0x400, oid)
    }

    fn facts(now: Instant) -> Facts {
        Facts { now, requests: 0, rate: RATE, has_room: true, dropped: 0 }
    }

    fn whole(next: Option<Fid>) -> Slice {
        Slice { looked: SLICE as u64, dirty: vec![fid(3)], next }
    }

    /// One whose first pass begins now.
    fn begun() -> Scrub {
        let mut scrub = Scrub::new(at(0));
        assert_eq!(scrub.poll(&facts(at(1))), Step::Wait(at(10)));
        assert_eq!(scrub.poll(&facts(at(10))), Step::Look(Fid::ZERO));
        scrub
    }

    #[test]
    fn a_pass_keeps_its_rate_and_the_next_one_comes_an_hour_later() {
        let mut scrub = begun();
        scrub.looked(&whole(Some(fid(5))), RATE, at(10));
        let Step::Wait(next) = scrub.poll(&facts(at(11))) else { panic!("it rests") };
        assert_eq!((next - at(10)).as_millis(), SLICE as u64);
        assert_eq!((scrub.state(), scrub.position()), ("running", Some(fid(5))));
        assert_eq!(scrub.poll(&facts(next)), Step::Look(fid(5)));
        scrub.looked(&whole(None), RATE, next);
        assert_eq!(scrub.counts(), (1, 2 * SLICE as u64, 2));
        assert_eq!(scrub.poll(&facts(next)), Step::Wait(next + PASS_REST));
        assert_eq!(scrub.poll(&facts(next + PASS_REST)), Step::Look(Fid::ZERO));
        assert_eq!(scrub.counts(), (1, 0, 0));
    }

    #[test]
    fn a_busy_mdt_is_scrubbed_slowly() {
        let mut scrub = begun();
        scrub.looked(&whole(Some(fid(5))), RATE, at(10));
        let busy = |secs: u64| Facts { requests: secs * 1_000, ..facts(at(secs)) };
        assert_eq!(scrub.poll(&busy(12)), Step::Wait(at(13)));
        assert_eq!(scrub.poll(&busy(19)), Step::Wait(at(20)));
        assert_eq!(scrub.poll(&busy(20)), Step::Look(fid(5)), "its time has come");
        scrub.looked(&whole(Some(fid(9))), RATE, at(20));
        let quiet = Facts { requests: 20_200, ..facts(at(22)) };
        assert_eq!(scrub.poll(&quiet), Step::Look(fid(9)));
    }

    #[test]
    fn it_waits_for_room_and_while_it_is_off() {
        let mut scrub = begun();
        scrub.looked(&whole(Some(fid(5))), RATE, at(10));
        let full = Facts { has_room: false, ..facts(at(30)) };
        assert_eq!(scrub.poll(&full), Step::Wait(at(31)));
        let off = Facts { rate: 0, ..facts(at(31)) };
        assert_eq!(scrub.poll(&off), Step::Wait(at(31) + OFF_LOOK));
        assert_eq!(scrub.poll(&facts(at(32))), Step::Look(fid(5)), "where it was");
    }

    #[test]
    fn dropped_files_bring_the_next_pass_soon() {
        let mut scrub = begun();
        scrub.looked(&whole(None), RATE, at(20));
        let dropped = |secs| Facts { dropped: 4, ..facts(at(secs)) };
        assert_eq!(scrub.poll(&dropped(100)), Step::Wait(at(100) + SOON));
        assert_eq!(scrub.poll(&dropped(130)), Step::Wait(at(100) + SOON));
        assert_eq!(scrub.poll(&dropped(160)), Step::Look(Fid::ZERO));
        scrub.looked(&whole(None), RATE, at(161));
        assert_eq!(scrub.poll(&dropped(162)), Step::Wait(at(161) + PASS_REST));
    }

    #[test]
    fn a_pass_goes_on_behind_a_restart_and_a_whole_one_follows() {
        let mut scrub = Scrub::new(at(0));
        scrub.resume(fid(7));
        assert_eq!(scrub.poll(&facts(at(10))), Step::Look(fid(7)));
        assert_eq!(scrub.store_due(), None);
        scrub.looked(&Slice { looked: STORE_EVERY, ..whole(Some(fid(8))) }, RATE, at(10));
        assert_eq!((scrub.store_due(), scrub.store_due()), (Some(Some(fid(8))), None));
        scrub.looked(&whole(None), RATE, at(400));
        assert_eq!((scrub.store_due(), scrub.store_due()), (Some(None), None));
        assert_eq!(scrub.poll(&facts(at(401))), Step::Wait(at(400) + SOON));
    }
}
