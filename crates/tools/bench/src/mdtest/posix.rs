//! Tasks as processes on a path.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use serde::{Deserialize, Serialize};

use super::{MdtestArgs, Phase, Sample, Watch};
use crate::setting::settle_caches;
use crate::steps::Steps;
use crate::tasks::{self, Tasks};

/// What a task is told to do.
#[derive(Serialize, Deserialize)]
struct Order {
    phase: Phase,
    dir: PathBuf,
    /// Files of this task.
    items: u64,
}

pub(super) fn run(args: &MdtestArgs, steps: &Steps) -> Result<Vec<Sample>> {
    let dir = std::path::absolute(&args.dir)?;
    let tree = dir.join(format!("mdtest-tree.{}", std::process::id()));
    fs::create_dir_all(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
    let outcome = phases(args, &tree, steps);
    let _ = fs::remove_dir_all(&tree);
    outcome
}

fn phases(args: &MdtestArgs, tree: &Path, steps: &Steps) -> Result<Vec<Sample>> {
    for task in 0..args.tasks {
        fs::create_dir_all(task_dir(args, tree, task))?;
    }
    let mut tasks = Tasks::start(args.tasks)?;
    let mut made = vec![args.items; args.tasks as usize];
    let mut samples = Vec::new();
    for phase in Phase::ALL.into_iter().filter(|phase| args.wants(*phase)) {
        steps.begin(phase);
        if args.drop_caches {
            settle_caches(matches!(phase, Phase::Stat | Phase::Read))?;
        }
        let order = |(task, items): (u32, &u64)| Order {
            phase,
            dir: task_dir(args, tree, task),
            items: *items,
        };
        let orders: Vec<Order> = (0..).zip(&made).map(order).collect();
        let watch = Watch::start();
        let counts: Vec<u64> = tasks.all(&orders)?;
        samples.push(watch.stop(phase, counts.iter().sum()));
        if phase == Phase::Create {
            made = counts;
        }
    }
    Ok(samples)
}

/// Task `task` of a benchmark: does what it is told and says to how many files.
pub(super) fn serve(args: &MdtestArgs, task: u32) -> Result<()> {
    tasks::serve(|Order { phase, dir, items }: Order| items_of_task(args, &dir, task, phase, items))
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
        // `wants` names it for native clients alone
        Phase::Rename => Err(std::io::ErrorKind::Unsupported.into()),
        Phase::Remove => fs::remove_file(path),
    }
}
