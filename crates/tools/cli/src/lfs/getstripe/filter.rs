//! Options of components with a value: only some components are shown.

use std::ffi::{OsStr, OsString};

use layout::lov::composite::{FLAG_EXTENSION, FLAG_INIT};

/// Flags by their names in Lustre. Components here never have those of mirrors.
const NAMES: [(&str, u32); 6] = [
    ("init", FLAG_INIT),
    ("extension", FLAG_EXTENSION),
    ("stale", 0x1),
    ("prefer", 0x6),
    ("offline", 0x8),
    ("nosync", 0x20),
];

/// Flags that a component must have, and flags that it must not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    has: u32,
    lacks: u32,
}

impl Flags {
    /// From `init,^extension`.
    pub(super) fn parse(text: &str) -> Result<Flags, String> {
        let mut flags = Flags::default();
        for word in text.split(',') {
            let (name, bits) = match word.strip_prefix('^') {
                Some(name) => (name, &mut flags.lacks),
                None => (word, &mut flags.has),
            };
            let known = NAMES.iter().find(|(known, _)| *known == name);
            let wrong = || format!("'{name}' is not a flag: expected init, extension or ^init");
            let (_, bit) = known.ok_or_else(wrong)?;
            *bits |= *bit;
        }
        Ok(flags)
    }

    /// Whether a component with the flags `flags` is wanted.
    pub(super) fn fit(self, flags: u32) -> bool {
        flags & self.has == self.has && flags & self.lacks == 0
    }
}

/// The words behind `getstripe` as clap takes them. The value of `-I` and `-E` is behind the letter
/// or absent, as getopt(3) has it: `-I1` becomes `-I=1`.
pub(crate) fn spelled(words: &[OsString]) -> Vec<OsString> {
    let options = words.iter().take_while(|word| word.as_os_str() != "--").count();
    let (options, paths) = words.split_at(options);
    options.iter().map(|word| with_equals(word)).chain(paths.iter().cloned()).collect()
}

fn with_equals(word: &OsStr) -> OsString {
    let text = word.to_str().unwrap_or_default();
    // the value of -O may have any letters
    let letter = text.find(['I', 'E', 'O']).filter(|at| !text[*at..].starts_with('O'));
    let is_cluster = text.starts_with('-') && !text.starts_with("--");
    let Some(at) = letter.filter(|_| is_cluster) else { return word.to_owned() };
    let (options, value) = text.split_at(at + 1);
    if value.is_empty() || value.starts_with('=') {
        return word.to_owned();
    }
    format!("{options}={value}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_wanted_or_not_wanted() {
        let flags = Flags::parse("init,^extension,^stale").expect("flags");
        assert!(flags.fit(FLAG_INIT));
        assert!(!flags.fit(FLAG_INIT | FLAG_EXTENSION) && !flags.fit(0));
        for wrong in ["", "foo", "^", "init,,stale"] {
            assert!(Flags::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_follows_its_letter_without_a_space() {
        let check = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let words = spelled(&words);
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(check("-I1 -L -E f"), "-I=1 -L -E f");
        assert_eq!(check("-rE-64K -I=2 x-E1"), "-rE=-64K -I=2 x-E1");
        assert_eq!(check("-OE1 --ext-size -I -- -E1"), "-OE1 --ext-size -I -- -E1");
    }
}
