//! Every file of code opens with `//!`, which says what the file is.

use anyhow::Result;

use super::tree::{File, Tree};

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    tree.rust().for_each(|file| look_at(file, wrong));
    Ok(())
}

fn look_at(file: &File, wrong: &mut Vec<String>) {
    if !file.text.starts_with("//!") {
        wrong.push(format!("{}: does not open with `//!`", file.name));
    }
}

#[cfg(test)]
mod tests {
    use super::look_at;
    use crate::tidy::tree::file;

    #[test]
    fn code_in_front_of_the_opening_is_refused() {
        let check = |text: &str| {
            let mut wrong = Vec::new();
            look_at(&file("a.rs", text), &mut wrong);
            wrong
        };
        assert!(check("//! A file.\n\nuse a::B;\n").is_empty());
        for text in ["", "use a::B;\n", "#![no_std]\n//! A file.\n"] {
            assert_eq!(check(text), ["a.rs: does not open with `//!`"], "{text}");
        }
    }
}
