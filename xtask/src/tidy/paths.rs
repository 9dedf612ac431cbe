//! Paths in backticks in `*.md` exist: `crates/rpc/service`, `logic/nrs/src/head.rs`, `crrn.rs`.
//!
//! A path may be written from the root, from `crates/`, from the document, or by its last parts
//! alone. Braces mean several: `src/{head,pick}.rs`.

use anyhow::Result;

use super::links::beside;
use super::tree::{File, Tree};

/// Endings by which a name without a slash is taken for a file.
const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".sh"];

/// The history names files as they were called then.
const HISTORY: &str = "CHANGELOG.md";

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    for file in tree.markdown().filter(|file| file.name != HISTORY) {
        for (number, line) in file.prose() {
            for span in line.split('`').skip(1).step_by(2).filter(|span| is_path(tree, span)) {
                for path in expand(span).iter().filter(|path| !exists(tree, file, path)) {
                    wrong.push(format!("{}:{number}: '{path}' does not exist", file.name));
                }
            }
        }
    }
    Ok(())
}

/// Whether a reader would look for `span` in the repository.
fn is_path(tree: &Tree, span: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./{},-".contains(letter);
    if !span.chars().all(is_plain) || span.starts_with(['/', '.', '-']) {
        return false;
    }
    // `corpus/TARGET/seeds` stands for any target
    let is_name = |part: &str| part.len() > 1 && part.bytes().all(|byte| byte.is_ascii_uppercase());
    if span.split('/').any(is_name) && span != "LICENSE" {
        return false;
    }
    match span.split_once('/') {
        Some((first, _)) => tree.has(first) || tree.has(&format!("crates/{first}")),
        None => ENDINGS.iter().any(|ending| span.len() > ending.len() && span.ends_with(ending)),
    }
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
pub(super) fn expand(span: &str) -> Vec<String> {
    let Some((before, (inside, after))) =
        span.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![span.to_owned()];
    };
    inside.split(',').flat_map(|one| expand(&format!("{before}{one}{after}"))).collect()
}

fn exists(tree: &Tree, from: &File, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let tail = format!("/{path}");
    tree.has(path)
        || tree.has(&format!("crates/{path}"))
        || beside(&from.name, path).is_some_and(|name| tree.has(&name))
        || tree.names().any(|name| name.ends_with(&tail))
}

#[cfg(test)]
mod tests {
    use super::look;
    use crate::tidy::tree::{Tree, file};

    #[test]
    fn paths_are_looked_for_where_a_reader_would() {
        let check = |text: &str| {
            let present = ["docs/a.md", "docs/b.md", "crates/rpc/service/src/head.rs"];
            let tree = Tree::new(&present, vec![file("docs/a.md", text)]);
            let mut wrong = Vec::new();
            look(&tree, &mut wrong).expect("a rule that cannot fail");
            wrong.len()
        };
        for good in [
            "`crates/rpc/service`, `rpc/service/src/head.rs`, `head.rs`, `b.md`",
            "`src/{head,head}.rs`, `rpc/`",
            "`/etc/fstab`, `rpc/NAME/gone.rs`, `key/value`, `a.b.rs c`, `nacre up`",
            "```\n`docs/gone.md`\n```",
        ] {
            assert_eq!(check(good), 0, "{good}");
        }
        assert_eq!(check("`rpc/gone`, `gone.rs`, `docs/{b,gone}.md`"), 3);
    }
}
