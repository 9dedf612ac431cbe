//! Writes the figures of a whole run into the documents, between two marks. All figures are from
//! one commit, or it is said which are not.
//!
//! ```text
//! <!-- figures: whole -->        every part, written into bench/README.md
//! <!-- figures: short -->        the charts of the landing page, written into README.md
//! <!-- end of figures -->
//! ```
//!
//! `docs/results` gets the charts, the plots, and all values as JSON and CSV.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::charts::{self, Drawn};
use super::markdown;
use crate::machine::Machine;
use crate::plan::{BEFORE, DRIVERS, INSTRUCTIONS, MDTEST_FUSE, PARTS, PROGRAMS};
use crate::row::PartResult;
use crate::store::root;

const END: &str = "<!-- end of figures -->";
/// Below the workspace root.
const RESULTS: &str = "docs/results";
/// Of the text of documents.
const LINE_MAX: usize = 100;

/// Parts that a run may lack, because they need other programs than the one under test.
const MAY_LACK: [&str; 5] = [BEFORE, DRIVERS, INSTRUCTIONS, MDTEST_FUSE, PROGRAMS];

/// Writes tables and plots; refuses a run that lacks another part than those of [`MAY_LACK`].
pub(crate) fn publish(machine: &Machine, results: &[PartResult]) -> Result<()> {
    let missing: Vec<&str> = PARTS
        .iter()
        .map(|part| part.name)
        .filter(|name| !MAY_LACK.contains(name))
        .filter(|name| !results.iter().any(|result| result.part == *name))
        .collect();
    if !missing.is_empty() {
        bail!("not measured: {}", missing.join(", "));
    }
    let dir = root().join(RESULTS);
    fs::create_dir_all(&dir)?;
    let drawn = super::data(&dir, machine, results)?;
    ensure!(drawn.len() == charts::count(), "a chart of README.md lacks rows");
    replace("bench/README.md", "whole", &markdown::whole(machine, results))?;
    let mut head = machine.line();
    let others = markdown::of_others(machine, results);
    if !others.is_empty() {
        head.push_str(&format!("\n{}", wrapped(&others)));
    }
    replace("README.md", "short", &short(head, &drawn))
}

fn short(head: String, drawn: &[Drawn]) -> String {
    let mut text = head;
    for Drawn { name, title, sentence, .. } in drawn {
        text.push_str(&format!("\n\n![{title}]({RESULTS}/{name}.svg)\n\n{}", wrapped(sentence)));
    }
    text
}

/// In lines of at most [`LINE_MAX`] characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= LINE_MAX {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

fn replace(document: &str, name: &str, text: &str) -> Result<()> {
    let path = root().join(document);
    let old = fs::read_to_string(&path)?;
    let new = between(&old, name, text).with_context(|| format!("{document} has no such marks"))?;
    Ok(fs::write(path, new)?)
}

/// `old` with `text` between the marks of `name`.
fn between(old: &str, name: &str, text: &str) -> Option<String> {
    let mark = format!("<!-- figures: {name} -->");
    let start = old.find(&mark)? + mark.len();
    let end = start + old[start..].find(END)?;
    Some(format!("{}\n\n{}\n\n{}", &old[..start], text.trim(), &old[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let old = "a\n<!-- figures: short -->\nold\n<!-- end of figures -->\nb\n";
        let new = between(old, "short", "new\n").expect("the marks are there");
        assert_eq!(new, "a\n<!-- figures: short -->\n\nnew\n\n<!-- end of figures -->\nb\n");
        assert_eq!(between(&new, "short", "new"), Some(new.clone()));
        assert_eq!(between(old, "whole", "new"), None);
    }

    #[test]
    fn a_sentence_is_wrapped() {
        let text = wrapped(&"word ".repeat(30));
        assert!(text.lines().all(|line| line.len() <= LINE_MAX && !line.ends_with(' ')));
        assert_eq!(text.split_whitespace().count(), 30);
    }
}
