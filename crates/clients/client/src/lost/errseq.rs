//! One stream of errors and its listeners. Each listener gets each error once.
//!
//! - An error that comes before any listener got the previous one is the same error.
//! - A listener that begins before any listener got an error gets that error too. After that, it
//!   gets only later errors.
//!
//! Pure. Linux: `errseq_t`.

use std::cell::Cell;

/// The newest error, and whether anybody has heard of it. Numbers are drawn by the owner and rise;
/// zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ErrSeq {
    number: u64,
    is_seen: bool,
}

impl ErrSeq {
    /// Something went wrong; `number` is a fresh one.
    pub(super) fn note(&mut self, number: u64) {
        assert!(number > self.number, "numbers rise");
        if self.is_seen || self.number == 0 {
            *self = ErrSeq { number, is_seen: false };
        }
    }

    /// Where a new listener begins.
    pub(super) fn sample(self) -> u64 {
        if self.is_seen { self.number } else { 0 }
    }

    /// Whether a listener who heard of `since` has something to hear.
    pub(super) fn is_news(self, since: u64) -> bool {
        self.number != 0 && self.number != since
    }

    /// The listener hears of it; says whether it was news.
    pub(super) fn hear(&mut self, since: &Cell<u64>) -> bool {
        let is_news = self.is_news(since.get());
        if is_news {
            self.is_seen = true;
            since.set(self.number);
        }
        is_news
    }

    pub(super) fn is_seen(self) -> bool {
        self.is_seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps: `!` an error, `+a` a begins to listen, `?a` a looks, `a` a hears. Answers of looks
    /// and hearings, in order.
    fn check(steps: &str, want: &str) {
        let (mut seq, mut drawn) = (ErrSeq::default(), 0);
        let mut since = std::collections::BTreeMap::new();
        let mut told = String::new();
        for step in steps.split(' ') {
            match step.as_bytes() {
                b"!" => {
                    drawn += 1;
                    seq.note(drawn);
                }
                [b'+', who] => drop(since.insert(*who, Cell::new(seq.sample()))),
                [b'?', who] => told.push(if seq.is_news(since[who].get()) { 'y' } else { 'n' }),
                [who] => told.push(if seq.hear(&since[who]) { 'y' } else { 'n' }),
                _ => panic!("no step is called '{step}'"),
            }
        }
        assert_eq!(told, want, "{steps}");
    }

    #[test]
    fn each_listener_hears_once_of_each_error() {
        check("+a +b a ! a a b b ! b a a", "nynynyyn");
    }

    #[test]
    fn looking_uses_nothing_up() {
        check("+a ! ?a ?a a ?a", "yyyn");
    }

    #[test]
    fn errors_that_nobody_has_heard_of_are_one() {
        check("+a ! ! a a", "yn");
    }

    #[test]
    fn a_late_listener_hears_of_what_nobody_has_heard_yet() {
        check("! +a a a", "yn");
        check("! +a a +b b", "yn");
        check("+a ! +b a b", "yy");
    }
}
