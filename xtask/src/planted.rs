//! Checks that release binaries contain no planted bugs and no marks of rare branches, which are
//! for simulation only.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::run;

/// Searches `binary` for the names that `simulator` knows. The simulator itself must contain every
/// name, which shows that the search finds what is there.
pub(crate) fn absent(simulator: &str, binary: &str) -> Result<()> {
    let names = run::output(simulator, &["--names"])?;
    let names: Vec<&str> = names.lines().collect();
    let known = found_in(simulator, &names)?;
    let missing: Vec<&str> = names.iter().filter(|name| !known.contains(**name)).copied().collect();
    if names.is_empty() || !missing.is_empty() {
        bail!("the search for planted bugs is blind to: {}", missing.join(", "));
    }
    let found: Vec<&str> = found_in(binary, &names)?.into_iter().collect();
    if !found.is_empty() {
        bail!("{binary} contains what only simulation may: {}", found.join(", "));
    }
    eprintln!("{binary} contains none of {} planted bugs and marks", names.len());
    Ok(())
}

/// Those of `names` that the file `binary` contains.
fn found_in<'a>(binary: &str, names: &[&'a str]) -> Result<BTreeSet<&'a str>> {
    let bytes = std::fs::read(run::root().join(Path::new(binary)))
        .with_context(|| format!("{binary} cannot be read"))?;
    Ok(found(&bytes, names))
}

/// Those of `names` that are in `bytes`. It goes over them once, because a binary has a hundred
/// megabytes and there are a hundred names. Two bytes that begin no name are passed by.
fn found<'a>(bytes: &[u8], names: &[&'a str]) -> BTreeSet<&'a str> {
    let pair = |bytes: &[u8]| usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let mut begins = vec![false; 1 << 16];
    names.iter().for_each(|name| begins[pair(name.as_bytes())] = true);
    let mut found = BTreeSet::new();
    for (at, two) in bytes.windows(2).enumerate() {
        if begins[pair(two)] {
            let rest = &bytes[at..];
            let begun = names.iter().filter(|name| rest.starts_with(name.as_bytes()));
            found.extend(begun.copied());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_wherever_it_is() {
        let bytes = b"md\0mdt.skip_reply_record\0mdt.skip\0ost.s";
        let names = ["mdt.skip_reply_record", "mdt.skip", "ost.skip_tombstones", "skip_r", "st.s"];
        let expected = ["mdt.skip", "mdt.skip_reply_record", "skip_r", "st.s"];
        assert_eq!(found(bytes, &names), BTreeSet::from(expected));
        assert!(found(b"", &names).is_empty() && found(b"m", &names).is_empty());
    }
}
