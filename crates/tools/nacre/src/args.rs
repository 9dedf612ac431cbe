//! The command line of `nacre`, declared. Its commands are in `daemons`, `cli` and `bench`.

#![allow(rustdoc::broken_intra_doc_links, reason = "doc comments here are help texts: [0,2]")]

mod look;
mod meta;
mod tune;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use ctl::names::{nid_addr, nid_list};
use daemons::executors::{Assign, Listen};
use daemons::{machine::MachineOptions, pretend::Pretend, server::Trust};
use types::{ClientId, FsName, NidAddr, TargetId};

use crate::{pages, usage};
use look::{Doctor, Status, Top};
use meta::{CheckMeta, ExportMeta, Fsck, ImportMeta, ListObjects, Unnamed};
use tune::Tune;

const EXAMPLES: &str = "\
Examples:
  nacre up                                       a file system in ./nacre-data, mounted at ./nacre-mnt
  nacre up --mount /mnt/nacre --osts 8           eight OSTs
  nacre up --separate --run 'make -j8'           every server a process of its own; CMD runs in the mount
  nacre mount 127.0.0.2@tcp:/testfs /mnt/b -o nid=127.0.0.11@tcp
  nacre lfs setstripe -c 4 /mnt/nacre/big        (also as `lfs`, by a link of that name)
  nacre status                                   the state of everything here

Exit status: 0 success; 1 failure, reported on stderr; 2 wrong usage; 75 a server that stopped
because its storage failed. `up --run` ends with the command's own, 128 + signal if it was killed.
`lfs` and `lctl` end with the first error's number.";

/// A parallel file system in user space: servers, mount, tools.
#[derive(Debug, Parser)]
#[command(name = "nacre", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Nacre {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole file system here, mounted.
    Up(Box<Up>),
    /// Make a target.
    Format(Format),
    /// Change where stopped targets find their MGS.
    Tune(Tune),
    /// Run targets in one process.
    Serve(Serve),
    /// Mount a file system.
    Mount(Mount),
    /// End the connection of a mount whose daemon has died, as that daemon starts it.
    #[command(hide = true)]
    MountGuard,
    /// Unmount a file system and wait for its daemon.
    Umount(Umount),
    /// Show the state of everything here: targets, recovery, space, policies, clients, mounts.
    Status(Status),
    /// Show live rates and waits by client, job, target and service.
    Top(Top),
    /// Check whether this machine is fit, and print the changes to make.
    Doctor(Doctor),
    /// Export all records of a served MDT to a file.
    ExportMeta(ExportMeta),
    /// Make an MDT of an export.
    ImportMeta(ImportMeta),
    /// Check a whole file system, and repair it.
    Fsck(Fsck),
    /// Compare the names of a stopped MDT with the objects of OSTs.
    CheckMeta(CheckMeta),
    /// List the objects of an OST.
    ListObjects(ListObjects),
    /// Show or remove the objects that no file of a served MDT names.
    Unnamed(Unnamed),
    /// Take an empty target, or one that is gone for good, out of its file system.
    Forget(Forget),
    /// Layouts, space, identifiers (also as `lfs`).
    Lfs(cli::lfs::Args),
    /// Parameters and devices (also as `lctl`).
    Lctl(cli::lctl::Args),
    /// The network's self-test (also as `lst`).
    Lst(cli::lst::Args),
    /// Run a node that only takes part in self-tests.
    LstNode(LstNode),
    /// The console of a self-test session, as `lst new_session` starts it.
    #[command(hide = true)]
    LstConsole(LstConsole),
    /// Serve targets in memory, for `nacre bench ls`.
    #[command(hide = true)]
    ServeMemory(daemons::memory::Options),
    /// Measure rates, with drivers that need no MPI.
    #[command(
        subcommand,
        after_help = "Examples:\n  nacre bench mdtest -d /mnt/nacre -N 4 -F -u -n 1000\n  nacre bench ior -o /mnt/nacre/file -N 4 -F -t 1m -b 128m -e"
    )]
    Bench(Bench),
    /// Print completions for a shell.
    #[command(
        after_help = "Examples:\n  nacre completion bash > /etc/bash_completion.d/nacre\n  nacre completion zsh --for lfs > _lfs"
    )]
    Completion {
        /// Which shell.
        shell: clap_complete::Shell,
        /// For which command.
        #[arg(long = "for", value_name = "TOOL", value_enum, default_value_t = Tool::Nacre)]
        tool: Tool,
    },
    /// Write manual pages for nacre, lfs, lctl and lst.
    #[command(
        after_help = "Example:\n  nacre man pages    pages of sections 1 and 8: move *.1 to man1 and *.8 to man8"
    )]
    Man {
        /// Directory of the pages; it is made in a directory that exists.
        dir: PathBuf,
    },
}

