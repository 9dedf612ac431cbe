//! Bounds are in the crate's `limits.rs`, or above the functions of their file. So all bounds of a
//! file are seen at its head.
//!
//! A bound is a constant whose name ends in `_MAX`. Tests are exempt.

use anyhow::Result;

use super::functions::named;
use super::sizes::{is_test, lines_of_code};
use super::tree::{File, Tree};

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    let is_code = |file: &&File| !is_test(&file.name) && !file.name.ends_with("/limits.rs");
    tree.rust().filter(is_code).for_each(|file| look_at(file, wrong));
    Ok(())
}

fn look_at(file: &File, wrong: &mut Vec<String>) {
    let lines = file.text.lines().take(lines_of_code(&file.text)).enumerate();
    for (at, line) in lines.skip_while(|(_, line)| named(line).is_none()) {
        if let Some(bound) = bound(line) {
            let (file, at) = (&file.name, at + 1);
            wrong.push(format!(
                "{file}:{at}: `{bound}` is below a function: it belongs to the head of the file"
            ));
        }
    }
}

/// The name of the bound that this line declares.
fn bound(line: &str) -> Option<&str> {
    let (before, behind) = line.trim_start().split_once("const ")?;
    let (name, _) = behind.split_once(':')?;
    let is_declared = before.is_empty() || before.starts_with("pub");
    (is_declared && name.ends_with("_MAX")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{bound, look_at};
    use crate::tidy::tree::file;

    #[test]
    fn a_bound_below_a_function_is_found() {
        let check = |text: &str| {
            let mut wrong = Vec::new();
            look_at(&file("a.rs", text), &mut wrong);
            wrong
        };
        let head = "const A_MAX: u32 = 1;\n\nfn a() {}\n";
        assert!(check(head).is_empty());
        let found = ["a.rs:4: `B_MAX` is below a function: it belongs to the head of the file"];
        assert_eq!(check(&format!("{head}pub(crate) const B_MAX: u32 = 1;\n")), found);
        assert_eq!(check(&format!("{head}    const B_MAX: u32 = 1;\n")), found);
        let tests = "#[cfg(test)]\nmod tests {\n    const B_MAX: u32 = 1;\n}\n";
        assert!(check(&format!("{head}const B: u32 = A_MAX;\n{tests}")).is_empty());
    }

    #[test]
    fn a_bound_is_a_constant_with_its_name() {
        assert_eq!(bound("    pub const A_MAX: usize = 1;"), Some("A_MAX"));
        for line in ["const A: usize = B_MAX;", "let a_MAX: u32 = 1;", "const fn a(b: u32) {"] {
            assert_eq!(bound(line), None, "{line}");
        }
        assert_eq!(bound("impl<const A_MAX: usize> A<A_MAX> {"), None);
    }
}
