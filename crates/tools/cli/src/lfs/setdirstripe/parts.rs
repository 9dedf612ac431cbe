//! The striping of directories on a command line.

use layout::dir::{
    self, Asked, BY_SPACE, COUNT_ALL, HASH_CRUSH2, HASH_OVERSTRIPED, SHARDS_MAX, SHARDS_PER_MDT,
    UNLIMITED, hash_kind,
};
use types::MDTS_MAX;

/// Levels of inheritance that a number can say; -1 is without limit.
const LEVELS_MAX: u8 = 250;
/// Levels below a directory that get a striped default where nothing is said.
const LEVELS_STRIPED: u8 = 3;
/// The same where several shards may share an MDT.
const LEVELS_OVERSTRIPED: u8 = 2;

/// What is asked for.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::lfs) struct Parts {
    /// Spread the names of a directory over this many MDTs; -1: over all of them.
    #[arg(
        short = 'c',
        visible_short_alias = 'T',
        long = "mdt-count",
        visible_alias = "count",
        value_name = "N",
        allow_hyphen_values = true,
        value_parser = count
    )]
    count: Option<u32>,
    /// The same, but up to 5 shards may share an MDT; -1 to -5: as many shards on every MDT.
    #[arg(
        short = 'C',
        long = "mdt-overcount",
        value_name = "N",
        allow_hyphen_values = true,
        conflicts_with = "count",
        value_parser = overcount
    )]
    overcount: Option<u32>,
    /// The MDT of a directory, or the MDTs of its shards in order, as indices and ranges such as
    /// 0,2,5-7; -1: by free space and inodes.
    #[arg(
        short = 'i',
        long = "mdt-index",
        visible_alias = "index",
        value_name = "MDT[,MDT]",
        allow_hyphen_values = true,
        value_parser = index
    )]
    index: Option<Index>,
    /// How names are spread: all_char, fnv_1a_64, crush or crush2.
    #[arg(
        short = 'H',
        visible_short_alias = 't',
        long = "mdt-hash",
        visible_alias = "hash-type",
        value_name = "HASH",
        value_parser = hash
    )]
    hash: Option<u32>,
    /// Levels of subdirectories to which a default is handed on, at most 250: -1 without limit, 0
    /// none. Without it: no limit, or 3 of a default with a count.
    #[arg(
        short = 'X',
        long,
        value_name = "LEVELS",
        allow_hyphen_values = true,
        requires = "default",
        value_parser = levels
    )]
    max_inherit: Option<u8>,
    /// Levels of subdirectories that go to MDTs in turn while their room is balanced: the same
    /// numbers. Only for a default with -i -1; without it 0.
    #[arg(
        long,
        value_name = "LEVELS",
        allow_hyphen_values = true,
        requires = "default",
        value_parser = levels
    )]
    max_inherit_rr: Option<u8>,
}

/// The value of `-i`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Index {
    BySpace,
    /// At least one.
    These(Vec<u32>),
}

impl Parts {
    /// Over these MDTs, or from the only one on over so many.
    pub(in crate::lfs) fn on(mdts: &[u32], count: Option<u32>, hash: Option<u32>) -> Parts {
        assert!(!mdts.is_empty(), "an MDT is named");
        Parts { count, index: Some(Index::These(mdts.to_vec())), hash, ..Parts::default() }
    }

    /// A count or a list of MDTs is given: it says where names are.
    pub(super) fn spreads(&self) -> bool {
        self.count.or(self.overcount).is_some()
            || matches!(&self.index, Some(Index::These(mdts)) if mdts.len() > 1)
    }

