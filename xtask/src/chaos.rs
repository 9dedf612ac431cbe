//! `cargo xtask chaos --minutes N [--seed S]`: two mounts and five servers under drawn faults, in a
//! lane of their own. The program is `tests/mounted/examples/chaos.rs`.
//!
//! Ctrl-C ends it early, with a verdict on the run so far: the program handles the signal, and this
//! command waits.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::lane::{Home, Outcome};
use crate::leftovers::Parameters;
use crate::{mounted, needs, run, tree};

/// Logs of the nodes and the verdict, below `target/`.
const OUT: &str = "target/chaos";
const PROGRAM: &str = "target/ci/examples/chaos";

/// What it has beyond its minutes to heal, restart and compare everything.
const END_MAX: Duration = Duration::from_secs(15 * 60);

struct Options {
    minutes: f64,
    seed: u64,
}

/// From the command line.
pub(crate) fn chaos(args: &[String]) -> Result<()> {
    let options = parse(args)?;
    needs::provide(&["mounted"], true)?;
    let given = std::env::var("NACRE_BIN").ok();
    if given.is_none() {
        mounted::build("ci")?;
    }
    build()?;
    storm(&options, given.as_deref().unwrap_or("target/ci/nacre"))
}

fn build() -> Result<()> {
    let args = ["build", "--quiet", "--profile", "ci", "--workspace", "--example", "chaos"];
    run::run("cargo", &args, &[])
}

fn parse(args: &[String]) -> Result<Options> {
    let (mut minutes, mut seed) = (None, tree::seed());
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a number"));
        match word {
            "--minutes" => minutes = Some(value()?.parse::<f64>().context("--minutes")?),
            "--seed" => seed = value()?.parse().context("--seed")?,
            other => bail!("'{other}' is not understood: {USAGE}"),
        }
    }
    match minutes {
        Some(minutes) if minutes > 0.0 && minutes.is_finite() => Ok(Options { minutes, seed }),
        _ => bail!(USAGE),
    }
}

const USAGE: &str = "cargo xtask chaos --minutes N [--seed S]";

fn storm(options: &Options, binary: &str) -> Result<()> {
    let (minutes, seed) = (options.minutes.to_string(), options.seed.to_string());
    eprintln!("again: cargo xtask chaos --minutes {minutes} --seed {seed}");
    let (root, parameters) = (run::root(), Parameters::now());
    let program = root.join(PROGRAM);
    let home = Home::new()?;
    let lane = home.lane("chaos", Duration::from_secs_f64(options.minutes * 60.0) + END_MAX)?;
    let out = root.join(OUT).to_string_lossy().into_owned();
    let args = ["--minutes", &minutes, "--seed", &seed, "--out", &out];
    ignore_interrupts();
    let outcome = lane.run(&program, &args, &[("NACRE_BIN", binary)], true)?;
    parameters.compare()?;
    keep(&root)?;
    match outcome {
        Outcome::Passed => Ok(()),
        Outcome::Failed(_) => bail!("the histories do not hold: target/chaos.md"),
        other => bail!(other.why().unwrap_or_default()),
    }
}

/// The verdict lies in `target/`; where there is none the run ended before its end.
fn keep(root: &Path) -> Result<()> {
    for name in ["chaos.json", "chaos.md"] {
        let from: PathBuf = root.join(OUT).join(name);
        fs::copy(&from, root.join("target").join(name))
            .with_context(|| format!("{}: no verdict", from.display()))?;
    }
    Ok(())
}

/// Processes that are started later ignore them too, unless they say otherwise.
fn ignore_interrupts() {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: no handler runs
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_seed_may_be_left_out_and_the_minutes_not() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = parse(&words("--minutes 0.5 --seed 17")).expect("as it must be");
        assert!(options.minutes == 0.5 && options.seed == 17);
        assert!(parse(&words("--minutes 2")).is_ok());
        for wrong in ["--seed 1", "--minutes 0", "--minutes x", "--minutes", "5"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
