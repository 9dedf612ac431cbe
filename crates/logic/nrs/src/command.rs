//! The scheduler's texts, in Lustre's syntax: values that are written to `nrs_policies` and to
//! tunables, and the text that reading `nrs_policies` returns.

use std::fmt::Write as _;
use std::str::FromStr;

use crate::limits::{NAME_CHARS_MAX, VALUE_BYTES_MAX};
use crate::listed::Counters;
use crate::{HeadKind, Listed, Refusal};

/// Which heads a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichHeads {
    /// Both, or the regular one where there is no other.
    Both,
    Only(HeadKind),
}

impl WhichHeads {
    fn from_word(word: &str) -> Option<WhichHeads> {
        match word {
            "reg" => Some(WhichHeads::Only(HeadKind::Reg)),
            "hp" => Some(WhichHeads::Only(HeadKind::Hp)),
            _ => None,
        }
    }
}

/// `NAME [reg|hp] [ARG]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub name: String,
    pub heads: WhichHeads,
    /// Argument, empty if none.
    pub arg: String,
}

impl FromStr for Command {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Command, Refusal> {
        if text.len() > VALUE_BYTES_MAX {
            return Err(Refusal::invalid(format!(
                "a command of more than {VALUE_BYTES_MAX} bytes"
            )));
        }
        let mut words = text.split_whitespace().peekable();
        let name = words.next().ok_or_else(|| Refusal::invalid("expected NAME [reg|hp] [ARG]"))?;
        if name.chars().count() > NAME_CHARS_MAX {
            return Err(Refusal::invalid(format!(
                "name '{name}' is longer than {NAME_CHARS_MAX} characters"
            )));
        }
        let heads = words.peek().and_then(|word| WhichHeads::from_word(word));
        if heads.is_some() {
            words.next();
        }
        let arg = words.next().unwrap_or_default();
        match words.next() {
            Some(extra) => Err(Refusal::invalid(format!(
                "'{extra}' is too much: expected NAME [reg|hp] [ARG]"
            ))),
            None => Ok(Command {
                name: name.to_owned(),
                heads: heads.unwrap_or(WhichHeads::Both),
                arg: arg.to_owned(),
            }),
        }
    }
}

/// `V`, or `reg_LABEL:V`, `hp_LABEL:V`, or both of these.
pub(crate) fn split_labelled<'a>(
    value: &'a str,
    label: &str,
) -> Result<Vec<(WhichHeads, &'a str)>, Refusal> {
    let form = || format!("expected VALUE, reg_{label}:VALUE or hp_{label}:VALUE");
    let mut parts: Vec<(WhichHeads, &str)> = Vec::new();
    for word in value.split_whitespace() {
        let part = match word.split_once(':') {
            None => (WhichHeads::Both, word),
            Some((before, value)) => {
                let head = before
                    .strip_suffix(label)
                    .and_then(|head| head.strip_suffix('_'))
                    .and_then(WhichHeads::from_word);
                (head.ok_or_else(|| Refusal::invalid(format!("'{word}': {}", form())))?, value)
            }
        };
        if parts.iter().any(|(which, _)| {
            *which == part.0 || *which == WhichHeads::Both || part.0 == WhichHeads::Both
        }) {
            return Err(Refusal::invalid(format!("'{word}' sets a head twice")));
        }
        parts.push(part);
    }
    if parts.is_empty() { Err(Refusal::invalid(form())) } else { Ok(parts) }
}

/// `[reg|hp] WORDS`.
pub(crate) fn split_words(value: &str) -> (WhichHeads, &str) {
    let value = value.trim();
    let (first, rest) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
    WhichHeads::from_word(first)
        .map_or((WhichHeads::Both, value), |heads| (heads, rest.trim_start()))
}

/// The number in a tunable, which must lie in `range`.
pub fn number_in(
    label: &str,
    value: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, Refusal> {
    let number = value.parse::<u64>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        Refusal::invalid(format!(
            "{label} '{value}': expected {} to {}",
            range.start(),
            range.end()
        ))
    })
}

/// The line above a head's part in an output.
pub(crate) fn head_title(kind: HeadKind) -> &'static str {
    match kind {
        HeadKind::Reg => "regular_requests:\n",
        HeadKind::Hp => "high_priority_requests:\n",
    }
}

/// What reading `nrs_policies` shows below the parameter's name.
#[must_use]
pub fn print_policies(reg: &[Listed], hp: Option<&[Listed]>) -> String {
    let mut out = String::new();
    for (kind, list) in [(HeadKind::Reg, Some(reg)), (HeadKind::Hp, hp)] {
        let Some(list) = list else { continue };
        if kind == HeadKind::Reg {
            out.push('\n');
        }
        out.push_str(head_title(kind));
        for policy in list {
            print_policy(&mut out, policy);
        }
    }
    out
}

fn print_policy(out: &mut String, policy: &Listed) {
    let space = if policy.arg.is_empty() { "" } else { " " };
    let fallback = if policy.fallback { "yes" } else { "no" };
    let Counters { queued, active, .. } = policy.counters;
    let state = policy.state.name();
    let _ = write!(
        out,
        "  - name: {}{space}{}\n    state: {state}\n    fallback: {fallback}\n    queued: {queued}\n    active: {active}\n\n",
        policy.name, policy.arg
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_a_policy_perhaps_a_head_perhaps_an_argument() {
        let check = |text: &str, name: &str, heads, arg: &str| {
            assert_eq!(
                text.parse(),
                Ok(Command { name: name.to_owned(), heads, arg: arg.to_owned() }),
                "{text}"
            );
        };
        check("crrn", "crrn", WhichHeads::Both, "");
        check("fifo hp", "fifo", WhichHeads::Only(HeadKind::Hp), "");
        check("tbf reg jobid", "tbf", WhichHeads::Only(HeadKind::Reg), "jobid");
        check("tbf nid+opcode\n", "tbf", WhichHeads::Both, "nid+opcode");
        for text in ["", " ", "tbf reg jobid more", "a_name_of_16_chars"] {
            assert!(text.parse::<Command>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_tunable_is_set_for_both_heads_or_for_each() {
        let (reg, hp) = (WhichHeads::Only(HeadKind::Reg), WhichHeads::Only(HeadKind::Hp));
        assert_eq!(split_labelled("16\n", "quantum"), Ok(vec![(WhichHeads::Both, "16")]));
        assert_eq!(split_labelled("hp_quantum:8", "quantum"), Ok(vec![(hp, "8")]));
        assert_eq!(
            split_labelled("reg_delay_min:5 hp_delay_min:6", "delay_min"),
            Ok(vec![(reg, "5"), (hp, "6")])
        );
        for text in [
            "",
            "1 2",
            "quantum:1",
            "reg_quota:1",
            "reg_quantum:1 reg_quantum:2",
            "1 hp_quantum:2",
            "xreg_quantum:1",
        ] {
            assert!(split_labelled(text, "quantum").is_err(), "{text}");
        }
        assert_eq!(split_words("reg start x rate=1 "), (reg, "start x rate=1"));
        assert_eq!(split_words("start reg"), (WhichHeads::Both, "start reg"));
    }

    #[test]
    fn numbers_outside_their_range_are_named() {
        assert_eq!(number_in("quantum", "65535", 1..=65_535), Ok(65_535));
        for value in ["0", "65536", "-1", "x", "", "1.5"] {
            let refusal = number_in("quantum", value, 1..=65_535).expect_err(value);
            assert_eq!(refusal.text, format!("quantum '{value}': expected 1 to 65535"));
        }
    }
}
