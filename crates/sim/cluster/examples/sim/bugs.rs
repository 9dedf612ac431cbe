//! Tries the planted bugs.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use cluster::{PLANTED, SEEDS_MAX};

/// Each in processes of its own, one per seed: a broken invariant may end a run with an abort.
pub(crate) fn try_all(jobs: usize) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut missed = Vec::new();
    for planted in PLANTED {
        let seeds: Vec<u64> = (1..=SEEDS_MAX).collect();
        let mut found = None;
        for some in seeds.chunks(jobs) {
            // all of a chunk are waited for, and the lowest counts: the outcome does not depend on
            // the machine
            let failed =
                some.iter().map(|seed| start(&program, planted.name, *seed)).collect::<Vec<_>>();
            let failed: Vec<_> = failed.into_iter().map(fails).collect();
            found = some.iter().zip(failed).find(|(_, fails)| *fails).map(|(seed, _)| *seed);
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(seed) => {
                println!("{:<32} found by seed {seed} of {}", planted.name, planted.scenario().name)
            }
            None => {
                println!(
                    "{:<32} NOT FOUND in {SEEDS_MAX} seeds of {}",
                    planted.name,
                    planted.scenario().name
                );
                missed.push(planted.name);
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("nobody notices: {}", missed.join(", "))) }
}

fn start(program: &Path, bug: &str, seed: u64) -> std::io::Result<Child> {
    let mut child = Command::new(program);
    child
        .args(["--bug", bug, "--seed", &seed.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    child.spawn()
}

/// A child that could not be started has found nothing.
fn fails(child: std::io::Result<Child>) -> bool {
    child.and_then(|mut child| child.wait()).is_ok_and(|status| !status.success())
}
