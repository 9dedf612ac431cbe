//! CONTRIBUTING's rules of words that are about a sentence or a heading, as far as a script can
//! judge them:
//!
//! - rule 4: a sentence, or a clause behind a semicolon, that begins with a free "what";
//! - rule 5: words, colons and semicolons of a sentence;
//! - rule 6: "the limit of the kernel's";
//! - rule 7: a heading that asks.
//!
//! Documents are read without code blocks, tables and figures that a program writes. Tables are
//! left out because a cell may be a list. In help texts, errors, lines of logs and openings of
//! modules only the words between two colons or semicolons are counted. "N: meaning" and lists of
//! exit codes are usual there.

use std::fs;

use anyhow::{Context, Result};

use super::prose::messages;
use super::tree::{File, Tree};
use crate::run::root;

/// Words of a sentence. A span in backticks is one word.
const WORDS_MAX: usize = 25;

/// Colons and semicolons of a sentence.
const STOPS_MAX: usize = 1;

/// Folder with the kept help texts.
const HELP: &str = "crates/tools/nacre/tests/help";

/// Columns before the descriptions of options. Lines with fewer are names, tables or examples,
/// except those with none, which are prose.
const DESCRIPTION_COLUMNS: usize = 8;

/// Columns before the lines of a table in the description of an option.
const TABLE_COLUMNS: usize = 12;

/// Lines of documents that are not in a paragraph: headings, tables, comments, pictures.
const APART: &[&str] = &["#", "|", "<!--", "!["];

/// Around the text that `cargo xtask bench --publish` writes.
const FIGURES: [&str; 2] = ["<!-- figures:", "<!-- end of figures"];

/// First words of a heading that asks.
const QUESTIONS: &[&str] = &["What", "How", "Why", "Who", "When", "Where", "Which", "Whether"];

/// End with a full stop in the middle of a sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "etc.", "cf.", "vs."];

/// Stand before an owner: `of the kernel's`.
const ARTICLES: &[&str] = &["the", "a", "an", "its", "each", "every", "another"];

/// A paragraph or an item of a list: its first line and its text.
type Block = (usize, String);

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    tree.markdown().for_each(|file| document(file, wrong));
    for file in tree.rust() {
        opening(file, wrong);
        messages(file).iter().for_each(|(number, text)| clauses(&file.name, *number, text, wrong));
    }
    for entry in fs::read_dir(root().join(HELP)).context(HELP)? {
        let path = entry?.path();
        let name = format!("{HELP}/{}", path.file_name().unwrap_or_default().display());
        let text = fs::read_to_string(&path)?;
        described(&text).iter().for_each(|(number, text)| clauses(&name, *number, text, wrong));
    }
    Ok(())
}

fn document(file: &File, wrong: &mut Vec<String>) {
    for (number, line) in file.prose().filter(|(_, line)| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim();
        let first = heading.split(' ').next().unwrap_or_default();
        if QUESTIONS.contains(&first) || heading.ends_with('?') {
            let name = &file.name;
            wrong.push(format!(
                "{name}:{number}: '{heading}' asks (rule 7 of CONTRIBUTING's words)"
            ));
        }
    }
    for (number, block) in blocks(file.prose()) {
        each_sentence(&block, |sentence| {
            let mut refuse = |why: &str| wrong.push(refused(&file.name, number, sentence, why));
            let words = spoken(sentence);
            if words > WORDS_MAX {
                refuse(&format!("{words} words, {WORDS_MAX} at most (rule 5"));
            }
            let colons = sentence.iter().filter(|word| stops(word)).count();
            if colons > STOPS_MAX {
                refuse(&format!("{colons} colons and semicolons, {STOPS_MAX} at most (rule 5"));
            }
            form(sentence, &mut refuse);
        });
    }
}

/// The lines `//!` of a file.
fn opening(file: &File, wrong: &mut Vec<String>) {
    let lines: Vec<&str> = file.text.lines().collect();
    let is_opening = |number: usize| lines[number - 1].trim_start().starts_with("//!");
    for (number, block) in blocks(file.prose().filter(|(number, _)| is_opening(*number))) {
        clauses(&file.name, number, &block, wrong);
    }
}

/// A paragraph of a help text or an opening, or a message.
fn clauses(name: &str, number: usize, block: &str, wrong: &mut Vec<String>) {
    each_sentence(block, |sentence| {
        let mut refuse = |why: &str| wrong.push(refused(name, number, sentence, why));
        let clauses = sentence.split_inclusive(|word| stops(word));
        let words = clauses.map(spoken).max().unwrap_or_default();
        if words > WORDS_MAX {
            refuse(&format!("{words} words, {WORDS_MAX} at most (rule 5"));
        }
        form(sentence, &mut refuse);
    });
}

