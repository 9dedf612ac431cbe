//! Lines of the log about a state that lasts: the first one is written, and then one a minute.

use std::cell::Cell;

use types::{Instant, Span};

/// Between two lines about the same state.
const PAUSE: Span = Span::secs(60);

/// Says when the next line is due.
#[derive(Debug, Default)]
pub struct Seldom(Cell<Option<Instant>>);

impl Seldom {
    /// Whether a line is due `now`, which is written then.
    pub fn is_due(&self, now: Instant) -> bool {
        let is_due = self.0.get().is_none_or(|last| now - last >= PAUSE);
        if is_due {
            self.0.set(Some(now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_at_first_and_then_once_a_minute() {
        let seldom = Seldom::default();
        let at = |secs| Instant::default() + Span::secs(secs);
        let due = [0, 1, 59, 60, 61, 119, 120, 500].map(|secs| seldom.is_due(at(secs)));
        assert_eq!(due, [true, false, false, true, false, false, true, true]);
    }
}
