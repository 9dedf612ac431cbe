//! Everyday programs on a tree of small files, beside the same on ext4, or on `passthrough_hp` of
//! libfuse over that ext4 where it is installed: a FUSE file system that does nothing else, with
//! caches that know of no other client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use mounted::{Scratch, Up};

use super::metadata::text;
use super::passthrough::{self, Passthrough};
use super::public::{drop_caches, is_installed};
use crate::bed::Bed;
use crate::machine::output;
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// A tree that every machine with a C compiler has: some thousand files of a few KiB.
const SOURCE: &str = "/usr/include";

/// Turns at most: one takes half a minute.
const TURNS_MAX: u32 = 3;

/// Files of the large directory, and how many they are where `passthrough_hp` may not have as many
/// open at a time, with the rest of a tree.
const MANY: u32 = 30_000;
const FEWER: u32 = 15_000;
const MANY_OPEN: u64 = 40_000;

/// Times of ours and of the limit.
type Sides = [Vec<f64>; 2];

/// What is cached when a step begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cached {
    /// What those before it have left.
    Left,
    /// Only what it reads outside of the file systems that are compared. `passthrough_hp` has every
    /// file open that the kernel knows, and may have only so many open.
    Sources,
    Nothing,
}

/// One command. `MANY` in a name or a script is the number of files of the large directory.
struct Step {
    case: &'static str,
    script: &'static str,
    cached: Cached,
    /// Most of `passthrough_hp`'s time.
    most: f64,
}

const fn step(case: &'static str, script: &'static str, most: f64) -> Step {
    Step { case, script, cached: Cached::Left, most }
}

const fn apart(case: &'static str, script: &'static str, most: f64) -> Step {
    Step { case, script, cached: Cached::Sources, most }
}

const fn cold(case: &'static str, script: &'static str, most: f64) -> Step {
    Step { case, script, cached: Cached::Nothing, most }
}

impl Step {
    fn title(&self, many: u32) -> String {
        let many = format!("{},{:03}", many / 1_000, many % 1_000);
        self.case.replace("MANY", &many)
    }

    fn script(&self, many: u32) -> String {
        self.script.replace("MANY", &many.to_string())
    }
}

const STEPS: &[Step] = &[
    step("copy in", "cp -a \"$SOURCE\" tree", 1.3),
    step("copy within", "cp -a tree copy", 1.5),
    apart("unpack", "mkdir out && tar xf \"$ARCHIVE\" -C out", 1.3),
    cold("usage, cold", "du -s tree", 1.3),
    step("usage, again", "du -s tree", 1.3),
    step("list all, again", "ls -lR tree", 1.3),
    cold("search, cold", "grep -r -c nacre tree || true", 2.0),
    step("search, again", "grep -r -c nacre tree || true", 1.3),
    step("remove", "rm -rf copy", 1.3),
    apart("clone", "git clone -q \"$REPOSITORY\" clone", 1.3),
    cold("status, cold", "git -C clone status -s", 1.5),
    step("status, again", "git -C clone status -s", 1.5),
    apart("create MANY", "mkdir many && cd many && for i in {1..MANY}; do : > $i; done", 1.4),
    cold("list MANY, cold", "ls -lU many", 1.3),
    step("list MANY, again", "ls -lU many", 1.3),
];

/// The step that makes a directory, and those that list it on a mount with `noacl` as well. There
/// the kernel asks for no ACLs.
const FILLS: &str = "create MANY";
const LISTS: [&str; 2] = ["list MANY, cold", "list MANY, again"];

/// Programs that the steps need, beside those that every machine has.
const NEEDED: [&str; 2] = ["bash", "git"];

/// Why the steps cannot be run here.
pub(crate) fn lacks() -> Option<&'static str> {
    if !Path::new(SOURCE).is_dir() {
        return Some("/usr/include is missing: libc6-dev is not installed");
    }
    let are_installed = NEEDED.into_iter().all(is_installed);
    (!are_installed).then_some("bash or git is not installed")
}

/// What the commands read, outside of the file systems that are compared.
pub(super) struct Sources {
    scratch: Scratch,
    /// Files of the large directory.
    many: u32,
}

impl Sources {
    pub(super) fn make() -> Result<Sources> {
        ensure!(Path::new(SOURCE).is_dir(), "{SOURCE} is missing: install libc6-dev");
        let scratch = Scratch::new("bench-programs");
        let many = match passthrough::is_installed() && passthrough::files_max() < MANY_OPEN {
            true => FEWER,
            false => MANY,
        };
        let sources = Sources { scratch, many };
        output("tar", &["cf", &text(&sources.archive())?, "-C", "/usr", "include"])?;
        let repository = text(&sources.repository())?;
        output("git", &["init", "-q", &repository])?;
        output("cp", &["-a", SOURCE, &repository])?;
        let git = |words: &[&str]| {
            let owner =
                ["-C", &repository, "-c", "user.name=bench", "-c", "user.email=bench@local"];
            output("git", &[&owner[..], words].concat())
        };
        git(&["add", "-A"])?;
        git(&["commit", "-q", "-m", "a tree"])?;
        Ok(sources)
    }

    fn archive(&self) -> PathBuf {
        self.scratch.path().join("tree.tar")
    }

    pub(super) fn repository(&self) -> PathBuf {
        self.scratch.path().join("repository")
    }

