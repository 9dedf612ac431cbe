//! The commands of `nrs_tbf_rule`, in Lustre's syntax: parsed, checked word by word, printed as
//! they were written.
//!
//! ```text
//! command = "start" NAME conds { pair } | "change" NAME pair { pair } | "stop" NAME
//! conds   = conj { "," conj }              one of them
//! conj    = expr { "&" expr }              all of them
//! expr    = FIELD "=" "{" value { " " value } "}"
//! pair    = "rate=" N | "bps=" SIZE | "rank=" NAME | "realtime=" 0|1 | "depth=" N | "total=" 0|1
//!         | "scope=" cpt|service|node | "class=" FIELD { "+" FIELD }
//! ```
//! A comma or an ampersand inside braces belongs to the value: `nid={10.0.0.[1,3]@tcp}`.

use std::fmt;

use types::{ByteSize, NidList};

use super::fields::{Field, FieldSet, JOBID_BYTES_MAX, Key, jobid_words, opcodes};
use crate::{ID_NONE, Refusal, VALUE_BYTES_MAX};

/// Characters of a rule's name at most (Lustre: `MAX_TBF_NAME` 16 with the NUL).
pub(crate) const RULE_NAME_CHARS_MAX: usize = 15;

/// Rates stay below this many requests a second (Lustre: LU-15366).
pub(crate) const RATE_RPC_END: u64 = 1_000_000;

/// Bytes a second at most: 1 TiB.
pub(crate) const RATE_BYTES_MAX: u64 = 1 << 40;

/// `depth` at most: a burst of one second at the highest rate.
pub(crate) const DEPTH_MAX: u32 = 1_000_000;

/// Bytes of a rule's conditions at most. A command that makes the rule anew has its head, its name
/// and all its pairs beside them, and must be a value too: 139 bytes at most.
pub(crate) const CONDS_BYTES_MAX: usize = VALUE_BYTES_MAX - 160;

/// How fast a class may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// Thousandths of a request per second.
    Rpc {
        milli: u64,
    },
    Bytes {
        per_second: u64,
    },
}

impl Rate {
    pub(crate) fn rpc(per_second: u32) -> Rate {
        Rate::Rpc { milli: u64::from(per_second) * 1_000 }
    }

    /// `N` requests a second, with up to three decimals.
    fn parse_rpc(text: &str) -> Option<Rate> {
        let milli = decimal(text, 1_000)?;
        (1..RATE_RPC_END * 1_000).contains(&milli).then_some(Rate::Rpc { milli })
    }

    /// `5MB/s`, `5MiB`, `512K`; without a unit MiB.
    fn parse_bytes(text: &str) -> Option<Rate> {
        let text = text.strip_suffix("/s").unwrap_or(text);
        let (number, unit) = ByteSize::split(text);
        let factor =
            if unit.is_empty() { 1 << 20 } else { UNITS.iter().find(|(name, _)| *name == unit)?.1 };
        let per_second = decimal(number, factor)?;
        (1..=RATE_BYTES_MAX).contains(&per_second).then_some(Rate::Bytes { per_second })
    }
}

/// The first that divides a rate is the one it is printed in.
const UNITS: [(&str, u64); 11] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
    ("kB", 1_000),
];

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Rpc { milli } if milli.is_multiple_of(1_000) => write!(f, "{}", milli / 1_000),
            Rate::Rpc { milli } => {
                let fraction = format!("{:03}", milli % 1_000);
                write!(f, "{}.{}", milli / 1_000, fraction.trim_end_matches('0'))
            }
            Rate::Bytes { per_second } => {
                let unit = UNITS.iter().find(|(_, factor)| per_second.is_multiple_of(*factor));
                let (name, factor) = unit.expect("one byte divides every rate");
                write!(f, "{}{name}/s", per_second / factor)
            }
        }
    }
}

