//! Pools of OSTs as commands name and show them.

use std::fmt::Write as _;

use ctl::Pools;

const INDEX_MAX: u32 = types::TARGET_INDEX_MAX;

/// `FSNAME.POOL`, `FSNAME.` or `POOL`: the file system, empty without one, and the pool.
pub(crate) fn parse(text: &str) -> (&str, &str) {
    text.split_once('.').unwrap_or(("", text))
}

/// The OSTs that `word` names, of those that there are.
///
/// `OST0002`, `testfs-OST0002_UUID`, `2`, `0-3`, and patterns with hexadecimal numbers as names
/// have them: `OST[0-7/2]`, `OST[8,a-c]`, `OST000[0-3]`. A single name must be there, of a pattern
/// or range at least one.
pub(crate) fn expand(word: &str, known: &Pools) -> Result<Vec<u32>, String> {
    let bad = || format!("'{word}' names no OST: expected OST0002, OST[0-3] or an index");
    let name = word.strip_prefix(&known.fsname).and_then(|rest| rest.strip_prefix('-'));
    let name = name.unwrap_or(word);
    let name = name.strip_suffix("_UUID").unwrap_or(name);
    let wanted = match name.strip_prefix("OST") {
        Some(number) => pattern(number).ok_or_else(bad)?,
        None => {
            let (first, last) = name.split_once('-').unwrap_or((name, name));
            let index = |text: &str| text.parse().ok().filter(|index| *index <= INDEX_MAX);
            (index(first).ok_or_else(bad)?..=index(last).ok_or_else(bad)?).collect()
        }
    };
    if wanted.is_empty() {
        return Err(bad());
    }
    let there: Vec<u32> = wanted.into_iter().filter(|index| known.osts.contains(index)).collect();
    if there.is_empty() {
        return Err(format!("no OST of {} is called '{word}': see lfs osts", known.fsname));
    }
    Ok(there)
}

/// The same with the members of a pool, of which some may be forgotten.
pub(crate) fn with_members(mut known: Pools, pool: &str) -> Pools {
    let members = known.pools.get(pool).cloned().unwrap_or_default();
    known.osts.extend(members);
    known
}

/// Indices of `0002`, `[0-3]`, `000[8,a-c]`, `[0-7/2]`.
fn pattern(text: &str) -> Option<Vec<u32>> {
    let hex = |text: &str| -> Option<u32> {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|index| plain && *index <= INDEX_MAX)
    };
    let Some((head, list)) = text.split_once('[') else {
        return hex(text).map(|index| vec![index]);
    };
    let list = list.strip_suffix(']')?;
    let mut indices = Vec::new();
    for part in list.split(',') {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let step = step.parse::<usize>().ok().filter(|step| *step > 0)?;
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let base = hex(&format!("{head}{first}"))?;
        let count = hex(last)?.checked_sub(hex(first)?)?;
        let end = base.checked_add(count).filter(|end| *end <= INDEX_MAX)?;
        indices.extend((base..=end).step_by(step));
    }
    indices.sort_unstable();
    indices.dedup();
    Some(indices)
}

/// All pools of a file system, or the members of one; `None` where that is not there.
pub(crate) fn render(pools: &Pools, pool: &str) -> Option<String> {
    let fsname = &pools.fsname;
    let mut out = String::new();
    if pool.is_empty() {
        let _ = writeln!(out, "Pools from {fsname}:");
        for name in pools.pools.keys() {
            let _ = writeln!(out, "{fsname}.{name}");
        }
        return Some(out);
    }
    let members = pools.pools.get(pool)?;
    let _ = writeln!(out, "Pool: {fsname}.{pool}");
    for index in members {
        let _ = writeln!(out, "{fsname}-OST{index:04x}_UUID");
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Pools {
        Pools {
            fsname: "testfs".into(),
            osts: (0..13).collect(),
            pools: [("flash".to_owned(), vec![0, 10]), ("new".to_owned(), vec![])].into(),
        }
    }

    #[test]
    fn osts_are_named_in_many_ways() {
        let found = |word| expand(word, &known());
        for (word, osts) in [
            ("OST0002", vec![2]),
            ("testfs-OST000a_UUID", vec![10]),
            ("testfs-OST000a", vec![10]),
            ("OSTc", vec![12]),
            ("12", vec![12]),
            ("1-3", vec![1, 2, 3]),
            ("OST[0-7/2]", vec![0, 2, 4, 6]),
            ("OST[8,a-c]", vec![8, 10, 11, 12]),
            ("OST000[0-3]", vec![0, 1, 2, 3]),
            ("testfs-OST00[08-0b]", vec![8, 9, 10, 11]),
            ("OST[b-1f]", vec![11, 12]),
        ] {
            assert_eq!(found(word), Ok(osts), "{word}");
        }
        for (word, part) in [
            ("OST000d", "no OST of testfs"),
            ("OST[d-f]", "no OST of testfs"),
            ("OST", "names no OST"),
            ("OST[3-1]", "names no OST"),
            ("OST[0-7/0]", "names no OST"),
            ("OST[0-7", "names no OST"),
            ("OST00g0", "names no OST"),
            ("3-1", "names no OST"),
            ("other-OST0001", "names no OST"),
            ("", "names no OST"),
        ] {
            let error = found(word).expect_err(word);
            assert!(error.contains(part), "{word}: {error}");
        }
    }

    #[test]
    fn a_member_that_is_forgotten_can_be_named() {
        let mut known = known();
        known.pools.insert("old".into(), vec![3, 20]);
        assert!(expand("OST0014", &known).is_err());
        let known = with_members(known, "old");
        assert_eq!(expand("OST0014", &known), Ok(vec![20]));
        assert_eq!(expand("testfs-OST0014_UUID", &known), Ok(vec![20]));
    }

    #[test]
    fn pools_are_listed_and_their_members() {
        let shown = |pool| render(&known(), pool);
        assert_eq!(shown("").as_deref(), Some("Pools from testfs:\ntestfs.flash\ntestfs.new\n"));
        assert_eq!(
            shown("flash").as_deref(),
            Some("Pool: testfs.flash\ntestfs-OST0000_UUID\ntestfs-OST000a_UUID\n")
        );
        assert_eq!(shown("new").as_deref(), Some("Pool: testfs.new\n"));
        assert_eq!(shown("gone"), None);
        assert_eq!(
            [parse("testfs.flash"), parse("flash"), parse("testfs.")],
            [("testfs", "flash"), ("", "flash"), ("testfs", "")]
        );
    }
}
