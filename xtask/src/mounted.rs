//! The tests on a real mount, several at once, each in a lane of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::lane::{Home, Outcome};
use crate::leftovers::Parameters;
use crate::{needs, run, tree};

/// Tests that measure time: one after the other, after all others, with the binary of the release.
const MEASURE: &[(&str, &str)] = &[
    ("crowd", "a_thousand_throttled_sessions_over_tcp_hold_up_nobody_else"),
    ("fairness", "crrn_gives_every_client_its_share"),
    ("nrs", "a_class_gets_its_rate_over_four_partitions"),
    ("nrs", "hot_swaps_through_all_policies_lose_nothing_and_stall_nobody"),
    ("nrs", "rules_of_every_kind_limit_whom_they_name"),
];

/// Held while something else uses the machine: tests that measure time wait for it.
pub(crate) static QUIET: Mutex<()> = Mutex::new(());

/// Files of tests that run over one transport, drawn from the tree; over both with `--full`.
const DRAWN: &[&str] = &["kill", "racer", "fsx", "programs", "power"];

/// Test target of the package `mounted`.
const BINARY: &str = "all";

/// A test of these files that runs over both transports by itself.
const OVER_BOTH: &str = "a_killed_client_harms_nobody";

/// A test that has not ended by then hangs: three times what the longest takes on two busy cores.
const LIMIT: Duration = Duration::from_secs(8 * 60);
/// With the counts of a release.
const LIMIT_FULL: Duration = Duration::from_secs(30 * 60);

/// Seconds that each test takes, longest first; `--record` writes it.
const SECONDS: &str = "tests/mounted/seconds.txt";

/// Last lines of a failed test's output that are shown once more at the end of a run.
const FAILURE_LINES: usize = 40;

/// Lines of its first panic that the last lines of a run show.
const PANIC_LINES: usize = 3;

/// What the last run printed of its tests, below `target/`.
pub(crate) const LINES: &str = "mounted.txt";

/// Tests at once for each core: most of them wait for a server or a clock most of the time.
const PER_CORE: usize = 3;

fn lanes() -> usize {
    PER_CORE * std::thread::available_parallelism().map_or(1, usize::from)
}

/// What to run.
pub(crate) struct Options {
    /// Only tests whose file or name contains this.
    pub(crate) filter: Option<String>,
    pub(crate) full: bool,
    /// Keep how long each test took.
    pub(crate) record: bool,
}

pub(crate) const USAGE: &str = "\
cargo xtask mounted [NAME] [--full] [--record]

Runs the tests on a real mount whose file or name contains NAME, or all of them.
  --full    the counts of a release, each test over every transport
  --record  keep how long each test took in tests/mounted/seconds.txt; not with NAME
";

impl Options {
    /// From the command line; none where it asks for help.
    pub(crate) fn parse(args: &[String]) -> Result<Option<Options>> {
        let mut options = Options { filter: None, full: false, record: false };
        for arg in args {
            match arg.as_str() {
                "--help" | "-h" | "help" => return Ok(None),
                "--full" => options.full = true,
                "--record" => options.record = true,
                name if !name.starts_with('-') && options.filter.is_none() => {
                    options.filter = Some(name.to_owned())
                }
                _ => bail!("'{arg}' is not understood\n\n{USAGE}"),
            }
        }
        options.record &= options.filter.is_none();
        Ok(Some(options))
    }
}

/// A test, and the transport of the mounts that do not choose theirs.
#[derive(Clone, Debug)]
struct Job {
    file: String,
    test: String,
    program: PathBuf,
    transport: &'static str,
}

impl Job {
    fn measures(&self) -> bool {
        MEASURE.contains(&(&*self.file, &*self.test))
    }

    fn name(&self) -> String {
        format!("{}::{}", self.file, self.test)
    }

    fn shown(&self) -> String {
        match self.transport {
            "classic" => self.name(),
            transport => format!("{} over {transport}", self.name()),
        }
    }
}