fn each_sentence(block: &str, look: impl FnMut(&[&str])) {
    let text = plain(block);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.split_inclusive(|word| is_last(word)).for_each(look);
}

fn refused(name: &str, number: usize, sentence: &[&str], why: &str) -> String {
    let start = sentence[..sentence.len().min(6)].join(" ");
    format!("{name}:{number}: '{start} ..': {why} of CONTRIBUTING's words)")
}

/// Rules 4 and 6. Each reason names its rule.
fn form(sentence: &[&str], refuse: &mut impl FnMut(&str)) {
    let is_question = sentence.last().is_some_and(|word| bare(word).ends_with('?'));
    let is_behind = |pair: &[&str]| bare(pair[0]).ends_with(';') && pair[1] == "what";
    let begins = sentence.first() == Some(&"What") || sentence.windows(2).any(is_behind);
    if begins && !is_question {
        refuse("begins with a free what (rule 4");
    }
    if is_of_an_owner(sentence) {
        refuse("of an owner's (rule 6");
    }
}

/// `the limit of the kernel's`, but not `a half of the MDT's time and a third of the client's`.
fn is_of_an_owner(sentence: &[&str]) -> bool {
    let is_owner = |word: &str| word.trim_end_matches(['.', ',', ';', ':', ')']).ends_with("'s");
    let Some(at) = sentence.iter().position(|word| is_owner(word)) else { return false };
    let is_end = at + 1 == sentence.len() || !sentence[at].ends_with("'s");
    is_end && at >= 2 && sentence[at - 2] == "of" && ARTICLES.contains(&sentence[at - 1])
}

/// Paragraphs and items of lists, from lines with their numbers. A missing line ends a block.
fn blocks<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut last, mut is_open, mut is_made) = (0, false, false);
    for (number, line) in lines {
        let text = line.trim();
        let [begin, end] = FIGURES;
        is_made = (is_made || text.starts_with(begin)) && !text.starts_with(end);
        let goes_on = is_open && number == last + 1;
        last = number;
        is_open = !is_made && !text.is_empty() && !APART.iter().any(|it| text.starts_with(*it));
        let item = item(text);
        match found.last_mut() {
            _ if !is_open => {}
            Some((_, block)) if goes_on && item.is_none() => {
                block.push(' ');
                block.push_str(text);
            }
            _ => found.push((number, item.unwrap_or(text).to_owned())),
        }
    }
    found
}

/// The text of an item of a list, without its mark.
fn item(text: &str) -> Option<&str> {
    let behind = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let mark: &[char] = if behind.len() < text.len() { &['.'] } else { &['-', '*'] };
    behind.strip_prefix(mark)?.strip_prefix(' ').map(str::trim_start)
}

/// Prose of a help text: lines in the first column, and descriptions of options.
fn described(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut indent, mut is_open) = (0, false);
    for (at, line) in text.lines().enumerate() {
        let prose = line.trim_start();
        let columns = line.len() - prose.len();
        let goes_on = is_open && columns == indent;
        indent = columns;
        let is_described = columns >= DESCRIPTION_COLUMNS && columns != TABLE_COLUMNS;
        let is_prose = columns == 0 || is_described;
        is_open = is_prose && !prose.is_empty() && !prose.starts_with(['-', '[', '$']);
        match found.last_mut() {
            _ if !is_open => {}
            Some((_, block)) if goes_on => {
                block.push(' ');
                block.push_str(prose);
            }
            _ => found.push((at + 1, prose.to_owned())),
        }
    }
    found
}