/// `digits[.digits]` times `factor`, rounded down; at most three digits behind the point.
fn decimal(text: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| {
        !text.is_empty() && text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let milli =
        whole.parse::<u64>().ok()? * 1_000 + format!("{fraction:0<3}").parse::<u64>().ok()?;
    u64::try_from(u128::from(milli) * u128::from(factor) / 1_000).ok()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name([u8; RULE_NAME_CHARS_MAX]);

impl Name {
    pub(crate) const DEFAULT: Name = Name(*b"default\0\0\0\0\0\0\0\0");

    pub(crate) fn parse(word: &str) -> Result<Name, Refusal> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if word.is_empty() || word.len() > RULE_NAME_CHARS_MAX || !word.bytes().all(plain) {
            let text = format!(
                "'{}' is not a rule name: 1 to {RULE_NAME_CHARS_MAX} of A-Z a-z 0-9 _ are expected",
                clip(word)
            );
            return Err(Refusal::invalid(text));
        }
        let mut name = [0; RULE_NAME_CHARS_MAX];
        name[..word.len()].copy_from_slice(word.as_bytes());
        Ok(Name(name))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take_while(|byte| **byte != 0)
            .try_for_each(|byte| write!(f, "{}", char::from(*byte)))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How far a bucket reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One partition has one: what Lustre does.
    Cpt,
    /// All partitions of a service share one.
    Service,
    /// All services of the node whose rule has the same name and pace share one.
    Node,
}

impl Scope {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scope::Cpt => "cpt",
            Scope::Service => "service",
            Scope::Node => "node",
        }
    }
}

/// What the pairs of a command say; nothing where they are silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) rate: Option<Rate>,
    pub(crate) rank: Option<Name>,
    pub(crate) realtime: Option<bool>,
    pub(crate) depth: Option<u32>,
    pub(crate) scope: Option<Scope>,
    pub(crate) class: Option<FieldSet>,
    pub(crate) total: Option<bool>,
}

/// A command, complete and well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Start { name: Name, conds: Conds, settings: Settings },
    Change { name: Name, settings: Settings },
    Stop { name: Name },
}

/// Text with `*` for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Box<str>);

impl Pattern {
    fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// The first part is a prefix, the last a suffix, and those between come in their order: the
    /// leftmost place of each is as good as any.
    fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return &*self.0 == text };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut left) = text.strip_prefix(first).and_then(|text| text.strip_suffix(last))
        else {
            return false;
        };
        for part in middle.split('*').filter(|part| !part.is_empty()) {
            let Some(at) = left.find(part) else { return false };
            left = &left[at + part.len()..];
        }
        true
    }
}

/// The values of one expression: one of them must be the request's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    Any,
    Nids(NidList),
    Jobids(Vec<Pattern>),
    Numbers(Vec<u32>),
}

/// `FIELD={values}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expr {
    pub(crate) field: Field,
    values: Values,
    text: Box<str>,
}

impl Expr {
    pub(crate) fn matches(&self, key: &Key) -> bool {
        match &self.values {
            Values::Any => true,
            Values::Nids(list) => list.contains(key.nid()),
            Values::Jobids(patterns) => {
                key.with_jobid(|jobid| patterns.iter().any(|pattern| pattern.matches(jobid)))
            }
            Values::Numbers(numbers) => numbers.contains(&key.number(self.field)),
        }
    }

    /// The values, if each is a single one: what an exact index can hold.
    pub(crate) fn exact(&self) -> Option<Vec<[u64; 4]>> {
        let number = |number: u64| [number, 0, 0, 0];
        match &self.values {
            Values::Any => None,
            Values::Nids(list) => {
                list.exact().map(|nids| nids.iter().map(|nid| number(nid.0)).collect())
            }
            Values::Jobids(patterns) => patterns
                .iter()
                .map(|pattern| pattern.is_exact().then(|| jobid_words(&pattern.0)))
                .collect(),
            Values::Numbers(numbers) => {
                Some(numbers.iter().map(|value| number(u64::from(*value))).collect())
            }
        }
    }
}

