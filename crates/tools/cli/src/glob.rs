//! Names against shell patterns: `*`, `?`, `[a-z]`, `[!x]`, and `\` before a character that means
//! itself.

/// Whether all of `name` matches.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Where the last star stood, and how much of the name it has taken: only that one needs to be
    // tried again.
    let (mut at, mut pos, mut star) = (0, 0, None);
    loop {
        let step = match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, pos));
                at += 1;
                continue;
            }
            None if pos == name.len() => return true,
            None => None,
            Some(_) => name.get(pos).and_then(|byte| one(&pattern[at..], *byte)),
        };
        match (step, star) {
            (Some(len), _) => (at, pos) = (at + len, pos + 1),
            (None, Some((after, taken))) if taken < name.len() => {
                (at, pos) = (after, taken + 1);
                star = Some((after, taken + 1));
            }
            (None, _) => return false,
        }
    }
}

/// Length of the pattern's first part, if it matches `byte`.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', own, ..] => (*own == byte).then_some(2),
        [b'[', rest @ ..] => match set(rest, byte) {
            Some((len, true)) => Some(len + 1),
            Some((_, false)) => None,
            None => (byte == b'[').then_some(1), // never closed: a bracket
        },
        [own, ..] => (*own == byte).then_some(1),
        [] => None,
    }
}

/// Length of a set behind its `[`, and whether `byte` is in it.
fn set(rest: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    // A bracket that closes at once is a member.
    let end = start + 1 + rest.get(start + 1..)?.iter().position(|byte| *byte == b']')?;
    let (mut members, mut found) = (&rest[start..end], false);
    while let [low, tail @ ..] = members {
        members = match tail {
            [b'-', high, after @ ..] => {
                found |= (*low..=*high).contains(&byte);
                after
            }
            after => {
                found |= *low == byte;
                after
            }
        };
    }
    Some((end + 1, found != negated))
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
    fn many_stars_end_soon() {
        assert!(!matches("*a".repeat(40).as_bytes(), "a".repeat(39).as_bytes()));
    }
}
