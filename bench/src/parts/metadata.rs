//! Metadata rates: mdtest through FUSE and creates of the native library, beside ext4.

use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::passthrough::{self, Passthrough};
use super::setting::Setting;
use super::{figures, public};
use crate::bed::{Bed, nacre};
use crate::row::{Bound, Cpu, Row};
use crate::scale::Scale;

/// Output of `nacre bench mdtest --json`: every phase of every turn, in order.
#[derive(Deserialize)]
pub(super) struct Output {
    pub(super) phases: Vec<Phase>,
    pub(super) against: Vec<Phase>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Phase {
    pub(super) phase: String,
    pub(super) rate: f64,
    pub(super) cpu_s_per_10000: f64,
    /// Of the native library.
    #[serde(default)]
    pub(super) requests_per_file: Option<f64>,
}

impl Phase {
    /// The idle part of a machine with so many CPUs meanwhile. Stolen time is part of it.
    pub(super) fn idle(&self, cpus: usize) -> f64 {
        let busy = self.cpu_s_per_10000 * self.rate / 1e4;
        1.0 - busy / cpus as f64
    }
}

/// Creates, of those that the library would make without checksums of records.
const SUMMED_LEAST: f64 = 0.98;

/// Measures the checksums of one create.
const SUMS: [&str; 9] =
    ["run", "--quiet", "--release", "-p", "osd-disk", "--example", "checksums", "--", "--create"];

/// mdtest's name of a phase, and the ratio to reach.
pub(super) type Wanted = (&'static str, Option<f64>);

/// Bounds are those of the phases.
pub(super) type Files = Setting<&'static [Wanted]>;

/// Title of a row, files per second that it reaches without a comparison, and CPU seconds of the
/// machine per 10,000 files at most.
type Alone = (&'static str, f64, Option<f64>);

/// Processes of mdtest.
const TASKS: &str = "4";

/// A directory for each process.
pub(super) const OWN: Files = Setting {
    part: "mdtest-own",
    tasks: TASKS,
    options: &["-u"],
    bounds: &[
        ("File creation", Some(0.10)),
        ("File stat", Some(0.015)),
        ("File read", Some(0.02)),
        ("File removal", Some(0.08)),
    ],
};

const SHARED: Files = Setting {
    part: "mdtest-shared",
    tasks: TASKS,
    options: &[],
    bounds: &[
        ("File creation", Some(0.08)),
        ("File stat", None),
        ("File read", None),
        ("File removal", Some(0.05)),
    ],
};

const SMALL_FILES: Files = Setting {
    part: "mdtest-32k",
    tasks: TASKS,
    options: &["-u", "-w", "32768", "-e", "32768"],
    bounds: &[("File creation", Some(0.07)), ("File read", None), ("File removal", None)],
};

pub(crate) fn own(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let alone = [
        ("creation", 16_000.0, Some(1.1)),
        ("stat", 60_000.0, None),
        ("removal", 20_000.0, Some(0.8)),
    ];
    Ok(with_alone(through_fuse(bed, scale, &OWN)?, &alone))
}

pub(crate) fn shared(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let alone = [("creation", 8_500.0, None), ("removal", 10_000.0, None)];
    Ok(with_alone(through_fuse(bed, scale, &SHARED)?, &alone))
}

/// The rate and the CPU that FUSE allows. Its bounds are those of [`own`] over the rates of
/// `passthrough_hp` on the machine on which they were set.
const BESIDE_FUSE: Files = Setting {
    part: "mdtest-fuse",
    tasks: TASKS,
    options: &["-u"],
    bounds: &[
        ("File creation", Some(0.9)),
        ("File stat", Some(0.73)),
        ("File read", None),
        ("File removal", Some(0.83)),
    ],
};

/// Turns beside `passthrough_hp`, and files of a task. It has a descriptor for each file that the
/// kernel knows: four tasks make fewer than its limit of 20,000.
const TURNS_OF_PASSTHROUGH: u32 = 5;
const FILES_OF_PASSTHROUGH: &str = "4500";

pub(crate) fn beside_fuse(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let source = bed.fresh("passthrough");
    fs::create_dir_all(&source)?;
    let limit = Passthrough::over(&source, bed.fresh("passthrough-mount"))?;
    let sides = [bed.ours().join("mdtest-fuse"), limit.mount().join("mdtest")];
    let scale = Scale { pairs: scale.pairs.min(TURNS_OF_PASSTHROUGH), ..scale };
    let rows = public::mdtest_in(&sides, scale, &BESIDE_FUSE, FILES_OF_PASSTHROUGH)?;
    Ok(rows.into_iter().flatten().collect())
}

/// What [`beside_fuse`] lacks.
pub(crate) fn lacks_fuse() -> Option<&'static str> {
    let has_all = public::has("mdtest") && passthrough::is_installed();
    (!has_all).then_some("mpirun, mdtest or passthrough_hp is not installed")
}

pub(crate) fn small_files(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let alone = [("creation", 6_500.0, Some(2.8))];
    Ok(with_alone(through_fuse(bed, scale, &SMALL_FILES)?, &alone))
}

/// Adds rows for rates and CPU that have bounds without a comparison.
fn with_alone(mut rows: Vec<Row>, wanted: &[Alone]) -> Vec<Row> {
    let mut more = Vec::new();
    for (title, least, most) in wanted {
        for row in rows.iter().filter(|row| row.title == *title) {
            more.push(row.alone(Bound::AtLeast(*least)));
            more.extend(most.and_then(|most| row.cost(most)));
        }
    }
    rows.extend(more);
    rows
}

fn through_fuse(bed: &Bed, scale: Scale, setting: &Files) -> Result<Vec<Row>> {
    if public::has("mdtest") {
        return public::mdtest(bed, scale, setting);
    }
    by_own(bed, scale, setting)
}

/// The same with our own driver.
pub(super) fn by_own(bed: &Bed, scale: Scale, setting: &Files) -> Result<Vec<Row>> {
    let (seconds, pairs) = (scale.seconds.to_string(), scale.pairs.to_string());
    let mut options = vec!["-N", setting.tasks, "-F", "-W", &seconds, "--drop-caches"];
    options.extend(setting.options);
    let (ours, limit) = (text(bed.ours())?, bed.limit());
    let mut args = vec!["bench", "mdtest", "-d", &ours];
    args.extend(&options);
    let limit = text(&limit)?;
    args.extend(["--against", &limit, "--pairs", &pairs, "--json"]);
    let command =
        format!("nacre bench mdtest -d MOUNT {} --against EXT4 --pairs {pairs}", options.join(" "));
    rows(setting.part, &nacre(&args)?, setting.bounds, &command)
}

/// Create and close, 64 in flight, beside ext4's creates by one process.
pub(crate) fn native(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let (seconds, pairs) = (scale.seconds.to_string(), scale.pairs.to_string());
    let (address, limit) = (bed.up().address(), text(&bed.limit())?);
    let options = ["--in-flight", "64", "-F", "-C", "-W", &seconds];
    let mut args = vec!["bench", "mdtest", "--native", &address];
    args.extend(options);
    args.extend(["--against", &limit, "--pairs", &pairs, "--json"]);
    let command = format!(
        "nacre bench mdtest --native NID:/testfs {} --against EXT4 --pairs {pairs}",
        options.join(" ")
    );
    let mut rows = rows("native", &nacre(&args)?, &[("File creation", Some(0.4))], &command)?;
    if !scale.is_quick() {
        let row = checksums(&rows, &command)?;
        rows.push(row);
    }
    Ok(rows)
}

/// The part of native creates that checksums of records leave. A store has no way to leave the sums
/// out, so their time is measured alone. It counts whole, as if an MDT did nothing meanwhile.
fn checksums(creates: &[Row], command: &str) -> Result<Row> {
    let figures = figures::of_cargo(&SUMS, |_| None)?;
    let us = figures.iter().flat_map(|row| &row.ours).next().context("the sums have a time")?;
    let rates = creates.iter().flat_map(|row| &row.ours);
    let command = format!("{command}; cargo {}", SUMS.join(" "));
    Ok(with_sums(rates, *us, &command))
}

fn with_sums<'a>(rates: impl Iterator<Item = &'a f64>, us: f64, command: &str) -> Row {
    let parts: Vec<f64> = rates.map(|rate| 1.0 - us * rate / 1e6).collect();
    let title = format!("creation, of that without checksums of records ({us:.3} us)");
    let bound = Some(Bound::AtLeast(SUMMED_LEAST));
    Row::of("native/checksums", &title, "part", [parts, Vec::new()], bound, command)
}

/// A row for each phase.
pub(super) fn rows(
    part: &str,
    output: &Output,
    phases: &[Wanted],
    command: &str,
) -> Result<Vec<Row>> {
    let each = |samples: &[Phase], name: &str, value: fn(&Phase) -> f64| -> Vec<f64> {
        samples.iter().filter(|sample| sample.phase == name).map(value).collect()
    };
    let row = |(name, bound): &Wanted| {
        let ours = each(&output.phases, name, |sample| sample.rate);
        let cpu = crate::row::Spread::of(&each(&output.phases, name, |s| s.cpu_s_per_10000))
            .with_context(|| format!("no phase '{name}'"))?;
        let word = name.strip_prefix("File ").unwrap_or(name);
        anyhow::Ok(Row {
            id: format!("{part}/{word}"),
            title: word.to_owned(),
            unit: "files/s".to_owned(),
            ours,
            limit: each(&output.against, name, |sample| sample.rate),
            cpu: Some(Cpu { value: cpu.median, unit: "s per 10,000".to_owned() }),
            idle: None,
            bound: bound.map(Bound::Ratio),
            command: command.to_owned(),
        })
    };
    phases.iter().map(row).collect()
}

pub(super) fn text(path: &std::path::Path) -> Result<String> {
    Ok(path.to_str().context("a path of text")?.to_owned())
}

#[cfg(test)]
mod tests_of_rows {
    use super::*;

