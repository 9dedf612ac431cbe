//! Footprint of a file system's processes: memory at rest and start time.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mounted::{Scratch, Up};

use crate::bed::Bed;
use crate::machine::status_kib;
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// When a fresh file system counts as idle.
const REST: Duration = Duration::from_secs(2);

/// Files of the file system that is started again.
const FILES: usize = 100_000;

/// Anonymous memory (RssAnon) of each server two seconds after it came up.
pub(crate) fn memory(bed: &Bed, _scale: Scale) -> Result<Vec<Row>> {
    std::thread::sleep(REST);
    let servers = ["MGS", "MDT0000", "OST0000"];
    let row = |name: &str| {
        let kib = status_kib(bed.up().server(name), "RssAnon")?;
        anyhow::Ok(value(
            &format!("memory/{name}"),
            &format!("anonymous memory of an idle {name}"),
            "MiB",
            vec![kib as f64 / 1024.0],
            Bound::AtMost(64.0),
            "nacre up --separate --mdts 1; grep RssAnon /proc/PID/status",
        ))
    };
    servers.into_iter().map(row).collect()
}

/// From `exec` to mounted: after a clean end, and after kill -9 of every process.
pub(crate) fn start(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let mut up = Up::with(Scratch::new("bench-start"), Some(bed.fresh("start")), &[]);
    fill(up.mount())?;
    let (mut clean, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..scale.pairs {
        up.stop();
        clean.push(started(&mut up));
        up.kill_everything();
        killed.push(started(&mut up));
    }
    up.stop();
    let command = "nacre up --separate --mdts 1, from exec to mounted, 100,000 files";
    Ok(vec![
        value("start/clean", "start after a clean end", "s", clean, Bound::AtMost(2.0), command),
        value(
            "start/killed",
            "start after kill -9 of everything",
            "s",
            killed,
            Bound::AtMost(5.0),
            command,
        ),
    ])
}

fn started(up: &mut Up) -> f64 {
    let start = Instant::now();
    up.start_again(&[]);
    start.elapsed().as_secs_f64()
}

fn fill(mount: &Path) -> Result<()> {
    const TASKS: usize = 4;
    let task = |task: usize| {
        let dir = mount.join(format!("fill-{task}"));
        fs::create_dir(&dir)?;
        (0..FILES / TASKS).try_for_each(|file| File::create(dir.join(file.to_string())).map(drop))
    };
    std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..TASKS).map(|index| scope.spawn(move || task(index))).collect();
        tasks.into_iter().try_for_each(|task| task.join().expect("a task does not panic"))
    })
    .context("files of the file system that is started again")
}

fn value(id: &str, title: &str, unit: &str, ours: Vec<f64>, bound: Bound, command: &str) -> Row {
    Row::of(id, title, unit, [ours, Vec::new()], Some(bound), command)
}
