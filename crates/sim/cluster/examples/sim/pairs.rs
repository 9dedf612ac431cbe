//! Every pair of deaths of the crash matrix. All rows take hours, so parts of them can run alone.

use std::ops::Range;

use cluster::{DIED_AGAIN, Scenario};

use crate::args::Args;
use crate::attempt::{Fault, attempt};
use crate::cores::over_cores;

/// Runs some rows, or all. Prints a line for each row, and then how many ran.
pub(crate) fn run(rows: Option<Range<u64>>, args: &Args) -> Result<(), Fault> {
    let all = cluster::pair_rows();
    let rows = rows.unwrap_or(0..all);
    let scenario = args.adjust(Scenario::pairs());
    println!("rows {} to {} of {all}", rows.start, rows.end - 1);
    let tasks: Vec<u64> = rows.collect();
    let (mut pairs, mut failed, mut is_broken) = (0, Vec::new(), false);
    let work = |row: &u64| attempt(*row, &scenario);
    over_cores(&tasks, args.jobs(), work, |row, outcome| {
        let failure = match outcome {
            Ok(report) => {
                let ran = report.marks.get(DIED_AGAIN).copied().unwrap_or_default();
                println!("row {row}: {ran} pairs");
                pairs += ran;
                report.failure
            }
            Err(fault) => {
                is_broken |= matches!(fault, Fault::Harness(_));
                Some(fault.to_string())
            }
        };
        if let Some(failure) = failure {
            println!("row {row} FAILED: {failure}\n{}", scenario.replay_line(*row));
            failed.push(row.to_string());
        }
    });
    println!("{} of {all} rows ran, {pairs} pairs of deaths", tasks.len());
    match (failed.is_empty(), is_broken) {
        (true, _) => Ok(()),
        (false, true) => Err(Fault::Harness(format!("failed rows: {}", failed.join(", ")))),
        (false, false) => Err(Fault::Promise(format!("failed rows: {}", failed.join(", ")))),
    }
}
