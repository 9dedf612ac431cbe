//! `cargo xtask fuzz [TARGET] [--hours N]`: libFuzzer with coverage, through cargo-bolero.
//!
//! The seeds and the kept corpora are where the search starts. Inputs that reach something new go
//! to `target/fuzz/corpus`; an input that fails goes to `fuzz/src/__fuzz__/TARGET/crashes`, where
//! `cargo test -p fuzz` repeats it.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::{root, run};

const KEPT: &str = "fuzz/src/__fuzz__";
const FOUND: &str = "target/fuzz/corpus";
const TOOLS: &str = "target/tools/bin";
/// All targets together, where the command line names no time.
const HOURS: f64 = 1.0;
const INSTALL: &str = "cargo install cargo-bolero --version 0.13.5 --locked \
                       --no-default-features --features libfuzzer --root target/tools";

/// Runs the targets in turn, each for its share of the time.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    let (target, hours) = parse(args)?;
    let targets = chosen(target)?;
    require_tools()?;
    let secs = (hours * 3_600.0 / targets.len() as f64).ceil() as u64;
    for target in &targets {
        eprintln!("== {target}, {secs} s");
        search(target, secs).with_context(|| {
            format!("a failing input of {target} is in {KEPT}/{target}/crashes")
        })?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<(Option<&str>, f64)> {
    let (mut target, mut hours) = (None, HOURS);
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--hours" => {
                let value = words.next().context("--hours wants a number")?;
                hours = value.parse().with_context(|| format!("--hours {value}: not a number"))?;
            }
            name if target.is_none() && !name.starts_with('-') => target = Some(name),
            other => bail!("'{other}' is not understood: cargo xtask fuzz [TARGET] [--hours N]"),
        }
    }
    if hours > 0.0 && hours.is_finite() {
        Ok((target, hours))
    } else {
        bail!("--hours wants a number above zero")
    }
}

/// Every target has a kept corpus; a test of the crate holds that.
fn chosen(target: Option<&str>) -> Result<Vec<String>> {
    let folder = root().join(KEPT);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    match target {
        None => Ok(names),
        Some(target) if names.iter().any(|name| name == target) => Ok(vec![target.to_owned()]),
        Some(target) => bail!("no target is called '{target}'; there are: {}", names.join(" ")),
    }
}

fn require_tools() -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let starts = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("PATH", tools_path(&path)).status().is_ok_and(|status| status.success())
    };
    if !starts("cargo", &["bolero", "--version"]) {
        bail!("cargo-bolero is missing; install it with\n  {INSTALL}");
    }
    if !starts("c++", &["--version"]) {
        bail!("a C++ compiler is missing: it builds libFuzzer (Debian: apt install g++)");
    }
    Ok(())
}

fn tools_path(path: &str) -> String {
    format!("{}:{path}", root().join(TOOLS).display())
}

fn search(target: &str, secs: u64) -> Result<()> {
    let found = root().join(FOUND).join(target);
    std::fs::create_dir_all(&found)?;
    let found = found.to_string_lossy().into_owned();
    let kept = root().join(KEPT).join(target).join("corpus").to_string_lossy().into_owned();
    let secs = format!("{secs}s");
    let path = tools_path(&std::env::var("PATH").unwrap_or_default());
    let seeds = root().join(FOUND).to_string_lossy().into_owned();
    let args = [
        "bolero",
        "test",
        target,
        "--package",
        "fuzz",
        "--sanitizer",
        "NONE",
        "-T",
        &secs,
        "--corpus-dir",
        &found,
        "-E",
        &kept,
    ];
    run("cargo", &args, &[("PATH", &path), ("NACRE_FUZZ_SEEDS", &seeds)])
}
