//! Words of CONTRIBUTING's rules 1 to 3 in the texts that users read: documents, help texts, error
//! messages, and the lines of logs. Also in the openings of modules, which developers read first.
//! Other spellings of a term are refused in the same texts.

use std::fs;

use anyhow::{Context, Result};

use super::tree::{File, Tree};
use crate::run::root;

/// Words, and the rule that each breaks.
const WORDS: &[(&str, &str)] = &[
    ("whoever", "1"),
    ("nobody", "1"),
    ("somebody", "1"),
    ("everybody", "1"),
    ("anybody", "1"),
    ("who", "1"),
    ("so long", "2"),
    ("so many", "2"),
    ("so much", "2"),
    ("is no", "2"),
    ("tell", "3"),
    ("tells", "3"),
    ("told", "3"),
    ("stand", "3"),
    ("stands", "3"),
    ("stood", "3"),
    ("anew", "3"),
    ("believe", "3"),
    ("believes", "3"),
    ("believed", "3"),
];

/// Other spellings, and the one term for the thing.
const TERMS: &[(&str, &str)] = &[
    ("behavior", "behaviour"),
    ("canceled", "cancelled"),
    ("filesystem", "file system"),
    ("filesystems", "file systems"),
    ("hardlink", "hard link"),
    ("hardlinks", "hard links"),
    ("look-up", "lookup"),
    ("look-ups", "lookups"),
    ("meta-data", "metadata"),
    ("re-state", "restate"),
    ("re-stated", "restated"),
    ("re-states", "restates"),
    ("read-ahead", "readahead"),
    ("stat-ahead", "statahead"),
    ("symlink", "symbolic link"),
    ("symlinks", "symbolic links"),
    ("time stamp", "timestamp"),
    ("time stamps", "timestamps"),
    ("time-out", "timeout"),
    ("time-outs", "timeouts"),
    ("userspace", "user space"),
    ("wake-up", "wakeup"),
    ("wake-ups", "wakeups"),
    ("write-back", "writeback"),
];

/// Texts that name a thing which is absent (`there is no quota`), or a person.
const ALLOWED: &[&str] =
    &["there is no", "is no longer", "people who", "user who", "users who", "administrator who"];

/// Folders with kept texts of commands.
const KEPT: &[&str] = &["crates/tools/nacre/tests/help", "crates/tools/nacre/tests/wrong"];

/// Begin a call whose literals are lines of a log, or an error.
const MACROS: &[&str] = &[
    "tracing::error!(",
    "tracing::warn!(",
    "tracing::info!(",
    "tracing::debug!(",
    "#[error(",
    "anyhow!(",
    "bail!(",
    "ensure!(",
    "say!(",
    "Err(format!(",
];

/// Folders whose errors no user reads.
const INTERNAL: &[&str] = &["xtask/", "bench/", "fuzz/", "crates/sim/", "crates/tools/bench/"];

/// Names the words of others, and shows bad examples.
const EXCEPT: &[&str] = &["CONTRIBUTING.md", "CHANGELOG.md"];

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    for file in tree.markdown().filter(|file| !EXCEPT.contains(&file.name.as_str())) {
        for (number, line) in file.prose() {
            check(&file.name, number, &without_code(line), wrong);
        }
    }
    tree.rust().for_each(|file| opening(file, wrong));
    tree.rust().for_each(|file| logged(file, wrong));
    for folder in KEPT {
        for entry in fs::read_dir(root().join(folder)).with_context(|| (*folder).to_owned())? {
            let path = entry?.path();
            let text = fs::read_to_string(&path)?;
            let name = format!("{folder}/{}", path.file_name().unwrap_or_default().display());
            for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('$')) {
                check(&name, at + 1, line, wrong);
            }
        }
    }
    Ok(())
}

fn check(name: &str, number: usize, line: &str, wrong: &mut Vec<String>) {
    let mut text = line.to_lowercase();
    for allowed in ALLOWED {
        text = text.replace(allowed, "");
    }
    for (word, rule) in WORDS.iter().filter(|(word, _)| has_word(&text, word)) {
        wrong.push(format!("{name}:{number}: '{word}' (rule {rule} of CONTRIBUTING's words)"));
    }
    for (word, term) in TERMS.iter().filter(|(word, _)| has_word(&text, word)) {
        wrong.push(format!("{name}:{number}: '{word}', where the term is '{term}'"));
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let is_end =
            |letter: Option<char>| letter.is_none_or(|it| !it.is_alphanumeric() && it != '_');
        is_end(text[..at].chars().next_back()) && is_end(text[at + word.len()..].chars().next())
    })
}

