//! Longest calls of a mount with directories on four MDTs, while one MDT is killed and comes back:
//! in its own directory, and in those of the others.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use mounted::{Scratch, Up};

use crate::bed::Bed;
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// Servers may die more often than `up` allows elsewhere.
const UP: [&str; 4] = ["--mdts", "4", "--crashes-max", "1000"];
const MDTS: usize = 4;
/// Killed one after another in each turn. The first MDT has the root, which all paths name.
const VICTIMS: [usize; 3] = [1, 2, 3];
const TURNS_MAX: u32 = 2;
/// Work before a kill, and after it.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_secs(4);
/// Between two files of a task, so that calls do not wait for a processor.
const REST: Duration = Duration::from_millis(2);

/// Milliseconds of the longest call on the other MDTs, and on the one that was killed.
const OTHERS_MS: f64 = 50.0;
const OWN_MS: f64 = 2_000.0;

const COMMAND: &str = "nacre up --separate --mdts 4; kill -9 of an MDT; meanwhile create, stat and \
                       unlink in a directory of each MDT, one after another";

pub(crate) fn of_mdts(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let mut up = Up::with(Scratch::new("bench-pauses"), Some(bed.fresh("pauses")), &UP);
    let rows = killed(&up, scale.pairs.min(TURNS_MAX))?;
    up.stop();
    fs::remove_dir_all(up.data())?;
    Ok(rows)
}

fn killed(up: &Up, turns: u32) -> Result<Vec<Row>> {
    let dirs = make_dirs(up);
    let (mut own, mut others, mut quiet) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..turns {
        quiet.extend(longest(up, &dirs, None)?);
        for victim in VICTIMS {
            for (mdt, pause) in longest(up, &dirs, Some(victim))?.into_iter().enumerate() {
                let pauses = if mdt == victim { &mut own } else { &mut others };
                pauses.push(pause);
            }
        }
    }
    let row = |id: &str, title: &str, pauses: &[f64], bound: f64| {
        let values = [pauses, quiet.as_slice()].map(|values| vec![most(values)]);
        Row::of(id, title, "ms", values, Some(Bound::AtMost(bound)), COMMAND)
    };
    let [title, own_title] = [
        "longest call on three MDTs while the fourth is killed, beside none killed",
        "longest call on an MDT that is killed, beside none killed",
    ];
    Ok(vec![
        row("mdt-pauses/others", title, &others, OTHERS_MS),
        row("mdt-pauses/own", own_title, &own, OWN_MS),
    ])
}

/// A directory on each MDT.
fn make_dirs(up: &Up) -> Vec<PathBuf> {
    let make = |mdt: usize| {
        let (index, name) = (mdt.to_string(), format!("mdt.{mdt}"));
        let _silent = up.tool(&["lfs", "mkdir", "-i", &index, &name]);
        up.at(&name)
    };
    (0..MDTS).map(make).collect()
}

/// Milliseconds of the longest call in each directory, while the victim dies and comes back.
fn longest(up: &Up, dirs: &[PathBuf], victim: Option<usize>) -> Result<Vec<f64>> {
    let ends = &AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let end = Ends(ends);
        let tasks: Vec<_> = dirs.iter().map(|dir| scope.spawn(move || calls(dir, ends))).collect();
        std::thread::sleep(BEFORE);
        if let Some(victim) = victim {
            up.kill_server(&format!("MDT{victim:04}"));
        }
        std::thread::sleep(AFTER);
        drop(end);
        let times = tasks.into_iter().map(|task| task.join().expect("a task does not panic"));
        times.collect::<io::Result<Vec<f64>>>()
    })?;
    Ok(times)
}

/// Tasks end when this is dropped, also where something fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One call with a path.
type Step = fn(&Path) -> io::Result<()>;

fn make(path: &Path) -> io::Result<()> {
    File::create_new(path).map(drop)
}

fn look_at(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

const STEPS: [Step; 3] = [make, look_at, remove];

/// Makes a file, looks at it and removes it, until the end. Milliseconds of the longest call.
fn calls(dir: &Path, ends: &AtomicBool) -> io::Result<f64> {
    let mut longest = 0.0_f64;
    for number in 0_u64.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let path = dir.join(number.to_string());
        for step in STEPS {
            let begun = Instant::now();
            step(&path)?;
            longest = longest.max(begun.elapsed().as_secs_f64() * 1e3);
        }
        std::thread::sleep(REST);
    }
    Ok(longest)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests_of_pauses {
    use super::*;

    #[test]
    fn calls_end_and_leave_nothing() {
        let scratch = Scratch::new("pauses");
        let (dir, ends) = (scratch.path(), AtomicBool::new(false));
        let longest = std::thread::scope(|scope| {
            let task = scope.spawn(|| calls(dir, &ends));
            std::thread::sleep(REST * 3);
            drop(Ends(&ends));
            task.join().expect("a task does not panic").expect("calls succeed")
        });
        assert!(longest > 0.0 && most(&[1.0, longest + 2.0, 0.0]) == longest + 2.0);
        assert_eq!(fs::read_dir(dir).expect("opens").count(), 0);
    }
}
