//! Comments, documents and names of functions refer only to things that a reader has. They name no
//! section of a specification that is not in the repository, and no path of a machine. They also
//! name no number of a decision or a requirement kept elsewhere.
//!
//! Such a reference is replaced by the sentence that it means, by a file under `docs/`, or by its
//! public source: a ticket, a paper, an RFC, a file of Lustre.

use anyhow::Result;

use super::tree::{File, Tree};

/// Specifications that are not in the repository.
const ABSENT: &[&str] = &["rpc", "coherence", "namespace", "engines", "grants"];

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    // the rule's own tests show what it refuses
    let files = tree.all().filter(|file| file.name != "xtask/src/tidy/references.rs");
    files.for_each(|file| look_at(file, wrong));
    Ok(())
}

fn look_at(file: &File, wrong: &mut Vec<String>) {
    // a reference may be broken over two lines
    let words: Vec<(usize, &str)> = file
        .prose()
        .flat_map(|(line, text)| text.split_whitespace().map(move |word| (line, word)))
        .collect();
    for (at, (line, word)) in words.iter().enumerate() {
        let next = words.get(at + 1).map_or("", |(_, word)| *word);
        let third = words.get(at + 2).map_or("", |(_, word)| *word);
        if leads_nowhere(word, next, third) {
            wrong.push(format!(
                "{}:{line}: '{word} {next}' names what a reader does not have",
                file.name
            ));
        }
    }
    if file.name.ends_with(".rs") {
        look_at_functions(file, wrong);
    }
}

fn look_at_functions(file: &File, wrong: &mut Vec<String>) {
    for (at, line) in file.text.lines().enumerate() {
        if let Some(name) = function(line).filter(|name| cites(name)) {
            let number = at + 1;
            wrong.push(format!(
                "{}:{number}: 'fn {name}' names what a reader does not have",
                file.name
            ));
        }
    }
}

/// The name of the function that begins in this line.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let begins = before.is_empty() || before.ends_with(' ');
    let is_comment = before.trim_start().starts_with("//");
    let name = rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next();
    name.filter(|_| begins && !is_comment)
}

/// `the_table_of_the_specification`, `spec_5_6`.
fn cites(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let numbered = |pair: &[&str]| ["spec", "design"].contains(&pair[0]) && is_section(pair[1]);
    words.contains(&"specification") || words.windows(2).any(numbered)
}

fn leads_nowhere(word: &str, next: &str, third: &str) -> bool {
    let (word_bare, next_bare, third_bare) = (bare(word), bare(next), bare(third));
    let document = word_bare.to_ascii_lowercase();
    let numbered = |text: &str| is_section(text) || is_decision(text);
    match document.as_str() {
        "spec" | "specification" if ABSENT.contains(&next_bare) => true,
        "spec" | "specification" | "design" => {
            numbered(next_bare)
                || (["section", "part"].contains(&next_bare) && numbered(third_bare))
        }
        _ if ABSENT.contains(&document.as_str()) && next_bare == "spec" => true,
        _ => is_decision(word_bare) || is_requirement(word_bare) || word.contains('\u{a7}'),
    }
}

fn bare(word: &str) -> &str {
    word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric())
}

/// `10`, `5.6`.
fn is_section(word: &str) -> bool {
    !word.is_empty()
        && word.split('.').all(|part| {
            !part.is_empty() && part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// `D4`.
fn is_decision(word: &str) -> bool {
    word.strip_prefix('D').is_some_and(|number| is_section(number) && !number.contains('.'))
}

/// `R-PD-04`.
fn is_requirement(word: &str) -> bool {
    let mut parts = word.split('-');
    parts.next() == Some("R")
        && parts.next().is_some_and(|area| {
            area.len() == 2 && area.bytes().all(|byte| byte.is_ascii_uppercase())
        })
        && parts.next().is_some_and(is_section)
}

#[cfg(test)]
mod tests {
    use super::look_at;
    use crate::tidy::tree::file;

    fn check(comment: &str) -> bool {
        let mut wrong = Vec::new();
        look_at(&file("a.rs", comment), &mut wrong);
        wrong.is_empty()
    }

    #[test]
    fn references_to_absent_documents_are_refused() {
        for comment in [
            "/// Rotor (spec rpc 1.5).",
            "//! Files (spec\n//! namespace 2.7).",
            "/// Atomic (coherence spec, read it).",
            "/// Design 10.15.",
            "/// As decided (design D4).",
            "//! Records (design section 5).",
            "// both (D2, with its exception)",
            "/// Names cannot collide (R-PD-04).",
        ] {
            assert!(!check(comment), "{comment}");
        }
    }

    #[test]
    fn functions_that_cite_absent_documents_are_refused() {
        for line in
            ["    fn limits_follow_the_specification() {", "pub(crate) async fn spec_5_6_holds() {"]
        {
            assert!(!check(line), "{line}");
        }
        for line in [
            "fn lock_spec(args: &[u8]) {",
            "fn design_of_layouts() {",
            "// fn specification",
            "let often_specification = 5;",
        ] {
            assert!(check(line), "{line}");
        }
    }

    #[test]
    fn what_a_reader_has_is_named_freely() {
        for comment in [
            "/// `docs/design/tbf.md`; Lustre: LU-3558.",
            "/// RFC 9110, section 5.6.",
            "/// A spec has 3 fields, a design none.",
            "/// 0xD2 is a byte, 10.0.0.1 an address.",
            "let spec = 5; let design = 6;",
        ] {
            assert!(check(comment), "{comment}");
        }
    }
}
