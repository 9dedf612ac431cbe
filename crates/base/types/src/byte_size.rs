//! A number of bytes as people write it: `4096`, `64K`, `1MiB`.

use std::str::FromStr;

/// A number of bytes, from text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Why a text is not a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ByteSizeError {
    /// It has no number, or its unit is not one that the caller accepts.
    #[error("a number with a unit is expected")]
    Form,
    /// It does not fit 64 bits.
    #[error("a size fits 64 bits")]
    TooLarge,
}

impl ByteSize {
    /// The number, which may have a point in it, and the unit that follows.
    #[must_use]
    pub fn split(text: &str) -> (&str, &str) {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        text.split_at(end)
    }

    /// From a whole number and one of `units`, spelled as it is there. A text without a unit needs
    /// the entry `""`.
    pub fn with_units(text: &str, units: &[(&str, u64)]) -> Result<ByteSize, ByteSizeError> {
        let (number, unit) = ByteSize::split(text);
        let factor = units.iter().find(|(name, _)| *name == unit).ok_or(ByteSizeError::Form)?.1;
        ByteSize::of(number, factor)
    }

    fn of(number: &str, factor: u64) -> Result<ByteSize, ByteSizeError> {
        let number: u64 = number.parse().map_err(|_| ByteSizeError::Form)?;
        number.checked_mul(factor).map(ByteSize).ok_or(ByteSizeError::TooLarge)
    }
}

/// Units are powers of two: `k`, `m`, `g`, `t`, `p` and `e` in any case, optionally followed by
/// `b`, `i` or `ib`.
impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<ByteSize, ByteSizeError> {
        let (number, suffix) = ByteSize::split(text);
        let suffix = suffix.to_ascii_lowercase();
        let shift = match suffix.trim_end_matches('b').trim_end_matches('i') {
            "" if suffix.len() <= 1 => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            "p" => 50,
            "e" => 60,
            _ => return Err(ByteSizeError::Form),
        };
        ByteSize::of(number, 1 << shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_two_in_any_spelling() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65536),
            ("1m", 1 << 20),
            ("1MiB", 1 << 20),
            ("2gb", 2 << 30),
            ("1Ti", 1 << 40),
            ("7b", 7),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "k", "-1", "+1", "1x", "1kk", "1.5m", "1 m", "1ib", "18446744073709551616"]
        {
            assert_eq!(text.parse::<ByteSize>(), Err(ByteSizeError::Form), "{text}");
        }
        assert_eq!("16e".parse::<ByteSize>(), Err(ByteSizeError::TooLarge));
    }

    #[test]
    fn a_caller_names_the_units_that_it_accepts() {
        let parse = |text| ByteSize::with_units(text, &[("", 1), ("k", 1 << 10), ("kB", 1_000)]);
        assert_eq!([parse("7"), parse("2k")], [Ok(ByteSize(7)), Ok(ByteSize(2_048))]);
        assert_eq!(parse("3kB"), Ok(ByteSize(3_000)));
        for text in ["", "k", "1K", "1kb", "1m", "1.5k", "-1", "1 k"] {
            assert_eq!(parse(text), Err(ByteSizeError::Form), "{text}");
        }
        assert_eq!(parse("18446744073709551615k"), Err(ByteSizeError::TooLarge));
        assert_eq!(ByteSize::split("1.5MB/s"), ("1.5", "MB/s"));
    }
}
