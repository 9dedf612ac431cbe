//! Messages of commits: `area: what changes for whom`, at most 72 columns, and a body that gives
//! the reason unless only documents change. The rule is for commits that were made on top of the
//! one that added this file. Earlier ones, those of branches without it, and merges stay.

use anyhow::{Context, Result};

use super::tree::Tree;
use crate::run;

/// The commit that added this file is the first with the rule.
const RULE: &str = "xtask/src/tidy/commits.rs";

/// Columns of a subject.
const SUBJECT_MAX: usize = 72;

/// A commit begins with the first byte, and the second is behind each of its parts: short name,
/// subject, body, names of files.
const FORMAT: &str = "--format=%x01%h%x02%s%x02%b%x02";

pub(super) fn look(_: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    each_since(RULE, |commit| look_at(commit, wrong))
}

/// Looks at each commit, in the form of [`FORMAT`], that was made on top of the one that added the
/// file `rule`.
pub(super) fn each_since(rule: &str, mut look: impl FnMut(&str) -> Option<()>) -> Result<()> {
    let git = |args: &[&str]| run::output("git", &[&["-c", "safe.directory=*"][..], args].concat());
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", rule])?;
    let Some(first) = added.lines().last() else { return Ok(()) };
    let range = format!("{first}..HEAD");
    let log = git(&["log", "--ancestry-path", "--no-merges", "--name-only", FORMAT, &range])?;
    for commit in log.split('\u{1}').skip(1) {
        look(commit).with_context(|| format!("git log printed {commit:?}"))?;
    }
    Ok(())
}

/// One commit in the form of [`FORMAT`]. None if it has another form.
fn look_at(commit: &str, wrong: &mut Vec<String>) -> Option<()> {
    let mut parts = commit.splitn(4, '\u{2}');
    let [name, subject, body, files] = std::array::from_fn(|_| parts.next());
    let (name, subject, body, files) = (name?, subject?, body?, files?);
    let mut refuse = |why: &str| wrong.push(format!("commit {name} ({subject}): {why}"));
    let columns = subject.chars().count();
    if columns > SUBJECT_MAX {
        refuse(&format!("{columns} columns in the subject, {SUBJECT_MAX} at most"));
    }
    if !subject.split_once(": ").is_some_and(|(area, what)| is_area(area) && !what.is_empty()) {
        refuse("the subject is not `area: what changes for whom`");
    }
    let mut files = files.lines().filter(|file| !file.is_empty());
    let is_of_documents = files.all(|file| file.starts_with("docs/") || file.ends_with(".md"));
    if body.trim().is_empty() && !is_of_documents {
        refuse("no body that gives the reason");
    }
    Some(())
}

/// `mdt`, a command as in `lfs find`, or several as in `docs, nrs`.
fn is_area(text: &str) -> bool {
    let is_word = |word: &str| {
        let is_letter = |letter: char| letter.is_alphanumeric() || "-_./".contains(letter);
        !word.is_empty() && word.chars().all(is_letter)
    };
    text.split(", ").all(|name| name.split(' ').count() <= 2 && name.split(' ').all(is_word))
}

#[cfg(test)]
mod tests {
    use super::{SUBJECT_MAX, look_at};

    fn check(subject: &str, body: &str, files: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let commit = format!("abc\u{2}{subject}\u{2}{body}\u{2}\n\n{files}\n");
        look_at(&commit, &mut wrong).expect("the form of git log");
        wrong.iter().map(|line| line.rsplit("): ").next().unwrap_or(line).to_owned()).collect()
    }

    #[test]
    fn a_commit_says_where_what_and_why() {
        const CODE: &str = "crates/a.rs\ndocs/a.md";
        assert!(check("mdt: answer ENOSPC before a name is made", "Why.\n", CODE).is_empty());
        assert!(check("docs, lfs find: words", "", "docs/a.svg\nREADME.md").is_empty());
        assert_eq!(check("mdt: answer", "\n", CODE), ["no body that gives the reason"]);
        let form = ["the subject is not `area: what changes for whom`"];
        for subject in ["answer", "an MDT answers: now", ": answer", "mdt:answer", "mdt: "] {
            assert_eq!(check(subject, "Why.", CODE), form, "{subject}");
        }
        let wide = format!("mdt: {}", "x".repeat(SUBJECT_MAX - 5));
        assert!(check(&wide, "Why.", CODE).is_empty());
        let columns = "73 columns in the subject, 72 at most";
        assert_eq!(check(&(wide + "x"), "Why.", CODE), [columns]);
        assert_eq!(look_at("abc\u{2}mdt: a", &mut Vec::new()), None);
    }
}
