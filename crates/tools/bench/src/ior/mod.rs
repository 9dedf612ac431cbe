//! `nacre bench ior` and `nacre bench dd`: bytes per second, with IOR's options, through a path or
//! the native library.
//!
//! Tasks are processes on a path. With `--native` they are clients with sessions of their own
//! inside this process. Every phase begins and ends together. A rate is all bytes over the phase's
//! wall-clock time, from open to close, fsync included. Each task's own rate, its mean and its
//! standard deviation show how fairly the tasks were served.

mod native;
mod posix;
mod report;

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use types::{ByteSize, ByteSizeError};

use crate::setting::{self, Subject, directory};
use crate::stats;
use crate::steps::Steps;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nacre bench ior -o /mnt/nacre/file -N 4 -F -t 1m -b 128m -e --drop-caches --against /mnt/ext4/file\n  \
    nacre bench ior --native 127.0.0.2@tcp:/testfs -N 8 -t 1m -b 64m -e"
)]
pub struct IorArgs {
    /// File; with -F the first part of each task's file name.
    #[arg(short = 'o', long, default_value = "ior-file")]
    pub file: PathBuf,
    /// Tasks (mpirun -np); with --native clients.
    #[arg(short = 'N', long = "tasks", default_value_t = 1)]
    pub tasks: u32,
    /// A file for each task; else all write their part of one.
    #[arg(short = 'F')]
    pub file_per_task: bool,
    /// Bytes of one call (k, m, g).
    #[arg(short = 't', long, default_value = "1m", value_parser = bytes)]
    pub transfer: u64,
    /// Bytes of each task (k, m, g).
    #[arg(short = 'b', long, default_value = "128m", value_parser = bytes)]
    pub block: u64,
    /// Only write.
    #[arg(short = 'w')]
    pub write_only: bool,
    /// Only read what an earlier run left.
    #[arg(short = 'r')]
    pub read_only: bool,
    /// fsync after the last write, inside the measured time.
    #[arg(short = 'e')]
    pub fsync: bool,
    /// Calls at random places of the task's part, each place once.
    #[arg(short = 'z')]
    pub random: bool,
    /// O_DIRECT.
    #[arg(short = 'B')]
    pub direct: bool,
    /// Seconds after which a write phase stops (0: never); the read phase reads the written part
    /// (IOR's stonewall). Not with --native.
    #[arg(short = 'D', default_value_t = 0)]
    pub deadline: u64,
    /// Keep the files.
    #[arg(short = 'k')]
    pub keep: bool,
    /// Times to repeat everything.
    #[arg(short = 'i', long, default_value_t = 1)]
    pub iterations: u32,
    /// Calls in flight of each native client.
    #[arg(long, default_value_t = 4)]
    pub in_flight: u32,
    /// Use the native library on this file system (NID:/fsname) instead of a mount.
    #[arg(long, value_name = "NID:/FSNAME")]
    pub native: Option<String>,
    /// Own address of the first native client; each further one has the next (127.0.0.N@tcp).
    #[arg(long, value_name = "NID")]
    pub nid: Option<types::Nid>,
    /// Stripes of the native file; 0: all OSTs.
    #[arg(long, default_value_t = 1)]
    pub stripes: u16,
    /// Write the kernel's dirty pages back before each phase, and drop its caches before reading
    /// (root).
    #[arg(long)]
    pub drop_caches: bool,
    /// Run the same on this file too, in turns, and print ratios.
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Turns with --against.
    #[arg(long, default_value_t = 3)]
    pub pairs: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Internal: this process is task N of the benchmark that started it.
    #[arg(long, hide = true, value_name = "N")]
    pub task: Option<u32>,
}

