//! Whether calls that hardly ever block are made on the executor's thread: not for a while after
//! one did.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A call that takes longer was held up: a throttled writer, a full journal, metadata read from the
/// disk.
const SLOW: Duration = Duration::from_millis(2);
/// How long the pool makes such calls then.
const SLOW_REST: Duration = Duration::from_millis(200);

/// What one store has seen.
#[derive(Default)]
pub(super) struct Pace(Cell<Option<Instant>>);

impl Pace {
    /// Whether such calls are made at once now.
    pub(super) fn is_fast(&self) -> bool {
        match self.0.get() {
            Some(until) if Instant::now() < until => false,
            Some(_) => {
                self.0.set(None);
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
        if end - start > SLOW {
            self.0.set(Some(end + SLOW_REST));
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_slow_call_the_pool_has_its_turn() {
        let pace = Pace::default();
        assert_eq!(pace.watch(|| 7), 7);
        assert!(pace.is_fast());
        pace.watch(|| std::thread::sleep(SLOW * 2));
        assert!(!pace.is_fast());
        std::thread::sleep(SLOW_REST);
        assert!(pace.is_fast());
    }
}
