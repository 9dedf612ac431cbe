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

/// The number in the name of a kept command.
pub(crate) fn number(name: &str) -> Option<u32> {
    let (_, rest) = name.strip_suffix(']')?.rsplit_once('[')?;
    rest.split(':').next()?.parse().ok()
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

    /// What the command says: the keys of its pairs. `rate` and `bps` are one.
    fn keys(text: &str) -> impl Iterator<Item = &str> {
        let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.map(|(key, _)| if key == "bps" { "rate" } else { key })
    }

    /// The command that ends its rule.
    fn stop(&self) -> Option<String> {
        let stops = self.verb == "start" && self.rule != DEFAULT;
        stops.then(|| format!("{} stop {}", self.heads, self.rule).trim().to_owned())
    }
}

/// Those of the commands `kept` on which the change `value` builds: of its rule, and before it.
pub(crate) fn before<'a>(value: &'a str, kept: &'a [String]) -> impl Iterator<Item = &'a str> {
    let changed = Command::parse(value).filter(|command| command.verb == "change");
    let earlier = kept.iter().map(String::as_str).take_while(move |command| *command != value);
    earlier.filter(move |command| {
        let other = Command::parse(command);
        changed.zip(other).is_some_and(|(changed, other)| changed.rule == other.rule)
    })
}

/// Whether nothing is left of the change `old` where `new` is carried out later. A rank counts when
/// it is said, because other rules are ranked by it.
fn replaces(new: &str, old: &str) -> bool {
    let (Some(after), Some(before)) = (Command::parse(new), Command::parse(old)) else {
        return false;
    };
    let said: Vec<&str> = Command::keys(new).collect();
    after == before
        && before.verb == "change"
        && Command::keys(old).all(|key| key != "rank" && said.contains(&key))
}

/// What a node does so that the commands `wanted` hold where `taken` were carried out before.
pub(crate) fn steps(taken: &[String], wanted: &[String]) -> Vec<String> {
    let (gone, still): (Vec<&String>, Vec<&String>) =
        taken.iter().partition(|command| !wanted.contains(command));
    let goes_on = wanted.iter().take(still.len()).eq(still.iter().copied());
    let fresh = if goes_on { &wanted[still.len()..] } else { wanted };
    let is_replaced = |old: &&String| fresh.iter().any(|new| replaces(new, old));
    let (gone, fresh): (&[String], _) =
        if goes_on && gone.iter().all(is_replaced) { (&[], fresh) } else { (taken, wanted) };
    let mut steps: Vec<String> =
        gone.iter().filter_map(|command| Command::parse(command)?.stop()).collect();
    for command in fresh {
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
    let next = 1 + all.iter().filter_map(|kept| number(&kept.0)).max().unwrap_or(0);
    let kept_as = Some(format!("{name}[{next:04}:{}]", command.rule));
    match command.verb {
        "start" => Ok(Change { deleted: mine, kept_as }),
        "change" if command.rule == DEFAULT || !mine.is_empty() => {
            let over = |kept: &&&(String, String)| kept.1 == value || replaces(value, &kept.1);
            let deleted = all.iter().filter(over).map(|kept| kept.0.clone()).collect();
            Ok(Change { deleted, kept_as })
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
        let kept = |commands: &[&str]| keep(commands).map(|kept| kept.len());
        assert_eq!(kept(&["change default rate=9", "change default rate=9"]), Ok(1));
        assert_eq!(kept(&[one, "change one rate=1", "change one bps=2 depth=3"]), Ok(2));
        for beside in ["change one depth=2", "hp change one rate=2"] {
            assert_eq!(kept(&[one, "hp start one", "change one rate=1", beside]), Ok(4));
        }
        assert_eq!(kept(&[one, "change one rank=a", "change one rank=b"]), Ok(3), "others move");
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
        let (first, second) = ("change a rate=1", "change a bps=2 depth=1");
        check(&["start a", first], &["start a", "start b", second], &["stop b", "start b", second]);
        check(&[second, first], &[second], &[second]);
    }

    #[test]
    fn a_pattern_that_ends_like_a_kept_rule_is_none() {
        for name in ["ost.OSS.*.nrs_tbf_rul[e]", "lod.x[0]", "nrs_tbf_rule", "a.nrs_tbf_rule[x"] {
            assert_eq!(base(name), None, "{name}");
        }
    }
}
