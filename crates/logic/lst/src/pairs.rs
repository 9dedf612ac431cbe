//! Which sources talk to which destinations: `--distribute D:S`.
//!
//! Source `i` talks to `S` destinations from index `(i / D) * S` on, round the ring of
//! destinations.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// A ratio of sources to destinations, `D:S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distribute {
    /// Sources that share a set of destinations.
    pub sources: NonZeroU32,
    /// Destinations of a set.
    pub destinations: NonZeroU32,
}

impl Default for Distribute {
    fn default() -> Distribute {
        Distribute { sources: NonZeroU32::MIN, destinations: NonZeroU32::MIN }
    }
}

impl Distribute {
    /// Indices of the destinations of source `source`, each once, of `count` destinations.
    pub fn of(self, source: usize, count: usize) -> impl Iterator<Item = usize> {
        let span = self.destinations.get() as usize;
        let first = (source / self.sources.get() as usize).wrapping_mul(span);
        (0..span.min(count)).map(move |step| (first + step) % count)
    }
}

/// Text that is no ratio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDistributeError(String);

impl fmt::Display for ParseDistributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a distribution: expected D:S, two numbers above zero", self.0)
    }
}

impl std::error::Error for ParseDistributeError {}

impl FromStr for Distribute {
    type Err = ParseDistributeError;

    fn from_str(text: &str) -> Result<Distribute, ParseDistributeError> {
        let bad = || ParseDistributeError(text.chars().take(40).collect());
        let (sources, destinations) = text.split_once(':').ok_or_else(bad)?;
        let number = |word: &str| word.parse::<NonZeroU32>().map_err(|_| bad());
        Ok(Distribute { sources: number(sources)?, destinations: number(destinations)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `1>1 2>2 ..` with nodes counted from 1, as the manual does.
    fn check(ratio: &str, sources: usize, destinations: usize, expected: &str) {
        let ratio: Distribute = ratio.parse().expect("a ratio");
        let of = |source: usize| {
            let list: Vec<_> =
                ratio.of(source, destinations).map(|index| (index + 1).to_string()).collect();
            format!("{}>{}", source + 1, list.join(","))
        };
        let all: Vec<_> = (0..sources).map(of).collect();
        assert_eq!(all.join(" "), expected);
    }

    #[test]
    fn six_sources_and_three_servers_pair_as_the_manual_says() {
        check("1:1", 6, 3, "1>1 2>2 3>3 4>1 5>2 6>3");
        check("2:1", 6, 3, "1>1 2>1 3>2 4>2 5>3 6>3");
        check("3:2", 6, 3, "1>1,2 2>1,2 3>1,2 4>3,1 5>3,1 6>3,1");
        check("6:3", 6, 3, "1>1,2,3 2>1,2,3 3>1,2,3 4>1,2,3 5>1,2,3 6>1,2,3");
    }

    #[test]
    fn a_destination_is_in_a_set_once() {
        check("1:9", 2, 2, "1>1,2 2>2,1");
        check("1:1", 1, 0, "1>");
        check("4294967295:4294967295", 1, 1, "1>1");
    }

    #[test]
    fn nonsense_is_no_ratio() {
        for text in ["", "1", "0:1", "1:0", "a:1", "1:1:1", "-1:1"] {
            assert!(text.parse::<Distribute>().is_err(), "{text}");
        }
    }
}
