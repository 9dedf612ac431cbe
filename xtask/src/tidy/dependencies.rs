//! Crates from outside: the licence is allowed, the source is crates.io, and each is there in one
//! version.
//!
//! `cargo deny check` checks the same for the whole lock file. It also checks for advisories, which
//! needs a network (`deny.toml`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use super::tree::Tree;
use crate::run;

/// Licences that may be built in. `deny.toml` has the same.
const LICENCES: &[&str] =
    &["Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "Unicode-3.0", "Zlib"];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates that are there in several versions, and why. `deny.toml` skips the same.
const SEVERAL: &[(&str, &str)] = &[
    ("embedded-io", "postcard's buffers name 0.4 and 0.6; neither is compiled in"),
    ("getrandom", "as rand"),
    ("hashbrown", "indexmap has 0.15; ratatui has 0.17"),
    (
        "rand",
        "bolero and proptest, which only tests use, have 0.9 and 0.10; the generator of phf, which \
         lmdb-master-sys builds with, has 0.8, as shuttle has, which only tests use",
    ),
    ("rand_chacha", "as rand"),
    ("rand_core", "as rand"),
    ("syn", "derive macros are moving from 2 to 3; both run at build time only"),
];

pub(super) fn look(_: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    let host = run::output("rustc", &["--print", "host-tuple"])?;
    let metadata: Value = serde_json::from_str(&run::output(
        "cargo",
        &["metadata", "--format-version", "1", "--filter-platform", host.trim()],
    )?)?;
    look_at(metadata["packages"].as_array().context("metadata lists packages")?, wrong);
    Ok(())
}

fn look_at(packages: &[Value], wrong: &mut Vec<String>) {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        let (name, version) = (text("name"), text("version"));
        versions.entry(name).or_default().insert(version);
        if !is_allowed(text("license")) {
            wrong.push(format!("{name} {version}: licence '{}'", text("license")));
        }
        let source = package["source"].as_str();
        if source.is_some_and(|source| source != CRATES_IO) {
            wrong.push(format!("{name} {version}: source '{}'", text("source")));
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        if !SEVERAL.iter().any(|(several, _)| several == name) {
            wrong.push(format!("{name}: {} versions, {versions:?}", versions.len()));
        }
    }
    for (name, _) in SEVERAL {
        if versions.get(name).is_none_or(|versions| versions.len() < 2) {
            wrong.push(format!("{name}: one version by now, its exception can go"));
        }
    }
}

/// Whether a licence expression can be met: of alternatives one, of a conjunction all.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    alternatives(&mut rest) && rest.is_empty()
}

fn alternatives(rest: &mut &[&str]) -> bool {
    let mut allowed = conjunction(rest);
    while let Some(after) = rest.strip_prefix(&["OR"]) {
        *rest = after;
        allowed |= conjunction(rest);
    }
    allowed
}

fn conjunction(rest: &mut &[&str]) -> bool {
    let mut allowed = licence(rest);
    while let Some(after) = rest.strip_prefix(&["AND"]) {
        *rest = after;
        allowed &= licence(rest);
    }
    allowed
}

fn licence(rest: &mut &[&str]) -> bool {
    let Some((first, after)) = rest.split_first() else { return false };
    *rest = after;
    if *first == "(" {
        let allowed = alternatives(rest);
        let Some(after) = rest.strip_prefix(&[")"]) else { return false };
        *rest = after;
        return allowed;
    }
    // an exception only permits more
    if let [with, _, after @ ..] = *rest
        && *with == "WITH"
    {
        *rest = after;
    }
    LICENCES.contains(first)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CRATES_IO, LICENCES, SEVERAL, is_allowed, look_at};

    #[test]
    fn licences_are_read_as_expressions() {
        for good in [
            "MIT",
            "MIT OR GPL-2.0",
            "MIT/Apache-2.0",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT AND (GPL-2.0 OR AGPL-3.0)"] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn licence_source_and_version_are_looked_at() {
        let package = |name: &str, version: &str, license: &str, source: &str| json!({"name": name, "version": version, "license": license, "source": source});
        let mut packages: Vec<_> = SEVERAL
            .iter()
            .flat_map(|(name, _)| {
                ["1", "2"].map(|version| package(name, version, "MIT", CRATES_IO))
            })
            .collect();
        let mut wrong = Vec::new();
        look_at(&packages, &mut wrong);
        assert_eq!(wrong, [""; 0]);
        packages.extend([
            package("one", "1", "GPL-3.0", CRATES_IO),
            package("two", "1", "MIT", "git+https://example.com/two"),
            package("two", "2", "MIT", CRATES_IO),
        ]);
        look_at(&packages, &mut wrong);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        wrong.clear();
        look_at(&packages[1..SEVERAL.len() * 2], &mut wrong);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].contains("its exception can go"), "{wrong:?}");
    }

    #[test]
    fn cargo_deny_is_told_the_same() {
        let deny = include_str!("../../../deny.toml");
        for word in LICENCES.iter().chain(SEVERAL.iter().map(|(name, _)| name)) {
            assert!(deny.contains(&format!("\"{word}\"")), "{word}");
        }
    }
}
