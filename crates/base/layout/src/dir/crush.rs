//! CRUSH: each shard draws a straw for the group of a name, and the longest straw wins. A further
//! shard takes names from all others, and no name moves between these.
//!
//! Names of temporary and backup files lead to the shard of the name without its additions. So
//! writing a file under another name and renaming it stays at one MDT:
//!
//! - `.NAME.aB3dEf` (rsync), `NAME.aB3dEf12` (mktemp), if the suffix looks drawn;
//! - `NAME~`, `NAME.bak`, `NAME.sav`, `NAME.orig` in either case.
//!
//! A suffix of one case looks like a word, and one of digits like a number. Letters are those of
//! Latin-1, as a kernel sees them.

use super::fnv::fnv_1a_64;

/// Groups of names.
const GROUPS: u64 = 4_096;
const SEED: u32 = 1_315_423_911;
const RSYNC_SUFFIX: usize = 6;
const MKTEMP_SUFFIX: usize = 8;
const BACKUPS: [&[u8]; 3] = [b".bak", b".sav", b".orig"];

/// Shard of a name among `count`, which is not zero.
pub(super) fn shard(name: &[u8], count: u64, is_strict: bool) -> u64 {
    let group = (fnv_1a_64(stem(name, is_strict)) % GROUPS) as u32;
    let mut longest = (0, 0);
    for shard in 0..count {
        let straw = straw(group, shard as u32);
        if straw > longest.0 {
            longest = (straw, shard);
        }
    }
    longest.1
}

/// A name without the additions of temporary and backup files. `is_strict`: crush2.
fn stem(name: &[u8], is_strict: bool) -> &[u8] {
    if let Some(hidden) = name.strip_prefix(b".")
        && let Some(stem) = without_drawn(hidden, RSYNC_SUFFIX, is_strict)
    {
        return stem;
    }
    if let Some(stem) = without_drawn(name, MKTEMP_SUFFIX, is_strict) {
        return stem;
    }
    match name {
        [stem @ .., before, b'~'] if *before != b'.' => &name[..stem.len() + 1],
        _ => BACKUPS.iter().find_map(|suffix| without(name, suffix)).unwrap_or(name),
    }
}

/// A name without this suffix, in either case. Something is left.
fn without<'a>(name: &'a [u8], suffix: &[u8]) -> Option<&'a [u8]> {
    let (stem, end) = name.split_at_checked(name.len().checked_sub(suffix.len())?)?;
    (!stem.is_empty() && end.eq_ignore_ascii_case(suffix)).then_some(stem)
}

/// A name without a dot and a drawn suffix of `len`. Something is left.
fn without_drawn(name: &[u8], len: usize, is_strict: bool) -> Option<&[u8]> {
    let (stem, end) = name.split_at_checked(name.len().checked_sub(len + 1)?)?;
    let suffix = end.strip_prefix(b".")?;
    (!stem.is_empty() && is_drawn(suffix, is_strict)).then_some(stem)
}

fn is_drawn(suffix: &[u8], is_strict: bool) -> bool {
    let count = |is: fn(u8) -> bool| suffix.iter().filter(|byte| is(**byte)).count();
    let (lower, upper) = (count(is_lower), count(is_upper));
    let digits = count(|byte| byte.is_ascii_digit());
    let is_word = lower == suffix.len() || upper == suffix.len();
    let has_others = lower + upper + digits < suffix.len();
    let begins_with_digit = suffix.first().is_some_and(u8::is_ascii_digit);
    let is_mostly_digits = digits + 1 >= suffix.len();
    if is_strict {
        let is_number = is_mostly_digits && begins_with_digit;
        !(is_word || has_others || is_number)
    } else {
        let is_almost_number = is_mostly_digits && !begins_with_digit;
        !(is_word || is_almost_number)
    }
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte >= 0xdf && byte != 0xf7
}

fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || (0xc0..=0xde).contains(&byte) && byte != 0xd7
}

/// Jenkins' hash of two numbers in 32 bits.
fn straw(group: u32, shard: u32) -> u32 {
    let (mut a, mut b, mut hash) = (group, shard, SEED ^ group ^ shard);
    let (mut x, mut y) = (231_232, 1_232);
    mix(&mut a, &mut b, &mut hash);
    mix(&mut x, &mut a, &mut hash);
    mix(&mut b, &mut y, &mut hash);
    hash
}

/// Jenkins' mix: three rounds, in each of which every number takes up the two others.
fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    for (right, left, last) in [(13, 8, 13), (12, 16, 5), (3, 10, 15)] {
        *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> right);
        *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << left);
        *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_lead_to_the_final_one() {
        for name in [&b".file.aB3xYz"[..], b"file.aB3xYz12", b"file~", b"file.BAK", b"file.orig"] {
            assert_eq!(stem(name, true), b"file", "{}", name.escape_ascii());
            assert_eq!(stem(name, false), b"file", "{}", name.escape_ascii());
        }
    }

    #[test]
    fn other_names_stay() {
        let whole: [&[u8]; 11] = [
            b"",
            b"file.aB3xYz",      // a suffix of six needs a dot in front
            b".file.README",     // a word
            b"file.20240101",    // a date
            b"file.2024010x",    // almost a number
            b"file.mdtest.12.3", // a dot in the suffix
            b"..aB3xYz",         // nothing is left
            b".aB3xYz12",
            b".~",
            b"~",
            b".bak",
        ];
        for name in whole {
            assert_eq!(stem(name, true), name, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn the_first_crush_takes_more_for_temporary() {
        assert_eq!(stem(b"file.20240101", false), b"file");
        assert_eq!(stem(b"a.12.mdtE", false), b"a.12.mdtE", "the dot is elsewhere");
        assert_eq!(stem(b"a.12.mdtEs", false), b"a", "any byte counts");
        assert_eq!(stem(b"a.12.mdtEs", true), b"a.12.mdtEs");
    }
}
