//! The log lines about a target that is away: when they are due, and how long it has been away.
//!
//! Pure: the time is an argument, and the lines are the result.

use types::{Instant, Span};

/// A target that has never answered is named after so long: servers may start in any order.
const FIRST_WAIT: Span = Span::secs(5);

/// What is worth a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It was connected and is not.
    Lost,
    /// It is connected again, after so long.
    Restored(Span),
    /// Nothing was ever heard of it.
    NoAnswer(Span),
    /// The first connection, after it was said that there is none.
    Found(Span),
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Told::Lost => f.write_str("lost: operations that need it wait"),
            Told::Restored(after) => write!(f, "restored after {}", seconds(*after)),
            Told::NoAnswer(after) => {
                write!(f, "not made for {}: operations that need it wait", seconds(*after))
            }
            Told::Found(after) => write!(f, "made after {}", seconds(*after)),
        }
    }
}

fn seconds(span: Span) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Nobody has wanted it.
    #[default]
    Unused,
    /// Wanted since then, and never connected.
    New {
        since: Instant,
        is_told: bool,
    },
    Up,
    Down {
        since: Instant,
    },
}

impl Outage {
    /// What is to be said, now that the target is connected or not.
    pub(crate) fn look(&mut self, is_connected: bool, now: Instant) -> Option<Told> {
        let (next, told) = match (*self, is_connected) {
            (Outage::Unused, false) => (Outage::New { since: now, is_told: false }, None),
            (Outage::New { since, is_told: false }, false) if now - since >= FIRST_WAIT => {
                (Outage::New { since, is_told: true }, Some(Told::NoAnswer(now - since)))
            }
            (Outage::New { since, is_told: true }, true) => {
                (Outage::Up, Some(Told::Found(now - since)))
            }
            (Outage::Up, false) => (Outage::Down { since: now }, Some(Told::Lost)),
            (Outage::Down { since }, true) => (Outage::Up, Some(Told::Restored(now - since))),
            (same, false) => (same, None),
            (_, true) => (Outage::Up, None),
        };
        *self = next;
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tenths` of a second and `+` or `-` for connected or not; what was said.
    fn check(looks: &str) -> Vec<String> {
        let mut outage = Outage::default();
        let mut said = Vec::new();
        for look in looks.split_whitespace() {
            let (tenths, sign) = look.split_at(look.len() - 1);
            let now = Instant(0) + Span::millis(100 * tenths.parse::<u64>().expect("a number"));
            said.extend(outage.look(sign == "+", now).map(|told| told.to_string()));
        }
        said
    }

    #[test]
    fn a_lost_connection_is_told_once_and_its_return_with_the_time() {
        assert_eq!(
            check("0- 1+ 20+ 30- 31- 99- 642+ 650+ 651-"),
            [
                "lost: operations that need it wait",
                "restored after 61.2 s",
                "lost: operations that need it wait"
            ]
        );
    }

    #[test]
    fn a_target_that_never_answered_is_told_after_a_while() {
        assert_eq!(check("0- 49- 30+"), [""; 0]);
        assert_eq!(
            check("0- 49- 51- 52- 70+ 71+"),
            ["not made for 5.1 s: operations that need it wait", "made after 7.0 s"]
        );
    }
}
