//! Notes the pauses of this server. It reads nothing meanwhile, so no client counts as silent for
//! that time.

use std::cell::Cell;

use types::Instant;

use crate::limits::{INATTENTION_MAX, RETURN_MAX};

/// When the server last stood still.
pub(crate) struct Attention {
    /// The end of the last break; zero where there was none.
    since: Cell<Instant>,
    looked: Cell<Instant>,
}

impl Attention {
    pub(crate) fn new(now: Instant) -> Attention {
        Attention { since: Cell::default(), looked: Cell::new(now) }
    }

    /// The server runs now.
    pub(crate) fn look(&self, now: Instant) {
        if self.is_lost(now) {
            self.since.set(now);
        }
        self.looked.set(now);
    }

    /// Whether it may have stood still until now.
    pub(crate) fn is_lost(&self, now: Instant) -> bool {
        now - self.looked.get() > INATTENTION_MAX
    }

    pub(crate) fn since(&self) -> Instant {
        self.since.get()
    }

    /// Whether clients whose link broke while it stood still have had the time to connect again.
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        let since = self.since.get();
        since == Instant::default() || now - since > RETURN_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Span;

    #[test]
    fn a_pause_begins_the_count_anew() {
        let at = |secs| Instant::default() + Span::secs(secs);
        let attention = Attention::new(at(1));
        (1..10).for_each(|secs| attention.look(at(secs)));
        assert_eq!(attention.since(), Instant::default());
        assert!(attention.is_settled(at(9)));
        assert!(attention.is_lost(at(100)));
        attention.look(at(100));
        assert!(!attention.is_lost(at(101)));
        assert_eq!(attention.since(), at(100));
        assert!(!attention.is_settled(at(101)) && attention.is_settled(at(104)));
    }
}
