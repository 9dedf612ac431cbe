//! The stages of `cargo xtask check`, each timed; what a stage prints stays visible.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::leftovers::Machine;
use crate::run::{run, run_within};
use crate::{tidy, tree};

/// How much of everything a run does.
#[derive(Clone, Copy)]
struct Scale {
    /// Seeds that are drawn from the hash of the tree, beside the fixed ones.
    drawn: u32,
    full: bool,
}

const CI: Scale = Scale { drawn: 100, full: false };
const FULL: Scale = Scale { drawn: 100, full: true };

/// The mounted tests take a third of this on two quiet cores.
const MOUNTED_MAX: Duration = Duration::from_secs(25 * 60);
/// With the counts of a release.
const MOUNTED_FULL_MAX: Duration = Duration::from_secs(3 * 3600);

type Stage = (&'static str, fn(Scale) -> Result<()>);

const STAGES: &[Stage] = &[
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
    ("doc", |_| {
        run("cargo", &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
    }),
    ("tidy", |_| tidy::tidy()),
    ("test", |_| {
        run(
            "cargo",
            &["test", "--profile", "ci", "--workspace", "--exclude", "mounted", "--quiet"],
            &[],
        )
    }),
    ("build", |_| {
        build(&["-p", "cluster"])?;
        build(NACRE)
    }),
    ("sim", |scale| {
        let (drawn, tree) = (scale.drawn.to_string(), tree::hash());
        simulate(&["--suite", "--drawn", &drawn, "--from", &tree])
    }),
    ("bugs", |_| planted_bugs()),
    ("mounted", |scale| mounted_tests(scale, None)),
];

/// What the mounted tests need. Built in a call of its own, so that no feature of another crate
/// reaches the binary.
const NACRE: &[&str] = &["-p", "nacre", "-p", "client"];

fn build(packages: &[&str]) -> Result<()> {
    let mut args = vec!["build", "--profile", "ci", "--quiet", "--bins", "--examples"];
    args.extend(packages);
    run("cargo", &args, &[])
}

/// `cargo xtask check [STAGE...]`.
pub(crate) fn check(args: &[String]) -> Result<()> {
    let scale = if args.iter().any(|arg| arg == "--full") { FULL } else { CI };
    let wanted: Vec<&str> =
        args.iter().map(String::as_str).filter(|arg| *arg != "--full").collect();
    if wanted == ["--list"] {
        STAGES.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    }
    if let Some(unknown) = wanted.iter().find(|name| STAGES.iter().all(|(stage, _)| stage != *name))
    {
        bail!("no stage is called '{unknown}'; `cargo xtask check --list` names them");
    }
    let before = Machine::now();
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for (name, stage) in
        STAGES.iter().filter(|(name, _)| wanted.is_empty() || wanted.contains(name))
    {
        eprintln!("== {name}");
        let start = Instant::now();
        let outcome = stage(scale);
        times.push((name, start.elapsed()));
        if let Err(error) = outcome {
            report(&times);
            return Err(error.context(format!("stage {name}")));
        }
    }
    report(&times);
    Machine::compare(&before)?;
    eprintln!("all stages passed");
    Ok(())
}

fn report(times: &[(&str, Duration)]) {
    eprintln!("== seconds per stage");
    for (name, time) in times {
        eprintln!("{name:>10} {:7.1}", time.as_secs_f64());
    }
}

fn simulate(args: &[&str]) -> Result<()> {
    run("target/ci/examples/sim", args, &[])
}

fn planted_bugs() -> Result<()> {
    run("target/ci/examples/sim", &["--bugs"], &[])
}

fn mounted_tests(scale: Scale, name: Option<&str>) -> Result<()> {
    let mut args = vec!["test", "--profile", "ci", "-p", "mounted", "--", "--test-threads=1"];
    args.extend(name);
    let full = if scale.full { "1" } else { "0" };
    let limit = if scale.full { MOUNTED_FULL_MAX } else { MOUNTED_MAX };
    // apart from the daemons that this machine runs already
    let sockets = std::env::temp_dir().join(format!("nacre-check-{}", std::process::id()));
    let sockets = sockets.to_string_lossy();
    let envs = [("NACRE_BIN", "target/ci/nacre"), ("NACRE_FULL", full), ("NACRE_RUN", &*sockets)];
    let outcome = run_within(limit, "cargo", &args, &envs);
    let _none_was_made = std::fs::remove_dir_all(&*sockets);
    outcome
}

/// `cargo xtask sim`.
pub(crate) fn sim(args: &[String]) -> Result<()> {
    let mut words =
        vec!["run", "--profile", "ci", "--quiet", "-p", "cluster", "--example", "sim", "--"];
    words.extend(args.iter().map(String::as_str));
    run("cargo", &words, &[])
}

/// `cargo xtask mounted [NAME]`.
pub(crate) fn mounted(args: &[String]) -> Result<()> {
    build(NACRE)?;
    let before = Machine::now();
    mounted_tests(CI, args.first().map(String::as_str))?;
    Machine::compare(&before)
}