    /// As the servers are asked.
    pub(in crate::lfs) fn asked(&self, is_default: bool) -> Result<Asked, String> {
        let listed = match &self.index {
            Some(Index::These(mdts)) if mdts.len() > 1 => mdts.clone(),
            _ => Vec::new(),
        };
        let index = match &self.index {
            Some(Index::These(mdts)) => i32::try_from(mdts[0]).unwrap_or(BY_SPACE),
            _ => BY_SPACE,
        };
        let mdts = listed.len();
        if self.overcount.is_some() && mdts > 0 {
            return Err("-C chooses the MDTs of shards: name the first one only (-i N)".to_owned());
        }
        match self.count {
            Some(count) if mdts > 0 && count as usize != mdts => {
                let count = count.cast_signed();
                return Err(format!(
                    "stripe count {count} doesn't match the number of MDTs: {mdts}"
                ));
            }
            None if mdts > 0 && is_default => {
                return Err(format!(
                    "a default of {mdts} MDTs stripes every new directory: say so with -c {mdts}"
                ));
            }
            _ => {}
        }
        if self.max_inherit_rr.is_some_and(|levels| levels > 0) && index != BY_SPACE {
            return Err("--max-inherit-rr is only for a default with -i -1".to_owned());
        }
        let said = self.count.or(self.overcount);
        let count = said.unwrap_or(u32::try_from(mdts).unwrap_or(u32::MAX).max(1));
        let (inherit, flag) = match (count > 1, self.overcount) {
            (true, Some(_)) => (LEVELS_OVERSTRIPED, HASH_OVERSTRIPED),
            (true, None) => (LEVELS_STRIPED, 0),
            (false, _) => (UNLIMITED, 0),
        };
        let asked = Asked {
            count,
            index,
            hash: self.hash.unwrap_or(HASH_CRUSH2) | flag,
            max_inherit: self.max_inherit.unwrap_or(inherit),
            max_inherit_rr: self.max_inherit_rr.unwrap_or(0),
            mdts: listed,
        };
        asked.check().map_err(|error| error.to_string())?;
        Ok(asked)
    }
}

/// `-1` to as many shards as there may be.
pub(in crate::lfs) fn count(text: &str) -> Result<u32, String> {
    let count = text.parse::<i64>().ok().filter(|count| (-1..=SHARDS_MAX as i64).contains(count));
    let count =
        count.ok_or_else(|| dir::DirError::Count(text.parse().unwrap_or(-2)).to_string())?;
    Ok(u32::try_from(count).unwrap_or(COUNT_ALL))
}

fn overcount(text: &str) -> Result<u32, String> {
    let least = -SHARDS_PER_MDT.cast_signed();
    let count =
        text.parse::<i32>().ok().filter(|count| (least..=SHARDS_MAX as i32).contains(count));
    count.map(i32::cast_unsigned).ok_or_else(|| {
        format!(
            "'{text}' is not a number of shards up to {SHARDS_MAX}, or {least} to -1 (on each MDT)"
        )
    })
}

fn index(text: &str) -> Result<Index, String> {
    if text == "-1" { Ok(Index::BySpace) } else { mdts_in(text).map(Index::These) }
}

/// `0,2,5-7`; at most as many as there are MDTs.
pub(in crate::lfs) fn mdts_in(text: &str) -> Result<Vec<u32>, String> {
    let bad = || {
        format!("bad MDT list '{text}': expected indices below {MDTS_MAX} and ranges, as 0,2,5-7")
    };
    let index =
        |part: &str| part.parse::<u32>().ok().filter(|index| *index < MDTS_MAX).ok_or_else(bad);
    let mut mdts = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (index(low)?, index(high)?);
        if low > high || mdts.len() + (high - low) as usize >= MDTS_MAX as usize {
            return Err(bad());
        }
        mdts.extend(low..=high);
    }
    Ok(mdts)
}

/// The number of a hash.
pub(in crate::lfs) fn hash(text: &str) -> Result<u32, String> {
    hash_kind(text)
        .ok_or_else(|| format!("'{text}' is not a hash: all_char, fnv_1a_64, crush and crush2 are"))
}

fn levels(text: &str) -> Result<u8, String> {
    if text == "-1" {
        return Ok(UNLIMITED);
    }
    let levels = text.parse::<u8>().ok().filter(|levels| *levels <= LEVELS_MAX);
    levels.ok_or_else(|| format!("'{text}' is not -1 or a number up to {LEVELS_MAX}"))
}

