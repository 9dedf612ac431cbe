//! What no compiler checks: the arrows, the words, the sizes.

use std::fs;

use anyhow::{Result, bail};

use crate::{arrows, run};

/// Lines of a source file at most: above that, a second thing lives in it.
const FILE_LINES_MAX: usize = 1_000;

/// Words that must not stand in code: each is a promise instead of a thing.
const WORDS: &[&str] = &["TODO", "FIXME", "XXX", "unimplemented!(", "todo!("];

/// Documents that must exist.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "LICENSE",
    "bench/README.md",
    "docs/semantics.md",
    "docs/design/rpc.md",
    "docs/design/recovery.md",
    "docs/design/store.md",
    "docs/formats/README.md",
];

pub(crate) fn tidy() -> Result<()> {
    arrows::check()?;
    let mut wrong = Vec::new();
    for document in DOCUMENTS {
        if !run::root().join(document).exists() {
            wrong.push(format!("{document}: missing"));
        }
    }
    let files =
        run::output("git", &["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])?;
    for file in files.lines().filter(|file| run::root().join(file).exists()) {
        look_at(file, &fs::read_to_string(run::root().join(file))?, &mut wrong);
    }
    if wrong.is_empty() { Ok(()) } else { bail!("not tidy:\n  {}", wrong.join("\n  ")) }
}

fn look_at(file: &str, text: &str, wrong: &mut Vec<String>) {
    if text.lines().count() > FILE_LINES_MAX {
        wrong.push(format!("{file}: more than {FILE_LINES_MAX} lines"));
    }
    if file.starts_with("xtask/") {
        return;
    }
    for (number, line) in text.lines().enumerate() {
        for word in WORDS {
            if line.contains(word) {
                wrong.push(format!("{file}:{}: {word}", number + 1));
            }
        }
    }
}