/// Builds and runs them.
pub(crate) fn mounted(options: &Options) -> Result<()> {
    let wanted = |job: &Job| {
        options.filter.as_ref().is_none_or(|filter| job.name().contains(filter.as_str()))
    };
    let mut jobs: Vec<Job> = list()?.into_iter().filter(|job| wanted(job)).collect();
    let measure_all = MEASURE
        .iter()
        .filter(|(file, test)| !jobs.iter().any(|job| job.file == *file && job.test == *test));
    if options.filter.is_none()
        && let Some((file, test)) = measure_all.into_iter().next()
    {
        bail!("{file}::{test} is listed as a test that measures, and is not there");
    }
    if jobs.is_empty() {
        bail!("no test matches");
    }
    jobs = over_transports(jobs, options.full);
    sort_longest_first(&mut jobs, &kept_seconds());
    let (alone, together): (Vec<_>, Vec<_>) = jobs.into_iter().partition(Job::measures);
    // one that is built already
    let given = std::env::var("NACRE_BIN").ok();
    if given.is_none() {
        build("ci")?;
    }
    if given.is_none() && !alone.is_empty() {
        build("release")?;
    }
    let binary = |built: &'static str| given.clone().unwrap_or_else(|| built.to_owned());

    let _there_may_be_none = fs::remove_file(run::root().join("target").join(LINES));
    let parameters = Parameters::now();
    let batch = Batch {
        home: Home::new()?,
        full: options.full,
        done: Mutex::default(),
        failures: Mutex::default(),
    };
    batch.run(together, lanes(), &binary("target/ci/nacre"));
    let _quiet = QUIET.lock();
    batch.run(alone, 1, &binary("target/release/nacre"));
    drop(batch.home);
    let done = batch.done.into_inner().expect("no lane panics");
    let failed: Vec<_> = done.iter().filter(|(_, passed, _)| !passed).collect();
    let mut told = Vec::new();
    for (name, why, text) in batch.failures.into_inner().expect("no lane panics") {
        told.push(format!("failed: {name}: {why}{}", first_panic(&text)));
        let lines: Vec<_> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(FAILURE_LINES)..];
        println!("---- failed: {name}; its output ended with\n{}", last.join("\n"));
    }
    told.iter().for_each(|line| say(line)); // at the end, where little is cut off
    say(&format!("{} passed, {} failed", done.len() - failed.len(), failed.len()));
    parameters.compare()?;
    if !failed.is_empty() {
        bail!("{} of {} mounted tests failed", failed.len(), done.len());
    }
    if options.record {
        keep_seconds(&done)?;
    }
    Ok(())
}

/// The binary under test. Of profile `ci` with the programs that tests start, all compiled for the
/// workspace as the unit tests are, so that nothing is compiled twice: code that lets the simulator
/// plant bugs is in it, and nothing plants one. The binary of the release has none of that.
pub(crate) fn build(profile: &str) -> Result<()> {
    let what: &[&str] = match profile {
        "ci" => &["--workspace", "--bin", "nacre", "--example", "hello"],
        _ => &["-p", "nacre"],
    };
    run::run("cargo", &[&["build", "--quiet", "--profile", profile], what].concat(), &[])
}

/// Every test of every file of `tests/mounted/tests`, all of which are in one binary.
fn list() -> Result<Vec<Job>> {
    // of the workspace, so that nothing is compiled with other features than for the unit tests
    let args = [
        "test",
        "--profile",
        "ci",
        "--workspace",
        "--no-run",
        "--message-format=json",
        "--test",
        BINARY,
    ];
    let messages = run::output("cargo", &args)?;
    let mut jobs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("a message of cargo")?;
        let (Some(program), Some(BINARY)) =
            (message["executable"].as_str(), message["target"]["name"].as_str())
        else {
            continue;
        };
        let tests = run::output(program, &["--list", "--format", "terse"])?;
        let tests = tests.lines().filter_map(|line| line.strip_suffix(": test")?.split_once("::"));
        for (file, test) in tests {
            let (file, test, program) = (file.to_owned(), test.to_owned(), program.into());
            jobs.push(Job { file, test, program, transport: "classic" });
        }
    }
    Ok(jobs)
}

