//! Comments and prose are at most 100 columns wide, as code is by rustfmt. Tables, code blocks and
//! lines with a web address may be wider.

use anyhow::Result;

use super::tree::{File, Tree};

const COLUMNS_MAX: usize = 100;

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    tree.all().for_each(|file| look_at(file, wrong));
    Ok(())
}

fn look_at(file: &File, wrong: &mut Vec<String>) {
    let whole: Vec<&str> = file.text.lines().collect();
    for (number, prose) in file.prose() {
        let width = whole[number - 1].chars().count();
        let may_be_wide = prose.trim_start().starts_with('|') || prose.contains("://");
        if width > COLUMNS_MAX && !may_be_wide {
            wrong.push(format!("{}:{number}: {width} columns, {COLUMNS_MAX} at most", file.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::look_at;
    use crate::tidy::tree::file;

    #[test]
    fn only_prose_must_be_narrow() {
        let check = |name: &str, text: &str| {
            let mut wrong = Vec::new();
            look_at(&file(name, text), &mut wrong);
            wrong.len()
        };
        let wide = "x".repeat(101);
        assert_eq!(check("a.md", &wide), 1);
        assert_eq!(check("a.rs", &format!("/// {wide}")), 1);
        assert_eq!(check("a.rs", &format!("    // {}", "x".repeat(94))), 1);
        assert_eq!(check("a.md", &format!("| {wide} |\n```\n{wide}\n```\nhttps://{wide}")), 0);
        assert_eq!(check("a.rs", &format!("/// ```\n/// {wide}\n/// ```\nlet a = \"{wide}\";")), 0);
    }
}
