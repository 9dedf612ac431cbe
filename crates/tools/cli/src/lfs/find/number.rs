//! Numbers with a sign: `+N` more than, `-N` less than, `N` equal within the unit.

use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// More, equal or less.
    pub(super) order: Ordering,
    /// Number of units.
    pub(super) count: u64,
    /// What a unit is.
    pub(super) unit: u64,
}

impl Bound {
    /// From `+4M`, with the units that `unit` knows.
    pub(super) fn parse(text: &str, unit: impl Fn(&str) -> Option<u64>) -> Result<Bound, String> {
        let bad = || format!("'{text}' is not a number: expected [+-]N with an optional unit");
        let (order, rest) = match text.as_bytes().first() {
            Some(b'+') => (Ordering::Greater, &text[1..]),
            Some(b'-') => (Ordering::Less, &text[1..]),
            _ => (Ordering::Equal, text),
        };
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let count = rest[..digits].parse().map_err(|_| bad())?;
        let unit = unit(&rest[digits..]).ok_or_else(bad)?;
        u64::checked_mul(count, unit).ok_or_else(bad)?;
        Ok(Bound { order, count, unit })
    }

    pub(super) fn plain(text: &str) -> Result<Bound, String> {
        Bound::parse(text, |unit| unit.is_empty().then_some(1))
    }

    /// Bytes; without a suffix bytes, `b` blocks of 512.
    pub(crate) fn bytes(text: &str) -> Result<Bound, String> {
        Bound::parse(text, |unit| {
            let unit = unit.to_ascii_lowercase();
            let short =
                if unit == "b" { "b" } else { unit.trim_end_matches('b').trim_end_matches('i') };
            Some(match short {
                "" | "c" => 1,
                "b" => 512,
                "k" => 1 << 10,
                "m" => 1 << 20,
                "g" => 1 << 30,
                "t" => 1 << 40,
                "p" => 1 << 50,
                "e" => 1 << 60,
                _ => return None,
            })
        })
    }

    /// The end of a component: a size, or the end of the file.
    pub(crate) fn end(text: &str) -> Result<Bound, String> {
        let is_last = matches!(text.to_ascii_lowercase().as_str(), "eof" | "-1");
        if is_last { Bound::plain(&u64::MAX.to_string()) } else { Bound::bytes(text) }
    }

    /// Seconds; without a suffix days.
    pub(super) fn secs(text: &str) -> Result<Bound, String> {
        Bound::parse(text, |unit| {
            Some(match unit {
                "s" => 1,
                "m" => 60,
                "h" => 3_600,
                "" | "d" => 86_400,
                "w" => 7 * 86_400,
                "y" => 365 * 86_400,
                _ => return None,
            })
        })
    }

    /// Whether a size, rounded up to whole units, is as wanted.
    pub(crate) fn holds_up(self, value: u64) -> bool {
        value.div_ceil(self.unit).cmp(&self.count) == self.order
    }

    /// Whether an age, rounded down to whole units, is as wanted.
    pub(super) fn holds_down(self, value: u64) -> bool {
        (value / self.unit).cmp(&self.count) == self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_begun_units_and_ages_whole_ones() {
        let size = |bound: &str, size| Bound::bytes(bound).map(|bound| bound.holds_up(size));
        assert_eq!(
            [size("1M", 1), size("1M", 1 << 20), size("1M", 0)],
            [Ok(true), Ok(true), Ok(false)]
        );
        assert_eq!(
            [size("+1M", (1 << 20) + 1), size("+1M", 1 << 20), size("-1M", 0)],
            [Ok(true), Ok(false), Ok(true)]
        );
        assert_eq!(
            [size("5", 5), size("+4c", 5), size("1b", 512), size("2MiB", 2 << 20)],
            [const { Ok(true) }; 4]
        );
        assert_eq!([size("-1E", 0), size("1EiB", 1 << 60)], [const { Ok(true) }; 2]);
        let age = |bound: &str, age| Bound::secs(bound).map(|bound| bound.holds_down(age));
        assert_eq!(
            [age("1", 86_400), age("1", 2 * 86_400), age("+1", 2 * 86_400), age("-1h", 3_599)],
            [Ok(true), Ok(false), Ok(true), Ok(true)]
        );
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "+", "x", "1x", "--1", "99999999999999999999", "99999999999p"] {
            assert!(Bound::bytes(text).is_err(), "{text}");
        }
        assert!(Bound::plain("1k").is_err() && Bound::plain("-3").is_ok());
    }

    /// A text of letters of the grammar.
    fn text(input: &[u8]) -> String {
        const LETTERS: &[u8] = b"+-0123456789kmgtpbciKMshdwy";
        input.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
    }

    /// How many of the grammars take the text.
    fn grammars(input: &[u8]) -> usize {
        let (text, mut grammars) = (text(input), 0);
        for parse in [Bound::bytes, Bound::secs, Bound::plain] {
            let all = ["", "+", "-"].map(|sign| parse(&format!("{sign}{text}")));
            let [Ok(equal), Ok(more), Ok(less)] = all else { continue };
            for value in [0, 1, 511, 512, 4_096, u64::MAX - 1, u64::MAX] {
                let up = [equal, more, less].map(|bound| bound.holds_up(value));
                let down = [equal, more, less].map(|bound| bound.holds_down(value));
                assert_eq!(up.iter().filter(|holds| **holds).count(), 1, "{text}");
                assert_eq!(down.iter().filter(|holds| **holds).count(), 1, "{text}");
            }
            grammars += 1;
        }
        grammars
    }

    /// Fuzz target: of less, equal and more exactly one holds.
    #[test]
    fn bounds() {
        assert_eq!(grammars(&[3]), 3, "1 is a bound");
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=24);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = grammars(input));
    }
}
