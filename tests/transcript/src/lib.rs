//! Command lines with the output that they must have, as a reader sees them in a terminal.
//!
//! ```text
//! # a remark
//! $ nacre up --port 0
//! error: invalid value '0' for '--port <PORT>': 0 is not in 1 to 65535
//! [2]
//! ```
//! A line that begins with `$ ` is a command for `sh`. The lines up to the next command are its
//! output, both streams together. `[N]` is the exit status, if it is not 0. Empty lines at the end
//! of an output do not count. The code blocks `console` of a Markdown document have the same form
//! ([`blocks`]).

mod figures;
mod mask;
mod session;
mod shell;
mod way_out;

use std::fs;
use std::path::Path;

pub use figures::{Rule, same_numbers};
pub use mask::same_shape;
pub use session::Session;
pub use shell::{Ended, Shell};
pub use way_out::has_way_out;

/// A command with what it prints, or a remark between commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Remark(String),
    Step { command: String, ended: Ended },
}

/// The parts of a text.
#[must_use]
pub fn parse(text: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let ended = Ended { output: String::new(), status: 0 };
            parts.push(Part::Step { command: command.to_owned(), ended });
            continue;
        }
        let continued = |command: &str| command.ends_with('\\');
        match parts.last_mut() {
            Some(Part::Step { command, ended })
                if continued(command) && ended.output.is_empty() =>
            {
                *command = format!("{command}\n{}", line.strip_prefix("> ").unwrap_or(line));
            }
            _ if line.starts_with("# ") => parts.push(Part::Remark(line.to_owned())),
            Some(Part::Step { ended, .. }) => match status(line) {
                Some(status) => ended.status = status,
                None => ended.output.push_str(&format!("{line}\n")),
            },
            _ => {}
        }
    }
    for part in &mut parts {
        if let Part::Step { ended, .. } = part {
            ended.output.truncate(ended.output.trim_end().len());
        }
    }
    parts
}

/// `[22]`
fn status(line: &str) -> Option<i32> {
    line.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// The text of these parts: [`parse`] reads it back.
#[must_use]
pub fn render(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Remark(remark) => text.push_str(&format!("{remark}\n\n")),
            Part::Step { command, ended } => text.push_str(&format!("$ {command}\n{ended}\n")),
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Runs the commands of the file at `path`, and compares their output with the file.
/// `NACRE_UPDATE=1` writes what they print now. Returns the number of commands.
///
/// # Panics
/// An output differs, or the file cannot be read.
pub fn check_file(path: &Path, shell: &Shell) -> usize {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let kept = parse(&text);
    let run = |part: &Part| match part {
        Part::Remark(_) => part.clone(),
        Part::Step { command, .. } => {
            Part::Step { command: command.clone(), ended: shell.run(command) }
        }
    };
    let now: Vec<Part> = kept.iter().map(run).collect();
    if std::env::var_os("NACRE_UPDATE").is_some() {
        fs::write(path, render(&now)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return now.len();
    }
    let mut wrong = String::new();
    for (now, kept) in now.iter().zip(&kept).filter(|(now, kept)| now != kept) {
        let shown = |part: &Part| render(std::slice::from_ref(part));
        wrong.push_str(&format!("---- kept\n{}---- now\n{}", shown(kept), shown(now)));
    }
    assert!(wrong.is_empty(), "{} (NACRE_UPDATE=1 rewrites it):\n{wrong}", path.display());
    now.iter().filter(|part| matches!(part, Part::Step { .. })).count()
}

/// The code blocks of a Markdown text that are marked as `kind`: line of the first command line,
/// and content.
#[must_use]
pub fn blocks(markdown: &str, kind: &str) -> Vec<(usize, String)> {
    let (mut found, mut inside): (Vec<(usize, String)>, Option<bool>) = (Vec::new(), None);
    for (at, line) in markdown.lines().enumerate() {
        match (line.strip_prefix("```"), inside) {
            (Some(_), Some(_)) => inside = None,
            (Some(word), None) => {
                let is_wanted = word.trim() == kind;
                inside = Some(is_wanted);
                if is_wanted {
                    found.push((at + 2, String::new()));
                }
            }
            (None, Some(true)) => {
                if let Some((_, text)) = found.last_mut() {
                    text.push_str(&format!("{line}\n"));
                }
            }
            _ => {}
        }
    }
    found
}

/// The commands of a block `sh`, without remarks. A loop is one command. So are a line that ends
/// with a backslash and the next one.
#[must_use]
pub fn commands(block: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in block.lines() {
        let line = line.split("   #").next().unwrap_or_default().trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match all.last_mut() {
            Some(last) if goes_on(last, line) => last.push_str(&format!("\n{line}")),
            _ => all.push(line.to_owned()),
        }
    }
    all
}

/// Whether `line` is a part of the command that begins with `last`.
fn goes_on(last: &str, line: &str) -> bool {
    let word = line.split([' ', ';']).next().unwrap_or_default();
    last.ends_with('\\') || line.starts_with(' ') || ["done", "fi", "esac", "}"].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_and_written_back() {
        let text = "# one\n\n$ echo a\na\n\n$ false\n[1]\n\n$ a \\\n  b\nx\n\ny\n[2]\n";
        let parts = parse(text);
        assert_eq!(parts.len(), 4);
        let ended = Ended { output: "x\n\ny".to_owned(), status: 2 };
        assert_eq!(parts[3], Part::Step { command: "a \\\n  b".to_owned(), ended });
        assert_eq!(render(&parts), text);
    }

    #[test]
    fn blocks_of_a_kind_are_found_with_their_lines() {
        let text = "a\n```console\n$ b\nc\n```\n```\n$ d\n```\n```console\n$ e\n```\n";
        let found = blocks(text, "console");
        assert_eq!(found, [(3, "$ b\nc\n".to_owned()), (10, "$ e\n".to_owned())]);
        assert_eq!(blocks(text, ""), [(7, "$ d\n".to_owned())]);
    }

    #[test]
    fn a_command_may_have_several_lines() {
        let block = "cd /mnt     # a remark\n\n# another\nwhile a; do\n    b || sleep 1   # c\n\
                     done\na \\\n  b\ndone_with x\n";
        let wanted = ["cd /mnt", "while a; do\n    b || sleep 1\ndone", "a \\\n  b", "done_with x"];
        assert_eq!(commands(block), wanted);
    }
}
