//! Sizes in human notation. Suffixes are powers of two.

use types::{ByteSize, ByteSizeError};

/// From `64K`, `1m`, `1MiB`, `4096`; any case, optionally followed by `b`, `i` or `ib`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(ByteSizeError::Form) => Err(format!(
            "'{text}' is no size: expected a number with an optional suffix k, m, g, t, p or e"
        )),
        Err(ByteSizeError::TooLarge) => Err(format!("'{text}' is too large: a size fits 64 bits")),
    }
}

/// As `lfs df -h` prints a number of KiB or inodes: `100.0G`; `unit` is 1024, or 1000 for `-H`.
pub(crate) fn human(bytes: u64, unit: u64) -> String {
    let mut value = bytes as f64;
    let mut suffixes = ["", "K", "M", "G", "T", "P", "E"].into_iter();
    let mut suffix = suffixes.next().unwrap_or_default();
    for next in suffixes {
        if value < unit as f64 {
            break;
        }
        value /= unit as f64;
        suffix = next;
    }
    if suffix.is_empty() { format!("{bytes}") } else { format!("{value:.1}{suffix}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_size_is_named() {
        assert_eq!(parse("64K"), Ok(65536));
        let form = "'1x' is no size: expected a number with an optional suffix k, m, g, t, p or e";
        assert_eq!(parse("1x"), Err(form.into()));
        assert_eq!(parse("16e"), Err("'16e' is too large: a size fits 64 bits".into()));
    }

    #[test]
    fn large_numbers_are_shortened() {
        assert_eq!(
            [human(100 << 30, 1024), human(1000, 1024), human(1500, 1000)],
            ["100.0G", "1000", "1.5K"]
        );
    }

    /// Fuzz target: a size that is accepted is the same in capital letters, and 1024 times as much
    /// with the next suffix.
    #[test]
    fn sizes() {
        const LETTERS: &[u8] = b"0123456789kmgtpeibB";
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=24);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| {
                let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
                let text: String = input.iter().map(letter).collect();
                if let Ok(bytes) = parse(&text) {
                    assert_eq!(parse(&text.to_uppercase()), Ok(bytes));
                    let _ = human(bytes, 1024);
                    if text.bytes().all(|byte| byte.is_ascii_digit()) {
                        let kib = bytes.checked_mul(1024);
                        assert_eq!(parse(&format!("{text}k")).ok(), kib);
                    }
                }
            });
    }
}
