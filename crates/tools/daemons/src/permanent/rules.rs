//! Permanent TBF rules. A policy has many, so each command is stored under a name of its own,
//! `ost.OSS.ost_io.nrs_tbf_rule[0003:one]`, in the order in which the commands came.

use types::Errno;

/// The parameter that takes rule commands.
const RULE: &str = "nrs_tbf_rule";

/// The rule that always is: it is changed and not started.
const DEFAULT: &str = "default";

/// `name` without what tells one kept command from another; nothing where it keeps no command.
pub(crate) fn base(name: &str) -> Option<&str> {
    let (base, _) = name.strip_suffix(']')?.rsplit_once('[')?;
    is_rule(base).then_some(base)
}

/// Whether values of `name` are rule commands.
pub(crate) fn is_rule(name: &str) -> bool {
    name.rsplit('.').next() == Some(RULE)
}

/// A rule command, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Command<'a> {
    /// `reg`, `hp` or nothing.
    heads: &'a str,
    verb: &'a str,
    rule: &'a str,
}

impl<'a> Command<'a> {
    fn parse(text: &'a str) -> Option<Command<'a>> {
        let mut words = text.split_whitespace().peekable();
        let heads = words.next_if(|word| ["reg", "hp"].contains(word)).unwrap_or_default();
        Some(Command { heads, verb: words.next()?, rule: words.next()? })
    }

    /// The command that ends its rule.
    fn stop(&self) -> Option<String> {
        let stops = self.verb == "start" && self.rule != DEFAULT;
        stops.then(|| format!("{} stop {}", self.heads, self.rule).trim().to_owned())
    }
}

/// What a node does so that the commands `wanted` hold where `taken` were carried out before.
pub(crate) fn steps(taken: &[String], wanted: &[String]) -> Vec<String> {
    let fresh = wanted.strip_prefix(taken);
    let gone: &[String] = if fresh.is_some() { &[] } else { taken };
    let mut steps: Vec<String> =
        gone.iter().filter_map(|command| Command::parse(command)?.stop()).collect();
    for command in fresh.unwrap_or(wanted) {
        // it may run already, by hand or from an earlier try
        steps.extend(Command::parse(command).and_then(|command| command.stop()));
        steps.push(command.clone());
    }
    steps
}

/// What of the kept names goes, and under which name a command is kept, if it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) deleted: Vec<String>,
    pub(crate) kept_as: Option<String>,
}

/// What the command `value` of parameter `name` changes in what is `kept`.
pub(crate) fn change(kept: &[(String, String)], name: &str, value: &str) -> Result<Change, Errno> {
    let command = Command::parse(value).ok_or(Errno::EINVAL)?;
    let all: Vec<&(String, String)> = of(kept, name).collect();
    let same = |kept: &&&(String, String)| {
        let other = Command::parse(&kept.1);
        other.is_some_and(|other| (other.heads, other.rule) == (command.heads, command.rule))
    };
    let mine: Vec<String> = all.iter().filter(same).map(|kept| kept.0.clone()).collect();
    let number =
        |kept: &&(String, String)| kept.0[name.len() + 1..].split(':').next()?.parse().ok();
    let next = 1 + all.iter().filter_map(number).max().unwrap_or(0_u32);
    let kept_as = Some(format!("{name}[{next:04}:{}]", command.rule));
    match command.verb {
        "start" => Ok(Change { deleted: mine, kept_as }),
        "change" if command.rule == DEFAULT || !mine.is_empty() => {
            let again = all.iter().filter(|kept| kept.1 == value).map(|kept| kept.0.clone());
            Ok(Change { deleted: again.collect(), kept_as })
        }
        "stop" if !mine.is_empty() => Ok(Change { deleted: mine, kept_as: None }),
        "change" | "stop" => Err(Errno::ENOENT),
        _ => Err(Errno::EINVAL),
    }
}

/// The kept commands of parameter `name`.
pub(crate) fn of<'a>(
    kept: &'a [(String, String)],
    name: &'a str,
) -> impl Iterator<Item = &'a (String, String)> {
    kept.iter().filter(move |(key, _)| base(key) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "ost.OSS.*.nrs_tbf_rule";

    /// What is kept after these commands, or the last one's error.
    fn keep(commands: &[&str]) -> Result<Vec<(String, String)>, Errno> {
        let mut kept: Vec<(String, String)> = Vec::new();
        for command in commands {
            let Change { deleted, kept_as } = change(&kept, NAME, command)?;
            kept.retain(|(name, _)| !deleted.contains(name));
            kept.extend(kept_as.map(|name| (name, (*command).to_owned())));
            kept.sort();
        }
        Ok(kept)
    }

    #[test]
    fn every_rule_is_kept_in_the_order_of_the_commands() {
        let one = "start one nid={10.0.0.1@tcp} rate=5";
        let kept = keep(&[one, "start a nid={*@tcp} rate=9", "change one rank=a"]).expect("kept");
        let names: Vec<&str> = kept.iter().map(|(name, _)| &name[NAME.len()..]).collect();
        assert_eq!(names, ["[0001:one]", "[0002:a]", "[0003:one]"]);
        assert!(kept.iter().all(|(name, _)| base(name) == Some(NAME)));
        let again = keep(&[one, "start two rate=1", "change one rate=3", one]).expect("kept");
        assert_eq!(
            again.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(),
            ["start two rate=1", one]
        );
        assert_eq!(keep(&[one, "stop one"]), Ok(vec![]));
        assert_eq!(keep(&[one, "hp stop one"]), Err(Errno::ENOENT), "it is of both heads");
        assert_eq!(
            keep(&["change default rate=9", "change default rate=9"]).map(|k| k.len()),
            Ok(1)
        );
        for wrong in ["change one rate=1", "stop one"] {
            assert_eq!(keep(&[wrong]), Err(Errno::ENOENT), "{wrong}");
        }
        for wrong in ["", "start", "begin one"] {
            assert_eq!(keep(&[wrong]), Err(Errno::EINVAL), "{wrong}");
        }
    }

    #[test]
    fn a_node_does_what_is_new_or_begins_anew() {
        let words = |text: &[&str]| text.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let check = |taken: &[&str], wanted: &[&str], all: &[&str]| {
            assert_eq!(steps(&words(taken), &words(wanted)), all);
        };
        check(&[], &["reg start a rate=1"], &["reg stop a", "reg start a rate=1"]);
        check(&["start a"], &["start a", "change a rate=2"], &["change a rate=2"]);
        check(&["start a", "start b"], &["start b"], &["stop a", "stop b", "stop b", "start b"]);
        check(&["start a", "change default rate=1"], &[], &["stop a"]);
    }

    #[test]
    fn a_pattern_that_ends_like_a_kept_rule_is_none() {
        for name in ["ost.OSS.*.nrs_tbf_rul[e]", "lod.x[0]", "nrs_tbf_rule", "a.nrs_tbf_rule[x"] {
            assert_eq!(base(name), None, "{name}");
        }
    }
}
