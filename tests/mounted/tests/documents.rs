//! Commands in documents do what the documents show. Each runs as a reader would type it, in one
//! shell per document.
//!
//! A block `console` has commands behind `$ ` and what they print. Numbers may differ, and a line
//! `...` means lines that are left out. A block `sh` has commands that must succeed. Other
//! blocks are templates, pictures, or the two commands that CI runs.
//! `NACRE_UPDATE=1 cargo xtask mounted readme` records the README's session again.

use std::fs;
use std::path::{Path, PathBuf};

use mounted::{Scratch, full, nacre_bin};
use rustix::mount::{MountFlags, UnmountFlags};
use transcript::{Ended, Part, Session, Shell, parse, same_shape};

/// Documents with commands that need a file system.
const DOCS: &[&str] = &[
    "docs/operations.md",
    "docs/design/device.md",
    "docs/design/pools.md",
    "docs/monitoring/README.md",
];

/// Run before a block whose first command starts no file system.
const PRESET: &str = "nacre up --separate --mount /mnt/nacre &";

/// Directories of the machine that documents use; empty ones of our own are mounted over them.
struct Covered(Vec<&'static str>);

impl Covered {
    fn new() -> Covered {
        let mut all = Covered(Vec::new());
        for dir in ["/mnt", "/srv"] {
            rustix::mount::mount("none", dir, "tmpfs", MountFlags::empty(), None).expect("root");
            all.0.push(dir);
        }
        all
    }
}

impl Drop for Covered {
    fn drop(&mut self) {
        for dir in &self.0 {
            let _left = rustix::mount::unmount(*dir, UnmountFlags::DETACH);
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn session(name: &str) -> (Scratch, Session) {
    let scratch = Scratch::new(name);
    let shell = Shell::new(scratch.path(), &nacre_bin());
    let work = shell.work().display().to_string();
    let session = Session::new(&shell.mask(&work, "~"));
    (scratch, session)
}

/// What the document shows, brought up to date: with the lines of `now`, and `...` where it was.
fn recorded(kept: &str, now: &str) -> String {
    let lines: Vec<&str> = now.lines().collect();
    let Some((head, tail)) = kept.split_once("...") else { return now.to_owned() };
    let (head, tail) = (head.lines().count(), tail.trim_start().lines().count());
    let tail = &lines[lines.len().saturating_sub(tail).max(head.min(lines.len()))..];
    [&lines[..head.min(lines.len())], &["..."], tail].concat().join("\n")
}

/// Without the lines about a recovery that takes longer than 3 s, as on a busy machine.
fn without_waits(output: &str) -> String {
    let is_wait = |line: &&str| {
        line.starts_with("nacre up: ")
            && (line.contains("is recovering") || line.contains("has recovered"))
    };
    output.lines().filter(|line| !is_wait(line)).collect::<Vec<_>>().join("\n")
}

/// Runs the commands of a block `console`; the block as it would be recorded now.
fn run_shown(session: &mut Session, text: &str, wrong: &mut Vec<String>) -> String {
    let mut block = String::new();
    for part in parse(text) {
        let Part::Step { command, ended: kept } = part else { continue };
        let mut now = session.run(&command);
        now.output = without_waits(&now.output);
        if now.status != kept.status || !same_shape(&kept.output, &now.output) {
            wrong.push(format!("$ {command}\n-- shown\n{kept}-- printed\n{now}"));
        }
        let output = recorded(&kept.output, &now.output);
        block.push_str(&format!("$ {command}\n{}", Ended { output, ..now }));
    }
    block
}

#[test]
fn the_readme_does_what_it_shows() {
    let _covered = Covered::new();
    let (scratch, mut session) = session("readme");
    let mut text = read("README.md");
    let mut wrong = Vec::new();
    let blocks = transcript::blocks(&text, "console");
    assert!(!blocks.is_empty(), "the README shows a session");
    assert_eq!(transcript::blocks(&text, "").len(), 1, "only CI's two commands are not run here");
    for (_, block) in blocks {
        let now = run_shown(&mut session, &block, &mut wrong);
        text = text.replace(&block, &now);
    }
    for (line, block) in transcript::blocks(&text, "sh") {
        run_all(&mut session, "README.md", line, &block, &mut wrong);
    }
    drop(session);
    drop(scratch);
    if std::env::var_os("NACRE_UPDATE").is_some() {
        fs::write(root().join("README.md"), text).expect("written");
        return;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs the commands of a block `sh`.
fn run_all(session: &mut Session, name: &str, line: usize, block: &str, wrong: &mut Vec<String>) {
    for command in block.lines().map(|line| line.split("   #").next().unwrap_or_default().trim()) {
        if command.is_empty() || command.starts_with('#') {
            continue;
        }
        let ended = session.run(command);
        if ended.status != 0 {
            wrong.push(format!("{name}:{line}: {command}\n{ended}"));
        }
    }
}

/// The counts of a release: each document's file system takes some seconds.
#[test]
fn commands_in_documents_work() {
    let mut wrong = Vec::new();
    for name in DOCS {
        let text = read(name);
        let blocks = transcript::blocks(&text, "sh");
        assert!(!blocks.is_empty(), "{name} has no commands that can be run");
        if !full() {
            continue;
        }
        let _covered = Covered::new();
        let (_scratch, mut session) = session("documents");
        if !blocks[0].1.starts_with("nacre up") {
            let ended = session.run(PRESET);
            assert_eq!(ended.status, 0, "{ended}");
        }
        for (line, block) in blocks {
            run_all(&mut session, name, line, &block, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
