//! Commands in documents do what the documents show. Each runs as a reader would type it, in one
//! shell per document.
//!
//! A block `console` has commands behind `$ ` and what they print. Numbers may differ, but not
//! those that are the same on every machine, and a rule of the scheduler must hold its jobs back. A
//! line `...` replaces lines that are left out. A block `sh` has commands that must succeed. Other
//! blocks are templates, pictures, or the two commands that CI runs.
//! `NACRE_UPDATE=1 cargo xtask mounted readme` records the README's session again.

use std::fs;
use std::path::{Path, PathBuf};

use mounted::{Scratch, full, nacre_bin};
use rustix::mount::{MountFlags, UnmountFlags};
use transcript::{Ended, Part, Rule, Session, Shell, parse, same_numbers, same_shape};

/// Run before the commands of a document that does not begin with a file system of its own.
const PRESET: &str = "nacre up --separate --mount /mnt/nacre &";

/// How often `lfs df` is asked again while it leaves out a target.
const DF_TRIES_MAX: usize = 20;

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
    // addresses of this machine are not a proxy's
    let shell = Shell::new(scratch.path(), &nacre_bin()).env("no_proxy", "*");
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
fn run_shown(
    session: &mut Session,
    rule: &mut Rule,
    text: &str,
    wrong: &mut Vec<String>,
) -> String {
    let mut block = String::new();
    for part in parse(text) {
        let Part::Step { command, ended: kept } = part else { continue };
        let mut now = session.run(&command);
        // a target that recovers refuses the mount, and `lfs df` waits for it for half a second
        for _ in 0..DF_TRIES_MAX {
            if now.output.contains("inactive device") {
                now = session.run(&command);
            }
        }
        now.output = without_waits(&now.output);
        let is_same = same_shape(&kept.output, &now.output)
            && same_numbers(&kept.output, &now.output)
            && now.status == kept.status;
        if !rule.follow(&command, &now.output) {
            wrong.push(format!("$ {command}\n-- is faster than the rule in force\n{now}"));
        } else if !is_same {
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
    let (mut rule, mut wrong) = (Rule::default(), Vec::new());
    let blocks = transcript::blocks(&text, "console");
    assert!(!blocks.is_empty(), "the README shows a session");
    assert_eq!(transcript::blocks(&text, "").len(), 1, "only CI's two commands are not run here");
    for (_, block) in blocks {
        let now = run_shown(&mut session, &mut rule, &block, &mut wrong);
        text = text.replace(&block, &now);
    }
    if rule.checked() == 0 {
        wrong.push("the README shows no job that a rule holds back".to_owned());
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
    for command in transcript::commands(block) {
        let ended = session.run(&command);
        if ended.status != 0 {
            wrong.push(format!("{name}:{line}: {command}\n{ended}"));
        }
    }
}

/// The documents below `docs/`, as paths from the root.
fn documents() -> Vec<String> {
    let (mut dirs, mut found) = (vec![root().join("docs")], Vec::new());
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a directory of documents") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|kind| kind == "md") {
                let name = path.strip_prefix(root()).expect("it is below the root");
                found.push(name.display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// The blocks with commands in the order of the document: first line, whether the output is shown,
/// and the text.
fn blocks(text: &str) -> Vec<(usize, bool, String)> {
    let of = |kind: &str, is_shown: bool| {
        let found = transcript::blocks(text, kind).into_iter();
        found.map(move |(line, block)| (line, is_shown, block))
    };
    let mut all: Vec<_> = of("console", true).chain(of("sh", false)).collect();
    all.sort_by_key(|(line, ..)| *line);
    all
}

/// Runs the commands of a document, and compares their output where it is shown.
fn run_document(name: &str, blocks: &[(usize, bool, String)], wrong: &mut Vec<String>) {
    let _covered = Covered::new();
    let (_scratch, mut session) = session("documents");
    let first = blocks.first().map_or("", |(.., block)| block.trim_start_matches("$ "));
    if !first.starts_with("nacre up") {
        let ended = session.run(PRESET);
        assert_eq!(ended.status, 0, "{ended}");
    }
    let mut rule = Rule::default();
    for (line, is_shown, block) in blocks {
        if *is_shown {
            let before = wrong.len();
            run_shown(&mut session, &mut rule, block, wrong);
            wrong[before..]
                .iter_mut()
                .for_each(|text| text.insert_str(0, &format!("{name}:{line}: ")));
        } else {
            run_all(&mut session, name, *line, block, wrong);
        }
    }
}

/// The counts of a release: each document's file system takes some seconds.
#[test]
fn commands_in_documents_work() {
    let mut wrong = Vec::new();
    let all: Vec<_> = documents().into_iter().map(|name| (blocks(&read(&name)), name)).collect();
    assert!(all.iter().any(|(blocks, _)| !blocks.is_empty()), "no commands can be run");
    for (blocks, name) in all.iter().filter(|(blocks, _)| !blocks.is_empty() && full()) {
        run_document(name, blocks, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