/// A command that the binary is, by its own name or by a link's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    Nacre,
    Lfs,
    Lctl,
    Lst,
}

impl Tool {
    const ALL: [Tool; 4] = [Tool::Nacre, Tool::Lfs, Tool::Lctl, Tool::Lst];

    fn command(self) -> clap::Command {
        match self {
            Tool::Nacre => Nacre::command(),
            Tool::Lfs => cli::lfs::Args::command(),
            Tool::Lctl => cli::lctl::Args::command(),
            Tool::Lst => cli::lst::Args::command(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Tool::Nacre => "nacre",
            Tool::Lfs => "lfs",
            Tool::Lctl => "lctl",
            Tool::Lst => "lst",
        }
    }
}

/// Drivers of `nacre bench`.
#[derive(Debug, Subcommand)]
enum Bench {
    /// Metadata rates, with mdtest's options and output.
    Mdtest(bench::mdtest::MdtestArgs),
    /// Pings and bulk transfers of the RPC layer, beside a bare epoll echo.
    Lnet(bench::lnet::LnetArgs),
    /// The cost of FUSE itself: a file system that does nothing, over both transports.
    Fusedev(bench::fusedev::FusedevArgs),
    /// Bytes per second, with IOR's options, through a path or many native clients.
    Ior(bench::ior::IorArgs),
    /// The same for one stream, with dd's words.
    Dd(bench::ior::DdArgs),
    /// The cost of the attributes of a directory's files, against their stripe count.
    Ls(bench::ls::LsArgs),
}

/// Options of `nacre up`.
#[derive(Debug, Args)]
#[command(after_help = "\
A new data directory is formatted. A target that was there once is never formatted again: where its
disk is not mounted, it is left out and the others serve; without the MGS or MDT0000 nothing starts. A server that crashes again and again is given up alone. Ctrl-C or SIGTERM unmounts and
stops everything cleanly.

Examples:
  nacre up
  nacre up --data /srv/nacre --mount /mnt/nacre --osts 8
  nacre up --mdts 4 --osts 4 --executors 4
  nacre up --separate --run 'git clone /src/linux && cd linux && make -j8'

Exit status: 0; with --run that of CMD, 128 + signal if it was killed; 1 if something could not be started.")]
struct Up {
    /// Where targets, logs and state are kept.
    #[arg(long, value_name = "DIR", default_value = "nacre-data")]
    data: PathBuf,
    /// Where to mount; created if it is not there, in a directory that is.
    #[arg(long, value_name = "DIR", default_value = "nacre-mnt")]
    mount: PathBuf,
    /// Name of the file system.
    #[arg(long, value_name = "NAME", default_value = "testfs")]
    fsname: FsName,
    /// Number of metadata targets; default: 2 for a new file system, and as many as there are for
    /// another one. A new file system with more than one spreads directories near its root over
    /// them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(types::MDTS_MAX)))]
    mdts: Option<u32>,
    /// Number of object storage targets; default: 4. None is ever removed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    osts: Option<u32>,
    /// Where the targets' directories are, if not in the data directory: DIR/testfs-OST0000 and so
    /// on may be mounted devices. It must exist.
    #[arg(long, value_name = "DIR")]
    device_dir: Option<PathBuf>,
    /// Every server a process of its own, on loopback TCP.
    #[arg(long)]
    separate: bool,
    /// Threads that serve in this process: the targets are divided among them. More than MDTs and
    /// OSTs are not started.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "separate", value_parser = clap::value_parser!(u32).range(1..))]
    executors: u32,
    /// Run CMD with a shell in the mount, then stop; the exit status is that of CMD.
    #[arg(long, value_name = "CMD")]
    run: Option<String>,
    /// First TCP port to try; a free block of addresses 127.0.N.x is looked for with it.
    #[arg(long, value_name = "PORT", default_value_t = types::PORT_DEFAULT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Mount options, as of `nacre mount -o`.
    #[arg(short = 'o', long, value_name = "OPTIONS", default_value = "")]
    options: String,
    /// Answer Prometheus at this TCP port, path /metrics: the mount at 127.0.N.1, each server at
    /// its own address.
    #[arg(long, value_name = "PORT")]
    metrics: Option<u16>,
    /// Crashes of one server within a minute after which it is given up; the others go on.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    crashes_max: u32,
    /// Milliseconds after which acknowledged changes are durable at the latest.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    commit_interval_ms: u64,
    /// Simulate other devices under targets, for experiments: TARGETS is a pattern of names
    /// (OST000[0-3], MDT*; all without it), and DEVICE flash, disk, NAME=VALUE,... or a file of
    /// such lines (docs/design/device.md). The last one that fits a target holds.
    #[arg(long, value_name = "[TARGETS:]DEVICE")]
    device: Vec<Pretend>,
    #[command(flatten)]
    machine: MachineOptions,
}

/// Options of `nacre format`.
#[derive(Debug, Args)]
#[command(after_help = "\
With several of --mgs, --mdt and --ost each target gets a directory of its own inside DIR, and `nacre serve DIR` runs them all.

Examples:
  nacre format --fsname testfs --mgs --mdt --index 0 /srv/meta
  nacre format --fsname testfs --mdt --index 1 --mgsnode 127.0.0.2@tcp /srv/meta1
  nacre format --fsname testfs --ost --index 3 --mgsnode 127.0.0.2@tcp /srv/ost3")]
struct Format {
    /// Name of the file system; only an MGS alone needs none.
    #[arg(long, value_name = "NAME")]
    fsname: Option<FsName>,
    /// A management target.
    #[arg(long)]
    mgs: bool,
    /// A metadata target.
    #[arg(long)]
    mdt: bool,
    /// An object storage target.
    #[arg(long)]
    ost: bool,
    /// Index of the MDT or OST in its file system.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(types::TARGET_INDEX_MAX)))]
    index: Option<u32>,
    /// Where the MGS is: alternatives separated by commas or colons between NIDs; may be repeated.
    #[arg(long, value_name = "NID", value_delimiter = ',', value_parser = nid_addr)]
    mgsnode: Vec<NidAddr>,
    /// Destroy the target that is there.
    #[arg(long)]
    reformat: bool,
    /// The directory.
    dir: PathBuf,
}

/// Options of `nacre serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
SIGTERM or SIGINT commits everything and ends with status 0. A target whose storage fails stops. When none is left, the process ends with status 75.

Examples:
  nacre serve /srv/meta --listen 127.0.0.2@tcp
  nacre serve /srv/ost0 /srv/ost1 --listen 10.0.0.5@tcp --insecure
  nacre serve /srv/ost0 /srv/ost1 --listen 10.0.0.5@tcp --listen 10.0.0.5:1988@tcp --insecure")]
struct Serve {
    /// Targets, or directories of targets.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Address to listen at; several servers on one machine need one each. The MGS learns it.
    /// A list of CPU partitions behind it, NID[0,1], binds its links to them. Each further address
    /// has a thread of its own, and the targets are divided among them: MDTs, then OSTs, in turn.
    #[arg(long, value_name = "NID", default_value = "127.0.0.2@tcp")]
    listen: Vec<Listen>,
    /// Serve TARGET at this one of the addresses, as OST0000@10.0.0.5:1988@tcp.
    #[arg(long, value_name = "TARGET@NID")]
    assign: Vec<Assign>,
    /// Addresses of the MGS, if they have changed since the targets were formatted.
    #[arg(long, value_name = "NID", value_delimiter = ',', value_parser = nid_addr)]
    mgsnode: Vec<NidAddr>,
    /// Accept plaintext on addresses that are not loopback.
    #[arg(long)]
    insecure: bool,
    /// Do not wait for clients of an earlier run (Lustre: abort_recov).
    #[arg(long)]
    abort_recovery: bool,
    /// Start a target whose records or objects are lost for good without them. An MDT then has no
    /// names, and what OSTs hold takes room without a name; files answer EIO where they had objects
    /// on an OST; an MGS has no permanent parameters. Clients are evicted. Refused where nothing is
    /// missing.
    #[arg(long, conflicts_with = "older_copy")]
    reset_empty: bool,
    /// Start a target whose directory was restored from an older copy, once. Work that was
    /// acknowledged after the copy is lost, and clients are evicted.
    #[arg(long)]
    older_copy: bool,
    /// Take over no permanent parameter (`lctl set_param -P`) in this run.
    #[arg(long)]
    no_permanent: bool,
    /// Log to this file; without it to stderr. At 64 MiB it becomes FILE.1; SIGHUP opens it again.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Answer Prometheus at this address, path /metrics.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<std::net::SocketAddr>,
    /// Milliseconds after which acknowledged changes are durable at the latest.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    commit_interval_ms: u64,
    /// Simulate other devices under targets, for experiments: TARGETS is a pattern of names
    /// (OST000[0-3], MDT*; all without it), and DEVICE flash, disk, NAME=VALUE,... or a file of
    /// such lines (docs/design/device.md). The last one that fits a target holds.
    #[arg(long, value_name = "[TARGETS:]DEVICE")]
    device: Vec<Pretend>,
    /// A client that is known to be dead: recovery does not wait for it.
    #[arg(long, value_name = "ID", hide = true, value_parser = client_id)]
    dead_client: Vec<ClientId>,
    /// An MDT tells that it serves only when it knows so many MDTs.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    mdts_awaited: u32,
    /// An MDT tells that it serves only when it knows so many OSTs.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    osts_awaited: u32,
    /// End when the parent process ends.
    #[arg(long, hide = true)]
    die_with_parent: bool,
    /// Tell the parent on stdout for whom recoveries wait.
    #[arg(long, hide = true)]
    tell_recovery: bool,
    #[command(flatten)]
    machine: MachineOptions,
}

/// Options of `nacre forget`.
#[derive(Debug, Args)]
#[command(after_help = "\
Runs on the machine that serves the MGS. The target gets no new files, and no client waits for it.
Reads and writes of its objects return EIO at once, by the permanent parameter TARGET.osc.active=0.
A target that has objects is refused: empty it with `lfs migrate`, or use --force. So is one that
does not answer, because it may only be slow: use --force if it is gone for good.
Its storage is not touched. An OST that is started again registers again, and `nacre lctl
conf_param -d TARGET.osc.active` puts it back into use. Its index is free for another storage.

An MDT is refused while it has files or directories, or while mdt.TARGET.no_create is not 1. Empty
it with `lfs migrate -m MDT --inodes`. No storage can take the index of an MDT that was forgotten.

Examples:
  nacre forget testfs-OST0003
  nacre forget --force testfs-OST0003    although it has objects, or is gone for good
  nacre forget testfs-MDT0002

Exit status: 0 it is forgotten, durably; 1 failure, reported on stderr.")]
struct Forget {
    /// Its name, as `lctl dl` shows it.
    #[arg(value_name = "TARGET")]
    target: String,
    /// Forget it although it has objects, or cannot be asked: files with objects there return EIO.
    #[arg(short, long)]
    force: bool,
}

/// The long help of `-o`.
const MOUNT_OPTIONS: &str = "\
Mount options, separated by commas:
  nid=NID          own address of this mount; several mounts on a machine need one each
  ro, rw           read-only, or not (default)
  relatime         a read sets the access time after a change, and once a day (default)
  strictatime      each read sets the access time
  noatime          no read sets the access time; nodiratime: of directories
  remount          change ro, rw, nosuid, nodev, noexec, sync or access times of a mount
  flock            file locks hold between all clients (default)
  localflock       file locks hold on this machine
  wait=SECONDS     how long to wait for absent servers (60; 0: forever)
  unmount_wait=S   how long an unmount waits for work that is not durable (300; 0: not)
  writeback=0      no write is acknowledged before it is sent (1)
  soft             calls fail after a minute without a server; without soft they wait
  allow_other      other users may use the mount (default for root)
  insecure         plaintext to addresses that are not loopback
  readdirplus, acl, seclabel, 32bitapi, clones=N, transport=WAY,
  caps=MASK        docs/operations.md";

/// Options of `nacre mount`.
#[derive(Debug, Args)]
#[command(after_help = "\
The command returns when the file system can be used. Its daemon goes on. SIGTERM to the daemon,
or `nacre umount`, unmounts.

Examples:
  nacre mount 127.0.0.2@tcp:/testfs /mnt/nacre
  nacre mount 127.0.0.2@tcp:/testfs /mnt/b -o nid=127.0.0.11@tcp,soft")]
struct Mount {
    /// MGS and file system: NID[,NID...]:/FSNAME.
    #[arg(value_name = "NID:/FSNAME")]
    source: String,
    /// Where to mount; an existing directory.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Mount options.
    #[arg(short = 'o', long = "options", value_name = "OPTIONS", long_help = MOUNT_OPTIONS)]
    options: Vec<String>,
    /// Stay in the foreground.
    #[arg(short = 'f', long)]
    foreground: bool,
    /// This is the daemon that another `nacre mount` started.
    #[arg(long, hide = true)]
    daemon: bool,
    /// Check the arguments and mount nothing, as -f of mount(8) does.
    #[arg(long, hide = true)]
    fake: bool,
    /// Where the daemon logs; without it to the run directory.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Answer Prometheus at this address, path /metrics.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<std::net::SocketAddr>,
    /// Of mount(8): write no /etc/mtab. There is none.
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    #[command(flatten)]
    machine: MachineOptions,
}

/// Options of `nacre lst-node`.
#[derive(Debug, Args)]
#[command(after_help = "\
Servers and mounts take part in self-tests as they are; this is for machines that have neither. Prints `ready`; SIGTERM ends it.

Examples:
  nacre lst-node --nid 10.0.1.7@tcp --insecure
  nacre lst-node --nid '127.0.1.[1-8]@tcp'      eight nodes in one process")]
struct LstNode {
    /// Own address; of a list each is a node.
    #[arg(long, value_name = "NIDS", value_parser = nid_list)]
    nid: types::NidList,
    /// Port to listen at.
    #[arg(long, value_name = "PORT", default_value_t = types::PORT_DEFAULT)]
    port: u16,
    /// Accept plaintext on addresses that are not loopback.
    #[arg(long)]
    insecure: bool,
    /// Send bulk data without a checksum.
    #[arg(long)]
    no_bulk_crc: bool,
}

/// Options of the console.
#[derive(Debug, Args)]
struct LstConsole {
    #[arg(long)]
    key: u32,
    #[arg(long)]
    name: String,
    #[arg(long)]
    timeout: u32,
    #[arg(long)]
    force: bool,
    #[arg(long)]
    port: u16,
    #[arg(long)]
    nid: Option<types::Nid>,
}

/// Options of `nacre umount`.
#[derive(Debug, Args)]
#[command(after_help = "\
The command ends when the servers have made all acknowledged work durable. Meanwhile it prints the servers that it waits for. If it is interrupted, the daemon goes on waiting.

Examples:
  nacre umount /mnt/nacre
  nacre umount -l /mnt/nacre

Exit status: 0 unmounted; 1 failure: the mount's unmount_wait is over, and the printed work was given up.")]
struct Umount {
    /// The mount point.
    dir: PathBuf,
    /// Give up work that is not durable yet, and print it. It is lost if its server ends now.
    #[arg(short = 'f', long)]
    force: bool,
    /// Remove the mount from its place now; it ends when no program uses it.
    #[arg(short = 'l', long)]
    lazy: bool,
}

fn client_id(text: &str) -> Result<ClientId, String> {
    u128::from_str_radix(text, 16).map(ClientId).map_err(|_| format!("'{text}' is not a client id"))
}

/// The whole command line.
pub(crate) fn declared() -> clap::Command {
    Nacre::command()
}

impl Nacre {
    /// Does what it says; the status is documented in `--help`.
    pub(crate) fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Lfs(args) => return finish(cli::lfs::run(args)),
            Command::Lctl(args) => return finish(cli::lctl::run(args, daemons::ping::ping)),
            Command::Lst(args) => return finish(cli::lst::run(args)),
            Command::LstNode(args) => daemons::lst::node(&args.options()),
            Command::LstConsole(args) => daemons::lst::console(&args.session()),
            Command::Up(args) => daemons::up::run(args.options()),
            Command::Format(args) => match args.options().and_then(daemons::format::checked) {
                Ok(options) => daemons::format::run(&options).map(|()| 0),
                Err(error) => {
                    ctl::say!("nacre format: {}", usage::plain(&format!("{error:#}")));
                    return ExitCode::from(WRONG_USAGE);
                }
            },
            Command::Tune(args) => daemons::tune::run(&args.options()).map(|()| 0),
            Command::Serve(args) => daemons::serve::run(&args.options()),
            Command::Status(args) => status::run(&args.options()),
            Command::Top(args) => top::run(args.pause(), args.addresses()),
            Command::Doctor(args) => doctor::run(&args.options()),
            Command::ExportMeta(args) => {
                let ExportMeta { target, output: file } = args;
                daemons::export_meta::run(&daemons::export_meta::Options { target, file })
                    .map(|()| 0)
            }
            Command::ImportMeta(args) => {
                daemons::import_meta::run(&args.options(), &mut std::io::stdout().lock())
                    .map(|()| 0)
            }
            Command::CheckMeta(args) => {
                let CheckMeta { dir, objects } = args;
                let options = daemons::check_meta::Options { dir, objects };
                daemons::check_meta::run(&options, &mut std::io::stdout().lock())
            }
            Command::Fsck(args) => {
                let out = &mut std::io::BufWriter::new(std::io::stdout().lock());
                Ok(daemons::fsck::run(&args.options(), out))
            }
            Command::ListObjects(args) => {
                let out = std::io::BufWriter::new(std::io::stdout().lock());
                daemons::objects::list(&args.target, out).map(|()| 0)
            }
            Command::Unnamed(args) => {
                let Unnamed { target, remove } = args;
                let options = daemons::unnamed::Options { target, remove };
                daemons::unnamed::run(&options, &mut std::io::stdout().lock())
            }
            Command::Forget(args) => daemons::forget::run(&args.target, args.force).map(|()| 0),
            Command::Mount(args) => args.run().map(|()| 0),
            Command::MountGuard => daemons::mount::guard().map(|()| 0),
            Command::Umount(args) => daemons::umount::run(&args.options()).map(|()| 0),
            Command::ServeMemory(options) => daemons::memory::run(options).map(|()| 0),
            Command::Bench(Bench::Ls(args)) => bench::ls::run(&args).map(|()| 0),
            Command::Bench(Bench::Mdtest(args)) => bench::mdtest::run(&args).map(|()| 0),
            Command::Bench(Bench::Lnet(args)) => bench::lnet::run(args).map(|()| 0),
            Command::Bench(Bench::Fusedev(args)) => bench::fusedev::run(&args).map(|()| 0),
            Command::Bench(Bench::Ior(args)) => bench::ior::run(&args).map(|()| 0),
            Command::Bench(Bench::Dd(args)) => bench::ior::dd(&args).map(|()| 0),
            Command::Completion { shell, tool } => {
                pages::completion(shell, &mut tool.command(), tool.name()).map(|()| 0)
            }
            Command::Man { dir } => {
                pages::man(&dir, Tool::ALL.iter().map(|tool| tool.command()).collect()).map(|()| 0)
            }
        };
        match done {
            Ok(status) => ExitCode::from(status),
            Err(error) => {
                ctl::say!("nacre: {}", usage::plain(&format!("{error:#}")));
                ExitCode::FAILURE
            }
        }
    }
}

