//! Compares outputs whose numbers and times differ from run to run.

/// Whether two outputs are alike but for numbers, and the spaces that align them.
///
/// A line `...` in `wanted` stands for any lines, none too.
#[must_use]
pub fn same_shape(wanted: &str, seen: &str) -> bool {
    let shapes = |text: &str| text.lines().map(shape).collect::<Vec<_>>();
    matches(&shapes(wanted), &shapes(seen))
}

fn matches(wanted: &[String], seen: &[String]) -> bool {
    match wanted.split_first() {
        None => seen.is_empty(),
        Some((line, rest)) if line == "..." => {
            (0..=seen.len()).any(|skipped| matches(rest, &seen[skipped..]))
        }
        Some((line, rest)) => {
            seen.split_first().is_some_and(|(first, others)| line == first && matches(rest, others))
        }
    }
}

/// A line with each number as `N`: digits with points and commas between them, and the prefix of a
/// unit behind them (`68.5G`, `1.2 GB/s`). Several spaces are one.
fn shape(line: &str) -> String {
    if line.trim() == "..." {
        return "...".to_owned();
    }
    let mut out = String::new();
    let mut letters = line.trim().chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_ascii_digit() {
            while letters.peek().is_some_and(|next| next.is_ascii_digit() || ".,".contains(*next)) {
                letters.next();
            }
            let mut rest = letters.clone();
            if rest.next().is_some_and(|unit| "kKMGTP".contains(unit))
                && rest.next().is_none_or(|next| !next.is_alphanumeric())
            {
                letters.next();
            }
            out.push('N');
        } else if letter.is_whitespace() || letter == '-' && out.ends_with('-') {
            let blank = if letter == '-' { '-' } else { ' ' };
            if !out.ends_with(blank) {
                out.push(blank);
            }
        } else {
            out.push(letter);
        }
    }
    ["kB/s", "MB/s", "GB/s"].iter().fold(out, |out, rate| out.replace(rate, "B/s"))
}

#[cfg(test)]
mod tests {
    use super::same_shape;

    #[test]
    fn numbers_and_columns_may_differ_and_words_may_not() {
        assert!(same_shape("a 1  2.5 s", "a  17 0.1 s"));
        assert!(same_shape("OST0003 at 127.0.0.2", "OST0003 at 127.0.11.9"));
        assert!(same_shape("68.5G free, 325 MB/s", "1T free, 1.1 GB/s"));
        assert!(!same_shape("a 1", "b 1"));
        assert!(!same_shape("a\nb", "a"));
        assert!(same_shape("a\n...\nd", "a\nb\nc\nd"));
        assert!(same_shape("...\nd", "d"));
        assert!(!same_shape("...\nd", "e"));
    }
}
