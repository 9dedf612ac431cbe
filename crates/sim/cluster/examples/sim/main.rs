//! Runs seeds, or tries the planted bugs; `--help` tells how.

mod args;
mod bugs;
mod seeds;

use std::process::ExitCode;

use args::Args;
use clap::Parser;
use seeds::Task;

fn main() -> ExitCode {
    let args = Args::parse();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &Args) -> Result<(), String> {
    if args.bugs {
        return bugs::try_all(args.jobs());
    }
    let tasks: Vec<Task> = if args.suite {
        let drawn = cluster::draw_seeds(args.from.as_deref().unwrap_or(""), args.drawn);
        cluster::suite(&drawn)
            .into_iter()
            .map(|(seed, scenario)| Task { seed, scenario: args.adjust(scenario) })
            .collect()
    } else {
        let scenario = args.run()?;
        args.seeds().map(|seed| Task { seed, scenario }).collect()
    };
    seeds::run_all(&tasks, args.jobs())
}