/// So that no lane begins a long test when the others have ended. A test without a kept time is
/// taken for one of middle length.
fn sort_longest_first(jobs: &mut [Job], seconds: &BTreeMap<String, f64>) {
    let mut kept: Vec<f64> = seconds.values().copied().collect();
    kept.sort_by(f64::total_cmp);
    let middle = kept.get(kept.len() / 2).copied().unwrap_or_default();
    let expected = |job: &Job| seconds.get(&job.name()).copied().unwrap_or(middle);
    jobs.sort_by(|a, b| expected(b).total_cmp(&expected(a)));
}

fn over_transports(jobs: Vec<Job>, full: bool) -> Vec<Job> {
    let uring = needs::has_uring();
    let transports: &[&'static str] = match (uring, full) {
        (false, _) => &["classic"],
        (true, true) => &["classic", "uring"],
        (true, false) if is_uring_drawn() => &["uring"],
        (true, false) => &["classic"],
    };
    if uring {
        eprintln!(
            "kills, racers, fsx, programs and power cuts run over: {}",
            transports.join(", ")
        );
    } else {
        eprintln!("{}", needs::NO_URING);
    }
    let over = |job: Job| {
        let draws = DRAWN.contains(&&*job.file) && job.test != OVER_BOTH;
        let all = if draws { transports } else { &["classic"] };
        all.iter().map(move |transport| Job { transport, ..job.clone() })
    };
    jobs.into_iter().flat_map(over).collect()
}

/// Whether this tree's draw is io_uring: the same for each check of the same tree.
fn is_uring_drawn() -> bool {
    tree::hash().bytes().last().is_some_and(|last| last % 2 == 1)
}

/// Tests that run, and those that have run: name, whether it passed, seconds.
struct Batch {
    home: Home,
    full: bool,
    done: Mutex<Vec<(String, bool, f64)>>,
    /// Of those that failed: name, why, and output.
    failures: Mutex<Vec<(String, String, String)>>,
}

impl Batch {
    fn run(&self, jobs: Vec<Job>, lanes: usize, binary: &str) {
        let jobs = Mutex::new(jobs.into_iter().enumerate());
        std::thread::scope(|scope| {
            for _ in 0..lanes {
                scope.spawn(|| {
                    loop {
                        let next = jobs.lock().expect("no lane panics").next();
                        let Some((number, job)) = next else { return };
                        self.one(number, &job, binary);
                    }
                });
            }
        });
    }

    fn one(&self, number: usize, job: &Job, binary: &str) {
        let start = Instant::now();
        let kind = if job.measures() { "m" } else { "t" };
        let (outcome, text) = match self.in_a_lane(&format!("{kind}{number}"), job, binary) {
            Ok(ended) => ended,
            Err(error) => (Outcome::Failed(format!("{error:#}")), String::new()),
        };
        let seconds = start.elapsed().as_secs_f64();
        let passed = outcome == Outcome::Passed;
        let mut done = self.done.lock().expect("no lane panics"); // and prints in one piece
        let why = outcome.why();
        let word = why.as_ref().map_or("ok".to_owned(), |why| format!("FAILED, {why}"));
        if let Some(why) = why {
            println!("---- output of {}\n{text}---- end of {}", job.shown(), job.shown());
            self.failures.lock().expect("no lane panics").push((job.shown(), why, text));
        } else if job.measures() || self.full {
            // what it saw
            let ours = |line: &&str| {
                !line.is_empty() && !line.starts_with("running ") && !line.starts_with("test ")
            };
            text.lines().filter(ours).for_each(|line| say(&format!("    {line}")));
        }
        say(&format!("test {} ... {word} ({seconds:.1} s)", job.shown()));
        done.push((job.name(), passed, seconds));
    }

