//! The mdtest tables of "DoM, DNE and PFL working together" (LUG 2018). A table has a directory for
//! each call in flight or one for all, and files of 0 bytes or of 32 KiB. Its cases are one MDT,
//! four MDTs, and four MDTs with the first 64 KiB of a file at its MDT. The MDTs are on simulated
//! flash, and the native library makes the calls.
//!
//! The first case of each table is the one that the others are compared with. It has a quarter of
//! their files, because each MDT has as many. Where the processors were busy, the CPU of an
//! operation has a bound, and elsewhere the rate.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mounted::{Scratch, Up};

use super::mdts::make_dirs;
use super::metadata::{Output, Phase};
use crate::bed::{Bed, nacre, quoted};
use crate::row::{Bound, Cpu, IDLE_LEAST, Row};
use crate::scale::Scale;

const UP: [&str; 4] = ["--mdts", "4", "--device", "MDT*:flash"];
const MDTS: u64 = 4;

/// Rate of a case, and its CPU, of those of one MDT.
const LEAST: f64 = 1.0;
const CPU_MOST: f64 = 1.15;

/// How long objects of removed files are waited for, and between two looks.
const GONE_MAX: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(200);

/// Files of one size, all in directories of one kind.
struct Table {
    id: &'static str,
    title: &'static str,
    options: &'static [&'static str],
    cases: &'static [Case],
}

/// Where the files are.
struct Case {
    id: &'static str,
    dir: &'static str,
    options: &'static [&'static str],
}

const ONE: Case = Case { id: "one MDT", dir: "one", options: &[] };
const REMOTE: Case = Case { id: "remote", dir: "each", options: &[] };
const SHARDED: Case = Case { id: "sharded", dir: "shards", options: &[] };
const WITH_DOM: Case = Case { id: "sharded, DoM", dir: "shards", options: &["--at-mdt"] };

const TABLES: [Table; 4] = [
    Table {
        id: "unique-0",
        title: "unique directories, 0 bytes",
        options: &["-u"],
        cases: &[ONE, REMOTE, SHARDED, WITH_DOM],
    },
    Table {
        id: "unique-32k",
        title: "unique directories, 32 KiB",
        options: &["-u", "-w", "32768", "-e", "32768"],
        cases: &[ONE, REMOTE, SHARDED, WITH_DOM],
    },
    Table {
        id: "shared-0",
        title: "shared directory, 0 bytes",
        options: &[],
        cases: &[ONE, SHARDED, WITH_DOM],
    },
    Table {
        id: "shared-32k",
        title: "shared directory, 32 KiB",
        options: &["-w", "32768", "-e", "32768"],
        cases: &[ONE, SHARDED, WITH_DOM],
    },
];

pub(crate) fn tables(bed: &Bed, _scale: Scale) -> Result<Vec<Row>> {
    let files = bed.talk().context("--talk names no number of files")?;
    let mut up = Up::with(Scratch::new("bench-talk"), Some(bed.fresh("talk")), &UP);
    make_dirs(&up);
    let (address, cpus) = (up.address(), std::thread::available_parallelism()?.get());
    let mut rows = Vec::new();
    for table in &TABLES {
        let mut first = None;
        for case in table.cases {
            let count = if first.is_none() { files / MDTS } else { files };
            let count = count.to_string();
            let options = [&["-F", "-n", &count][..], table.options, case.options].concat();
            let args = ["bench", "mdtest", "--native", &address, "-d", case.dir, "--json"];
            let output: Output = nacre(&[&args[..], &options[..]].concat())?;
            let command = format!(
                "nacre up --separate {}; nacre bench mdtest --native NID:/testfs -d {} {}",
                quoted(&UP),
                case.dir,
                options.join(" ")
            );
            let base = first.get_or_insert_with(|| output.phases.clone());
            rows.extend(rows_of((table, case), &output.phases, base, cpus, &command)?);
            wait_until_gone(&up)?;
        }
    }
    up.stop();
    fs::remove_dir_all(up.data())?;
    Ok(rows)
}

