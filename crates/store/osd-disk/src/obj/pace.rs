//! Decides whether calls that hardly ever block run on the executor's thread. After one has
//! blocked, they do not for a while, and for longer each time that it happens again.
//!
//! So on a disk that stays slow the executor meets one slow call in ten seconds. A call of `write`
//! that the kernel throttles is held up for at most 200 ms: 2 % of the executor's time.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A call that takes longer was held up: a throttled writer, a full journal, a page that is read
/// from the disk before a part of it is written.
const SLOW: Duration = Duration::from_millis(2);
/// How long the pool makes such calls then.
const SLOW_REST: Duration = Duration::from_millis(200);
/// The longest rest: each is twice the last one, if the disk was found slow right behind that.
const SLOW_REST_MAX: Duration = Duration::from_secs(10);
/// Calls after a rest within which another slow one counts as the same trouble.
const TRIALS: u32 = 64;

/// What one store has seen.
#[derive(Default)]
pub(super) struct Pace(Cell<Seen>);

#[derive(Clone, Copy, Default)]
struct Seen {
    until: Option<Instant>,
    /// The last rest; none where the disk is trusted again.
    rest: Option<Duration>,
    /// Calls since then.
    calls: u32,
}

impl Seen {
    /// After a call that took so long and ended now.
    fn after(self, took: Duration, now: Instant) -> Seen {
        if took > SLOW {
            let rest = self.rest.map_or(SLOW_REST, |last| (last * 2).min(SLOW_REST_MAX));
            return Seen { until: Some(now + rest), rest: Some(rest), calls: 0 };
        }
        let calls = self.calls.saturating_add(1);
        Seen { rest: self.rest.filter(|_| calls < TRIALS), calls, ..self }
    }
}

impl Pace {
    /// Whether such calls are made at once now.
    pub(super) fn is_fast(&self) -> bool {
        self.is_fast_at(Instant::now())
    }

    fn is_fast_at(&self, now: Instant) -> bool {
        let seen = self.0.get();
        match seen.until {
            Some(until) if now < until => false,
            Some(_) => {
                self.0.set(Seen { until: None, ..seen });
                true
            }
            None => true,
        }
    }

    /// Makes such a call.
    pub(super) fn watch<T>(&self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outcome = call();
        let end = Instant::now();
        self.note(end - start, end);
        outcome
    }

    fn note(&self, took: Duration, now: Instant) {
        self.0.set(self.0.get().after(took, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_slow_call_the_pool_has_its_turn() {
        let (pace, now) = (Pace::default(), Instant::now());
        pace.note(SLOW, now);
        assert!(pace.is_fast_at(now));
        pace.note(SLOW * 2, now);
        assert!(!pace.is_fast_at(now));
        assert!(!pace.is_fast_at(now + SLOW_REST / 2));
        assert!(pace.is_fast_at(now + SLOW_REST));
    }

    #[test]
    fn a_call_is_timed_and_its_outcome_returned() {
        let pace = Pace::default();
        let slow = || {
            std::thread::sleep(SLOW * 2);
            7
        };
        assert_eq!(pace.watch(slow), 7);
        assert!(pace.0.get().until.is_some());
    }

    /// Calls of 200 ms, one at each time that the executor makes them, for a minute.
    #[test]
    fn a_disk_that_stays_slow_takes_little_of_the_executors_time() {
        let (mut seen, mut now) = (Seen::default(), Instant::now());
        let (start, held_up) = (now, Duration::from_millis(200));
        let mut stalls = 0;
        while now < start + Duration::from_secs(60) {
            stalls += 1;
            now += held_up;
            seen = seen.after(held_up, now);
            now = seen.until.expect("a rest");
        }
        assert!(stalls <= 11, "{stalls} in a minute");
        for _ in 0..TRIALS {
            seen = seen.after(Duration::ZERO, now);
        }
        assert_eq!(seen.after(held_up, now).until, Some(now + SLOW_REST), "it was fast again");
    }
}
