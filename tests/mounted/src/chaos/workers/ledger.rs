//! The record of appends to a file: their writers and their outcomes.
//!
//! A record is one append: `<WRITER:NUMBER:LENGTH:` and filler that no other record has, `>` and a
//! newline. So the file's contents identify every append.

use std::collections::BTreeMap;

use crate::chaos::found::{Found, Kind};

/// What the writer was told of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Told {
    /// Nothing, or an error.
    Unknown,
    /// The write returned.
    Acked,
    /// A later fsync returned.
    Synced,
}

/// Writer, and number of the record among its own.
type Name = (String, u64);

#[derive(Default)]
pub(super) struct Ledger(BTreeMap<Name, Told>);

const HEAD: u8 = b'<';

/// The bytes of a record; at least its frame.
pub(super) fn record(writer: &str, number: u64, len: usize) -> Vec<u8> {
    let mut out = format!("<{writer}:{number}:{len}:").into_bytes();
    let filler = format!("{writer}.{number} ");
    let room = len.saturating_sub(out.len() + 2);
    out.extend(filler.bytes().cycle().take(room));
    out.extend(b">\n");
    out
}

/// The record at the beginning of `bytes`, and its length.
fn parse(bytes: &[u8]) -> Option<(Name, usize)> {
    let head = bytes.get(..bytes.len().min(80)).filter(|head| head.first() == Some(&HEAD))?;
    let mut fields = head[1..].split(|byte| *byte == b':');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (writer, number, len) =
        (field()?.to_owned(), field()?.parse().ok()?, field()?.parse().ok()?);
    let right = record(&writer, number, len);
    bytes.starts_with(&right).then_some(((writer, number), right.len()))
}

impl Ledger {
    pub(super) fn set(&mut self, writer: &str, number: u64, told: Told) {
        self.0.insert((writer.to_owned(), number), told);
    }

    /// An fsync of the writer's handle returned.
    pub(super) fn synced(&mut self, writer: &str) {
        for ((_, _), told) in self.0.iter_mut().filter(|((of, _), _)| of == writer) {
            if *told == Told::Acked {
                *told = Told::Synced;
            }
        }
    }

    pub(super) fn has_synced(&self) -> bool {
        self.0.values().any(|told| *told == Told::Synced)
    }

    /// Compares the content of the file with what the writers know.
    pub(super) fn verify(&self, path: &str, bytes: &[u8], found: &Found) {
        let mut seen: BTreeMap<Name, u64> = BTreeMap::new();
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        let (mut at, mut foreign) = (0, 0);
        while at < bytes.len() {
            let Some((name, len)) = parse(&bytes[at..]) else {
                foreign += 1;
                at += 1;
                continue;
            };
            let (writer, number) = &name;
            if !self.0.contains_key(&name) {
                found
                    .at_the_end(Kind::Wrong, format!("{path}: {name:?} at {at} was never written"));
            }
            if last.insert(writer.clone(), *number).is_some_and(|before| before > *number) {
                found.at_the_end(Kind::Wrong, format!("{path}: {name:?} at {at} is out of order"));
            }
            *seen.entry(name).or_default() += 1;
            at += len;
        }
        for (name, count) in seen.iter().filter(|(_, count)| **count > 1) {
            found.at_the_end(Kind::Doubled, format!("{path}: {name:?} is there {count} times"));
        }
        for (name, _) in self.0.iter().filter(|(_, told)| **told == Told::Synced) {
            if !seen.contains_key(name) {
                found.at_the_end(
                    Kind::Lost,
                    format!("{path}: {name:?} was fsynced and is not there"),
                );
            }
        }
        let all_synced = self.0.values().all(|told| *told == Told::Synced);
        if foreign > 0 && all_synced {
            found.at_the_end(Kind::Torn, format!("{path}: {foreign} bytes are in no record"));
        }
        found.count("bytes of appends whose outcome was unknown, in pieces", foreign);
        found.count("appended records", self.0.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, Ledger, Told, parse, record};

    #[test]
    fn a_record_says_what_it_is() {
        let bytes = record("a.shared.3", 17, 400);
        assert_eq!(bytes.len(), 400);
        assert_eq!(parse(&bytes), Some((("a.shared.3".to_owned(), 17), 400)));
        assert_eq!(parse(&bytes[..399]), None);
        assert_eq!(parse(&bytes[1..]), None);
    }

    #[test]
    fn what_is_lost_doubled_torn_or_foreign_is_found() {
        let all = |told| {
            let mut ledger = Ledger::default();
            (0..3).for_each(|number| ledger.set("w", number, told));
            ledger
        };
        let of = |number| record("w", number, 50);
        let count = |told, bytes: &[u8]| {
            let found = Found::default();
            all(told).verify("file", bytes, &found);
            found.wrong().1.into_iter().map(|wrong| format!("{:?}", wrong.kind)).collect::<Vec<_>>()
        };
        let whole = [of(0), of(1), of(2)].concat();
        assert!(count(Told::Synced, &whole).is_empty());
        assert_eq!(count(Told::Synced, &[of(0), of(2)].concat()), ["Lost"]);
        assert!(count(Told::Acked, &[of(0), vec![0; 50], of(2)].concat()).is_empty());
        assert_eq!(count(Told::Synced, &[&whole[..], &of(2)].concat()), ["Doubled"]);
        assert_eq!(count(Told::Acked, &[of(1), of(0)].concat()), ["Wrong"]);
        assert_eq!(count(Told::Synced, &[&whole[..], &[0; 7]].concat()), ["Torn"]);
        assert_eq!(count(Told::Acked, &of(7)), ["Wrong"]);
    }
}
