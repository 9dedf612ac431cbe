//! Rule 10 of CONTRIBUTING's words, as far as it is about tables of documents: a reader compares
//! cells, and a cell with many numbers cannot be compared.

use anyhow::Result;

use super::sentences::plain;
use super::tree::{File, Tree};

const NUMBERS_MAX: usize = 3;

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    tree.markdown().for_each(|file| look_at(file, wrong));
    Ok(())
}

fn look_at(file: &File, wrong: &mut Vec<String>) {
    for (number, line) in file.prose().filter(|(_, line)| line.trim_start().starts_with('|')) {
        for cell in plain(line).split('|') {
            let count = numbers(cell);
            if count > NUMBERS_MAX {
                let (name, start) = (&file.name, cell.split_whitespace().take(6));
                let start = start.collect::<Vec<_>>().join(" ");
                wrong.push(format!(
                    "{name}:{number}: '{start} ..': {count} numbers in a cell, {NUMBERS_MAX} at \
                     most (rule 10 of CONTRIBUTING's words)"
                ));
            }
        }
    }
}

/// A list, as `069, 070, 075`, counts as one number.
fn numbers(cell: &str) -> usize {
    let (mut count, mut is_in_list) = (0, false);
    let is_digit = |letter: char| letter.is_ascii_digit();
    for word in cell.split_whitespace() {
        let is_number = word.chars().find(|letter| letter.is_alphanumeric()).is_some_and(is_digit);
        count += usize::from(is_number && !is_in_list);
        is_in_list = is_number && word.strip_suffix(',').is_some_and(|it| it.ends_with(is_digit));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{look_at, numbers};
    use crate::tidy::tree::file;

    #[test]
    fn a_cell_has_three_numbers() {
        let check = |text: &str| {
            let mut wrong = Vec::new();
            look_at(&file("a.md", text), &mut wrong);
            wrong
        };
        let ranges = "| 1,032 (690 .. 1,330) | 0.795 (0.659 .. 0.882) | `1 2 3 4` |\n";
        assert!(check(ranges).is_empty());
        assert!(check("1, or 2, and 3 of 4\n\n```\n| 1 2 3 4 |\n```\n").is_empty());
        let start = "a.md:1: '1.56 (0.76 .. 1.86), 1.10 s ..': 4 numbers in a cell";
        let found = check("| a | 1.56 (0.76 .. 1.86), 1.10 s |\n");
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
    }

    #[test]
    fn a_list_is_one_number_and_a_name_is_none() {
        assert_eq!(numbers("generic/069, 070, 075, 091, 129, 346"), 1);
        assert_eq!(numbers("294, 306, 452 (294 and 452 pass now)"), 3);
        assert_eq!(numbers("OST0001, CRC-32C, x, 64-bit"), 1);
        assert_eq!(numbers("+5 % to -3"), 2);
    }
}
