//! Shell patterns over dotted names.
//!
//! Invariants
//! - Matching takes at most pattern length times name length steps, whatever the pattern.
//! - Braces expand to at most [`ALTERNATIVES_MAX`] patterns. A pattern with more is refused, so it
//!   cannot take memory.

use crate::glob::{self, Backslash};

/// Patterns that braces may stand for.
const ALTERNATIVES_MAX: usize = 1_024;

/// Longest pattern, bytes.
const PATTERN_BYTES_MAX: usize = 4_096;

/// Text that is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// More bytes than a pattern may have.
    #[error("pattern is longer than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// Its braces stand for more patterns than are looked for at once.
    #[error("'{0}' means more than {ALTERNATIVES_MAX} patterns")]
    TooMany(String),
    /// An empty name, or one with an empty part.
    #[error("'{0}' has an empty part")]
    EmptyPart(String),
}

/// A compiled pattern: alternatives, each a glob per part.
#[derive(Clone, Debug)]
pub struct Pattern(Vec<Vec<Vec<char>>>);

impl Pattern {
    /// From text; `/` stands for `.`.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let shown = || text.chars().take(80).collect::<String>();
        let mut ready = Vec::new();
        expand(text, &mut ready).map_err(|TooMany| PatternError::TooMany(shown()))?;
        let compile = |text: &String| -> Vec<Vec<char>> {
            text.split(['.', '/']).map(|part| part.chars().collect()).collect()
        };
        let alternatives: Vec<_> = ready.iter().map(compile).collect();
        if alternatives.iter().flatten().any(Vec::is_empty) {
            return Err(PatternError::EmptyPart(shown()));
        }
        Ok(Pattern(alternatives))
    }

    /// Whether it matches the whole name.
    #[must_use]
    pub fn matches(&self, name: &[String]) -> bool {
        self.0.iter().any(|parts| parts.len() == name.len() && parts_match(parts, name))
    }

    /// Whether it matches a level above the name.
    #[must_use]
    pub fn matches_above(&self, name: &[String]) -> bool {
        self.0
            .iter()
            .any(|parts| parts.len() < name.len() && parts_match(parts, &name[..parts.len()]))
    }
}

struct TooMany;

/// Innermost braces last: the first pair is replaced by each of its alternatives in turn.
fn expand(text: &str, out: &mut Vec<String>) -> Result<(), TooMany> {
    let Some((open, close, commas)) = first_braces(text) else {
        out.push(text.to_owned());
        return if out.len() <= ALTERNATIVES_MAX { Ok(()) } else { Err(TooMany) };
    };
    let mut start = open + 1;
    for end in commas.into_iter().chain([close]) {
        expand(&format!("{}{}{}", &text[..open], &text[start..end], &text[close + 1..]), out)?;
        start = end + 1;
    }
    Ok(())
}

/// Positions of the first balanced pair and of the commas at its own level. A brace without its
/// partner is a letter.
fn first_braces(text: &str) -> Option<(usize, usize, Vec<usize>)> {
    let open = text.find('{')?;
    let mut depth = 0;
    let mut commas = Vec::new();
    for (at, c) in text.char_indices().skip_while(|(at, _)| *at < open) {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some((open, at, commas)),
            '}' => depth -= 1,
            ',' if depth == 1 => commas.push(at),
            _ => {}
        }
    }
    None
}

fn parts_match(globs: &[Vec<char>], name: &[String]) -> bool {
    globs.iter().zip(name).all(|(glob, part)| {
        let part: Vec<char> = part.chars().collect();
        glob::fits(glob, &part, Backslash::Letter)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, name: &str) -> bool {
        let name: Vec<String> = name.split('.').map(str::to_owned).collect();
        Pattern::new(pattern).expect("a pattern").matches(&name)
    }

    #[test]
    fn a_part_is_matched_as_a_shell_does() {
        for (pattern, name) in [
            ("a*c", "abbc"),
            ("*", "x"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[!a]x", "bx"),
            ("[]]", "]"),
            ("{a,b{c,d}}e", "bde"),
            ("a{}b", "ab"),
            ("a{b", "a{b"),
            ("a[b", "a[b"),
            ("*a*b*c", "xxaxbxxbc"),
            ("a.*.c", "a.b.c"),
            ("a/b", "a.b"),
            ("{a.b,c}", "a.b"),
        ] {
            assert!(check(pattern, name), "{pattern} should match {name}");
        }
        for (pattern, name) in [
            ("a*c", "abd"),
            ("?", "ab"),
            ("[a-c]", "d"),
            ("[!a]", "a"),
            ("*", "a.b"),
            ("a", "A"),
            ("a.*", "a"),
        ] {
            assert!(!check(pattern, name), "{pattern} should not match {name}");
        }
    }

    #[test]
    fn a_hostile_pattern_is_refused_or_done_quickly() {
        assert!(!check(&format!("{}b", "*a".repeat(1_000)), &"a".repeat(3_000)));
        assert!(matches!(Pattern::new(&"{a,b}".repeat(20)), Err(PatternError::TooMany(_))));
        assert!(Pattern::new(&"{".repeat(4_000)).is_ok());
        assert_eq!(Pattern::new(&"a".repeat(5_000)).err(), Some(PatternError::TooLong));
        assert!(matches!(Pattern::new("a..b"), Err(PatternError::EmptyPart(_))));
    }
}
