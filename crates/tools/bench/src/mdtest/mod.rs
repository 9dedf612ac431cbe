//! `nacre bench mdtest`: the metadata benchmark mdtest without MPI. Options and output lines are
//! mdtest's.
//!
//! Tasks are processes on a path, or with `--native` operations in flight of one native client.
//! Every phase ends with a barrier. A rate is operations over the phase's wall-clock time. With
//! `-W` a phase of creates stops after that many seconds, and the later phases use the files that
//! it made.

mod native;
mod posix;
mod report;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};

pub use report::Phase;

use crate::setting::{self, Subject};
use crate::steps::Steps;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  nacre bench mdtest -d /mnt/nacre -N 4 -F -u -n 1000\n  \
    nacre bench mdtest --native 127.0.0.2@tcp:/testfs --in-flight 64 -F -C -W 10 --against /mnt/ext4")]
pub struct MdtestArgs {
    /// Directory in which the tree is made; with --native a path from the file system's root.
    #[arg(short = 'd', long, default_value = ".")]
    pub dir: PathBuf,
    /// Files per task.
    #[arg(short = 'n', long, default_value_t = 1000)]
    pub items: u64,
    /// Tasks (mpirun -np).
    #[arg(short = 'N', long = "tasks", default_value_t = 1)]
    pub tasks: u32,
    /// Times to repeat everything.
    #[arg(short = 'i', long, default_value_t = 1)]
    pub iterations: u32,
    /// Test files only (the only kind here; accepted for the scripts' sake).
    #[arg(short = 'F')]
    pub files_only: bool,
    /// A directory of its own for each task.
    #[arg(short = 'u')]
    pub unique_dir: bool,
    /// Only create.
    #[arg(short = 'C')]
    pub create_only: bool,
    /// Only stat.
    #[arg(short = 'T')]
    pub stat_only: bool,
    /// Only read.
    #[arg(short = 'E')]
    pub read_only: bool,
    /// Only remove.
    #[arg(short = 'r')]
    pub remove_only: bool,
    /// Bytes to write to each file after it is created.
    #[arg(short = 'w', long, default_value_t = 0)]
    pub write_bytes: usize,
    /// Bytes to read from each file.
    #[arg(short = 'e', long, default_value_t = 0)]
    pub read_bytes: usize,
    /// Seconds after which the create phase stops (0: never).
    #[arg(short = 'W', long, default_value_t = 0)]
    pub stonewall: u64,
    /// Use the native library on this file system (NID:/fsname) instead of a mount.
    #[arg(long, value_name = "NID:/FSNAME")]
    pub native: Option<String>,
    /// Operations in flight of the native client.
    #[arg(long, default_value_t = 64)]
    pub in_flight: u32,
    /// The first 64 KiB of each file that is created are at its MDT (with --native).
    #[arg(long, requires = "native")]
    pub at_mdt: bool,
    /// Create each file with its bytes in one call of the library, which is one request if they fit
    /// at the MDT (with --native).
    #[arg(long, requires = "native")]
    pub put: bool,
    /// Also rename each file to a tree in this directory, a path from the file system's root (with
    /// --native).
    #[arg(long, requires = "native", value_name = "DIR")]
    pub rename_to: Option<PathBuf>,
    /// Keep the tree, and the files in it that no phase removes (with --native).
    #[arg(long, requires = "native")]
    pub keep: bool,
    /// Run the same on this path too, in turns, and print the ratio of the medians.
    #[arg(long, value_name = "DIR")]
    pub against: Option<PathBuf>,
    /// Turns with --against.
    #[arg(long, default_value_t = 3)]
    pub pairs: u32,
    /// Write the kernel's dirty pages back before each phase, and drop its caches before stat and
    /// read (root).
    #[arg(long)]
    pub drop_caches: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Internal: this process is task N of the benchmark that started it.
    #[arg(long, hide = true, value_name = "N")]
    pub task: Option<u32>,
}

