//! `cargo xtask bench`: one run of every benchmark. Each benchmark alternates with its limit on the
//! same machine.
//!
//! A run is a list of parts ([`plan`]). Parts that measure a mount share one file system that lives
//! for the whole run ([`bed`]): `nacre up --separate` on a fresh ext4 with a journal. A directory
//! of that same ext4 is the comparison. A part that needs a file system of its own starts it on
//! that ext4 too. Each part writes its results as JSON when it ends. So a run that was stopped
//! continues there if the commit is the same. Tables and plots are made from the JSON alone.

mod bed;
mod disk;
mod machine;
mod parts;
mod plan;
mod report;
mod row;
mod scale;
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Parser;

use crate::bed::Bed;
use crate::machine::Machine;
use crate::parts::{drivers, instructions, metadata, programs};
use crate::plan::Part;
use crate::row::PartResult;
use crate::scale::Scale;
use crate::store::Store;

/// Measure everything that README.md and bench/README.md show, on this machine.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask bench")]
struct Args {
    /// Only these parts or topics. `layouts` is layouts, dom, wide, devices and borders; `mdts` is
    /// mdts, nodes and mdt-pauses; `servers` is fairness, swaps and kills.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Phases of 3 s and 3 pairs, and only mdtest, IOR, fio, lnet and native creates: at most ten
    /// minutes. Not for publishing.
    #[arg(long)]
    quick: bool,
    /// Only these parts (see --list).
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<String>,
    /// Measure again what an earlier run of this commit has measured already.
    #[arg(long)]
    afresh: bool,
    /// Write the charts of README.md, the tables of bench/README.md and all of docs/results from
    /// the whole run of this commit.
    #[arg(long, conflicts_with = "quick")]
    publish: bool,
    /// With --publish: the commit that was measured, where it is an older one. A part that it lacks
    /// is of the next commit that has it, and the tables say so. Measures nothing.
    #[arg(long, requires = "publish", value_delimiter = ',', value_name = "COMMIT")]
    of: Vec<String>,
    /// The `nacre` of an older commit, built as a release: part `before` measures it in turns with
    /// this one. Without it that part is left out.
    #[arg(long, value_name = "BINARY")]
    against: Option<PathBuf>,
    /// Files on four MDTs in part `talk`: 131072 are 32,768 for each, and 1048576 are as many as
    /// the talk had on one. Without it that part is left out.
    #[arg(long, value_name = "FILES", value_parser = clap::value_parser!(u64).range(4..))]
    talk: Option<u64>,
    /// Name the parts.
    #[arg(long)]
    list: bool,
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    args.only.extend(plan::of_topics(&args.topics));
    let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    let parts = wanted(&args, scale)?;
    if args.list {
        parts.iter().for_each(|part| println!("{:<14} {}", part.name, part.about));
        return Ok(());
    }
    if parts.is_empty() {
        return Ok(()); // why is said
    }
    if !args.of.is_empty() {
        return publish_of(&args.of, &parts);
    }
    let is_named = std::env::var_os("NACRE_BIN").is_some();
    ensure!(is_named, "NACRE_BIN is not set: run `cargo xtask bench`, which measures a release");
    let machine = Machine::look()?;
    if args.publish {
        ensure_can_publish(&args, machine.is_dirty)?;
    }
    let store = Store::open(&machine.commit, scale.name)?;
    let measured = measure(&args, scale, &parts, &machine, &store);
    let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
    let results = store.all(&names)?;
    println!("{}", report::markdown::whole(&machine, &results));
    let dir = report::write(store.dir(), &machine, &results)?;
    println!("written: {}\n\n{}", dir.display(), report::summary::of(&results));
    // a part that failed does not hold the others back, if a published run may lack it
    let published = if args.publish { publish(&machine, &results) } else { Ok(()) };
    measured.and(published)
}