/// An OR of ANDs of expressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conds(pub(crate) Vec<Vec<Expr>>);

impl fmt::Display for Conds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, conj) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            for (index, expr) in conj.iter().enumerate() {
                write!(
                    f,
                    "{}{}={{{}}}",
                    if index == 0 { "" } else { "&" },
                    expr.field.name(),
                    expr.text
                )?;
            }
        }
        Ok(())
    }
}

/// Reads one command.
///
/// # Errors
/// EINVAL and the word that is wrong.
pub(crate) fn parse(text: &str) -> Result<Command, Refusal> {
    if text.len() > VALUE_BYTES_MAX {
        return Err(Refusal::invalid(format!(
            "a rule of {} bytes; at most {VALUE_BYTES_MAX} are allowed",
            text.len()
        )));
    }
    let mut reader = Reader { rest: text.trim() };
    let verb = reader.word();
    if !["start", "change", "stop"].contains(&verb) {
        return Err(Refusal::invalid(format!(
            "'{}' is not a rule command: start, change or stop is expected",
            clip(verb)
        )));
    }
    let name = Name::parse(reader.word())?;
    match verb {
        "start" => {
            let conds = reader.conds()?;
            let settings = settings(reader.rest)?;
            Ok(Command::Start { name, conds, settings })
        }
        "change" => {
            let settings = settings(reader.rest)?;
            if settings == Settings::default() {
                return Err(Refusal::invalid(format!("'change {name}' says nothing to change")));
            }
            Ok(Command::Change { name, settings })
        }
        _ if reader.rest.is_empty() => Ok(Command::Stop { name }),
        _ => Err(Refusal::invalid(format!("'{}' behind 'stop {name}'", clip(reader.rest)))),
    }
}

fn clip(word: &str) -> String {
    word.chars().take(80).collect()
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.skip_blanks();
        word
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn conds(&mut self) -> Result<Conds, Refusal> {
        let mut conds = vec![vec![self.expr()?]];
        loop {
            if self.takes('&') {
                let expr = self.expr()?;
                conds.last_mut().expect("never empty").push(expr);
            } else if self.takes(',') {
                conds.push(vec![self.expr()?]);
            } else {
                break;
            }
        }
        if !self.rest.is_empty() && !self.rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(Refusal::invalid(format!("'{}' behind the conditions", clip(self.rest))));
        }
        let conds = Conds(conds);
        let bytes = conds.to_string().len();
        if bytes > CONDS_BYTES_MAX {
            return Err(Refusal::invalid(format!(
                "conditions of {bytes} bytes; at most {CONDS_BYTES_MAX} are allowed"
            )));
        }
        Ok(conds)
    }

    fn expr(&mut self) -> Result<Expr, Refusal> {
        self.skip_blanks();
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let field = Field::parse(word).ok_or_else(|| {
            let known = Field::WORDS;
            Refusal::invalid(format!(
                "'{}' is not a field: {known} is expected",
                clip(if word.is_empty() { self.rest } else { word })
            ))
        })?;
        self.rest = rest;
        if !self.takes('=') || !self.takes('{') {
            return Err(Refusal::invalid(format!("'{word}' is not followed by ={{values}}")));
        }
        let end = self
            .rest
            .find('}')
            .ok_or_else(|| Refusal::invalid(format!("'{word}={{' is not closed")))?;
        let text = self.rest[..end].split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        self.rest = &self.rest[end + 1..];
        Ok(Expr { field, values: values(field, &text)?, text: text.into() })
    }
}