/// One phase of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) phase: Phase,
    /// Files that it did something to.
    pub(crate) files: u64,
    /// Files per second.
    pub(crate) rate: f64,
    /// CPU seconds of the whole machine per 10,000 files.
    pub(crate) cpu: f64,
    /// Requests of the native client per file.
    pub(crate) requests: Option<f64>,
}

/// Clocks at the start of a phase.
struct Watch {
    start: Instant,
    cpu: f64,
}

impl Watch {
    fn start() -> Watch {
        Watch { start: Instant::now(), cpu: crate::stats::cpu_of_machine() }
    }

    fn stop(&self, phase: Phase, files: u64) -> Sample {
        let (time, cpu) =
            (self.start.elapsed().as_secs_f64(), crate::stats::cpu_of_machine() - self.cpu);
        Sample {
            phase,
            files,
            rate: files as f64 / time,
            cpu: cpu / (files.max(1) as f64 / 10_000.0),
            requests: None,
        }
    }
}

impl MdtestArgs {
    fn wants(&self, phase: Phase) -> bool {
        let none = !(self.create_only || self.stat_only || self.read_only || self.remove_only);
        // renames are never the default
        (none && phase != Phase::Rename)
            || match phase {
                Phase::Create => self.create_only,
                Phase::Stat => self.stat_only,
                Phase::Read => self.read_only,
                Phase::Remove => self.remove_only,
                Phase::Rename => self.rename_to.is_some(),
            }
    }
}

/// Runs it and prints what mdtest prints.
pub fn run(args: &MdtestArgs) -> Result<()> {
    if let Some(task) = args.task {
        return posix::serve(args, task);
    }
    ensure!(args.tasks >= 1 && args.in_flight >= 1, "at least one task is needed");
    let native = args.native.as_deref().map(|address| (address, 1));
    let subject = Subject {
        native,
        dir: &args.dir,
        against: args.against.as_deref(),
        drop_caches: args.drop_caches,
    };
    let setting = setting::of(&subject)?;
    if !args.json {
        println!("{setting}");
    }
    ensure!(args.against.is_none() || !setting.in_process, "{}", setting::REFUSAL);
    let rounds = if args.against.is_some() { args.pairs.max(1) } else { args.iterations.max(1) };
    let phases = Phase::ALL.into_iter().filter(|phase| args.wants(*phase)).count();
    let runs = rounds as usize * if args.against.is_some() { 2 } else { 1 };
    let steps = Steps::new("mdtest", runs * phases);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.extend(one(args, &steps)?);
        if let Some(dir) = &args.against {
            let dir = dir.clone();
            let args = MdtestArgs { dir, native: None, rename_to: None, ..args.clone() };
            theirs.extend(one(&args, &steps)?);
        }
    }
    drop(steps);
    report::print(args, &setting, &ours, &theirs)
}

fn one(args: &MdtestArgs, steps: &Steps) -> Result<Vec<Sample>> {
    match &args.native {
        Some(address) => native::run(args, address, steps),
        None => posix::run(args, steps),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: MdtestArgs,
    }

    #[test]
    fn files_are_renamed_where_that_is_asked_for() {
        let phases = |line: &str| -> Vec<Phase> {
            let args = Cli::try_parse_from(line.split(' ')).expect("well formed").args;
            Phase::ALL.into_iter().filter(|phase| args.wants(*phase)).collect()
        };
        let all = [Phase::Create, Phase::Stat, Phase::Read, Phase::Remove];
        assert_eq!(phases("mdtest"), all);
        let native = "mdtest --native 127.0.0.2@tcp:/testfs -C --rename-to far";
        assert_eq!(phases(native), [Phase::Create, Phase::Rename]);
        assert!(Cli::try_parse_from(["mdtest", "--rename-to", "far"]).is_err(), "a mount has mv");
    }

    #[test]
    fn files_are_kept_by_native_clients_alone() {
        let keep = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.args.keep);
        let native = "mdtest --native 127.0.0.2@tcp:/testfs -C";
        assert!(!keep(native).expect("well formed"));
        assert!(keep(&format!("{native} --keep")).expect("well formed"));
        assert!(keep("mdtest -C --keep").is_err());
    }
}