    #[test]
    fn the_time_of_checksums_is_a_part_of_a_create() {
        // a create in 25 us
        let row = with_sums([40_000.0].iter(), 0.5, "nacre bench mdtest");
        assert!((row.ours[0] - 0.98).abs() < 1e-9, "{:?}", row.ours);
        assert_eq!(with_sums([40_000.0].iter(), 0.4, "").is_reached(), Some(true));
        assert_eq!(with_sums([40_000.0].iter(), 0.6, "").is_reached(), Some(false));
    }

    #[test]
    fn a_phase_knows_how_idle_the_machine_was() {
        let phase = |rate, cpu_s_per_10000| Phase {
            phase: "File stat".to_owned(),
            rate,
            cpu_s_per_10000,
            requests_per_file: None,
        };
        assert!((phase(5_000.0, 1.0).idle(2) - 0.75).abs() < 1e-9);
        assert!(phase(20_000.0, 1.0).idle(2).abs() < 1e-9);
    }

    #[test]
    fn turns_of_a_phase_become_one_row() {
        let phase = |phase: &str, rate| Phase {
            phase: phase.to_owned(),
            rate,
            cpu_s_per_10000: rate / 10.0,
            requests_per_file: None,
        };
        let output = Output {
            phases: vec![phase("File creation", 10.0), phase("File stat", 1.0)],
            against: vec![phase("File creation", 40.0), phase("File stat", 4.0)],
        };
        let rows = rows("p", &output, &[("File creation", Some(0.2))], "c").expect("one row");
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].id.as_str(), rows[0].is_reached()), ("p/creation", Some(true)));
        assert!(super::rows("p", &output, &[("File removal", None)], "c").is_err());
        let rows = with_alone(rows, &[("creation", 20.0, Some(1.0)), ("stat", 1.0, None)]);
        let reached: Vec<_> = rows.iter().map(Row::is_reached).collect();
        assert_eq!(reached, [Some(true), Some(false), Some(true)]);
    }
}