fn values(field: Field, text: &str) -> Result<Values, Refusal> {
    if text.is_empty() || text.contains('{') {
        return Err(Refusal::invalid(format!(
            "'{}={{{}}}' has no value",
            field.name(),
            clip(text)
        )));
    }
    if text == "*" {
        return Ok(Values::Any);
    }
    match field {
        Field::Nid => {
            text.parse().map(Values::Nids).map_err(|error| Refusal::invalid(error.to_string()))
        }
        Field::Jobid => text.split(' ').map(jobid).collect::<Result<_, _>>().map(Values::Jobids),
        _ => {
            let mut numbers = Vec::new();
            for word in text.split(' ') {
                let found = if field == Field::Opcode {
                    opcodes(word)
                } else {
                    number(word).into_iter().collect()
                };
                if found.is_empty() {
                    let what = if field == Field::Opcode {
                        "the name of a request, as ost_read,"
                    } else {
                        "a number"
                    };
                    return Err(Refusal::invalid(format!(
                        "'{}' in {}={{}}: {what} is expected",
                        clip(word),
                        field.name()
                    )));
                }
                numbers.extend(found);
            }
            Ok(Values::Numbers(numbers))
        }
    }
}

fn jobid(word: &str) -> Result<Pattern, Refusal> {
    if word.bytes().filter(|byte| *byte != b'*').count() > JOBID_BYTES_MAX {
        let text = format!(
            "jobid '{}' is longer than the {JOBID_BYTES_MAX} bytes a request carries",
            clip(word)
        );
        return Err(Refusal::invalid(text));
    }
    Ok(Pattern(word.into()))
}

/// An id; `-1` is "the request names none".
fn number(word: &str) -> Option<u32> {
    if word == "-1" {
        return Some(ID_NONE);
    }
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}

fn settings(text: &str) -> Result<Settings, Refusal> {
    let mut settings = Settings::default();
    for word in text.split_ascii_whitespace() {
        pair(&mut settings, word)?;
    }
    Ok(settings)
}

fn pair(settings: &mut Settings, word: &str) -> Result<(), Refusal> {
    let unknown = "is not a pair: rate=, bps=, rank=, realtime=, depth=, total=, scope= or class= is expected";
    let (key, value) = word
        .split_once('=')
        .ok_or_else(|| Refusal::invalid(format!("'{}' {unknown}", clip(word))))?;
    let wrong =
        |expected: &str| Refusal::invalid(format!("'{}': {expected} is expected", clip(word)));
    let flag = || match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(wrong("0 or 1")),
    };
    match key {
        "rate" => {
            let rate = Rate::parse_rpc(value);
            let expected = "more than 0 and less than 1000000 requests a second";
            set(&mut settings.rate, rate.ok_or_else(|| wrong(expected))?, word)
        }
        "bps" => {
            let rate = Rate::parse_bytes(value);
            set(
                &mut settings.rate,
                rate.ok_or_else(|| wrong("1 byte to 1 TiB a second, e.g. 5MB/s or 5MiB"))?,
                word,
            )
        }
        "rank" => set(&mut settings.rank, Name::parse(value)?, word),
        "realtime" => set(&mut settings.realtime, flag()?, word),
        "total" => set(&mut settings.total, flag()?, word),
        "depth" => {
            let depth = number(value).filter(|depth| (1..=DEPTH_MAX).contains(depth));
            set(&mut settings.depth, depth.ok_or_else(|| wrong("1 to 1000000"))?, word)
        }
        "scope" => {
            let scope = [Scope::Cpt, Scope::Service, Scope::Node]
                .into_iter()
                .find(|scope| scope.name() == value);
            set(&mut settings.scope, scope.ok_or_else(|| wrong("cpt, service or node"))?, word)
        }
        "class" if !value.is_empty() => {
            let fields = FieldSet::parse(value)
                .map_err(|field| wrong(&format!("fields joined by +, not '{}',", clip(&field))));
            set(&mut settings.class, fields?, word)
        }
        _ => Err(Refusal::invalid(format!("'{}' {unknown}", clip(word)))),
    }
}

/// Each pair once, and `rate=` or `bps=` only.
fn set<T>(slot: &mut Option<T>, value: T, word: &str) -> Result<(), Refusal> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::invalid(format!(
            "'{}' says again or otherwise what was said before",
            clip(word)
        ))),
    }
}