/// Until no object of a removed file is left: the next case needs their room and the processors.
fn wait_until_gone(up: &Up) -> Result<()> {
    let start = Instant::now();
    loop {
        let left = up.param("mdt.*.destroys_left");
        if left.lines().count() as u64 >= MDTS && left.lines().all(|line| line.trim() == "0") {
            return Ok(());
        }
        ensure!(start.elapsed() < GONE_MAX, "objects are there after {GONE_MAX:?}:\n{left}");
        sleep(POLL);
    }
}

/// The rate and the CPU of each phase, with those of the first case.
fn rows_of(
    (table, case): (&Table, &Case),
    phases: &[Phase],
    base: &[Phase],
    cpus: usize,
    command: &str,
) -> Result<Vec<Row>> {
    ensure!(phases.len() == base.len(), "{}: a phase is missing", case.id);
    let is_first = case.id == ONE.id;
    let mut rows = Vec::new();
    for (ours, theirs) in phases.iter().zip(base) {
        let word = ours.phase.strip_prefix("File ").unwrap_or(&ours.phase);
        let (idle, cost) = (ours.idle(cpus), ours.cpu_s_per_10000);
        let [rate_bound, cpu_bound] = match idle < IDLE_LEAST {
            _ if is_first => [None, None],
            true => [None, Some(Bound::RatioAtMost(CPU_MOST))],
            false => [Some(Bound::Ratio(LEAST)), None],
        };
        let values = |ours: f64, theirs: f64| {
            let limit = if is_first { Vec::new() } else { vec![theirs] };
            [vec![ours], limit]
        };
        let id = format!("talk/{}, {}, {word}", table.id, case.id);
        let title = format!("{word}, {}, {}", table.title, case.id);
        let rates = values(ours.rate, theirs.rate);
        let cpu = Some(Cpu { value: cost, unit: "s per 10,000".to_owned() });
        rows.push(Row { cpu, ..Row::of(&id, &title, "files/s", rates, rate_bound, command) });
        let (id, title) = (format!("{id}, CPU"), format!("{title}, CPU"));
        let costs = values(cost, theirs.cpu_s_per_10000);
        rows.push(Row::of(&id, &title, "s per 10,000", costs, cpu_bound, command));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests_of_tables {
    use super::*;

    #[test]
    fn ten_cases_are_compared_with_the_first_of_their_table() {
        let cases: usize = TABLES.iter().map(|table| table.cases.len()).sum();
        assert_eq!((cases, cases - TABLES.len()), (14, 10));
        assert!(TABLES.iter().all(|table| table.cases[0].id == ONE.id));
    }

    #[test]
    fn a_busy_machine_puts_the_bound_on_the_cpu() {
        let phases = |rate, cpu_s_per_10000| {
            let phase = "File creation".to_owned();
            vec![Phase { phase, rate, cpu_s_per_10000, requests_per_file: None }]
        };
        let base = phases(5_000.0, 1.0);
        let reached = |case, ours: &[Phase]| {
            let rows = rows_of((&TABLES[0], case), ours, &base, 2, "nacre").expect("as many");
            rows.iter().map(Row::is_reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(&SHARDED, &phases(10_000.0, 1.0)), [Some(true), None]);
        assert_eq!(reached(&SHARDED, &phases(4_000.0, 1.0)), [Some(false), None]);
        assert_eq!(reached(&SHARDED, &phases(18_000.0, 1.1)), [None, Some(true)]);
        assert_eq!(reached(&SHARDED, &phases(15_000.0, 1.2)), [None, Some(false)]);
        assert_eq!(reached(&ONE, &base), [None, None]);
        let none = rows_of((&TABLES[0], &SHARDED), &[], &base, 2, "nacre");
        assert!(none.is_err());
    }
}
