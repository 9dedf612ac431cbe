//! Crates without tests in their documentation say `doctest = false`. `cargo test` starts rustdoc
//! for each other crate, one after the other, and it reads the whole crate to find nothing.

use std::fs;

use anyhow::{Context, Result};

use super::tree::{File, Tree};
use crate::run;

const OFF: &str = "doctest = false";
/// Blocks that rustdoc does not run.
const NOT_RUN: &[&str] = &["text", "ignore"];

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    for manifest in tree.names().filter(|name| name.ends_with("/Cargo.toml")) {
        let source = format!("{}src/", manifest.trim_end_matches("Cargo.toml"));
        if tree.has(&format!("{source}lib.rs")) {
            let text = fs::read_to_string(run::root().join(manifest)).context("a Cargo.toml")?;
            let files = tree.rust().filter(|file| file.name.starts_with(&source));
            look_at(manifest, text.contains(OFF), files, wrong);
        }
    }
    Ok(())
}

fn look_at<'a>(
    manifest: &str,
    is_off: bool,
    files: impl Iterator<Item = &'a File>,
    wrong: &mut Vec<String>,
) {
    let tests: Vec<String> = files.flat_map(tests_in).collect();
    if is_off {
        let unseen = |place: &String| format!("{place}: {manifest} says {OFF}");
        wrong.extend(tests.iter().map(unseen));
    } else if tests.is_empty() {
        wrong.push(format!("{manifest}: no block of its documentation is a test, so {OFF}"));
    }
}

/// Where blocks begin that rustdoc would run.
fn tests_in(file: &File) -> Vec<String> {
    let (mut is_open, mut found) = (false, Vec::new());
    for (at, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let Some(body) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_open = false;
            continue;
        };
        let Some(kind) = body.trim_start().strip_prefix("```") else { continue };
        is_open = !is_open;
        if is_open && !NOT_RUN.contains(&kind.trim()) {
            found.push(format!("{}:{}", file.name, at + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::look_at;
    use crate::tidy::tree::file;

    #[test]
    fn a_test_in_the_documentation_runs_and_a_crate_without_one_is_passed_by() {
        let check = |is_off: bool, text: &str| {
            let (file, mut wrong) = (file("a/src/lib.rs", text), Vec::new());
            look_at("a/Cargo.toml", is_off, std::iter::once(&file), &mut wrong);
            wrong
        };
        let test = "//! One\n//!\n//! ```\n//! assert!(true);\n//! ```\n";
        let picture = "/// One\n/// ```text\n/// a -> b\n/// ```\nfn a() {}\n";
        assert!(check(false, test).is_empty() && check(true, picture).is_empty());
        assert_eq!(check(true, test), ["a/src/lib.rs:3: a/Cargo.toml says doctest = false"]);
        assert_eq!(check(true, &test.replace("```\n//! a", "```no_run\n//! a")).len(), 1);
        assert_eq!(check(false, picture).len(), 1);
    }
}
