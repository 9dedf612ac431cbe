//! Tasks as threads on a path.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{MdtestArgs, Phase, Sample, Watch};
use crate::setting::settle_caches;

/// One run.
pub(super) fn run(args: &MdtestArgs) -> Result<Vec<Sample>> {
    let tree = args.dir.join(format!("mdtest-tree.{}", std::process::id()));
    fs::create_dir_all(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
    let outcome = phases(args, &tree);
    let _ = fs::remove_dir_all(&tree);
    outcome
}

fn phases(args: &MdtestArgs, tree: &Path) -> Result<Vec<Sample>> {
    for task in 0..args.tasks {
        fs::create_dir_all(task_dir(args, tree, task))?;
    }
    let mut made = vec![args.items; args.tasks as usize];
    let mut samples = Vec::new();
    for phase in Phase::ALL.into_iter().filter(|phase| args.wants(*phase)) {
        if args.drop_caches {
            settle_caches(matches!(phase, Phase::Stat | Phase::Read))?;
        }
        let (counts, sample) = phase_on_all_tasks(args, tree, phase, &made)?;
        if phase == Phase::Create {
            made.clone_from(&counts);
        }
        samples.push(sample);
    }
    Ok(samples)
}

fn phase_on_all_tasks(
    args: &MdtestArgs,
    tree: &Path,
    phase: Phase,
    made: &[u64],
) -> Result<(Vec<u64>, Sample)> {
    let barrier = Barrier::new(made.len() + 1);
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let tasks: Vec<_> = (0..)
            .zip(made)
            .map(|(task, items)| {
                let dir = task_dir(args, tree, task);
                scope.spawn(move || {
                    barrier.wait();
                    items_of_task(args, &dir, task, phase, *items)
                })
            })
            .collect();
        barrier.wait();
        let watch = Watch::start();
        let counts: Result<Vec<u64>> =
            tasks.into_iter().map(|task| task.join().expect("a task does not panic")).collect();
        let counts = counts?;
        let sample = watch.stop(phase, counts.iter().sum());
        Ok((counts, sample))
    })
}

fn task_dir(args: &MdtestArgs, tree: &Path, task: u32) -> PathBuf {
    if args.unique_dir { tree.join(format!("dir.{task}")) } else { tree.to_path_buf() }
}

fn items_of_task(
    args: &MdtestArgs,
    dir: &Path,
    task: u32,
    phase: Phase,
    items: u64,
) -> Result<u64> {
    let end = (phase == Phase::Create && args.stonewall > 0)
        .then(|| Instant::now() + Duration::from_secs(args.stonewall));
    let items = if end.is_some() { u64::MAX } else { items };
    let data = vec![b'm'; args.write_bytes];
    let mut buffer = vec![0; args.read_bytes];
    for item in 0..items {
        if item % 16 == 0 && end.is_some_and(|end| Instant::now() >= end) {
            return Ok(item);
        }
        let path = dir.join(format!("file.mdtest.{task}.{item}"));
        one_item(phase, &path, &data, &mut buffer)
            .with_context(|| format!("{phase} {}", path.display()))?;
    }
    Ok(items)
}

fn one_item(phase: Phase, path: &Path, data: &[u8], buffer: &mut [u8]) -> std::io::Result<()> {
    match phase {
        Phase::Create => {
            let mut file = File::create_new(path)?;
            if data.is_empty() { Ok(()) } else { file.write_all(data) }
        }
        Phase::Stat => fs::metadata(path).map(drop),
        Phase::Read => {
            let mut file = File::open(path)?;
            if buffer.is_empty() { Ok(()) } else { file.read_exact(buffer) }
        }
        Phase::Remove => fs::remove_file(path),
    }
}
