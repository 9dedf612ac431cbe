//! Tasks as threads on a path.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::{IorArgs, Phase, Sample, sample, settle};
use crate::stats;

/// O_DIRECT wants buffers on the boundaries of the device's blocks.
const ALIGNMENT: usize = 4_096;

/// One run: the phases that are wanted.
pub(super) fn run(args: &IorArgs) -> Result<Vec<Sample>> {
    let samples = args.phases().into_iter().map(|phase| one_phase(args, phase)).collect();
    if !args.keep {
        for task in 0..if args.file_per_task { args.tasks } else { 1 } {
            let path = args.part(task).0;
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    samples
}

fn one_phase(args: &IorArgs, phase: Phase) -> Result<Sample> {
    settle(args, phase)?;
    let barrier = Barrier::new(args.tasks as usize + 1);
    let cpu = stats::cpu_of_machine();
    let (seconds, tasks) = std::thread::scope(|scope| {
        let barrier = &barrier;
        let task = |task| {
            scope.spawn(move || {
                let mut buffer = Buffer::new(args.transfer as usize);
                barrier.wait();
                let start = Instant::now();
                one_task(args, phase, task, buffer.bytes())?;
                anyhow::Ok(start.elapsed().as_secs_f64())
            })
        };
        let threads: Vec<_> = (0..args.tasks).map(task).collect();
        barrier.wait();
        let start = Instant::now();
        let tasks: Result<Vec<f64>> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a task does not panic"))
            .collect();
        anyhow::Ok((start.elapsed().as_secs_f64(), tasks?))
    })?;
    Ok(sample(args, phase, seconds, &tasks, cpu))
}

fn one_task(args: &IorArgs, phase: Phase, task: u32, buffer: &mut [u8]) -> Result<()> {
    let (path, start) = args.part(task);
    let named = || path.display().to_string();
    let flags = if args.direct { libc::O_DIRECT } else { 0 };
    let write = phase == Phase::Write;
    let file = OpenOptions::new()
        .read(!write)
        .write(write)
        .create(write)
        .truncate(false)
        .custom_flags(flags)
        .open(&path)
        .with_context(named)?;
    for index in 0..args.calls() {
        let offset = start + args.place(index);
        transfer(&file, phase, offset, buffer)
            .with_context(|| format!("{phase} {} at {offset}", named()))?;
    }
    if write && args.fsync {
        file.sync_all().with_context(named)?;
    }
    Ok(())
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

/// Aligned memory.
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