/// dd's own words for one task on one file.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Example:\n  nacre bench dd /mnt/nacre/file --bs 1m --count 1024 --fsync --drop-caches --against /mnt/ext4/file"
)]
pub struct DdArgs {
    /// File to write and read.
    file: PathBuf,
    /// Bytes of one call.
    #[arg(long, default_value = "1m", value_parser = bytes)]
    bs: u64,
    /// Calls.
    #[arg(long, default_value_t = 512)]
    count: u64,
    /// fsync before the end (conv=fsync).
    #[arg(long)]
    fsync: bool,
    /// O_DIRECT (oflag=direct, iflag=direct).
    #[arg(long)]
    direct: bool,
    /// Drop the kernel's caches before reading (root).
    #[arg(long)]
    drop_caches: bool,
    /// Run the same on this file too, in turns, and print ratios.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Turns.
    #[arg(long, default_value_t = 3)]
    pairs: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Internal: this process is the task of the benchmark that started it.
    #[arg(long, hide = true, value_name = "N")]
    task: Option<u32>,
}

/// A phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    Write,
    Read,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Write => "write",
            Phase::Read => "read",
        })
    }
}

/// One phase of one run.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) phase: Phase,
    /// Of all tasks together, bytes per second.
    pub(crate) rate: f64,
    /// Of each task alone.
    pub(crate) tasks: Vec<f64>,
    /// CPU seconds of the whole machine per GiB.
    pub(crate) cpu_per_gib: f64,
}

