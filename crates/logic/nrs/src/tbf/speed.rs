//! Parses a rule's commands as far as they set its speed, without a policy that runs.

use types::Span;

use super::DEPTH_DEFAULT;
use super::bucket::Pace;
use super::fields::Field;
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
    /// policy may do so as well.
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

#[cfg(test)]
mod tests {
    use super::*;

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
