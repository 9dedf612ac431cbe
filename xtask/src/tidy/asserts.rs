//! Crates in which a broken invariant must stop the process use asserts that run in release.

use anyhow::Result;

use super::sizes::lines_of_code;
use super::tree::{File, Tree};

/// Directories of the crates.
const CRATES: &[&str] = &[
    "crates/rpc/service/src/",
    "crates/rpc/endpoint/src/",
    "crates/servers/target/src/",
    "crates/servers/mdt/src/",
    "crates/servers/ost/src/",
];

/// Asserts in 1,000 lines of code, tests left out, comments and blank lines counted.
const ASSERTS_MIN: usize = 4;

const MACROS: &[&str] = &["assert!(", "assert_eq!(", "assert_ne!("];

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    for directory in CRATES {
        look_at(directory, tree.rust().filter(|file| is_code(file, directory)), wrong);
    }
    Ok(())
}

fn look_at<'a>(directory: &str, files: impl Iterator<Item = &'a File>, wrong: &mut Vec<String>) {
    let (mut lines, mut asserts) = (0, 0);
    for file in files {
        let count = lines_of_code(&file.text);
        lines += count;
        asserts += file.text.lines().take(count).filter(|line| is_assert(line)).count();
    }
    if asserts * 1_000 < lines * ASSERTS_MIN {
        wrong.push(format!(
            "{directory}: {asserts} asserts in {lines} lines, at least {ASSERTS_MIN} in 1,000"
        ));
    }
}

fn is_code(file: &File, directory: &str) -> bool {
    let Some(inside) = file.name.strip_prefix(directory) else { return false };
    let name = inside.rsplit('/').next().unwrap_or(inside);
    let is_below_tests = inside.starts_with("tests/") || inside.contains("/tests/");
    !is_below_tests && !["tests.rs", "fuzz.rs"].contains(&name)
}

/// Whether an assert that runs in release begins here: those of constants run while compiling.
fn is_assert(line: &str) -> bool {
    let line = line.trim_start();
    MACROS.iter().any(|name| line.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::{ASSERTS_MIN, is_assert, is_code, look_at};
    use crate::tidy::tree::file;

    #[test]
    fn asserts_outside_of_tests_are_held_against_the_lines() {
        let check = |asserts: usize, lines: usize| {
            let code = "assert!(true);\n".repeat(asserts) + &"x\n".repeat(lines - asserts);
            let tests = "#[cfg(test)]\nmod tests {\n".to_owned() + &"assert!(true);\n".repeat(9);
            let mut wrong = Vec::new();
            look_at("a/", [file("a/b.rs", &(code + &tests))].iter(), &mut wrong);
            wrong
        };
        assert!(check(ASSERTS_MIN, 1_000).is_empty());
        assert_eq!(check(ASSERTS_MIN, 1_001), ["a/: 4 asserts in 1001 lines, at least 4 in 1,000"]);
    }

    #[test]
    fn comments_constants_and_debug_asserts_do_not_count() {
        assert!(is_assert("    assert_eq!(a, b);") && is_assert("assert_ne!("));
        for line in ["// assert!(a)", "const _: () = assert!(A > 0);", "debug_assert!(a);"] {
            assert!(!is_assert(line), "{line}");
        }
    }

    #[test]
    fn files_of_tests_do_not_count() {
        for name in ["a/b.rs", "a/b/c.rs", "a/attests.rs"] {
            assert!(is_code(&file(name, ""), "a/"), "{name}");
        }
        for name in ["a/tests.rs", "a/tests/b.rs", "a/b/tests.rs", "a/b/tests/c.rs", "a/fuzz.rs"] {
            assert!(!is_code(&file(name, ""), "a/"), "{name}");
        }
        assert!(!is_code(&file("b/c.rs", ""), "a/"), "another crate");
    }
}