/// Exit status of a command line that cannot be meant.
pub(crate) const WRONG_USAGE: u8 = 2;

fn finish(done: Result<(), cli::Failed>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            if !failed.text.is_empty() {
                ctl::say!("{}", usage::plain(&failed.text));
            }
            ExitCode::from(failed.status)
        }
    }
}

impl LstNode {
    fn options(self) -> daemons::lst::NodeOptions {
        let LstNode { nid: nids, port, insecure, no_bulk_crc } = self;
        daemons::lst::NodeOptions { nids, port, insecure, no_bulk_crc }
    }
}

impl LstConsole {
    fn session(self) -> lst::command::NewSession {
        let LstConsole { key, name, timeout, force, port, nid } = self;
        let timeout = types::Span::secs(u64::from(timeout));
        lst::command::NewSession { key, name, timeout, force, port, nid }
    }
}

impl Up {
    fn options(self) -> daemons::up::Options {
        daemons::up::Options {
            data: self.data,
            mount: self.mount,
            fsname: self.fsname,
            mdts: self.mdts,
            osts: self.osts,
            device_dir: self.device_dir,
            separate: self.separate,
            executors: self.executors,
            run: self.run,
            port: self.port,
            mount_options: self.options,
            crashes_max: self.crashes_max,
            commit_interval_ms: self.commit_interval_ms,
            devices: self.device,
            machine: self.machine,
            metrics_port: self.metrics,
        }
    }
}

