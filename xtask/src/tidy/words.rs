//! Words that must not be in code, because each is a promise instead of a thing.

use anyhow::Result;

use super::tree::{File, Tree};

const WORDS: &[&str] = &["TODO", "FIXME", "XXX", "unimplemented!(", "todo!("];

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    // the rules themselves name the words
    let files = tree.rust().filter(|file| !file.name.starts_with("xtask/"));
    files.for_each(|file| look_at(file, wrong));
    Ok(())
}

fn look_at(file: &File, wrong: &mut Vec<String>) {
    for (number, line) in file.text.lines().enumerate() {
        for word in WORDS.iter().filter(|word| line.contains(**word)) {
            wrong.push(format!("{}:{}: {word}", file.name, number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::look_at;
    use crate::tidy::tree::file;

    #[test]
    fn a_promise_is_found_with_its_line() {
        let mut wrong = Vec::new();
        look_at(&file("a.rs", "fn a() {}\nfn b() { todo!() } // FIXME"), &mut wrong);
        assert_eq!(wrong, ["a.rs:2: FIXME", "a.rs:2: todo!("]);
    }
}