/// Refuses what cannot be published, before anything is measured.
fn ensure_can_publish(args: &Args, is_dirty: bool) -> Result<()> {
    ensure!(args.only.is_empty(), "--publish wants the whole run, not some parts");
    ensure!(args.talk.is_some(), "--publish wants part `talk` too: --talk FILES");
    ensure!(!is_dirty, "commit first: published figures name their commit");
    Ok(())
}

fn publish(machine: &Machine, results: &[PartResult]) -> Result<()> {
    let is_clean = results.iter().all(|result| !result.machine.is_dirty);
    ensure!(is_clean, "a part was measured with changes that had no commit: --afresh");
    report::publish::publish(machine, results)
}

/// Publishes earlier runs, such as after a change of how figures are shown, or of one part.
fn publish_of(commits: &[String], parts: &[&Part]) -> Result<()> {
    let mut machines: Vec<Machine> = Vec::new();
    let mut results: Vec<PartResult> = Vec::new();
    for commit in commits {
        let has = |part: &&Part| results.iter().any(|result| result.part == part.name);
        let names: Vec<&str> =
            parts.iter().filter(|part| !has(part)).map(|part| part.name).collect();
        let of_commit = Store::open(commit, Scale::FULL.name)?.all(&names)?;
        let machine = of_commit.first().map(|result| result.machine.clone());
        machines.push(machine.with_context(|| format!("no part is of {commit} alone"))?);
        results.extend(of_commit);
    }
    let [first, others @ ..] = &machines[..] else { bail!("--of names no commit") };
    ensure!(
        others.iter().all(|other| other.is_like(first)),
        "the commits were measured on machines of different kinds"
    );
    let place = |result: &PartResult| parts.iter().position(|part| part.name == result.part);
    results.sort_by_key(place);
    publish(first, &results)
}

fn wanted(args: &Args, scale: Scale) -> Result<Vec<&'static Part>> {
    if let Some(unknown) = args.only.iter().find(|name| plan::find(name).is_none()) {
        bail!("no part is called '{unknown}'; --list names them");
    }
    let can_run = |part: &&Part| {
        let lacks = lacks(part.name, args);
        if let Some(why) = lacks {
            eprintln!("== {}: left out, because {why}", part.name);
        }
        lacks.is_none()
    };
    let is_wanted = |part: &&Part| {
        if args.only.is_empty() { part.quick || !scale.is_quick() } else { part.is_in(&args.only) }
    };
    Ok(plan::PARTS.iter().filter(is_wanted).filter(can_run).collect())
}

/// Why a part cannot be run.
fn lacks(part: &str, args: &Args) -> Option<&'static str> {
    match part {
        _ if has_no_run(args) => None,
        plan::BEFORE if args.against.is_none() => Some("--against names no older binary"),
        plan::TALK if args.talk.is_none() => Some("--talk names no number of files"),
        plan::DRIVERS if !drivers::are_installed() => {
            Some("neither fio, nor mpirun with mdtest or ior, is installed")
        }
        plan::INSTRUCTIONS if !instructions::can_be_counted() => Some("valgrind is not installed"),
        plan::PROGRAMS => programs::lacks(),
        plan::MDTEST_FUSE => metadata::lacks_fuse(),
        _ => None,
    }
}

/// Whether nothing is measured.
fn has_no_run(args: &Args) -> bool {
    args.list || !args.of.is_empty()
}

