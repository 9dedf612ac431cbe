//! Matches one text against one shell pattern: `*`, `?`, `[a-z]`, `[!x]`.
//!
//! Invariants
//! - Matching takes at most pattern length times text length steps, whatever the pattern.
//! - A `[` without its `]` is an ordinary character. A `]` that comes first in a set is a member of
//!   the set.

/// What a backslash in a pattern means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backslash {
    /// A letter like any other.
    Letter,
    /// The character behind it has no special meaning.
    Escape,
}

/// A byte or a character.
pub(crate) trait Symbol: Copy + Ord + From<u8> {}

impl Symbol for u8 {}
impl Symbol for char {}

/// Whether all of `text` matches, byte by byte. A `\` makes the byte behind it an ordinary one.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    fits(pattern, text, Backslash::Escape)
}

/// The same over bytes or characters.
pub(crate) fn fits<T: Symbol>(pattern: &[T], text: &[T], backslash: Backslash) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last star's rest begins in both: no earlier star needs to be tried again.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*'.into()) {
            p += 1;
            star = Some((p, t));
        } else if let Some(width) = one(&pattern[p..], text[t], backslash) {
            p += width;
            t += 1;
        } else if let Some((after, taken)) = star {
            (p, t) = (after, taken + 1);
            star = Some((p, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|symbol| *symbol == b'*'.into())
}

/// Length of the pattern's first part, if it matches `symbol`.
fn one<T: Symbol>(pattern: &[T], symbol: T, backslash: Backslash) -> Option<usize> {
    let first = *pattern.first()?;
    let (width, fits) = if first == b'?'.into() {
        (1, true)
    } else if first == b'['.into() {
        match set(pattern) {
            Some((width, negated, members)) => (width, in_set(members, symbol) != negated),
            None => (1, symbol == first),
        }
    } else if let (true, Backslash::Escape, Some(escaped)) =
        (first == b'\\'.into(), backslash, pattern.get(1))
    {
        (2, symbol == *escaped)
    } else {
        (1, symbol == first)
    };
    fits.then_some(width)
}

/// `[...]` at the start of the pattern: its width, whether it is negated, its members.
fn set<T: Symbol>(pattern: &[T]) -> Option<(usize, bool, &[T])> {
    let negated = pattern.get(1).is_some_and(|c| *c == b'!'.into() || *c == b'^'.into());
    let start = if negated { 2 } else { 1 };
    let end = (start + 1..pattern.len()).find(|at| pattern[*at] == b']'.into())?;
    Some((end + 1, negated, &pattern[start..end]))
}

fn in_set<T: Symbol>(mut members: &[T], symbol: T) -> bool {
    while let [low, tail @ ..] = members {
        members = match tail {
            [dash, high, after @ ..] if *dash == b'-'.into() => {
                if (*low..=*high).contains(&symbol) {
                    return true;
                }
                after
            }
            after => {
                if *low == symbol {
                    return true;
                }
                after
            }
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_the_shells() {
        for (pattern, yes, no) in [
            ("*", vec!["", "a", ".x"], vec![]),
            ("*.c", vec![".c", "a.c", "a.c.c"], vec!["a.cc", "c"]),
            ("a*b*c", vec!["abc", "axxbbc", "abcbc"], vec!["ab", "acb"]),
            ("?x", vec!["ax"], vec!["x", "axx"]),
            ("[a-c]1", vec!["a1", "c1"], vec!["d1", "1"]),
            ("[!a-c]", vec!["d"], vec!["a", ""]),
            ("[]x]", vec!["]", "x"], vec!["a"]),
            ("[x", vec!["[x"], vec!["x"]),
            ("\\*", vec!["*"], vec!["a"]),
            ("a\\", vec!["a\\"], vec!["a"]),
            ("", vec![""], vec!["a"]),
        ] {
            for name in yes {
                assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
            for name in no {
                assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn a_backslash_is_a_letter_where_the_caller_says_so() {
        for (pattern, yes, no) in [(r"a\*", r"a\xy", "a*"), (r"\", r"\", ""), (r"\?", r"\a", "?")] {
            let fits = |text: &str| fits(pattern.as_bytes(), text.as_bytes(), Backslash::Letter);
            assert!(fits(yes) && !fits(no), "{pattern}");
        }
    }

    #[test]
    fn a_question_mark_is_one_byte_or_one_character() {
        assert!(!matches(b"?", "\u{e9}".as_bytes()));
        assert!(fits(&['?'], &['\u{e9}'], Backslash::Letter));
    }

    #[test]
    fn many_stars_end_soon() {
        assert!(!matches("*a".repeat(40).as_bytes(), "a".repeat(39).as_bytes()));
    }
}
