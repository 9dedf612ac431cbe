//! Mutation fuzzing of every decoder on stable Rust: `fuzz all SECS` or `fuzz TARGET SECS [SEED]`.
//!
//! Each target starts from valid inputs and mutates them (bit flips, cuts, splices, extreme
//! integers). A target fails by panicking; the input that did it is written to
//! `fuzz-failure-TARGET.bin` and its seed is printed. Where a decoder has an encoder, what was
//! decoded must encode and decode to the same again.

mod mutate;
mod scheduler;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use targets::TARGETS;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let name = args.first().map_or("all", String::as_str);
    let secs = args.get(1).and_then(|text| text.parse().ok()).unwrap_or(30);
    let seed = args.get(2).and_then(|text| text.parse().ok()).unwrap_or_else(time_seed);
    let chosen: Vec<_> =
        TARGETS.iter().filter(|target| name == "all" || target.name == name).collect();
    if chosen.is_empty() {
        eprintln!(
            "no target '{name}'; there are: {}",
            TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(" ")
        );
        return ExitCode::from(2);
    }
    std::panic::set_hook(Box::new(|_| {}));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = std::sync::Mutex::new(chosen);
    let failed = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(target) = next(&queue) {
                    if !run(target, secs, seed) {
                        failed.store(true, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn next<'a>(queue: &std::sync::Mutex<Vec<&'a targets::Target>>) -> Option<&'a targets::Target> {
    queue.lock().expect("no target panics outside catch_unwind").pop()
}

fn time_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_nanos() as u64)
}

/// Runs one target for `secs` seconds; false where it failed.
fn run(target: &targets::Target, secs: u64, seed: u64) -> bool {
    let mut mutator = mutate::Mutator::new(seed, (target.corpus)());
    let end = Instant::now() + Duration::from_secs(secs);
    let mut runs = 0_u64;
    let mut accepted = 0_u64;
    while !runs.is_multiple_of(256) || Instant::now() < end {
        let input = mutator.next_input();
        match catch_unwind(AssertUnwindSafe(|| (target.check)(&input))) {
            Ok(true) => {
                accepted += 1;
                mutator.keep(input);
            }
            Ok(false) => {}
            Err(_) => {
                let file = format!("fuzz-failure-{}.bin", target.name);
                let saved =
                    std::fs::write(&file, &input).map_or("could not be saved", |()| "saved");
                println!(
                    "fuzz {}: FAILED after {runs} runs, seed {seed}; input {saved} in {file}",
                    target.name
                );
                return false;
            }
        }
        runs += 1;
    }
    println!("fuzz {}: {runs} runs, {accepted} accepted, seed {seed}, no failure", target.name);
    true
}