/// The lines `//!` of a file, without their code blocks.
fn opening(file: &File, wrong: &mut Vec<String>) {
    let lines: Vec<&str> = file.text.lines().collect();
    let is_opening = |number: usize| lines[number - 1].trim_start().starts_with("//!");
    for (number, line) in file.prose().filter(|(number, _)| is_opening(*number)) {
        check(&file.name, number, &without_code(line), wrong);
    }
}

/// Without spans in backticks, which are names.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Without the names of values: `lost: {told}`.
fn without_values(literal: &str) -> String {
    let mut parts = literal.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('}').map_or(part, |(_, rest)| rest))
}

fn logged(file: &File, wrong: &mut Vec<String>) {
    for (number, text) in messages(file) {
        check(&file.name, number, &text, wrong);
    }
}

/// Literals of logs and errors that users read, with the lines where their macros begin.
pub(super) fn messages(file: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if INTERNAL.iter().any(|folder| file.name.starts_with(folder)) {
        return found;
    }
    for start in MACROS.iter().flat_map(|name| file.text.match_indices(name)) {
        let at = start.0 + start.1.len();
        let number = file.text[..at].lines().count();
        let texts = literals(&file.text[at..]).into_iter().map(without_values);
        found.extend(texts.map(|text| (number, text)));
    }
    found
}

/// The string literals up to the parenthesis that closes a macro.
fn literals(text: &str) -> Vec<&str> {
    let (mut found, mut depth, mut open, mut escaped) = (Vec::new(), 1, None, false);
    for (at, letter) in text.char_indices() {
        match (letter, open) {
            _ if escaped => escaped = false,
            ('\\', Some(_)) => escaped = true,
            ('"', Some(from)) => {
                found.push(&text[from..at]);
                open = None;
            }
            ('"', None) => open = Some(at + 1),
            ('(', None) => depth += 1,
            (')', None) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{check, literals, logged, opening, without_values};
    use crate::tidy::tree::file;

    #[test]
    fn words_of_the_rules_are_found_as_words() {
        let count = |line: &str| {
            let mut wrong = Vec::new();
            check("a.md", 1, line, &mut wrong);
            wrong.len()
        };
        assert_eq!(count("Nobody waits; the MDT told it."), 2);
        assert_eq!(count("people who read; there is no quota; it is no longer there"), 0);
        assert_eq!(count("it is no mount"), 1);
        assert_eq!(count("The MDT knows who waits, and a user who may read; it can tell."), 2);
        assert_eq!(count("A server stood still, and clients believe it."), 2);
        assert_eq!(count("Filesystems have a time-out; a file system has timeouts."), 2);
        assert_eq!(count("Look-ups look up what a wake-up re-states; it restates a lookup."), 3);
    }

    #[test]
    fn lines_of_logs_are_read_from_their_macros() {
        assert_eq!(without_values("a {told} b"), "a  b");
        assert_eq!(literals("x = f(\"a\"), \"b \\\" c\"); \"d\""), ["a", "b \\\" c"]);
        let mut wrong = Vec::new();
        let text =
            "fn f() {\n    tracing::warn!(%at, \"nobody is there\");\n    let a = \"nobody\";\n}";
        logged(&file("a.rs", text), &mut wrong);
        assert_eq!(wrong, ["a.rs:2: 'nobody' (rule 1 of CONTRIBUTING's words)"]);
    }

    #[test]
    fn openings_of_modules_are_read_without_code_and_other_comments() {
        let mut wrong = Vec::new();
        let text = "//! One `told`.\n//! ```text\n//! nobody\n//! ```\n//! Nobody waits.\n\n\
                    /// It tells.\nfn f() {} // anew";
        opening(&file("a.rs", text), &mut wrong);
        assert_eq!(wrong, ["a.rs:5: 'nobody' (rule 1 of CONTRIBUTING's words)"]);
    }

    #[test]
    fn errors_are_read_like_lines_of_logs() {
        let found = |text: &str| {
            let mut wrong = Vec::new();
            logged(&file("a.rs", text), &mut wrong);
            wrong.len()
        };
        let cases = [
            "#[error(\"'{0}' stands for x\")]",
            "return Err(format!(\"{to} is no directory\"));",
            "ensure!(told == 1, \"format it anew\");",
            "ctl::say!(\"nobody\");",
        ];
        for case in cases {
            assert_eq!(found(case), 1, "{case}");
        }
        assert_eq!(found("bail!(\"is not a directory: {told}\");"), 0);
    }
}