impl IorArgs {
    fn phases(&self) -> Vec<Phase> {
        let only = |phase, other: bool| (!other).then_some(phase);
        [
            only(Phase::Write, self.read_only && !self.write_only),
            only(Phase::Read, self.write_only && !self.read_only),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn calls(&self) -> u64 {
        self.block / self.transfer
    }

    /// Where call `index` of a task goes in the task's part. With `-z` a walk that meets each place
    /// once: the step has no common factor with the count.
    fn place(&self, index: u64) -> u64 {
        let calls = self.calls();
        if !self.random || calls < 3 {
            return index * self.transfer;
        }
        let mut step = (calls as f64 * 0.618) as u64 | 1;
        while gcd(step, calls) != 1 {
            step += 2;
        }
        (index.wrapping_mul(step) % calls) * self.transfer
    }

    /// File of a task and where its part begins.
    fn part(&self, task: u32) -> (PathBuf, u64) {
        if self.file_per_task {
            let mut name = self.file.clone().into_os_string();
            name.push(format!(".{task:08}"));
            (name.into(), 0)
        } else {
            (self.file.clone(), u64::from(task) * self.block)
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A size of IOR: the units are powers of two.
fn bytes(text: &str) -> Result<u64, String> {
    let (k, m, g) = (1 << 10, 1 << 20, 1 << 30);
    let units = [("", 1), ("k", k), ("K", k), ("m", m), ("M", m), ("g", g), ("G", g)];
    match ByteSize::with_units(text, &units) {
        Err(ByteSizeError::Form) => Err("expected a number, with k, m or g behind it".to_owned()),
        Ok(ByteSize(0)) | Err(ByteSizeError::TooLarge) => {
            Err("more than nothing, less than 2^64".to_owned())
        }
        Ok(ByteSize(bytes)) => Ok(bytes),
    }
}

/// Runs it and prints what IOR prints.
pub fn run(args: &IorArgs) -> Result<()> {
    if let Some(task) = args.task {
        return posix::serve(args, task);
    }
    ensure!(args.deadline == 0 || args.native.is_none(), "-D is not for --native");
    ensure!(args.deadline == 0 || !args.read_only, "-D stops writes; -r alone has none");
    ensure!(args.tasks >= 1 && args.in_flight >= 1, "at least one task is needed");
    ensure!(args.block.is_multiple_of(args.transfer), "-b is a multiple of -t");
    ensure!(
        !args.direct || args.transfer.is_multiple_of(4_096),
        "-B needs a -t that is a multiple of 4 KiB"
    );
    let (dir, against) =
        (directory(&args.file)?, args.against.as_deref().map(directory).transpose()?);
    let native = args.native.as_deref().map(|address| (address, args.tasks));
    let subject =
        Subject { native, dir: &dir, against: against.as_deref(), drop_caches: args.drop_caches };
    let setting = setting::of(&subject)?;
    if !args.json {
        println!("{setting}; O_DIRECT: {}", if args.direct { "yes" } else { "no" });
    }
    ensure!(args.against.is_none() || !setting.in_process, "{}", setting::REFUSAL);
    let rounds = if args.against.is_some() { args.pairs.max(1) } else { args.iterations.max(1) };
    let runs = rounds as usize * if args.against.is_some() { 2 } else { 1 };
    let steps = Steps::new("ior", runs * args.phases().len());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.extend(one(args, &steps)?);
        if let Some(file) = &args.against {
            let args = IorArgs { file: file.clone(), native: None, ..args.clone() };
            theirs.extend(one(&args, &steps)?);
        }
    }
    drop(steps);
    report::print(args, &setting, &ours, &theirs)
}

/// Runs dd's one task.
pub fn dd(args: &DdArgs) -> Result<()> {
    let DdArgs { file, bs, count, fsync, direct, drop_caches, against, pairs, json, task } =
        args.clone();
    run(&IorArgs {
        file,
        tasks: 1,
        file_per_task: false,
        transfer: bs,
        block: bs * count,
        write_only: false,
        read_only: false,
        fsync,
        random: false,
        direct,
        deadline: 0,
        keep: false,
        iterations: pairs,
        in_flight: 1,
        native: None,
        nid: None,
        stripes: 1,
        drop_caches,
        against,
        pairs,
        json,
        task,
    })
}

fn one(args: &IorArgs, steps: &Steps) -> Result<Vec<Sample>> {
    match &args.native {
        Some(address) => native::run(args, address, steps),
        None => posix::run(args, steps),
    }
}

/// Makes the machine's state the same before each phase.
fn settle(args: &IorArgs, phase: Phase) -> Result<()> {
    if args.drop_caches { setting::settle_caches(phase == Phase::Read) } else { Ok(()) }
}

/// What one task did in a phase.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Took {
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
}

/// A phase from what its tasks took.
fn sample(phase: Phase, seconds: f64, tasks: &[Took], cpu_before: f64) -> Sample {
    let cpu = stats::cpu_of_machine() - cpu_before;
    let total: f64 = tasks.iter().map(|task| task.bytes as f64).sum();
    Sample {
        phase,
        rate: total / seconds,
        tasks: tasks.iter().map(|task| task.bytes as f64 / task.seconds).collect(),
        cpu_per_gib: cpu / (total / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: IorArgs,
    }

    fn args(line: &str) -> IorArgs {
        Cli::try_parse_from(line.split(' ')).expect("well formed").args
    }

    #[test]
    fn a_random_walk_meets_every_place_once() {
        for calls in [1, 2, 3, 7, 64, 1000, 4096] {
            let args = args(&format!("ior -z -t 4k -b {}k", calls * 4));
            let places: BTreeSet<_> = (0..calls).map(|index| args.place(index)).collect();
            assert_eq!(places.len() as u64, calls);
            assert!(places.iter().all(|place| place + args.transfer <= args.block));
        }
    }

    #[test]
    fn tasks_share_a_file_in_parts_or_have_one_each() {
        assert_eq!(args("ior -o f -b 4m").part(2), ("f".into(), 8 << 20));
        assert_eq!(args("ior -o f -F").part(2), ("f.00000002".into(), 0));
    }

    #[test]
    fn sizes_have_units_and_nonsense_is_refused() {
        assert_eq!(bytes("4k"), Ok(4096));
        assert_eq!(bytes("2g"), Ok(2 << 30));
        for text in ["", "0", "k", "4x", "4kb", "4t", "1.5k", "-1", "99999999999g"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
