//! Writes the figures of a whole run into the documents, between two marks. All figures are from
//! one commit.
//!
//! ```text
//! <!-- figures: whole -->        every part, written into bench/README.md
//! <!-- figures: short -->        the rows of a landing page, written into README.md
//! <!-- end of figures -->
//! ```

use std::fs;

use anyhow::{Context, Result, bail};

use super::markdown;
use crate::machine::Machine;
use crate::plan::PARTS;
use crate::row::{PartResult, Row};
use crate::store::root;

const END: &str = "<!-- end of figures -->";

/// Rows that the landing page shows.
const SHORT: &[&str] = &[
    "mdtest-own/creation",
    "mdtest-own/stat",
    "native/creation",
    "ior-4/write",
    "ior-4/read",
    "rpc/ping, 64 in flight",
];

/// Writes tables and plots; refuses a run that lacks a part.
pub(crate) fn publish(machine: &Machine, results: &[PartResult]) -> Result<()> {
    let missing: Vec<&str> = PARTS
        .iter()
        .map(|part| part.name)
        .filter(|name| !results.iter().any(|result| result.part == *name))
        .collect();
    if !missing.is_empty() {
        bail!("not measured at this commit: {}", missing.join(", "));
    }
    let dir = root().join("docs/figures");
    fs::create_dir_all(&dir)?;
    super::plots(&dir, results)?;
    replace("bench/README.md", "whole", &markdown::whole(machine, results))?;
    let short: Vec<Row> = results
        .iter()
        .flat_map(|result| &result.rows)
        .filter(|row| SHORT.contains(&row.id.as_str()))
        .map(|row| Row { title: row.id.replace('/', ": "), ..row.clone() })
        .collect();
    replace("README.md", "short", &format!("{}\n\n{}", machine.line(), markdown::table(&short)))
}

fn replace(document: &str, name: &str, text: &str) -> Result<()> {
    let path = root().join(document);
    let old = fs::read_to_string(&path)?;
    let new = between(&old, name, text).with_context(|| format!("{document} has no such marks"))?;
    Ok(fs::write(path, new)?)
}

/// `old` with `text` between the marks of `name`.
fn between(old: &str, name: &str, text: &str) -> Option<String> {
    let mark = format!("<!-- figures: {name} -->");
    let start = old.find(&mark)? + mark.len();
    let end = start + old[start..].find(END)?;
    Some(format!("{}\n\n{}\n\n{}", &old[..start], text.trim(), &old[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let old = "a\n<!-- figures: short -->\nold\n<!-- end of figures -->\nb\n";
        let new = between(old, "short", "new\n").expect("the marks are there");
        assert_eq!(new, "a\n<!-- figures: short -->\n\nnew\n\n<!-- end of figures -->\nb\n");
        assert_eq!(between(&new, "short", "new"), Some(new.clone()));
        assert_eq!(between(old, "whole", "new"), None);
    }
}