/// An octal mode.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("'{text}' is not an octal mode"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    /// As in the command, with the flag that some options need.
    #[derive(Debug, clap::Args)]
    struct Line {
        #[command(flatten)]
        parts: Parts,
        #[arg(short = 'D', long)]
        default: bool,
    }

    fn asked(line: &str) -> Result<Asked, String> {
        let words = std::iter::once("mkdir").chain(line.split_whitespace());
        let line: Line = parse(words).map_err(|error| error.to_string())?;
        line.parts.asked(line.default)
    }

    #[test]
    fn lines_mean_what_they_mean_in_lustre() {
        let plain = Asked::default();
        let cases = [
            ("", plain.clone()),
            ("-i 2", Asked { index: 2, ..plain.clone() }),
            ("-i -1", plain.clone()),
            ("-c 1 -i 7", Asked { index: 7, ..plain.clone() }),
            ("--count 0", Asked { count: 0, ..plain.clone() }),
            ("-c 4 -H fnv_1a_64", striped(4, dir::HASH_FNV_1A_64, BY_SPACE, &[])),
            ("-c -1 -i 3", striped(COUNT_ALL, HASH_CRUSH2, 3, &[])),
            ("-c 4 -i 0,1,2,3", striped(4, HASH_CRUSH2, 0, &[0, 1, 2, 3])),
            ("-i 3,0-1", striped(3, HASH_CRUSH2, 3, &[3, 0, 1])),
            ("-T 2 -i 5,4 -t crush", striped(2, dir::HASH_CRUSH, 5, &[5, 4])),
            ("-D -c 4", striped(4, HASH_CRUSH2, BY_SPACE, &[])),
            ("-C 1", plain.clone()),
            ("-C 6 -i 3", over(6, HASH_CRUSH2, 3)),
            ("--mdt-overcount=-2 -H crush", over(2_u32.wrapping_neg(), dir::HASH_CRUSH, BY_SPACE)),
            (
                "-D -c 1 -i -1 --max-inherit=-1 --max-inherit-rr 3",
                Asked { max_inherit_rr: 3, ..plain.clone() },
            ),
            ("-D -X 0", Asked { max_inherit: 0, ..plain }),
        ];
        for (line, wanted) in cases {
            assert_eq!(asked(line), Ok(wanted), "{line}");
        }
    }

    fn over(count: u32, hash: u32, index: i32) -> Asked {
        let hash = hash | HASH_OVERSTRIPED;
        Asked { max_inherit: 2, ..striped(count, hash, index, &[]) }
    }

    fn striped(count: u32, hash: u32, index: i32, mdts: &[u32]) -> Asked {
        let mdts = mdts.to_vec();
        Asked { count, hash, index, max_inherit: 3, max_inherit_rr: 0, mdts }
    }

    #[test]
    fn lines_without_sense_are_refused_with_a_reason() {
        for (line, why) in [
            ("-c 3 -i 0,1", "stripe count 3 doesn't match the number of MDTs: 2"),
            ("-c -1 -i 0,1", "stripe count -1 doesn't match the number of MDTs: 2"),
            ("-D -i 0,1", "say so with -c 2"),
            ("-i 1,1", "MDT 1 is listed twice"),
            ("-i 0,-1", "bad MDT list"),
            ("-i 256", "bad MDT list"),
            ("-i -2", "bad MDT list"),
            ("-c 257", "not 257"),
            ("-c -2", "not -2"),
            ("-C 257", "up to 256"),
            ("-C -6", "-5 to -1"),
            ("-C 4 -c 4", "cannot be used with"),
            ("-C 2 -i 0,1", "name the first one only"),
            ("-H md5", "'md5' is not a hash"),
            ("-X 3", "--default"),
            ("-D -X 251", "up to 250"),
            ("-D -i 2 --max-inherit-rr 3", "only for a default with -i -1"),
        ] {
            let refused = asked(line).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!((mode("755"), mode("2770")), (Ok(0o755), Ok(0o2770)));
        assert!(["", "8", "10000", "rwx", "-1"].iter().all(|text| mode(text).is_err()));
    }

    /// The servers can read a striping that is accepted.
    fn accepts(input: &[u8]) -> bool {
        const WORDS: &[&str] = &[
            "-c",
            "-i",
            "-H",
            "-D",
            "-X",
            "--max-inherit-rr",
            "0",
            "1",
            "4",
            "-1",
            "0,1,2,3",
            "3-0",
            "0-255",
            "256",
            "crush",
            "fnv_1a_64",
            "all_char",
            ",",
            "-",
            "1,",
            "250",
            "99999",
            "-C",
            "-5",
        ];
        let word = |byte: &u8| WORDS[usize::from(*byte) % WORDS.len()];
        let line: Vec<&str> = input.iter().map(word).collect();
        let Ok(asked) = asked(&line.join(" ")) else { return false };
        assert_eq!(Asked::decode(&asked.encode()), Ok(asked));
        true
    }

    /// Fuzz target: no words panic.
    #[test]
    fn stripings_of_directories() {
        assert!(accepts(&[0, 8, 1, 7]), "-c 4 -i 1 is a striping");
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=12);
        bolero::check!()
            .with_iterations(3_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = accepts(input));
    }
}
