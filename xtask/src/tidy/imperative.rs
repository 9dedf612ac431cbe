//! Subjects of commits are in the imperative: `answer ENOSPC`, not `the answer ENOSPC`, `answered`
//! or `answering`. A script sees this by the form of the first word only.
//!
//! The rule is for commits that were made on top of the one that added this file.

use anyhow::Result;

use super::commits::each_since;
use super::tree::Tree;

/// The commit that added this file is the first with the rule.
const RULE: &str = "xtask/src/tidy/imperative.rs";

/// First words that are of another part of speech.
const NOT_VERBS: &[&str] =
    &["a", "an", "the", "one", "no", "each", "every", "what", "who", "how", "why", "which"];

/// Verbs that look like a past tense.
const VERBS: &[&str] = &["embed"];

const VOWELS: &[char] = &['a', 'e', 'i', 'o', 'u', 'y'];

pub(super) fn look(_: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    each_since(RULE, |commit| look_at(commit, wrong))
}

/// One commit: its name, its subject and more. None if it has another form.
fn look_at(commit: &str, wrong: &mut Vec<String>) -> Option<()> {
    let mut parts = commit.split('\u{2}');
    let (name, subject) = (parts.next()?, parts.next()?);
    let what = subject.split_once(": ").map_or(subject, |(_, what)| what);
    let word = what.split(' ').next().unwrap_or_default();
    if !may_begin(word) {
        wrong.push(format!(
            "commit {name} ({subject}): '{word}' is not the imperative of a verb, as 'answer' is"
        ));
    }
    Some(())
}

/// Whether a subject may begin with the word. The stem of a past tense or a gerund has a vowel:
/// `bring` and `shed` are neither.
fn may_begin(word: &str) -> bool {
    let word = word.to_lowercase();
    let has_ending =
        |ending: &str| word.strip_suffix(ending).is_some_and(|stem| stem.contains(VOWELS));
    let is_past = has_ending("ed") && !word.ends_with("eed"); // as in need
    let is_verb = VERBS.contains(&word.as_str());
    !NOT_VERBS.contains(&word.as_str()) && (is_verb || !is_past && !has_ending("ing"))
}

#[cfg(test)]
mod tests {
    use super::{look_at, may_begin};

    #[test]
    fn a_subject_begins_with_an_imperative() {
        for word in ["answer", "bring", "shed", "need", "exceed", "embed", "ping", "say", "--from"]
        {
            assert!(may_begin(word), "{word}");
        }
        for word in ["a", "The", "one", "answered", "answering", "fixed", "naming", "stopped"] {
            assert!(!may_begin(word), "{word}");
        }
    }

    #[test]
    fn the_word_behind_the_area_counts() {
        let check = |subject: &str| {
            let mut wrong = Vec::new();
            let commit = format!("abc\u{2}{subject}\u{2}Why.\u{2}\n\na.rs\n");
            look_at(&commit, &mut wrong).expect("the form of git log");
            wrong
        };
        assert!(check("the mdt: answer ENOSPC before a name is made").is_empty());
        let found = ["commit abc (mdt: the answer): 'the' is not the imperative of a verb, as \
                      'answer' is"];
        assert_eq!(check("mdt: the answer"), found);
        assert_eq!(look_at("abc", &mut Vec::new()), None);
    }
}
