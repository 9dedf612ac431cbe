//! Tests the planted bugs: some seed must fail with the bug and pass without it.

use std::path::Path;
use std::process::{Command, Stdio};

use cluster::{PLANTED, Planted, SEEDS_MAX};

use crate::attempt::Fault;
use crate::cores::over_cores;

/// Seeds that found the bugs, below the folder that the simulator was started in.
const RECORD: &str = "crates/sim/cluster/src/found.txt";
/// Characters of a message: a line of a terminal or two.
const CHARS_MAX: usize = 160;

/// What came of a bug.
enum Verdict {
    Found {
        seed: u64,
        how: String,
    },
    NotFound,
    /// The seed fails without the bug too: it proves nothing, and it is a failure of its own.
    FailsAnyway {
        seed: u64,
        how: String,
    },
    Broken(String),
}

/// With `record` all seeds are tried from the first on, and those that find a bug are kept.
pub(crate) fn try_all(jobs: usize, record: bool) -> Result<(), Fault> {
    let program = std::env::current_exe()
        .map_err(|error| Fault::Harness(format!("the simulator does not find itself: {error}")))?;
    let (mut wrong, mut found) = (Vec::new(), String::new());
    over_cores(
        PLANTED,
        jobs,
        |planted| match record {
            true => judge(&program, planted, 1..=SEEDS_MAX),
            false => judge(&program, planted, planted.seeds()),
        },
        |planted, verdict| {
            let (name, scenario) = (planted.name, planted.control().name);
            match verdict {
                Verdict::Found { seed, how } => {
                    found.push_str(&format!("{name} {seed}\n"));
                    return println!("{name:<32} found by seed {seed} of {scenario}: {how}");
                }
                Verdict::NotFound => {
                    println!("{name:<32} NOT FOUND in {SEEDS_MAX} seeds of {scenario}");
                }
                Verdict::FailsAnyway { seed, how } => {
                    println!("{name:<32} seed {seed} of {scenario} FAILS WITHOUT IT TOO: {how}");
                }
                Verdict::Broken(how) => println!("{name:<32} NOT TRIED: {how}"),
            }
            wrong.push(name);
        },
    );
    if !wrong.is_empty() {
        return Err(Fault::Promise(format!("no run shows: {}", wrong.join(", "))));
    }
    if record {
        keep(&found).map_err(|error| Fault::Harness(format!("{RECORD}: {error}")))?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the record is outside of every simulated world")]
fn keep(found: &str) -> std::io::Result<()> {
    std::fs::write(RECORD, found)
}

/// The first of `seeds` that fails counts, so the outcome does not depend on the machine.
fn judge(program: &Path, planted: &Planted, seeds: impl Iterator<Item = u64>) -> Verdict {
    for seed in seeds {
        match run(program, &["--bug", planted.name], seed) {
            Ending::Passed => {}
            Ending::Failed(how) => {
                return match run(program, &["--scenario", planted.control().name], seed) {
                    Ending::Passed => Verdict::Found { seed, how },
                    Ending::Failed(how) => Verdict::FailsAnyway { seed, how },
                    Ending::Broken(how) => Verdict::Broken(how),
                };
            }
            Ending::Broken(how) => return Verdict::Broken(format!("seed {seed}: {how}")),
        }
    }
    Verdict::NotFound
}

enum Ending {
    Passed,
    Failed(String),
    /// The simulator failed, or was ended by a signal.
    Broken(String),
}

/// In a process of its own: a panic in a destructor aborts, and takes only one seed with it.
fn run(program: &Path, what: &[&str], seed: u64) -> Ending {
    let mut command = Command::new("setpriv"); // it ends with this process
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command.args(what).args(["--seed", &seed.to_string()]).stderr(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Ending::Broken(format!("it does not start: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let how = text.lines().find(|line| line.contains("FAILED: ") || line.contains("PANIC at "));
    match (output.status.code(), how) {
        (Some(0), _) => Ending::Passed,
        (Some(1), Some(how)) => Ending::Failed(shorten(how)),
        _ => Ending::Broken(format!("it ended with {}", output.status)),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} ...", &text[..end]),
    }
}
