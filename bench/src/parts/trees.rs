//! Large trees beside the same on ext4: listings of many files with and without ACLs, and a
//! generated tree that is unpacked and compiled. Also `git status` of a tree that the kernel has
//! already.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mounted::{Scratch, Up};

use super::metadata::text;
use super::programs::{self, Sources};
use super::public::{drop_caches, is_installed};
use crate::bed::Bed;
use crate::machine::output;
use crate::row::{Bound, Row};
use crate::scale::Scale;

const TURNS_MAX: u32 = 3;

/// Files of the listing: of a short run and of a whole one.
const FILES: [usize; 2] = [20_000, 100_000];
/// Most of ext4's time: with ACLs, where the kernel asks for those of each file; without; again.
const COLD_MOST: f64 = 4.5;
const COLD_NOACL_MOST: f64 = 1.1;
const AGAIN_MOST: f64 = 1.3;

/// Sources of the generated tree, and as many headers; headers that each source includes.
const SOURCES: usize = 500;
const INCLUDES: usize = 5;
const DECLARATIONS: usize = 20;
const MAKE_MOST: f64 = 2.0;

const STATUS_MOST: f64 = 3.0;
/// Runs of a turn, because one takes some milliseconds.
const STATUS_RUNS: u32 = 5;
/// Git reads files again that are as young as its index.
const INDEX_AGE: Duration = Duration::from_millis(1_100);

pub(crate) fn beside_ext4(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let turns = scale.pairs.min(TURNS_MAX);
    let mut up = Up::with(Scratch::new("bench-trees"), Some(bed.fresh("trees")), &[]);
    let noacl = up.second_mount_with(103, "noacl");
    let limit = bed.limit().join("trees");
    fs::create_dir(&limit)?;
    let mut rows = listings(&up, &noacl, &limit, scale)?;
    let sides = [up.mount().to_owned(), limit.clone()];
    rows.extend(compiled(&sides, turns)?);
    rows.extend(status(&sides, turns)?);
    up.stop();
    fs::remove_dir_all(up.data())?;
    fs::remove_dir_all(&limit)?;
    Ok(rows)
}

/// Times of ours and of ext4.
type Sides = [Vec<f64>; 2];

/// `ls -lU` with nothing cached and again, and on a mount without ACLs.
fn listings(up: &Up, noacl: &Path, limit: &Path, scale: Scale) -> Result<Vec<Row>> {
    let files = FILES[usize::from(!scale.is_quick())];
    let name = "listed";
    let [ours, noacl, limit] = [up.mount(), noacl, limit].map(|dir| dir.join(name));
    for dir in [&ours, &limit] {
        fs::create_dir(dir)?;
        (0..files).try_for_each(|number| File::create(dir.join(format!("f{number}"))).map(drop))?;
    }
    let (mut cold, mut again, mut without) = (Sides::default(), Sides::default(), Sides::default());
    for _ in 0..scale.pairs.min(TURNS_MAX) {
        for (side, dir) in [&ours, &limit].into_iter().enumerate() {
            forget(up)?;
            cold[side].push(list(dir)?);
            again[side].push(list(dir)?);
        }
        forget(up)?;
        without[0].push(list(&noacl)?);
        without[1].extend(cold[1].last());
    }
    let row = |id: &str, more: &str, times: Sides, most: f64| {
        let title = format!("ls -lU of {files} files, {more}");
        Row::of(id, &title, "s", times, Some(Bound::RatioAtMost(most)), "ls -lU DIR")
    };
    Ok(vec![
        row("trees/ls-cold", "cold", cold, COLD_MOST),
        row("trees/ls-cold-noacl", "cold, mounted with noacl", without, COLD_NOACL_MOST),
        row("trees/ls-again", "again", again, AGAIN_MOST),
    ])
}

/// Nothing is cached any more, in the mounts and in the kernel.
fn forget(up: &Up) -> Result<()> {
    up.set("ldlm.namespaces.*-mdc-*.lru_size", "clear");
    drop_caches()
}

/// Seconds of a listing.
fn list(dir: &Path) -> Result<f64> {
    timed(Command::new("ls").arg("-lU").arg(dir))
}

/// Seconds of a command that must succeed; what it prints is dropped.
fn timed(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(start.elapsed().as_secs_f64())
}

