//! The files of the repository as git knows them: tracked, or new and not ignored.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Result;

use crate::run;

pub(super) struct File {
    /// Path from the root.
    pub(super) name: String,
    pub(super) text: String,
}

/// All names, and the text of what the rules read.
pub(super) struct Tree {
    /// Paths of files and of the directories above them.
    names: BTreeSet<String>,
    files: Vec<File>,
}

impl Tree {
    pub(super) fn read() -> Result<Tree> {
        let listed = run::output(
            "git",
            &["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"],
        )?;
        let present: Vec<&str> =
            listed.lines().filter(|name| run::root().join(name).exists()).collect();
        let mut files = Vec::new();
        for name in present.iter().filter(|name| name.ends_with(".rs") || name.ends_with(".md")) {
            let text = fs::read_to_string(run::root().join(name))?;
            files.push(File { name: (*name).to_owned(), text });
        }
        Ok(Tree::new(&present, files))
    }

    pub(super) fn new(present: &[&str], files: Vec<File>) -> Tree {
        let above = |name: &str| -> Vec<String> {
            name.match_indices('/').map(|(at, _)| name[..at].to_owned()).collect()
        };
        let mut names: BTreeSet<String> = present.iter().flat_map(|name| above(name)).collect();
        names.extend(present.iter().map(|name| (*name).to_owned()));
        Tree { names, files }
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.name.ends_with(".rs"))
    }

    pub(super) fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.name.ends_with(".md"))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    pub(super) fn get(&self, name: &str) -> Option<&File> {
        self.files.iter().find(|file| file.name == name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

impl File {
    /// The lines that a reader takes as prose, with their numbers from 1: comments of Rust without
    /// their slashes, Markdown outside of code blocks. Code blocks inside comments are left out.
    pub(super) fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_rust = self.name.ends_with(".rs");
        let mut in_block = false;
        self.text.lines().enumerate().filter_map(move |(at, line)| {
            let body = if is_rust { comment(line) } else { Some(line) };
            let Some(body) = body else {
                in_block = false;
                return None;
            };
            if body.trim_start().starts_with("```") {
                in_block = !in_block;
                return None;
            }
            (!in_block).then_some((at + 1, body))
        })
    }
}

/// What stands behind the slashes of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("//")?;
    Some(rest.strip_prefix(['/', '!']).unwrap_or(rest))
}

#[cfg(test)]
pub(super) fn file(name: &str, text: &str) -> File {
    File { name: name.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{Tree, file};

    #[test]
    fn prose_is_comments_and_markdown_without_code() {
        let rust =
            file("a.rs", "//! One\n//! ```text\n//! two\n//! ```\nfn a() {} // three\n/// Four");
        assert_eq!(rust.prose().collect::<Vec<_>>(), [(1, " One"), (6, " Four")]);
        let markdown = file("a.md", "one\n```\ntwo\n```\nthree");
        assert_eq!(markdown.prose().collect::<Vec<_>>(), [(1, "one"), (5, "three")]);
    }

    #[test]
    fn directories_are_names_too() {
        let tree = Tree::new(&["a/b/c.rs"], Vec::new());
        assert!(tree.has("a") && tree.has("a/b") && tree.has("a/b/c.rs") && !tree.has("c.rs"));
    }
}