/// Runs the parts that have no result yet. A part that fails is told at the end; the others run.
fn measure(
    args: &Args,
    scale: Scale,
    parts: &[&Part],
    machine: &Machine,
    store: &Store,
) -> Result<()> {
    let open: Vec<&&Part> =
        parts.iter().filter(|part| args.afresh || !store.has(part.name)).collect();
    for part in parts.iter().filter(|part| !open.iter().any(|other| other.name == part.name)) {
        eprintln!("== {}: measured before on this commit", part.name);
    }
    if open.is_empty() {
        return Ok(());
    }
    machine.warn_of_load();
    let older = args
        .against
        .as_ref()
        .map(|path| path.canonicalize().with_context(|| format!("--against {}", path.display())));
    let bed = Bed::make(scale, older.transpose()?, args.talk)?;
    let (mut failed, count) = (Vec::new(), open.len());
    for (index, part) in open.into_iter().enumerate() {
        eprintln!("== {} of {count}: {}: {}", index + 1, part.name, part.about);
        let start = Instant::now();
        // the hands of the mounted tests panic where a file system does not come up
        let outcome = catch_unwind(AssertUnwindSafe(|| (part.run)(&bed, scale)));
        let kept = outcome.unwrap_or_else(|_| Err(anyhow!("it panicked"))).and_then(|rows| {
            let seconds = start.elapsed().as_secs_f64();
            let (part, machine) = (part.name.to_owned(), machine.clone());
            let result = PartResult { part, seconds, machine, rows };
            eprint!("{}", report::markdown::table(&result.rows));
            store.keep(&result).context("its result cannot be kept")
        });
        if let Err(error) = kept {
            let why = format!("{}: {error:#}", part.name);
            eprintln!("{why}");
            failed.push(why);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed:\n{}", failed.join("\n")) }
}

#[cfg(test)]
mod tests_of_parts {
    use super::*;

    #[test]
    fn parts_that_need_an_option_are_left_out_without_it() {
        let has = |line: &str, name: &str| {
            let args = Args::try_parse_from(line.split(' ')).expect("well formed");
            let parts = wanted(&args, Scale::FULL).expect("known parts");
            parts.iter().any(|part| part.name == name)
        };
        assert!(!has("bench --only talk", plan::TALK) && !has("bench --publish", plan::TALK));
        assert!(has("bench --only talk --talk 1048576", plan::TALK));
        assert!(has("bench --list", plan::TALK), "it has a name");
        assert!(!has("bench --talk 4", plan::BEFORE));
        assert!(has("bench --against nacre", plan::BEFORE));
        assert!(Args::try_parse_from(["bench", "--talk", "3"]).is_err(), "one file for each MDT");
    }

    #[test]
    fn what_cannot_be_published_is_not_measured() {
        let is_refused = |line: &str, is_dirty| {
            let mut args = Args::try_parse_from(line.split(' ')).expect("well formed");
            args.only.extend(plan::of_topics(&args.topics));
            ensure_can_publish(&args, is_dirty).is_err()
        };
        assert!(!is_refused("bench --publish --talk 131072", false));
        assert!(is_refused("bench --publish --talk 131072", true));
        assert!(is_refused("bench --publish", false), "part talk is published too");
        assert!(is_refused("bench --publish --talk 131072 mdts", false));
        assert!(is_refused("bench --publish --talk 131072 --only rpc", false));
    }

    #[test]
    fn a_part_that_needs_another_program_is_left_out_without_it() {
        let lacks = |part: &str, words: &[&str]| {
            let words = std::iter::once("bench").chain(words.iter().copied());
            lacks(part, &Args::parse_from(words)).is_some()
        };
        assert!(lacks(plan::BEFORE, &[]) && !lacks(plan::BEFORE, &["--against", "older"]));
        assert!(!lacks(plan::BEFORE, &["--list"]) && !lacks("rpc", &[]));
        assert_eq!(lacks(plan::DRIVERS, &[]), !drivers::are_installed());
        assert!(!lacks(plan::DRIVERS, &["--list"]), "nothing is measured");
        assert_eq!(lacks(plan::INSTRUCTIONS, &[]), !instructions::can_be_counted());
        assert_eq!(lacks(plan::MDTEST_FUSE, &[]), metadata::lacks_fuse().is_some());
        assert_eq!(lacks(plan::PROGRAMS, &[]), programs::lacks().is_some());
    }
}
