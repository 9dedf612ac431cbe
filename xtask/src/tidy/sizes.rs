//! The size limit of files. A longer file holds a second subject.

use anyhow::Result;

use super::tree::{File, Tree};

/// Lines of code, the tests at the end of the file cut off.
const FILE_LINES_MAX: usize = 750;
/// Lines of a file that is nothing but tests: a table of cases is longer than code should be.
const TEST_LINES_MAX: usize = 1_000;

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    tree.rust().for_each(|file| look_at(file, wrong));
    Ok(())
}

fn look_at(file: &File, wrong: &mut Vec<String>) {
    let max = if is_test(&file.name) { TEST_LINES_MAX } else { FILE_LINES_MAX };
    let lines = lines_of_code(&file.text);
    if lines > max {
        wrong.push(format!("{}: {lines} lines, {max} at most", file.name));
    }
}

pub(super) fn is_test(name: &str) -> bool {
    name.starts_with("tests/") || name.contains("/tests/") || name.ends_with("/tests.rs")
}

pub(super) fn lines_of_code(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::{FILE_LINES_MAX, look_at};
    use crate::tidy::tree::file;

    #[test]
    fn tests_at_the_end_do_not_count() {
        let check = |name: &str, code: usize, tests: usize| {
            let text = "x\n".repeat(code) + "#[cfg(test)]\nmod tests {\n" + &"x\n".repeat(tests);
            let mut wrong = Vec::new();
            look_at(&file(name, &text), &mut wrong);
            wrong
        };
        assert!(check("a/src/b.rs", FILE_LINES_MAX, 500).is_empty());
        assert_eq!(
            check("a/src/b.rs", FILE_LINES_MAX + 1, 0),
            ["a/src/b.rs: 751 lines, 750 at most"]
        );
        assert!(check("a/tests/b.rs", FILE_LINES_MAX + 1, 0).is_empty());
    }
}
