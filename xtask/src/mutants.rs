//! `cargo xtask mutants`: small code changes that some test should detect.
//!
//! The tests of a crate run against each change of it. Undetected changes are stored in [`LIST`],
//! so that a run names the new ones. cargo-mutants makes the changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{run, tree};

/// Changes that no test notices, a line each, without line numbers.
const LIST: &str = "xtask/survivors.txt";
/// What the tool writes, below `target/`.
const OUT: &str = "target/mutants";

/// Pure logic: every change.
const LOGIC: &[&str] = &["ptlrpc", "ldlm", "placement"];
/// Operations of the MDT: the part of them that is drawn from the tree.
const OPERATIONS: &str = "crates/servers/mdt/src/op/**";
const DRAWN_PARTS: u64 = 3;

/// Shards of a whole run: less than an hour each on two cores.
const SHARDS: u64 = 4;
/// Of a test run that a change made endless, seconds; the tests themselves take a twentieth.
const TIMEOUT: &str = "120";

const USAGE: &str = "cargo xtask mutants [--shard K/N] [--record]";

struct Options {
    shard: u64,
    shards: u64,
    record: bool,
}

pub(crate) fn mutants(args: &[String]) -> Result<()> {
    let options = parse(args)?;
    if run::output("cargo", &["mutants", "--version"]).is_err() {
        bail!("cargo-mutants is missing: cargo install --locked cargo-mutants");
    }
    let (shard, shards) = (options.shard, options.shards);
    let logic: Vec<&str> = LOGIC.iter().flat_map(|name| ["-p", *name]).collect();
    let mut seen = ask("logic", &logic, &format!("{shard}/{shards}"))?;
    let part = tree::seed() % DRAWN_PARTS + DRAWN_PARTS * shard;
    let drawn = format!("{part}/{}", DRAWN_PARTS * shards);
    seen.add(ask("operations", &["-p", "mdt", "-f", OPERATIONS], &drawn)?);

    let path = run::root().join(LIST);
    let known = lines(&fs::read_to_string(&path).context(LIST)?);
    let verdict = Verdict::of(&known, &seen);
    verdict.print(&seen);
    if options.record {
        let text: String = verdict.list.iter().map(|line| format!("{line}\n")).collect();
        return fs::write(&path, text).context(LIST);
    }
    if !verdict.new.is_empty() {
        bail!("{} changes that no test notices are not in {LIST}", verdict.new.len());
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { shard: 0, shards: SHARDS, record: false };
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--record" => options.record = true,
            "--shard" => {
                let given = words.next().and_then(|text| text.split_once('/')).context(USAGE)?;
                options.shard = given.0.parse().context("--shard")?;
                options.shards = given.1.parse().context("--shard")?;
            }
            other => bail!("'{other}' is not understood: {USAGE}"),
        }
    }
    if options.shard >= options.shards {
        bail!("--shard K/N: K is from 0 to N - 1");
    }
    Ok(options)
}

/// What the tool found, without line numbers.
#[derive(Default)]
struct Seen {
    survived: BTreeSet<String>,
    noticed: BTreeSet<String>,
}

impl Seen {
    fn add(&mut self, mut other: Seen) {
        self.survived.append(&mut other.survived);
        self.noticed.append(&mut other.noticed);
    }
}

fn ask(name: &str, what: &[&str], shard: &str) -> Result<Seen> {
    let out: PathBuf = run::root().join(OUT).join(name);
    fs::create_dir_all(&out)?;
    let mut command = Command::new("cargo");
    command.args(["mutants", "--profile", "dev", "--timeout", TIMEOUT, "--colors", "never"]);
    command.args(["--sharding", "round-robin", "--shard", shard]).args(what);
    command.arg("--output").arg(&out).current_dir(run::root());
    eprintln!("+ {command:?}");
    let status = command.status().context("cargo did not start")?;
    // 2: some survived; 3: some did not end
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo mutants ended with {status}");
    }
    let read = |file: &str| -> Result<BTreeSet<String>> {
        let path: &Path = &out.join("mutants.out").join(file);
        Ok(lines(&fs::read_to_string(path).with_context(|| format!("{}", path.display()))?))
    };
    let mut noticed = read("caught.txt")?;
    noticed.append(&mut read("timeout.txt")?);
    Ok(Seen { survived: read("missed.txt")?, noticed })
}

/// Each line without the place in its file.
fn lines(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.trim().is_empty()).map(without_place).collect()
}

/// `a/b.rs:12:5: replace f with g` is `a/b.rs: replace f with g`.
fn without_place(line: &str) -> String {
    let mut parts = line.splitn(4, ':');
    let place = (parts.next(), parts.next(), parts.next(), parts.next());
    match place {
        (Some(file), Some(row), Some(column), Some(what))
            if [row, column].iter().all(|number| number.parse::<u32>().is_ok()) =>
        {
            format!("{file}:{what}")
        }
        _ => line.to_owned(),
    }
}

struct Verdict {
    /// Survived, and not known.
    new: BTreeSet<String>,
    /// Known, and noticed by now wherever it was made.
    gone: BTreeSet<String>,
    /// What is known from now on.
    list: BTreeSet<String>,
}

impl Verdict {
    fn of(known: &BTreeSet<String>, seen: &Seen) -> Verdict {
        let new: BTreeSet<_> = seen.survived.difference(known).cloned().collect();
        let noticed: BTreeSet<_> = seen.noticed.difference(&seen.survived).cloned().collect();
        let gone: BTreeSet<_> = known.intersection(&noticed).cloned().collect();
        let list = known.union(&new).filter(|line| !gone.contains(*line)).cloned().collect();
        Verdict { new, gone, list }
    }

    fn print(&self, seen: &Seen) {
        for line in &self.new {
            println!("survived: {line}");
        }
        for line in &self.gone {
            println!("noticed by now: {line}");
        }
        println!("{} noticed, {} survived", seen.noticed.len(), seen.survived.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(lines: &[&str]) -> BTreeSet<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn places_are_left_out_of_the_list() {
        let text = "a/b.rs:12:5: replace f -> u8 with 0\n\na/c.rs:3:1: delete field x: y\n";
        assert_eq!(
            lines(text),
            set(&["a/b.rs: replace f -> u8 with 0", "a/c.rs: delete field x: y"])
        );
        assert_eq!(lines("a/b.rs: replace f"), set(&["a/b.rs: replace f"]));
    }

    #[test]
    fn what_is_new_and_what_is_gone_are_told_apart() {
        let seen =
            Seen { survived: set(&["new", "twice", "old"]), noticed: set(&["twice", "gone"]) };
        let verdict = Verdict::of(&set(&["old", "twice", "gone", "of another shard"]), &seen);
        assert_eq!(verdict.new, set(&["new"]));
        assert_eq!(verdict.gone, set(&["gone"]), "one survives in another place");
        assert_eq!(verdict.list, set(&["new", "twice", "old", "of another shard"]));
    }

    #[test]
    fn a_shard_lies_within_the_run() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = parse(&words("--shard 2/7 --record")).unwrap();
        assert_eq!((options.shard, options.shards, options.record), (2, 7, true));
        assert!(parse(&words("--shard 7/7")).is_err());
        assert!(parse(&words("--shard 7")).is_err());
    }
}
