//! How long a service takes now, and how long its clients should wait (Lustre: adaptive timeouts).
//!
//! The largest measurement within `at_history` counts. It is kept in four bins, each for a quarter
//! of `at_history`.
//!
//! Invariants
//! - An estimate lies within `at_min..=at_max`.
//! - A measurement is forgotten no sooner than three quarters of `at_history` after it, and no
//!   later than all of it.

use types::{Instant, Span};

use crate::limits::{ATTEMPT_MAX, ESTIMATE_QUIET};

/// Settings of a node, named as Lustre names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtConfig {
    /// `at_min`: lower bound of an estimate, 5 s.
    pub min: Span,
    /// `at_max`: upper bound of an estimate and of what a request may take, 600 s. Zero: nobody
    /// gets more time.
    pub max: Span,
    /// `at_history`: how long a measure counts, 600 s.
    pub history: Span,
    /// `at_early_margin`: an early reply is sent so long before a deadline, 5 s.
    pub early_margin: Span,
    /// `at_extra`: what an early reply asks for, 30 s.
    pub extra: Span,
    /// `at_unhealthy_factor`: a partition that serves nothing for so many times `at_max` while
    /// requests wait is ill, 3.
    pub unhealthy_factor: u32,
}

impl Default for AtConfig {
    fn default() -> AtConfig {
        AtConfig {
            min: Span::secs(5),
            max: Span::secs(600),
            history: Span::secs(600),
            early_margin: Span::secs(5),
            extra: Span::secs(30),
            unhealthy_factor: 3,
        }
    }
}

impl AtConfig {
    /// Requests that wait so long while nothing is served mean that a partition is ill.
    #[must_use]
    pub fn starved_after(&self) -> Span {
        let most = if self.max == Span::ZERO { ATTEMPT_MAX } else { self.max };
        Span(most.0.saturating_mul(u64::from(self.unhealthy_factor)))
    }

    /// Longest time that a scheduler may hold back a request whose sender waits for `patience` at
    /// first: early replies keep the sender waiting so long. At least half of the time, whatever
    /// the margin is: a request that may not be held ignores every limit.
    #[must_use]
    pub fn hold_max(&self, patience: Span) -> Span {
        let all = if self.max == Span::ZERO { patience } else { self.max };
        Span(all.0 - self.early_margin.0.min(all.0 / 2))
    }
}

/// Bins of an estimate.
pub const BINS: usize = 4;

/// What a new partition is thought to take before it was measured.
const GUESS: Span = Span::secs(10);

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct Estimate {
    bins: [Span; BINS], // newest first
    newest_from: Instant,
    measured: bool,
    worst: Span,
    worst_at: Instant,
}

impl Estimate {
    #[must_use]
    pub fn new(now: Instant) -> Estimate {
        Estimate {
            bins: [Span::ZERO; BINS],
            newest_from: now,
            measured: false,
            worst: Span::ZERO,
            worst_at: now,
        }
    }

    /// A request took `took`.
    #[inline]
    pub fn measure(&mut self, took: Span, now: Instant, config: &AtConfig) {
        self.advance(now, config);
        self.measured = true;
        self.bins[0] = self.bins[0].max(took);
        if took > self.worst {
            (self.worst, self.worst_at) = (took, now);
        }
    }

    /// What a request is expected to take.
    #[must_use]
    #[inline]
    pub fn current(&mut self, now: Instant, config: &AtConfig) -> Span {
        self.advance(now, config);
        let worst = self.bins.iter().copied().fold(Span::ZERO, Span::max);
        let known = if self.measured { worst } else { GUESS };
        known.max(config.min).min(config.max.max(config.min))
    }

    /// The worst ever, and when that was.
    #[must_use]
    pub fn worst(&self) -> (Span, Instant) {
        (self.worst, self.worst_at)
    }

    /// The bins, newest first.
    #[must_use]
    pub fn bins(&self) -> [Span; BINS] {
        self.bins
    }

    #[inline]
    fn advance(&mut self, now: Instant, config: &AtConfig) {
        let bin = Span(config.history.0 / BINS as u64).max(Span::millis(1));
        if now - self.newest_from < bin {
            return;
        }
        let passed = (now - self.newest_from).0 / bin.0;
        for _ in 0..passed.min(BINS as u64) {
            self.bins.rotate_right(1);
            self.bins[0] = Span::ZERO;
        }
        self.newest_from = self.newest_from + Span(bin.0 * passed);
    }
}

/// Time that a client gives an attempt whose server said `estimate`: `1.25 * estimate + 5 s`, but
/// not less than `attempt`, and no more than an early reply would give it: a dead server is not
/// waited for longer than one that asked for time. An estimate up to [`ESTIMATE_QUIET`] says only
/// that the server is not slow.
#[must_use]
#[inline]
pub fn patience(estimate: Span, attempt: Span) -> Span {
    if estimate <= ESTIMATE_QUIET {
        return attempt;
    }
    let wanted = Span((estimate.0.saturating_add(estimate.0 / 4)).saturating_add(Span::secs(5).0));
    wanted.min(ATTEMPT_MAX).max(attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::default() + Span::secs(secs)
    }

    #[test]
    fn the_worst_of_the_history_counts_and_is_forgotten_with_it() {
        let config = AtConfig::default();
        let mut estimate = Estimate::new(at(0));
        assert_eq!(estimate.current(at(0), &config), GUESS, "before anything is measured");
        estimate.measure(Span::secs(40), at(1), &config);
        estimate.measure(Span::secs(7), at(200), &config);
        assert_eq!(estimate.current(at(599), &config), Span::secs(40));
        assert_eq!(estimate.current(at(600), &config), Span::secs(7));
        assert_eq!(estimate.current(at(800), &config), Span::secs(5), "at_min");
        assert_eq!(estimate.worst(), (Span::secs(40), at(1)));
    }

    #[test]
    fn estimates_keep_to_their_bounds() {
        let config = AtConfig::default();
        let mut estimate = Estimate::new(at(0));
        estimate.measure(Span::secs(5_000), at(1), &config);
        assert_eq!(estimate.current(at(2), &config), config.max);
        assert_eq!(estimate.current(at(1 << 30), &config), config.min, "after a long silence");
    }

    #[test]
    fn a_client_waits_longer_for_a_slow_server_up_to_a_bound() {
        let attempt = Span::secs(10);
        let check = |estimate, expected| {
            assert_eq!(patience(Span::secs(estimate), attempt), Span::secs(expected))
        };
        check(0, 10);
        check(5, 10);
        check(8, 15);
        check(20, 30);
        check(600, 30);
        assert_eq!(patience(Span(u64::MAX), attempt), ATTEMPT_MAX);
    }
    #[test]
    fn requests_may_be_held_whatever_the_margin_is_and_leave_before_their_deadline() {
        let hold = |max, margin, patience| {
            let (max, early_margin) = (Span::secs(max), Span::secs(margin));
            AtConfig { max, early_margin, ..AtConfig::default() }.hold_max(Span::secs(patience))
        };
        assert_eq!(hold(600, 5, 10), Span::secs(595));
        assert_eq!(hold(6, 600, 10), Span::secs(3));
        assert_eq!(hold(0, 5, 30), Span::secs(25), "nobody gets more time");
        assert_eq!(hold(0, 5, 4), Span::secs(2));
    }
}
