//! The size limit of functions. A longer one takes steps that deserve names.
//!
//! It counts lines of code as rustfmt writes it: a function ends at the first line that closes a
//! brace at its own indentation. Tests and samples are exempt: a table of cases has no steps.

use anyhow::Result;

use super::sizes::{is_test, lines_of_code};
use super::tree::{File, Tree};

/// Lines of a function, signature and closing brace included.
const FUNCTION_LINES_MAX: usize = 100;

/// Words before `fn`.
const QUALIFIERS: &[&str] = &["pub", "const", "async", "unsafe", "extern"];

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    let is_code = |file: &&File| !is_test(&file.name) && !file.name.starts_with("fuzz/");
    tree.rust().filter(is_code).for_each(|file| look_at(file, wrong));
    Ok(())
}

fn look_at(file: &File, wrong: &mut Vec<String>) {
    let lines: Vec<&str> = file.text.lines().take(lines_of_code(&file.text)).collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = named(line) else { continue };
        let length = length(&lines[at..]);
        if length > FUNCTION_LINES_MAX {
            let (file, at) = (&file.name, at + 1);
            wrong.push(format!(
                "{file}:{at}: `{name}` has {length} lines, {FUNCTION_LINES_MAX} at most"
            ));
        }
    }
}

/// The name of the function that begins in this line.
pub(super) fn named(line: &str) -> Option<&str> {
    let (before, behind) = line.trim_start().split_once("fn ")?;
    let is_qualifier = |word: &str| {
        let word = word.split('(').next().unwrap_or(word);
        QUALIFIERS.contains(&word) || word.starts_with('"')
    };
    let is_begin = before.split_whitespace().all(is_qualifier);
    let end = behind.find(|char: char| !char.is_alphanumeric() && char != '_')?;
    (is_begin && end > 0).then(|| &behind[..end])
}

/// Lines of the function that begins in the first one; zero if it has no body.
fn length(lines: &[&str]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = lines.first().map_or(0, |line| indent(line));
    let mut has_body = false;
    for (at, line) in lines.iter().enumerate() {
        if line.is_empty() || indent(line) != own {
            continue;
        }
        if has_body && line[own..].starts_with('}') {
            return at + 1;
        }
        if !has_body && line.ends_with([';', '}']) {
            return 0; // a declaration, or a body in the same line
        }
        has_body |= line.ends_with('{');
    }
    0
}

#[cfg(test)]
mod tests {
    use super::{FUNCTION_LINES_MAX, look_at, named};
    use crate::tidy::tree::file;

    fn check(text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        look_at(&file("a/src/b.rs", text), &mut wrong);
        wrong
    }

    #[test]
    fn a_long_function_is_refused_wherever_it_is() {
        let body = |lines: usize| "        x();\n".repeat(lines);
        let longest = FUNCTION_LINES_MAX - 2;
        let inside = |lines| format!("impl A {{\n    fn b() {{\n{}    }}\n}}\n", body(lines));
        assert_eq!(check(&inside(longest)), [""; 0]);
        let expected = ["a/src/b.rs:2: `b` has 101 lines, 100 at most"];
        assert_eq!(check(&inside(longest + 1)), expected);
        let wide = |lines| {
            format!(
                "pub(crate) async fn c(\n    a: u8,\n) -> u8 {{\n{}}}\nfn d() {{}}\n",
                body(lines)
            )
        };
        assert_eq!(check(&wide(longest - 2)), [""; 0]);
        let expected = ["a/src/b.rs:1: `c` has 101 lines, 100 at most"];
        assert_eq!(check(&wide(longest - 1)), expected);
    }

    #[test]
    fn declarations_and_tests_do_not_count() {
        let rest = "    x();\n".repeat(200);
        let declared = format!("trait A {{\n    fn b(\n        a: u8,\n    );\n{rest}}}\n");
        assert_eq!(check(&declared), [""; 0]);
        assert_eq!(check(&format!("fn a() {{}}\nmod b {{\n{rest}}}\n")), [""; 0]);
        assert_eq!(
            check(&format!("#[cfg(test)]\nmod tests {{\nfn a() {{\n{rest}}}\n}}\n")),
            [""; 0]
        );
    }

    #[test]
    fn functions_are_told_from_their_types() {
        assert_eq!(named("    pub(crate) const fn row(opcode: Opcode) -> u8 {"), Some("row"));
        assert_eq!(named("unsafe extern \"C\" fn f<'a>(a: &'a u8) {"), Some("f"));
        for line in ["    run: fn (u8) -> u8,", "    let a: fn (u8) = b;", "// a fn of b (c)"] {
            assert_eq!(named(line), None, "{line}");
        }
    }
}