    fn in_a_lane(&self, name: &str, job: &Job, binary: &str) -> Result<(Outcome, String)> {
        let limit = if self.full { LIMIT_FULL } else { LIMIT };
        let lane = self.home.lane(name, limit)?;
        let envs = [
            ("NACRE_BIN", binary),
            ("NACRE_FULL", if self.full { "1" } else { "0" }),
            ("NACRE_TRANSPORT", job.transport),
            ("NACRE_EXPECT_URING", if needs::has_uring() { "1" } else { "0" }),
        ];
        let args = ["--exact", &job.name(), "--nocapture", "--test-threads=1"];
        let outcome = lane.run(&job.program, &args, &envs, false)?;
        Ok((outcome, lane.text()))
    }
}

/// Where a test panicked first, and what it said, if it did.
fn first_panic(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains(" panicked at "));
    let shown = at.map(|at| &lines[at..lines.len().min(at + PANIC_LINES)]).unwrap_or_default();
    shown.iter().map(|line| format!("\n    {line}")).collect()
}

/// To stdout and to [`LINES`].
fn say(line: &str) {
    println!("{line}");
    let file = run::root().join("target").join(LINES);
    let file = fs::OpenOptions::new().append(true).create(true).open(file);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
        eprintln!("target/{LINES}: {error}");
    }
}

fn kept_seconds() -> BTreeMap<String, f64> {
    let text = fs::read_to_string(run::root().join(SECONDS)).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (seconds, name) = line.trim().split_once(' ')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        })
        .collect()
}

fn keep_seconds(done: &[(String, bool, f64)]) -> Result<()> {
    let mut done: Vec<_> = done.iter().collect();
    done.sort_by(|a, b| b.2.total_cmp(&a.2));
    let lines: String =
        done.iter().map(|(name, _, seconds)| format!("{seconds:5.1} {name}\n")).collect();
    fs::write(run::root().join(SECONDS), lines).context(SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_test_begins_first_and_an_unknown_one_amid_the_others() {
        let kept = [("f::long", 90.0), ("f::middle", 3.0), ("f::short", 0.5)];
        let kept = kept.into_iter().map(|(name, seconds)| (name.to_owned(), seconds)).collect();
        let job = |test: &str| {
            let (file, test, program) = ("f".to_owned(), test.to_owned(), PathBuf::new());
            Job { file, test, program, transport: "classic" }
        };
        let mut jobs = ["short", "new", "long"].map(job);
        sort_longest_first(&mut jobs, &kept);
        assert_eq!(jobs.map(|job| job.test), ["long", "new", "short"]);
    }

    #[test]
    fn a_panic_is_told_with_its_place_and_its_first_line() {
        let text = "runs\nthread 'a' (7) panicked at kill.rs:59:5:\nwaited 5 s\nstack\n0: begin";
        let told = first_panic(text);
        assert_eq!(
            told,
            "\n    thread 'a' (7) panicked at kill.rs:59:5:\n    waited 5 s\n    stack"
        );
        assert_eq!(first_panic("a limit ended it"), "");
    }

    #[test]
    fn help_and_words_that_are_not_understood_run_nothing() {
        let parse = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let options = Options::parse(&args);
            options.map(|given| given.map(|given| (given.filter, given.full, given.record)))
        };
        assert!(parse("--help").is_ok_and(|options| options.is_none()));
        assert!(parse("kill -h").is_ok_and(|options| options.is_none()));
        assert!(parse("--hlep").is_err() && parse("a b").is_err());
        assert_eq!(parse("--record").ok(), Some(Some((None, false, true))));
        assert_eq!(parse("a --full --record").ok(), Some(Some((Some("a".into()), true, false))));
    }
}