    /// Seconds that a step takes in `dir`.
    fn time(&self, step: &Step, dir: &Path, bed: &Bed) -> Result<f64> {
        if step.cached != Cached::Left {
            bed.up().set("ldlm.namespaces.*-mdc-*.lru_size", "clear");
            drop_caches()?;
        }
        if step.cached == Cached::Sources {
            self.run("cat \"$ARCHIVE\"; grep -r -c nacre \"$REPOSITORY\" || true", dir)?;
        }
        let begun = Instant::now();
        self.run(&step.script(self.many), dir)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn run(&self, script: &str, dir: &Path) -> Result<()> {
        let ended = Command::new("bash")
            .args(["-ec", script])
            .env("SOURCE", SOURCE)
            .env("ARCHIVE", self.archive())
            .env("REPOSITORY", self.repository())
            .current_dir(dir)
            .stdout(Stdio::null())
            .status()
            .context("bash")?;
        ensure!(ended.success(), "{script} ended with {ended}");
        Ok(())
    }
}

pub(crate) fn everyday(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let sources = Sources::make()?;
    let below = bed.limit().join("programs");
    fs::create_dir_all(&below)?;
    let passthrough = if passthrough::is_installed() {
        Some(Passthrough::over(&below, bed.limit().join("passthrough"))?)
    } else {
        None
    };
    let limit = passthrough.as_ref().map_or(below.as_path(), Passthrough::mount);
    let sides = [bed.ours().join("programs"), limit.join("turn")];
    let mut other = Up::with(Scratch::new("bench-noacl"), Some(bed.fresh("programs")), &[]);
    let noacl = other.second_mount_with(104, "noacl");
    sources.time(named(FILLS)?, &noacl, bed)?;
    let mut values: Vec<Sides> = STEPS.iter().map(|_| Sides::default()).collect();
    let mut without: [Vec<f64>; LISTS.len()] = Default::default();
    for _ in 0..scale.pairs.min(TURNS_MAX) {
        for (side, dir) in sides.iter().enumerate() {
            fs::create_dir(dir)?;
            for (step, values) in STEPS.iter().zip(&mut values) {
                values[side].push(sources.time(step, dir, bed)?);
            }
            fs::remove_dir_all(dir)?;
        }
        for (case, times) in LISTS.into_iter().zip(&mut without) {
            times.push(sources.time(named(case)?, &noacl, bed)?);
        }
    }
    other.stop();
    fs::remove_dir_all(other.data())?;
    let has_bounds = passthrough.is_some();
    let title = |case: &str| Ok::<_, anyhow::Error>(named(case)?.title(sources.many));
    let row =
        |(step, values): (&Step, Sides)| row(&step.title(sources.many), step, values, has_bounds);
    let mut rows: Vec<Row> = STEPS.iter().zip(values).map(row).collect();
    let [cold, again] = LISTS;
    let listed = without_acls(&rows, [title(cold)?, title(again)?], without);
    rows.extend(listed);
    Ok(rows)
}

/// The step of this name.
fn named(case: &str) -> Result<&'static Step> {
    STEPS.iter().find(|step| step.case == case).with_context(|| format!("no step '{case}'"))
}

/// Rows of [`LISTS`] with these times of ours, beside the limit's times of the same turns.
fn without_acls(
    rows: &[Row],
    titles: [String; LISTS.len()],
    times: [Vec<f64>; LISTS.len()],
) -> Vec<Row> {
    let of = |(case, ours): (String, Vec<f64>)| {
        let row = rows.iter().find(|row| row.title == case)?.clone();
        let (id, title) = (format!("{}, noacl", row.id), format!("{case}, mounted with noacl"));
        Some(Row { id, title, ours, ..row })
    };
    titles.into_iter().zip(times).filter_map(of).collect()
}

fn row(title: &str, step: &Step, [ours, limit]: Sides, has_bound: bool) -> Row {
    Row {
        id: format!("programs/{title}"),
        title: title.to_owned(),
        unit: "s".to_owned(),
        ours,
        limit,
        cpu: None,
        idle: None,
        bound: has_bound.then_some(Bound::RatioAtMost(step.most)),
        command: "bash -c SCRIPT; bench/src/parts/programs.rs has the scripts".to_owned(),
    }
}

#[cfg(test)]
mod tests_of_steps {
    use super::*;

    /// A row with these times where the large directory has as many files as wanted.
    fn of(step: &Step, ours: f64, limit: f64, has_bound: bool) -> Row {
        row(&step.title(MANY), step, [vec![ours], vec![limit]], has_bound)
    }

    #[test]
    fn only_what_is_compared_with_passthrough_has_bounds() {
        for has_bound in [true, false] {
            let row = of(&STEPS[0], 1.2, 1.0, has_bound);
            assert_eq!(row.is_reached(), has_bound.then_some(true));
        }
        let names: std::collections::BTreeSet<_> = STEPS.iter().map(|step| step.case).collect();
        assert_eq!(names.len(), STEPS.len(), "each has a name of its own");
    }

    #[test]
    fn listings_without_acls_are_compared_with_the_same_listings() {
        let step = |case: &str| named(case).expect("a step");
        let rows = [(LISTS[0], 2.0), (LISTS[1], 1.0), (FILLS, 5.0)]
            .map(|(case, limit)| of(step(case), 9.0, limit, true));
        let titles = LISTS.map(|case| step(case).title(MANY));
        let found = without_acls(&rows, titles, [vec![2.0], vec![1.4]]);
        let shown: Vec<_> = found.iter().map(|row| (row.id.as_str(), row.is_reached())).collect();
        let expected = [
            ("programs/list 30,000, cold, noacl", Some(true)),
            ("programs/list 30,000, again, noacl", Some(false)),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn names_and_scripts_say_how_many_files_a_large_directory_has() {
        let fills = named(FILLS).expect("a step");
        assert_eq!(fills.title(FEWER), "create 15,000");
        assert!(fills.script(FEWER).contains("{1..15000}"));
    }
}
