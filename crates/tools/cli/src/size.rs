//! Sizes in human notation. Suffixes are powers of two.

pub(crate) use ctl::progress::human;
use types::{ByteSize, ByteSizeError};

/// From `64K`, `1m`, `1MiB`, `4096`; any case, optionally followed by `b`, `i` or `ib`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(ByteSizeError::Form) => Err(format!(
            "'{text}' is not a size: expected a number with an optional suffix k, m, g, t, p or e"
        )),
        Err(ByteSizeError::TooLarge) => Err(format!("'{text}' is too large: a size fits 64 bits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_size_is_named() {
        assert_eq!(parse("64K"), Ok(65536));
        let form =
            "'1x' is not a size: expected a number with an optional suffix k, m, g, t, p or e";
        assert_eq!(parse("1x"), Err(form.into()));
        assert_eq!(parse("16e"), Err("'16e' is too large: a size fits 64 bits".into()));
    }

    /// A size that is accepted is the same in capital letters, and 1024 times as much with the next
    /// suffix.
    fn accepts(input: &[u8]) -> bool {
        const LETTERS: &[u8] = b"0123456789kmgtpeibB";
        let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
        let text: String = input.iter().map(letter).collect();
        let Ok(bytes) = parse(&text) else { return false };
        assert_eq!(parse(&text.to_uppercase()), Ok(bytes));
        let _ = human(bytes, 1024);
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let kib = bytes.checked_mul(1024);
            assert_eq!(parse(&format!("{text}k")).ok(), kib);
        }
        true
    }

    /// Fuzz target: sizes mean what they say.
    #[test]
    fn sizes() {
        assert!(accepts(&[6, 4, 10]), "64k is a size");
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=24);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = accepts(input));
    }
}
