//! The stages of `cargo xtask check`, each timed. The output of a stage stays visible.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::json;

use crate::lane::Home;
use crate::leftovers::Parameters;
use crate::run::{output, run};
use crate::{mounted, needs, package, planted, tidy, tree};

/// How much of everything a run does.
#[derive(Clone, Copy)]
struct Scale {
    /// Seeds that are drawn from the hash of the tree, beside the fixed ones.
    drawn: u32,
    full: bool,
    /// Installs what is missing.
    install: bool,
}

const CI: Scale = Scale { drawn: 100, full: false, install: true };
const FULL: Scale = Scale { drawn: 1_000, full: true, install: true };

/// The unit tests take a tenth of this on two quiet cores.
const TEST_MAX: Duration = Duration::from_secs(40 * 60);

/// Lines of failed unit tests that the end of a check repeats.
const FAILURE_LINES: usize = 60;

type Stage = (&'static str, fn(Scale) -> Result<()>);

const STAGES: &[Stage] = &[
    ("set-up", |scale| needs::provide(needs::ALL, scale.install)),
    ("fmt", |_| run("cargo", &["fmt", "--all", "--check"], &[])),
    ("clippy", |_| {
        run(
            "cargo",
            &[
                "clippy",
                "--profile",
                "ci",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "-D",
                "warnings",
            ],
            &[],
        )
    }),
    ("doc", |_| document()),
    ("tidy", |_| tidy::tidy()),
    ("build", |_| {
        compile_tests()?;
        let sim = ["build", "--quiet", "--profile", "ci", "--workspace", "--example", "sim"];
        run("cargo", &sim, &[])?;
        mounted::build("ci")?;
        mounted::build("release")
    }),
    ("package", |_| package::prove()),
    ("test", |_| unit_tests()),
    ("sim", |scale| {
        let (drawn, tree) = (scale.drawn.to_string(), tree::hash());
        simulate(&["--suite", "--drawn", &drawn, "--from", &tree])
    }),
    ("bugs", |_| planted_bugs()),
    ("mounted", |scale| {
        mounted::mounted(&mounted::Options { filter: None, full: scale.full, record: false })
    }),
];

/// Stages that run beside others, in the time of the processors that those leave.
const BESIDE: &[&str] = &["sim", "bugs"];

/// The others: tests that often wait for clocks and servers. Everything is built before them.
const WAITING: &[&str] = &["test", "mounted"];

/// Name, time and end of each. Tests that measure time begin after them.
fn run_beside(stages: &[&Stage], scale: Scale) -> Vec<(&'static str, Duration, Result<()>)> {
    let _others_measure_later = mounted::QUIET.lock();
    let one = |(name, stage): &&Stage| {
        eprintln!("== {name}, beside");
        let start = Instant::now();
        let outcome = stage(scale);
        (*name, start.elapsed(), outcome)
    };
    stages.iter().map(one).collect()
}

/// Cargo takes the metadata of the crates that clippy has checked if it would run the same compiler
/// with the same arguments. `CLIPPY_ARGS` has those of the stage clippy as `cargo clippy` passes
/// them. If they differ, all crates are checked once more.
fn document() -> Result<()> {
    let sysroot = output("rustc", &["--print", "sysroot"])?;
    let driver = Path::new(sysroot.trim()).join("bin/clippy-driver").display().to_string();
    let same = [
        ("RUSTC_WORKSPACE_WRAPPER", driver.as_str()),
        ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"),
    ];
    let same = if Path::new(&driver).exists() { &same[..] } else { &[] };
    let args = ["doc", "--profile", "ci", "--workspace", "--no-deps", "--quiet"];
    run("cargo", &args, &[same, &[("RUSTDOCFLAGS", "-D warnings")]].concat())
}

fn compile_tests() -> Result<()> {
    run("cargo", &["test", "--profile", "ci", "--workspace", "--quiet", "--no-run"], &[])
}

/// Tests that need no built binary, in one lane: some of them mount.
fn unit_tests() -> Result<()> {
    compile_tests()?; // it alone may be asked for
    let mut args = vec!["test", "--profile", "ci", "--workspace", "--exclude", "mounted"];
    args.extend(["--quiet", "--no-fail-fast"]);
    let home = Home::new()?;
    let lane = home.lane("t", TEST_MAX)?;
    eprintln!("+ cargo {}", args.join(" "));
    let outcome = lane.run(Path::new("cargo"), &args, &[("CARGO_NET_OFFLINE", "true")], true);
    match outcome?.why() {
        None => Ok(()),
        Some(why) => bail!("cargo test: {why}{}", failures(&lane.text())),
    }
}

/// What the tests that failed said, for the end of a check, where little is cut off: the blocks of
/// cargo's output that begin with `failures:`, up to their counts.
fn failures(text: &str) -> String {
    let mut told = Vec::new();
    let mut within = false;
    for line in text.lines() {
        within |= line == "failures:";
        if within {
            told.push(line);
        }
        within &= !line.starts_with("test result:");
    }
    let first = &told[..told.len().min(FAILURE_LINES)];
    first.iter().map(|line| format!("\n{line}")).collect()
}

/// `cargo xtask check [STAGE...]`.
pub(crate) fn check(args: &[String]) -> Result<()> {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let scale = if has("--full") { FULL } else { CI };
    let scale = Scale { install: !has("--no-install"), ..scale };
    let wanted: Vec<&str> = args.iter().map(String::as_str).collect();
    if wanted == ["--list"] {
        STAGES.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    }
    let wanted: Vec<&str> =
        wanted.into_iter().filter(|arg| !["--full", "--no-install"].contains(arg)).collect();
    if let Some(unknown) = wanted.iter().find(|name| STAGES.iter().all(|(stage, _)| stage != *name))
    {
        bail!("no stage is called '{unknown}'; `cargo xtask check --list` names them");
    }
    let stages: Vec<&Stage> =
        STAGES.iter().filter(|(name, _)| wanted.is_empty() || wanted.contains(name)).collect();
    let whole = wanted.is_empty();
    let mut report = Report { scale, whole, start: Instant::now(), times: Vec::new() };
    needs::provide(&wanted, scale.install)?;
    let parameters = Parameters::now();
    let has_mounted = stages.iter().any(|(name, _)| *name == "mounted");
    let (beside, stages): (Vec<&Stage>, Vec<&Stage>) =
        stages.into_iter().partition(|(name, _)| has_mounted && BESIDE.contains(name));
    let begin = stages.iter().map(|(name, _)| *name).find(|name| WAITING.contains(name));
    let mut failure = None;
    std::thread::scope(|scope| {
        let mut running = None;
        for (name, stage) in stages {
            eprintln!("== {name}");
            if Some(*name) == begin {
                running = Some(scope.spawn(|| run_beside(&beside, scale)));
            }
            let start = Instant::now();
            let outcome = both(stage(scale), parameters.compare()); // also after a failure
            report.times.push((name, start.elapsed()));
            if let Err(error) = outcome {
                eprintln!("== {name} failed: {error:#}");
                failure = Some((*name, error));
                break;
            }
        }
        let ended = running.map(|running| running.join().expect("no stage panics"));
        for (name, time, outcome) in ended.unwrap_or_default() {
            report.times.push((name, time));
            if let Err(error) = outcome {
                failure.get_or_insert((name, error));
            }
        }
    });
    if let Some((name, error)) = failure {
        report.close(Some(&format!("{name}: {error:#}")));
        return Err(error.context(format!("stage {name}")));
    }
    report.close(None);
    eprintln!("all stages passed");
    Ok(())
}

/// Fails if one of them has failed, and reports both.
fn both(stage: Result<()>, parameters: Result<()>) -> Result<()> {
    match (stage, parameters) {
        (Err(error), Err(changed)) => Err(anyhow!("{error:#}; {changed:#}")),
        (stage, parameters) => stage.and(parameters),
    }
}

/// What a run took and how it ended.
struct Report {
    scale: Scale,
    whole: bool,
    start: Instant,
    times: Vec<(&'static str, Duration)>,
}

impl Report {
    /// Prints the times, and keeps the result of a run of all stages in `target/check.json` and
    /// `.md`, or `target/check-full.json` and `.md`.
    fn close(&self, failure: Option<&str>) {
        let total = self.start.elapsed(); // some stages run side by side
        eprintln!("== seconds per stage");
        for (name, time) in self.times.iter().chain(&[("all", total)]) {
            eprintln!("{name:>10} {:7.1}", time.as_secs_f64());
        }
        if self.whole
            && let Err(error) = self.keep(total, failure)
        {
            eprintln!("the result was not kept: {error:#}");
        }
    }

    fn keep(&self, total: Duration, failure: Option<&str>) -> Result<()> {
        let git = |args: &[&str]| output("git", &[&["-c", "safe.directory=*"], args].concat());
        let commit = git(&["rev-parse", "HEAD"])?;
        let dirty = !git(&["status", "--porcelain"])?.is_empty();
        let kernel = output("uname", &["-srm"])?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let passed = failure.is_none();
        let stages: Vec<_> = self
            .times
            .iter()
            .map(|(name, time)| json!({ "stage": name, "seconds": rounded(*time) }))
            .collect();
        let result = json!({
            "commit": commit.trim(), "dirty": dirty, "kernel": kernel.trim(), "cores": cores,
            "full": self.scale.full, "passed": passed, "failure": failure,
            "seconds": rounded(total), "stages": stages,
        });
        let name = if self.scale.full { "check-full" } else { "check" };
        let target = crate::run::root().join("target");
        fs::write(target.join(format!("{name}.json")), format!("{result:#}\n"))?;
        let mut text = format!(
            "# `cargo xtask check{}`: {}\n\nCommit {}{}, {cores} cores, {}.\n\n\
             | stage | seconds |\n|---|---|\n",
            if self.scale.full { " --full" } else { "" },
            failure.unwrap_or("passed"),
            commit.trim(),
            if dirty { " with changes" } else { "" },
            kernel.trim()
        );
        for (name, time) in self.times.iter().chain(&[("all", total)]) {
            text.push_str(&format!("| {name} | {:.0} |\n", time.as_secs_f64()));
        }
        let mounted = fs::read_to_string(target.join(mounted::LINES)).unwrap_or_default();
        text.push_str(&format!("\n## Mounted tests\n\n```\n{mounted}```\n"));
        fs::write(target.join(format!("{name}.md")), text)?;
        Ok(())
    }
}

fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

const SIM: &str = "target/ci/examples/sim";

/// Runs `"$@"` when no other program wants a processor, or at least with the lowest priority.
///
/// Linux shares the processors among sessions first (`sched(7)`, autogroups), and daemons of mounts
/// have sessions of their own. So the session is the last one too, not its program alone.
const WHEN_IDLE: &str = "{ echo 19 >/proc/self/autogroup; } 2>/dev/null
chrt --idle 0 true 2>/dev/null && exec chrt --idle 0 \"$@\"
exec nice -n 19 \"$@\"";

/// With the lowest priority: tests that run beside it have limits of time. It has a session of its
/// own, so a signal of the terminal does not reach it. It ends with this process.
fn simulate(args: &[&str]) -> Result<()> {
    let alone = ["--pdeathsig", "KILL", "setsid", "--wait", "sh", "-c", WHEN_IDLE, "sh", SIM];
    run("setpriv", &[&alone, args].concat(), &[])
}

fn planted_bugs() -> Result<()> {
    planted::absent(SIM, "target/release/nacre")?;
    simulate(&["--bugs"])
}

/// `cargo xtask sim`.
pub(crate) fn sim(args: &[String]) -> Result<()> {
    let mut words =
        vec!["run", "--profile", "ci", "--quiet", "-p", "cluster", "--example", "sim", "--"];
    words.extend(args.iter().map(String::as_str));
    run("cargo", &words, &[])
}

/// `cargo xtask mounted [--full] [--record] [NAME]`.
pub(crate) fn mounted(args: &[String]) -> Result<()> {
    let Some(options) = mounted::Options::parse(args)? else {
        print!("{}", mounted::USAGE);
        return Ok(());
    };
    needs::provide(&["mounted"], true)?;
    mounted::mounted(&options)
}

#[cfg(test)]
mod tests {
    use anyhow::{Result, anyhow};

    use super::{FAILURE_LINES, both, failures};

    #[test]
    fn the_end_of_a_check_repeats_what_failed() {
        let passed = "running 2 tests\n..\ntest result: ok. 2 passed; 0 failed\n";
        let failed = "failures:\n\n---- a stdout ----\nat a.rs:1\n\nfailures:\n    a\n\n\
                      test result: FAILED. 1 passed; 1 failed\n";
        assert_eq!(failures(passed), "");
        let whole = format!("{passed}{failed}{passed}{failed}");
        assert_eq!(failures(&whole), format!("\n{failed}{}", failed.trim_end()));
        let long = format!("failures:\n{}", "panicked\n".repeat(1_000));
        assert_eq!(failures(&long).lines().count(), FAILURE_LINES + 1);
    }

    #[test]
    fn changed_parameters_are_reported_beside_a_stage_that_failed() {
        let text = |stage, parameters| both(stage, parameters).err().map(|error| error.to_string());
        let failed = |why: &'static str| -> Result<()> { Err(anyhow!(why)) };
        assert_eq!(text(Ok(()), Ok(())), None);
        assert_eq!(text(failed("a"), Ok(())).as_deref(), Some("a"));
        assert_eq!(text(Ok(()), failed("b")).as_deref(), Some("b"));
        assert_eq!(text(failed("a"), failed("b")).as_deref(), Some("a; b"));
    }
}
