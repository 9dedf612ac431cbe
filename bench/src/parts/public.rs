//! Public mdtest and IOR (<https://github.com/hpc/ior>) in place of our own drivers, where they and
//! `mpirun` are installed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use mounted::Scratch;

use super::data::Streams;
use super::metadata::{Files, Wanted, text};
use crate::bed::Bed;
use crate::machine::{CpuTime, output};
use crate::row::{Bound, Cpu, Row, Spread};
use crate::scale::Scale;

/// Files of a task: more than it makes on a mount in a phase of 10 s, which the timer ends there.
/// On ext4 a phase ends earlier.
const FILES_MAX: &str = "40000";

/// Unit of CPU of files.
const COST: &str = "s per 10,000";

const MPIRUN: &str = "mpirun";

/// Whether a public driver can be run.
pub(super) fn has(driver: &str) -> bool {
    is_installed(MPIRUN) && is_installed(driver)
}

/// Whether a program is in the search path.
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Values of one phase.
#[derive(Default)]
struct Values {
    /// Ours and the limit's.
    rates: [Vec<f64>; 2],
    /// CPU seconds of the whole machine in the turns of each, per 10,000 files or per GiB.
    costs: [Vec<f64>; 2],
}

/// The phases in mdtest's order, each by four new processes and with nothing cached.
pub(super) fn mdtest(bed: &Bed, scale: Scale, setting: &Files) -> Result<Vec<Row>> {
    let rows = mdtest_in(&sides(bed, "mdtest"), scale, setting, FILES_MAX)?;
    Ok(rows.into_iter().map(|[rates, _]| rates).collect())
}

/// The same in a directory of ours and one of the limit, and a row of the CPU of both for each row
/// of rates. Each task makes so many files in a phase, or fewer if the time of a phase is over.
pub(super) fn mdtest_in(
    sides: &[PathBuf; 2],
    scale: Scale,
    setting: &Files,
    most: &str,
) -> Result<Vec<[Row; 2]>> {
    let Files { part, tasks, bounds: phases, .. } = *setting;
    let scratch = Scratch::new("bench-mdtest");
    let count = text(&scratch.path().join("count"))?;
    let seconds = scale.seconds.to_string();
    let mut options = vec!["-F", "-n", most, "-W", &seconds];
    options.extend(setting.options);
    let mut values: Vec<Values> = phases.iter().map(|_| Values::default()).collect();
    for _ in 0..scale.pairs {
        for (side, dir) in sides.iter().enumerate() {
            empty(dir)?;
            let dir_text = text(dir)?;
            for ((name, _), values) in phases.iter().zip(&mut values) {
                drop_caches()?;
                let mut args = vec![flag(name)?, "-x", &count, "-d", &dir_text];
                args.extend(&options);
                let (report, busy) = run("mdtest", tasks, &args)?;
                values.rates[side].push(rate(&report, name)?);
                values.costs[side].push(busy / (files(&count, tasks)? / 1e4));
            }
            fs::remove_dir_all(dir)?;
        }
    }
    let command =
        format!("mpirun -np {tasks} mdtest -C|-T|-E|-r -x FILE {} -d DIR", options.join(" "));
    let row = |((name, bound), values): (&Wanted, Values)| {
        let word = name.strip_prefix("File ").unwrap_or(name);
        let (id, title) = (format!("{part}/{word}-cpu"), format!("{word}, CPU of the machine"));
        let cpu = Row::of(&id, &title, COST, values.costs.clone(), None, &command);
        [shown(part, word, ["files/s", COST], values, *bound, &command), cpu]
    };
    Ok(phases.iter().zip(values).map(row).collect())
}

/// Writes for a phase, and reads with nothing cached as much as was written.
pub(super) fn ior(bed: &Bed, scale: Scale, setting: &Streams) -> Result<Vec<Row>> {
    let Streams { part, tasks, bounds, .. } = *setting;
    let scratch = Scratch::new("bench-ior");
    let count = scratch.path().join("count");
    // IOR refuses to wear out what no deadline stops, so that the read names the count alone.
    let counted = format!("stoneWallingStatusFile={}", text(&count)?);
    let wall = format!("stoneWallingWearOut=1,{counted}");
    let seconds = scale.seconds.to_string();
    let mut options = vec!["-a", "POSIX", "-t", "1m", "-b", super::data::BLOCK, "-e", "-k"];
    options.extend(setting.options);
    let mut values = [Values::default(), Values::default()];
    for _ in 0..scale.pairs {
        for (side, dir) in sides(bed, "ior").iter().enumerate() {
            empty(dir)?;
            let file = text(&dir.join("file"))?;
            let phases = [
                ("write", vec!["-w", "-D", &seconds, "-O", &wall]),
                ("read", vec!["-r", "-O", &counted]),
            ];
            for ((name, mut args), values) in phases.into_iter().zip(&mut values) {
                drop_caches()?;
                args.extend(["-o", &file]);
                args.extend(&options);
                let (report, busy) = run("ior", tasks, &args)?;
                let (mib_s, seconds) = access(&report, name)?;
                values.rates[side].push(mib_s);
                values.costs[side].push(busy / (mib_s * seconds / 1024.0));
            }
            fs::remove_dir_all(dir)?;
        }
    }
    let command = format!(
        "mpirun -np {tasks} ior -w -D {seconds} -O stoneWallingWearOut=1 | -r -O stoneWallingStatusFile=FILE {} -o FILE",
        options.join(" ")
    );
    let names = ["write", "read"].into_iter().zip(bounds).zip(values);
    let units = ["MiB/s", "s per GiB"];
    let row = |((name, bound), values)| shown(part, name, units, values, Some(bound), &command);
    Ok(names.map(row).collect())
}

