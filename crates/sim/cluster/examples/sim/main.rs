//! Runs seeds, tests the planted bugs, or measures rates. `--help` prints the usage.

#[path = "../../../../tools/nacre/src/allocator.rs"]
mod allocator;
mod args;
mod attempt;
mod bugs;
mod cores;
mod pairs;
mod rates;
mod seeds;
mod slice;
mod smaller;
mod watch;

use std::process::ExitCode;

use args::Args;
use attempt::Fault;
use clap::Parser;
use cluster::{MARKS, PLANTED};
use seeds::{Record, Task};

/// As `nacre` has it: messages, records and tasks are allocated all the time (decision 0004).
#[global_allocator]
static ALLOCATOR: allocator::Mimalloc = allocator::Mimalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    attempt::watch_panics();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::from(match fault {
                Fault::Promise(_) => 1,
                Fault::Harness(_) => 3,
            })
        }
    }
}

fn dispatch(args: &Args) -> Result<(), Fault> {
    if args.names {
        PLANTED.iter().for_each(|planted| println!("{}", planted.name));
        MARKS.iter().for_each(|mark| println!("{mark}"));
        return Ok(());
    }
    if args.rates {
        rates::print(args.seed.unwrap_or(rates::SEED));
        return Ok(());
    }
    if args.bugs {
        return bugs::try_all(args.jobs(), args.record);
    }
    if let Some(rows) = &args.pairs {
        return pairs::run(rows.clone(), args);
    }
    if args.shrink {
        return smaller::find(args.seeds().start, &args.scenario(), args.limit());
    }
    if let Some(kept) = args.kept() {
        return smaller::repeat(args.seeds().start, &args.scenario(), &kept);
    }
    if let Some(slice) = args.slice {
        return slice::run(slice, args);
    }
    let tasks: Vec<Task> = if args.suite {
        let drawn = cluster::draw_seeds(args.from.as_deref().unwrap_or(""), args.drawn);
        let suite = cluster::suite(&drawn).into_iter();
        suite.map(|(seed, scenario)| Task { seed, scenario: args.adjust(scenario) }).collect()
    } else {
        let scenario = args.scenario();
        args.seeds().map(|seed| Task { seed, scenario }).collect()
    };
    seeds::run_all(&tasks, args.suite, args.jobs(), &mut Record::everything())
}
