//! A slice of a very large set of seeds, with a record. Such a search runs over days and machines.

use std::fs;

use cluster::{Scenario, Slice};

use crate::args::Args;
use crate::attempt::Fault;
use crate::seeds::{self, Record, Task};

/// Records of slices, below the folder that the simulator was started in.
const FOLDER: &str = "target/sim";

pub(crate) fn run(slice: Slice, args: &Args) -> Result<(), Fault> {
    let seeds = slice.of(&args.seeds());
    let task = |seed| Task { seed, scenario: args.adjust(Scenario::of_seed(seed)) };
    let tasks: Vec<Task> = seeds.clone().map(task).collect();
    let mut record = Record::failures_and_totals();
    let outcome = seeds::run_all(&tasks, false, args.jobs(), &mut record);
    let verdict = match &outcome {
        Ok(()) => "passed".to_owned(),
        Err(fault) => fault.to_string(),
    };
    let text = format!("seeds {seeds:?}: {verdict}\n{}\n", record.lines.join("\n"));
    let file = format!("{FOLDER}/{slice}.txt");
    keep(&file, &text).map_err(|error| Fault::Harness(format!("{file}: {error}")))?;
    outcome
}

#[expect(clippy::disallowed_methods, reason = "the record is outside of every simulated world")]
fn keep(file: &str, text: &str) -> std::io::Result<()> {
    fs::create_dir_all(FOLDER)?;
    fs::write(file, text)
}
