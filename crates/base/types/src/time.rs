//! Time as values: a monotonic [`Instant`] that `env` hands out, a [`Span`] between two, and file
//! times.

use std::ops::{Add, Sub};

/// Nanoseconds of the environment's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// Nanoseconds between two instants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of whole seconds.
    #[must_use]
    pub const fn secs(secs: u64) -> Span {
        Span(secs.saturating_mul(1_000_000_000))
    }

    /// A span of milliseconds.
    #[must_use]
    pub const fn millis(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000_000))
    }

    /// A span of microseconds.
    #[must_use]
    pub const fn micros(us: u64) -> Span {
        Span(us.saturating_mul(1_000))
    }

    /// As milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// As seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Span> for Instant {
    type Output = Instant;

    fn add(self, span: Span) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl Sub for Instant {
    type Output = Span;

    /// Zero where `earlier` is the later one.
    fn sub(self, earlier: Instant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// Wall-clock time of a file: seconds since 1970 and nanoseconds below a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timespec {
    /// Seconds, negative before 1970.
    pub sec: i64,
    /// 0 to 999,999,999.
    pub nsec: u32,
}

impl Timespec {
    /// From its parts; nanoseconds are brought below a second.
    #[must_use]
    pub fn new(sec: i64, nsec: u32) -> Timespec {
        Timespec {
            sec: sec.saturating_add(i64::from(nsec / 1_000_000_000)),
            nsec: nsec % 1_000_000_000,
        }
    }

    /// The next time that can be told from this one.
    #[must_use]
    pub fn next_nanosecond(self) -> Timespec {
        Timespec::new(self.sec, self.nsec + 1)
    }
}