fn shown(
    part: &str,
    name: &str,
    [unit, cost]: [&str; 2],
    values: Values,
    bound: Option<f64>,
    command: &str,
) -> Row {
    let Values { rates: [ours, limit], costs } = values;
    let cpu = Spread::of(&costs[0]).map(|costs| Cpu { value: costs.median, unit: cost.to_owned() });
    Row {
        id: format!("{part}/{name}"),
        title: name.to_owned(),
        unit: unit.to_owned(),
        ours,
        limit,
        cpu,
        idle: None,
        bound: bound.map(Bound::Ratio),
        command: command.to_owned(),
    }
}

fn sides(bed: &Bed, name: &str) -> [PathBuf; 2] {
    [bed.ours().join(name), bed.limit().join(name)]
}

pub(super) fn drop_caches() -> Result<()> {
    output("sync", &[])?;
    fs::write(Path::new("/proc/sys/vm/drop_caches"), "3").context("dropping caches needs root")
}

/// Makes a directory anew: a part that failed may have left one.
fn empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    Ok(fs::create_dir(dir)?)
}

/// What a driver prints, and the CPU seconds that the whole machine worked meanwhile.
fn run(driver: &str, tasks: &str, args: &[&str]) -> Result<(String, f64)> {
    let mut all = leave(&output(MPIRUN, &["--version"])?).to_vec();
    all.extend(["-np", tasks, driver]);
    all.extend(args);
    let before = CpuTime::now()?;
    let report = output(MPIRUN, &all)?;
    Ok((report, before.busy_until(CpuTime::now()?)))
}

/// Files of all tasks, by mdtest's own count of a task.
fn files(count: &str, tasks: &str) -> Result<f64> {
    let text = fs::read_to_string(count)?;
    let each: f64 = text.trim().parse().with_context(|| format!("mdtest counts '{text}'"))?;
    Ok(each * tasks.parse::<f64>()?)
}

/// What allows root to run more tasks than there are cores, by what `mpirun` says of itself.
fn leave(version: &str) -> &'static [&'static str] {
    if version.contains("Open MPI") { &["--allow-run-as-root", "--oversubscribe"] } else { &[] }
}

/// mdtest's option for a phase alone.
fn flag(phase: &str) -> Result<&'static str> {
    let flags =
        [("File creation", "-C"), ("File stat", "-T"), ("File read", "-E"), ("File removal", "-r")];
    let found = flags.iter().find(|(name, _)| *name == phase);
    Ok(found.with_context(|| format!("mdtest has no phase '{phase}'"))?.1)
}

/// The greatest rate of a phase in mdtest's summary; there is one of each.
fn rate(report: &str, phase: &str) -> Result<f64> {
    let (_, summary) = report.split_once("SUMMARY rate").context("mdtest prints a summary")?;
    let value = summary.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix(phase)?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    });
    let value = value.with_context(|| format!("mdtest reports '{phase}'"))?;
    ensure!(value > 0.0, "mdtest did nothing in '{phase}'");
    Ok(value)
}

/// MiB per second and seconds of the one line of an access in IOR's table: `write 1234.5 ...`, in
/// which the last but one is the time of all.
fn access(report: &str, access: &str) -> Result<(f64, f64)> {
    let found = report.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, rate, .., seconds, _] = words[..] else { return None };
        let number = |word: &str| word.parse::<f64>().ok();
        if name == access { number(rate).zip(number(seconds)) } else { None }
    });
    let (rate, seconds) = found.with_context(|| format!("IOR reports no '{access}'"))?;
    ensure!(rate > 0.0 && seconds > 0.0, "IOR did nothing in '{access}'");
    Ok((rate, seconds))
}

#[cfg(test)]
mod tests_of_reports {
    use super::*;

    #[test]
    fn rates_are_read_from_the_reports_of_public_drivers() {
        let report = "SUMMARY rate (in ops/sec): (of 1 iterations)\n   \
            Operation     per Rank: Max  Min  Mean  per Iteration: Max  Min  Mean  Std Dev\n   \
            File creation      12345.678      12000.000      12100.000      12345.678      0.000\n   \
            File stat              0.000          0.000          0.000          0.000      0.000\n";
        assert_eq!(rate(report, "File creation").expect("a rate"), 12_345.678);
        assert!(rate(report, "File stat").is_err(), "nothing was done");
        assert!(rate(report, "File removal").is_err());
        let report = "access              : single-shared-file\n\
            access    bw(MiB/s)  IOPS   Latency(s)  block(KiB) xfer(KiB)  total(s)   iter\n\
            ------    ---------  ----   ----------  ---------- ---------  --------   ----\n\
            write     1234.50    1234.5 0.003241    1048576    1024.00    10.00      0\n\
            read      99.00      99.0   0.040404    1048576    1024.00    5.00       0\n";
        assert_eq!(access(report, "write").expect("a rate"), (1_234.5, 10.0));
        assert_eq!(access(report, "read").expect("a rate"), (99.0, 5.0));
        assert!(access("", "read").is_err());
        assert!(access("read 0.00 0.0 1.0 0", "read").is_err(), "nothing was read");
        assert_eq!(flag("File removal").expect("a phase"), "-r");
        assert!(flag("Directory creation").is_err());
    }

    #[test]
    fn options_are_those_of_the_mpirun_that_is_there() {
        assert_eq!(leave("mpirun (Open MPI) 4.1.4").len(), 2);
        assert!(leave("HYDRA build details:\n    Version: 4.0.2").is_empty());
    }
}
