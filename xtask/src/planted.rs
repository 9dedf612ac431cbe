//! Checks that release binaries contain no planted bugs and no marks of rare branches, which are
//! for simulation only.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::run;

/// Searches `binary` for the names that `simulator` knows. The simulator itself must contain every
/// name, which shows that the search finds what is there.
pub(crate) fn absent(simulator: &str, binary: &str) -> Result<()> {
    let names = run::output(simulator, &["--names"])?;
    let names: Vec<&str> = names.lines().collect();
    let missing = search(simulator, &names, false)?;
    if names.is_empty() || !missing.is_empty() {
        bail!("the search for planted bugs is blind to: {}", missing.join(", "));
    }
    let found = search(binary, &names, true)?;
    if !found.is_empty() {
        bail!("{binary} contains what only simulation may: {}", found.join(", "));
    }
    eprintln!("{binary} contains none of {} planted bugs and marks", names.len());
    Ok(())
}

/// Those of `names` that `binary` contains, or does not contain.
fn search<'a>(binary: &str, names: &[&'a str], contained: bool) -> Result<Vec<&'a str>> {
    let bytes = std::fs::read(run::root().join(Path::new(binary)))
        .with_context(|| format!("{binary} cannot be read"))?;
    let is_wanted = |name: &&&str| contains(&bytes, name.as_bytes()) == contained;
    Ok(names.iter().filter(is_wanted).copied().collect())
}

fn contains(bytes: &[u8], name: &[u8]) -> bool {
    bytes.windows(name.len()).any(|window| window == name)
}

#[cfg(test)]
mod tests {
    use super::contains;

    #[test]
    fn a_name_is_found_wherever_it_is() {
        let bytes = b"\0mdt.skip_reply_record\0mdt.skip";
        assert!(contains(bytes, b"mdt.skip_reply_record") && contains(bytes, b"mdt.skip"));
        assert!(!contains(bytes, b"ost.skip_tombstones"));
    }
}
