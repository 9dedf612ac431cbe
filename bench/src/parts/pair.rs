//! Two mounts of one file system: both make files in one directory, and one changes what the other
//! has in its caches.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mounted::{Scratch, Up};

use crate::bed::Bed;
use crate::row::{Bound, Row};
use crate::scale::Scale;

const TURNS_MAX: u32 = 5;
/// Seconds of a phase at most.
const SECONDS_MAX: u32 = 3;
/// Creates of both together, of those of one mount alone; and the slowest but one of a hundred.
const CREATES_LEAST: f64 = 0.6;
const CREATE_P99_MS: f64 = 10.0;
/// Changes of a turn, and how long they may take.
const CHANGES: u32 = 300;
const CHANGE_P50_MS: f64 = 2.0;
const CHANGE_P99_MS: f64 = 15.0;

const COMMAND: &str = "cargo xtask bench --only pair";

pub(crate) fn two_mounts(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let mut up = Up::with(Scratch::new("bench-pair"), Some(bed.fresh("pair")), &["--osts", "1"]);
    let mounts = [up.mount().to_owned(), up.second_mount(101)];
    let turns = scale.pairs.min(TURNS_MAX);
    let mut rows = creates(&mounts, turns, scale.seconds.min(SECONDS_MAX))?;
    rows.extend(changes(&mounts, turns)?);
    up.stop();
    Ok(rows)
}

fn creates(mounts: &[PathBuf; 2], turns: u32, seconds: u32) -> Result<Vec<Row>> {
    let (mut rates, mut slow) = ([Vec::new(), Vec::new()], Vec::new());
    let span = Duration::from_secs(seconds.into());
    for turn in 0..turns {
        let (alone, shared) = (format!("alone.{turn}"), format!("shared.{turn}"));
        fs::create_dir(mounts[0].join(&alone))?;
        fs::create_dir(mounts[0].join(&shared))?;
        let times = make_files(&mounts[0].join(&alone), "a", span)?;
        rates[1].push(times.len() as f64 / span.as_secs_f64());
        let dirs = mounts.each_ref().map(|mount| mount.join(&shared));
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(|| make_files(&dirs[1], "b", span));
            let mut times = make_files(&dirs[0], "a", span)?;
            times.extend(other.join().expect("a task does not panic")?);
            anyhow::Ok(times)
        })?;
        rates[0].push(both.len() as f64 / span.as_secs_f64());
        slow.push(percentile(&both, 0.99)?);
    }
    let (title, bound) = ("creates of two mounts in one directory, of one alone", CREATES_LEAST);
    let bound = Some(Bound::Ratio(bound));
    let p99 = Some(Bound::AtMost(CREATE_P99_MS));
    let values = [slow, Vec::new()];
    Ok(vec![
        Row::of("pair/creates", title, "files/s", rates, bound, COMMAND),
        Row::of("pair/create-p99", "the same: p99 of a create", "ms", values, p99, COMMAND),
    ])
}

/// Milliseconds of each create, for as long as `span`.
fn make_files(dir: &Path, prefix: &str, span: Duration) -> Result<Vec<f64>> {
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < span {
        let path = dir.join(format!("{prefix}{}", times.len()));
        let begun = Instant::now();
        File::create_new(path)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// The second mount changes the mode of a file whose attributes the first one has.
fn changes(mounts: &[PathBuf; 2], turns: u32) -> Result<Vec<Row>> {
    File::create(mounts[0].join("changed"))?;
    let [near, far] = mounts.each_ref().map(|mount| mount.join("changed"));
    let (mut middle, mut slow) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        let mut times = Vec::new();
        for change in 0..CHANGES {
            let mode = 0o600 + change % 0o100;
            fs::metadata(&near)?;
            let begun = Instant::now();
            fs::set_permissions(&far, Permissions::from_mode(mode))?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            let seen = fs::metadata(&near)?.permissions().mode() & 0o7777;
            ensure!(seen == mode, "mode {seen:o} was seen after a change to {mode:o}");
        }
        middle.push(percentile(&times, 0.5)?);
        slow.push(percentile(&times, 0.99)?);
    }
    let title = "a change of what another mount caches: ";
    let row = |id: &str, what: &str, values: Vec<f64>, most: f64| {
        let bound = Some(Bound::AtMost(most));
        Row::of(id, &format!("{title}{what}"), "ms", [values, Vec::new()], bound, COMMAND)
    };
    Ok(vec![
        row("pair/change-p50", "p50", middle, CHANGE_P50_MS),
        row("pair/change-p99", "p99", slow, CHANGE_P99_MS),
    ])
}

/// The value below which this part of the others are.
fn percentile(values: &[f64], part: f64) -> Result<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at).or(sorted.last()).copied().context("nothing was measured")
}

#[cfg(test)]
mod tests_of_percentiles {
    use super::*;

    #[test]
    fn a_percentile_leaves_the_slowest_out() {
        let values: Vec<f64> = (0..200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5).expect("values"), 100.0);
        assert_eq!(percentile(&values, 0.99).expect("values"), 198.0);
        assert_eq!(percentile(&[3.0], 0.99).expect("one value"), 3.0);
        assert!(percentile(&[], 0.5).is_err());
    }
}