impl Format {
    fn options(self) -> anyhow::Result<daemons::format::Options> {
        let index = || {
            self.index.ok_or_else(|| anyhow::anyhow!("--index N is required for an MDT or an OST"))
        };
        let fsname = match self.fsname {
            Some(fsname) => fsname,
            None if self.mgs && !self.mdt && !self.ost => "mgs".parse()?, // of no file system
            None => anyhow::bail!("--fsname NAME is required for an MDT or an OST"),
        };
        let mut targets = Vec::new();
        if self.mgs {
            targets.push(TargetId::MGT);
        }
        if self.mdt {
            targets.push(TargetId::mdt(index()?));
        }
        if self.ost {
            targets.push(TargetId::ost(index()?));
        }
        anyhow::ensure!(
            !targets.is_empty(),
            "the kind of target is missing: --mgs, --mdt, --ost or several of them"
        );
        Ok(daemons::format::Options {
            fsname,
            targets,
            mgs: self.mgsnode,
            reformat: self.reformat,
            dir: self.dir,
        })
    }
}

impl Serve {
    fn options(self) -> daemons::serve::Options {
        daemons::serve::Options {
            dirs: self.dirs,
            listen: self.listen,
            assign: self.assign,
            mgs: self.mgsnode,
            insecure: self.insecure,
            abort_recovery: self.abort_recovery,
            trust: match (self.reset_empty, self.older_copy) {
                (true, _) => Trust::ResetEmpty,
                (_, true) => Trust::OlderCopy,
                _ => Trust::Whole,
            },
            machine: self.machine,
            log: self.log,
            no_permanent: self.no_permanent,
            metrics: self.metrics,
            commit_interval_ms: self.commit_interval_ms,
            devices: self.device,
            dead_clients: self.dead_client,
            awaited: daemons::serve::Awaited { mdts: self.mdts_awaited, osts: self.osts_awaited },
            die_with_parent: self.die_with_parent,
            tell_recovery: self.tell_recovery,
        }
    }
}

impl Mount {
    fn run(self) -> anyhow::Result<()> {
        let text = self.options.join(",");
        if daemons::mount::remount::is_wanted(&text) {
            return daemons::mount::remount::run(&self.dir, &text);
        }
        let is_fake = self.fake;
        let options = self.options()?;
        if is_fake { Ok(()) } else { daemons::mount::run(&options) }
    }

    fn options(self) -> anyhow::Result<daemons::mount::Options> {
        let text = self.options.join(",");
        let options = daemons::mount::Options::parse(
            &self.source,
            self.dir,
            &text,
            self.foreground,
            self.log,
        )?;
        let machine = self.machine;
        Ok(daemons::mount::Options {
            daemon: self.daemon,
            machine,
            metrics: self.metrics,
            ..options
        })
    }
}

impl Umount {
    fn options(self) -> daemons::umount::Options {
        daemons::umount::Options { dir: self.dir, force: self.force, lazy: self.lazy }
    }
}

#[cfg(test)]
mod tests;
