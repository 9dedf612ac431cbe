//! Tasks as processes on a path.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use serde::{Deserialize, Serialize};

use super::{IorArgs, Phase, Sample, Took, sample, settle};
use crate::stats;
use crate::steps::Steps;
use crate::tasks::{self, Tasks};

/// O_DIRECT wants buffers on the boundaries of the device's blocks.
const ALIGNMENT: usize = 4_096;

/// What a task is told to do.
#[derive(Serialize, Deserialize)]
struct Order {
    phase: Phase,
    file: PathBuf,
    /// Calls at most; with a deadline a write may do fewer.
    calls: u64,
}

/// One run: the phases that are wanted.
pub(super) fn run(args: &IorArgs, steps: &Steps) -> Result<Vec<Sample>> {
    let mut tasks = Tasks::start(args.tasks)?;
    let mut calls = vec![args.calls(); args.tasks as usize];
    let samples = args.phases().into_iter().map(|phase| {
        steps.begin(phase);
        one_phase(args, &mut tasks, phase, &mut calls)
    });
    let samples = samples.collect();
    if !args.keep {
        for task in 0..if args.file_per_task { args.tasks } else { 1 } {
            let path = args.part(task).0;
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    samples
}

fn one_phase(
    args: &IorArgs,
    tasks: &mut Tasks,
    phase: Phase,
    calls: &mut Vec<u64>,
) -> Result<Sample> {
    settle(args, phase)?;
    let file = std::path::absolute(&args.file)?;
    let order = |calls: &u64| Order { phase, file: file.clone(), calls: *calls };
    let orders: Vec<Order> = calls.iter().map(order).collect();
    let (cpu, start) = (stats::cpu_of_machine(), Instant::now());
    let took: Vec<Took> = tasks.all(&orders)?;
    let seconds = start.elapsed().as_secs_f64();
    *calls = took.iter().map(|task| task.bytes / args.transfer).collect();
    Ok(sample(phase, seconds, &took, cpu))
}

/// Task `task` of a benchmark: does what it is told.
pub(super) fn serve(args: &IorArgs, task: u32) -> Result<()> {
    let mut buffer = Buffer::new(args.transfer as usize);
    tasks::serve(|order: Order| {
        let args = IorArgs { file: order.file, ..args.clone() };
        let start = Instant::now();
        let calls = one_task(&args, order.phase, task, order.calls, buffer.bytes())?;
        Ok(Took { seconds: start.elapsed().as_secs_f64(), bytes: calls * args.transfer })
    })
}

/// Returns how many calls it made.
fn one_task(args: &IorArgs, phase: Phase, task: u32, calls: u64, buffer: &mut [u8]) -> Result<u64> {
    let (path, start) = args.part(task);
    let named = || path.display().to_string();
    let flags = if args.direct { libc::O_DIRECT } else { 0 };
    let write = phase == Phase::Write;
    let end =
        (write && args.deadline > 0).then(|| Instant::now() + Duration::from_secs(args.deadline));
    let file = OpenOptions::new()
        .read(!write)
        .write(write)
        .create(write)
        .truncate(false)
        .custom_flags(flags)
        .open(&path)
        .with_context(named)?;
    let mut done = 0;
    while done < calls && end.is_none_or(|end| Instant::now() < end) {
        let offset = start + args.place(done);
        transfer(&file, phase, offset, buffer)
            .with_context(|| format!("{phase} {} at {offset}", named()))?;
        done += 1;
    }
    if write && args.fsync {
        file.sync_all().with_context(named)?;
    }
    Ok(done)
}

fn transfer(file: &File, phase: Phase, offset: u64, buffer: &mut [u8]) -> Result<()> {
    match phase {
        Phase::Write => {
            mark(buffer, offset);
            file.write_all_at(buffer, offset)?;
        }
        Phase::Read => {
            file.read_exact_at(buffer, offset)?;
            ensure!(is_marked(buffer, offset), "other bytes than were written");
        }
    }
    Ok(())
}

/// Each block of a transfer says where it belongs.
fn mark(buffer: &mut [u8], offset: u64) {
    for (index, block) in (0..).zip(buffer.chunks_mut(ALIGNMENT)) {
        let place: u64 = offset + index * ALIGNMENT as u64;
        let room = block.len().min(8);
        block[..room].copy_from_slice(&place.to_le_bytes()[..room]);
    }
}

/// Whether every block is where it belongs.
fn is_marked(buffer: &[u8], offset: u64) -> bool {
    (0..).zip(buffer.chunks(ALIGNMENT)).all(|(index, block)| {
        let place: u64 = offset + index * ALIGNMENT as u64;
        let room = block.len().min(8);
        block[..room] == place.to_le_bytes()[..room]
    })
}

struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Buffer {
        let memory = vec![0x5a; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Buffer { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_at_the_wrong_place_is_noticed() {
        let mut buffer = Buffer::new(3 * ALIGNMENT);
        mark(buffer.bytes(), 1 << 20);
        assert!(is_marked(buffer.bytes(), 1 << 20));
        assert!(!is_marked(buffer.bytes(), 2 << 20));
        buffer.bytes()[2 * ALIGNMENT] ^= 1;
        assert!(!is_marked(buffer.bytes(), 1 << 20));
    }
}
