//! Options of `nacre up`.

use std::path::PathBuf;

use types::FsName;

use crate::machine::MachineOptions;
use crate::pretend::Pretend;

/// A file system on this machine.
#[derive(Clone, Debug)]
pub struct Options {
    pub data: PathBuf,
    /// Mount point; made if it is not there.
    pub mount: PathBuf,
    pub fsname: FsName,
    /// MDTs at least. Without a number, a new file system has two, and one that is there has as
    /// many as before.
    pub mdts: Option<u32>,
    /// OSTs at least; four without a number.
    pub osts: Option<u32>,
    /// Where the targets' directories are, if not in `data`.
    pub device_dir: Option<PathBuf>,
    /// Servers in processes of their own.
    pub separate: bool,
    /// Executor threads for the servers in this process, at most one for each MDT and OST.
    pub executors: u32,
    /// A command to run in the mount.
    pub run: Option<String>,
    /// TCP port to try first.
    pub port: u16,
    pub mount_options: String,
    /// Crashes of one server within a minute after which it is given up.
    pub crashes_max: u32,
    /// Acknowledged changes are durable after so many milliseconds at the latest.
    pub commit_interval_ms: u64,
    /// Devices that targets pretend to be on.
    pub devices: Vec<Pretend>,
    /// CPU partitions, their use, credits; for each process.
    pub machine: MachineOptions,
    /// TCP port at which each process answers Prometheus, on its own address.
    pub metrics_port: Option<u16>,
}