/// Only where a compiler and `make` are installed.
fn compiled(sides: &[PathBuf; 2], turns: u32) -> Result<Option<Row>> {
    if let Some(missing) = ["make", "cc", "ar"].into_iter().find(|name| !is_installed(name)) {
        eprintln!("{missing} is not installed: no tree is compiled");
        return Ok(None);
    }
    let scratch = Scratch::new("bench-trees-sources");
    let (tree, archive) = (scratch.path().join("tree"), scratch.path().join("tree.tar"));
    generate(&tree)?;
    output("tar", &["cf", &text(&archive)?, "-C", &text(&tree)?, "."])?;
    let script = "tar xf \"$ARCHIVE\" && make -s -j2";
    let mut times = Sides::default();
    for _ in 0..turns {
        for (side, dir) in sides.iter().enumerate() {
            let dir = dir.join("compiled");
            fs::create_dir(&dir)?;
            drop_caches()?;
            let mut shell = Command::new("sh");
            shell.args(["-ec", script]).env("ARCHIVE", &archive).current_dir(&dir);
            times[side].push(timed(&mut shell)?);
            ensure!(dir.join("all.a").exists(), "{} was not compiled", dir.display());
            fs::remove_dir_all(&dir)?;
        }
    }
    let title = format!("tar x and make -j2 of {SOURCES} .c and {SOURCES} .h files");
    let bound = Some(Bound::RatioAtMost(MAKE_MOST));
    let command = "tar xf ARCHIVE && make -s -j2; bench/src/parts/trees.rs makes the tree";
    Ok(Some(Row::of("trees/make", &title, "s", times, bound, command)))
}

/// Small sources, each of which includes headers of others.
fn generate(tree: &Path) -> Result<()> {
    fs::create_dir(tree)?;
    for number in 0..SOURCES {
        let declared = (0..DECLARATIONS).map(|at| format!("int f{number}_{at}(int);\n"));
        let guarded = format!("#pragma once\n{}", declared.collect::<String>());
        fs::write(tree.join(format!("f{number}.h")), guarded)?;
        let included = (0..INCLUDES).map(|at| (number + at * 7) % SOURCES);
        let included = included.map(|other| format!("#include \"f{other}.h\"\n"));
        let defined = (0..DECLARATIONS).map(|at| {
            let next = (number + 7) % SOURCES;
            format!("int f{number}_{at}(int x) {{ return x ? f{next}_{at}(x - 1) : {at}; }}\n")
        });
        let source = included.chain(defined).collect::<String>();
        fs::write(tree.join(format!("f{number}.c")), source)?;
    }
    let rules = "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\n\
        all.a: $(OBJECTS)\n\t$(AR) rc $@ $(OBJECTS)\n\
        %.o: %.c\n\t$(CC) -c -o $@ $<\n";
    Ok(fs::write(tree.join("Makefile"), rules)?)
}

/// `git status` of a clone that was looked at before. Only where there are git and a tree for it.
fn status(sides: &[PathBuf; 2], turns: u32) -> Result<Option<Row>> {
    if let Some(why) = programs::lacks() {
        eprintln!("git status is not measured: {why}");
        return Ok(None);
    }
    let sources = Sources::make()?;
    let clones = sides.each_ref().map(|dir| dir.join("clone"));
    for clone in &clones {
        output("git", &["clone", "-q", &text(&sources.repository())?, &text(clone)?])?;
        std::thread::sleep(INDEX_AGE);
        status_of(clone)?;
    }
    let mut times = Sides::default();
    for _ in 0..turns {
        for (clone, times) in clones.iter().zip(&mut times) {
            status_of(clone)?;
            let runs = (0..STATUS_RUNS).map(|_| status_of(clone)).sum::<Result<f64>>()?;
            times.push(runs / f64::from(STATUS_RUNS));
        }
    }
    let (title, bound) = ("git status, again", Some(Bound::RatioAtMost(STATUS_MOST)));
    Ok(Some(Row::of("trees/status", title, "s", times, bound, "git -C CLONE status -s")))
}

fn status_of(clone: &Path) -> Result<f64> {
    timed(Command::new("git").arg("-C").arg(clone).args(["status", "-s"]))
}

#[cfg(test)]
mod tests_of_trees {
    use super::*;

    #[test]
    fn a_tree_has_sources_and_headers_and_names_what_it_includes() {
        let scratch = Scratch::new("trees");
        let tree = scratch.path().join("tree");
        generate(&tree).expect("it is written");
        let count = |end: &str| {
            let names = fs::read_dir(&tree).expect("a tree").map(|entry| entry.expect("an entry"));
            names.filter(|entry| entry.file_name().to_string_lossy().ends_with(end)).count()
        };
        assert_eq!([count(".c"), count(".h")], [SOURCES, SOURCES]);
        let source = fs::read_to_string(tree.join("f499.c")).expect("a source");
        assert!(source.starts_with("#include \"f499.h\"\n#include \"f6.h\"\n"), "{source}");
    }
}