/// Without the addresses of links, and with `x` in place of each span in backticks.
pub(super) fn plain(block: &str) -> String {
    let spans = block.split('`').enumerate();
    let named: String = spans.map(|(at, span)| if at % 2 == 0 { span } else { "x" }).collect();
    let mut parts = named.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// A word without the marks that may be behind its full stop or colon.
fn bare(word: &str) -> &str {
    word.trim_end_matches([')', '"', '*', '_', ']', '\''])
}

fn is_last(word: &str) -> bool {
    bare(word).ends_with(['.', '?', '!']) && !ABBREVIATIONS.contains(&bare(word))
}

fn stops(word: &str) -> bool {
    bare(word).ends_with([':', ';'])
}

/// Words without dashes and other signs.
fn spoken(words: &[&str]) -> usize {
    words.iter().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

#[cfg(test)]
mod tests {
    use super::{clauses, described, document, opening};
    use crate::tidy::tree::file;

    fn check(text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        document(&file("a.md", text), &mut wrong);
        wrong.iter().map(|line| line.replace(" of CONTRIBUTING's words", "")).collect()
    }

    #[test]
    fn a_sentence_has_25_words_and_one_colon() {
        let words = |count: usize| vec!["word"; count].join(" ");
        assert!(check(&format!("{}.\n{}.", words(25), words(25))).is_empty());
        let found = ["a.md:1: 'word word word word word word ..': 26 words, 25 at most (rule 5)"];
        assert_eq!(check(&words(26)), found);
        assert!(check(&format!("{} `a b: c; d` [e](f/g.md) - etc. h.", words(21))).is_empty());
        assert_eq!(
            check("One: two; three."),
            ["a.md:1: 'One: two; three. ..': 2 colons and semicolons, 1 at most (rule 5)"]
        );
        assert_eq!(check("One: two. Three (four): five;").len(), 1);
    }

    #[test]
    fn blocks_end_at_items_tables_fences_and_figures() {
        let half = vec!["word"; 20].join(" ");
        for between in ["\n\n", "\n- ", "\n12. ", "\n# One\n", "\n| a |\n", "\n```\na\n```\n"] {
            assert!(check(&format!("{half}{between}{half}")).is_empty(), "{between:?}");
        }
        assert_eq!(check(&format!("- {half}\n  {half}")).len(), 1);
        assert_eq!(check(&format!("{half}\n**{half}**")).len(), 1);
        let made =
            format!("<!-- figures: short -->\n\n{half}\n{half}\n\n<!-- end of figures -->\n");
        assert!(check(&made).is_empty());
        assert_eq!(check(&format!("{made}{half}\n{half}")).len(), 1);
        assert!(check(&format!("| {half} {half} | a: b: c |")).is_empty());
    }

    #[test]
    fn a_free_what_an_owner_behind_of_and_a_question_are_found() {
        assert_eq!(
            check("It waits. What waits goes."),
            ["a.md:1: 'What waits goes. ..': begins with a free what (rule 4)"]
        );
        assert!(check("What waits?").is_empty());
        assert_eq!(check("It waits; what waits goes.").len(), 1);
        assert!(check("It waits; what waits?").is_empty());
        let found = ["a.md:1: 'It is a limit of the ..': of an owner's (rule 6)"];
        for end in [".", ", as is known.", " "] {
            assert_eq!(check(&format!("It is a limit of the kernel's{end}")), found, "{end}");
        }
        assert!(check("A half of the MDT's time and a third of the client's.").is_empty());
        assert!(check("Limits of the kernel's caches.").is_empty());
        assert_eq!(check("## What a pass costs"), ["a.md:1: 'What a pass costs' asks (rule 7)"]);
        assert_eq!(check("# Costs?").len(), 1);
        assert!(check("# Costs of what waits").is_empty());
    }

    #[test]
    fn openings_are_read_without_other_comments() {
        let mut wrong = Vec::new();
        let half = vec!["word"; 20].join(" ");
        let text =
            format!("//! {half}: {half}.\n//! What waits:\n//! goes.\n\n// What is\nfn f() {{}}");
        opening(&file("a.rs", &text), &mut wrong);
        let found = "'What waits: goes. ..': begins with a free what (rule 4 of CONTRIBUTING's";
        assert_eq!(wrong, [format!("a.rs:1: {found} words)")]);
    }

    #[test]
    fn help_texts_and_messages_are_read_by_clause() {
        let half = vec!["word"; 20].join(" ");
        let check = |block: &str| {
            let mut wrong = Vec::new();
            clauses("a.txt", 1, block, &mut wrong);
            wrong.len()
        };
        assert_eq!(check(&format!("{half}; {half}: {half}")), 0);
        assert_eq!(check(&format!("{half}. {half} {half}")), 1);
        assert_eq!(check("a: what waits. What waits goes"), 1);
    }

    #[test]
    fn help_texts_have_prose_in_the_first_column_and_at_options() {
        let text = "One\ntwo.\n\nOptions:\n  -a  three\n      --b <B>\n          Four\n          \
                    five\n            a  six\n\n          [default: 1]\n";
        let found = described(text);
        let found: Vec<(usize, &str)> = found.iter().map(|(at, it)| (*at, it.as_str())).collect();
        assert_eq!(found, [(1, "One two."), (4, "Options:"), (7, "Four five")]);
    }
}
