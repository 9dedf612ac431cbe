//! `docs/operations.md` lists every parameter that exists.
//!
//! The list of existing parameters is a file. A test compares the file with a running file system,
//! its servers and a mount (`tests/mounted/tests/params.rs`; `NACRE_UPDATE=1` rewrites it).

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};

use super::tree::Tree;
use crate::run;

const KEPT: &str = "tests/mounted/parameters.txt";
const DOCUMENT: &str = "docs/operations.md";

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    let kept = fs::read_to_string(run::root().join(KEPT)).with_context(|| KEPT.to_owned())?;
    let document = tree.get(DOCUMENT).with_context(|| DOCUMENT.to_owned())?;
    let missing = missing(&kept, &document.text);
    wrong.extend(missing.into_iter().map(|name| format!("{DOCUMENT}: '{name}' is not listed")));
    Ok(())
}

/// Names of `kept`, by their last part, that no span in backticks has as its own last part.
fn missing(kept: &str, document: &str) -> Vec<String> {
    let listed: BTreeSet<String> =
        document.split('`').skip(1).step_by(2).flat_map(last_parts).collect();
    let names = kept.lines().map(|line| line.trim_end_matches('=')); // can be set
    let kept = names.flat_map(last_parts).collect::<BTreeSet<String>>();
    kept.difference(&listed).cloned().collect()
}

/// `a.{b,c_{d,e}}` ends in `b`, `c_d` and `c_e`.
fn last_parts(span: &str) -> Vec<String> {
    let spans = super::paths::expand(span);
    let last = |name: &String| name.rsplit('.').next().unwrap_or(name).to_owned();
    spans.iter().map(last).collect()
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn a_parameter_that_is_not_listed_is_named() {
        let kept = "ost.OSS.stats=\nost.OSS.threads_max=\nuuid\nost.OSS.mntdev";
        let document = "| `$S.threads_{min,max}`, `uuid` | `{mdt,ost}.*.stats` |";
        assert_eq!(missing(kept, document), ["mntdev"]);
    }
}
