//! Parses a rule's commands as far as they set its speed, without a policy that runs.

use types::Span;

use super::DEPTH_DEFAULT;
use super::bucket::Pace;
use super::fields::{Field, FieldSet};
use super::grammar::{self, Command, Settings};
use crate::Refusal;

/// What a rule command says about speed; nothing where it is silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TbfSpeed {
    /// How long a request without data waits behind another one of its bucket.
    pub interval: Option<Span>,
    /// `total=`
    total: Option<bool>,
    /// Whether `class=` leaves out the client's address.
    mixes_clients: Option<bool>,
}

impl TbfSpeed {
    fn of(settings: &Settings) -> TbfSpeed {
        let pace = |rate| Pace::new(rate, DEPTH_DEFAULT, false, Span::ZERO);
        TbfSpeed {
            interval: settings.rate.map(|rate| pace(rate).interval()),
            total: settings.total,
            mixes_clients: settings.class.map(|class| !class.contains(Field::Nid)),
        }
    }

    /// After this command and a `later` one for the same rule.
    #[must_use]
    pub fn then(self, later: TbfSpeed) -> TbfSpeed {
        TbfSpeed {
            interval: later.interval.or(self.interval),
            total: later.total.or(self.total),
            mixes_clients: later.mixes_clients.or(self.mixes_clients),
        }
    }

    /// Whether the rule puts requests of several clients into one bucket. The argument of the
    /// policy may do so as well ([`tbf_mixes_clients`]).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.total == Some(true) || self.mixes_clients == Some(true)
    }
}

/// Reads a value of `nrs_tbf_rule`. Whether its rules and fields exist is for a running policy to
/// say.
///
/// # Errors
/// EINVAL and the word that is wrong.
pub fn parse_tbf_rule(value: &str) -> Result<TbfSpeed, Refusal> {
    let (_, command) = crate::command::split_words(value);
    Ok(match grammar::parse(command)? {
        Command::Start { settings, .. } | Command::Change { settings, .. } => {
            TbfSpeed::of(&settings)
        }
        Command::Stop { .. } => TbfSpeed::default(),
    })
}

/// Whether a value of `nrs_policies` starts TBF with an argument without `nid`, so that each of its
/// rules puts requests of several clients into one bucket.
#[must_use]
pub fn tbf_mixes_clients(value: &str) -> bool {
    let mut words = value.split_whitespace();
    let is_tbf = words.next() == Some("tbf");
    is_tbf && words.any(|word| FieldSet::parse(word).is_ok_and(|set| !set.contains(Field::Nid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_without_nid_mixes_clients() {
        for value in ["tbf uid", "tbf jobid", "tbf hp uid+gid", "tbf opcode now"] {
            assert!(tbf_mixes_clients(value), "{value}");
        }
        for value in
            ["tbf", "tbf nid", "tbf reg uid+nid", "tbf hp", "tbf colour", "crrn", "uid", ""]
        {
            assert!(!tbf_mixes_clients(value), "{value}");
        }
    }

    #[test]
    fn a_rule_whose_bucket_several_clients_share_is_told() {
        for (value, is_shared) in [
            ("start a nid={*@tcp} rate=1", false),
            ("start a nid={*@tcp} rate=1 total=1", true),
            ("hp start a nid={*@tcp} rate=1 class=uid+gid", true),
            ("start a nid={*@tcp} rate=1 class=nid+uid", false),
            ("stop a", false),
        ] {
            assert_eq!(parse_tbf_rule(value).expect(value).is_shared(), is_shared, "{value}");
        }
        let of = |value| parse_tbf_rule(value).expect("well written");
        let both = of("start a nid={*@tcp} rate=2 total=1").then(of("change a rate=4"));
        assert_eq!((both.interval, both.is_shared()), (Some(Span::millis(250)), true));
        assert!(!both.then(of("change a total=0")).is_shared());
    }
}
