//! The entry to all development commands. `cargo xtask check` is what CI runs.

mod arrows;
mod asan;
mod chaos;
mod check;
mod fuzz;
mod lane;
mod leftovers;
mod mounted;
mod mutants;
mod needs;
mod newcomer;
mod package;
mod planted;
mod readme;
mod run;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask COMMAND

  check [STAGE...]      formatting, lints, tests, simulation, the real thing; all stages, or those named
  check --list          names of the stages
  check --no-install    names what the machine lacks and installs nothing
  check --full          the counts of a release (30 kills of each server, 10 minutes of fsx, 1,000 seeds
                        of the tree beside the fixed ones)
  tidy                  arrows between crates, words, sizes of files
  sim --seed N          one simulated cluster, replayed from its seed
  sim --seeds A..B      many, over all cores
  sim --help            what else a simulation can do
  fuzz [TARGET ...]     libFuzzer with coverage on every target, or these; wants cargo-bolero
       [--hours N]      for N hours in all (1)
  bench [TOPIC...]      every benchmark beside its limit, or those of a topic (layouts, mdts,
        [--quick]       servers); tables, plots and JSON in target/bench (--help)
  mounted [NAME]        tests on a real mount, servers apart; NAME filters
          --full        with the counts of a release
          --record      keeps how long each test took: the longest begin first
  chaos --minutes N     two mounts and five servers under kills, freezes, cuts, clock jumps and power
        [--seed S]      cuts; what was told is compared with what is there (target/chaos.md)
  mutants [--shard K/N] small changes of import, locks, placement and a third of the MDT's operations
          [--record]    that no test notices; wants cargo-mutants. The list: xtask/survivors.txt
  asan                  AddressSanitizer over the tests of osd-disk, fusedev and env-os
  package               the binary, an archive and a Debian package in target/package (--help)
  newcomer [COMMAND]    the README's two commands (or COMMAND) in a bare Debian 12
           [--trial]    the README's package and its session there; each step is checked
           [--trial --container]  the session in the file system of the container image
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first().map(|(command, rest)| (command.as_str(), rest)) {
        Some((lane::INSIDE, rest)) => return lane::inside(rest),
        Some((newcomer::INSIDE, rest)) => return newcomer::inside(rest),
        _ => {}
    }
    if let Err(error) = dispatch(&args) {
        eprintln!("xtask: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Whether help is asked for that no command gives itself: an unknown word may start hours of work.
fn wants_usage(args: &[String]) -> bool {
    let asked = |arg: &String| matches!(arg.as_str(), "help" | "--help" | "-h");
    match args.split_first() {
        Some((command, _))
            if matches!(command.as_str(), "bench" | "sim" | "mounted" | "package") =>
        {
            false
        }
        _ => args.iter().any(asked),
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    if wants_usage(args) {
        print!("{USAGE}");
        return Ok(());
    }
    match args.split_first().map(|(command, rest)| (command.as_str(), rest)) {
        Some(("check", rest)) => check::check(rest),
        Some(("tidy", [])) => tidy::tidy(),
        Some(("sim", rest)) => check::sim(rest),
        Some(("fuzz", rest)) => fuzz::fuzz(rest),
        Some(("asan", [])) => asan::asan(),
        Some(("bench", rest)) => bench(rest),
        Some(("chaos", rest)) => chaos::chaos(rest),
        Some(("mutants", rest)) => mutants::mutants(rest),
        Some(("mounted", rest)) => check::mounted(rest),
        Some(("newcomer", rest)) => newcomer::newcomer(rest),
        Some(("package", [flag])) if matches!(flag.as_str(), "--help" | "-h" | "help") => {
            print!("{}", package::USAGE);
            Ok(())
        }
        Some(("package", rest)) => package::package(rest),
        _ => bail!("which command?\n\n{USAGE}"),
    }
}

/// `cargo xtask bench`: builds the binary under test, then runs the crate in `bench/` with it.
fn bench(args: &[String]) -> Result<()> {
    run::run("cargo", &["build", "--release", "--quiet", "-p", "nacre"], &[])?;
    let mut words = vec!["run", "--quiet", "--release", "-p", "figures", "--"];
    words.extend(args.iter().map(String::as_str));
    run::run("cargo", &words, &[("NACRE_BIN", "target/release/nacre")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_given_wherever_it_is_asked_for() {
        let wants = |line: &str| {
            wants_usage(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let asked = ["help", "--help", "check --help", "newcomer -h", "chaos --minutes 5 --help"];
        assert!(asked.into_iter().all(wants));
        // these have help of their own
        assert!(
            !["bench --help", "sim --help", "mounted --help", "package --help"]
                .into_iter()
                .any(wants)
        );
        assert!(!["", "check", "newcomer ls -l", "newcomer --trial"].into_iter().any(wants));
    }
}
