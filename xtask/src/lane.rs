//! Runs a program in namespaces of its own (a lane). The addresses, processes and mounts that it
//! creates are visible only to it, and end with it.
//!
//! `unshare` starts this program again as the first process of a new process namespace, with a new
//! network namespace and a new mount namespace. That process starts the program, waits for it, and
//! checks for leftovers: processes, mounts, files in the scratch directory. When it ends, the
//! kernel ends every process of the namespace, consoles and daemonised mounts too. With the last
//! process the mounts and the addresses go. So two programs in lanes do not meet, whether of one
//! check or of two.
//!
//! Loop devices and FUSE's parameters are not separate per lane, because the kernel has one of each
//! ([`crate::leftovers`]).

use std::collections::BTreeSet;
use std::fs;
use std::io::{PipeReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, WaitOptions};

use crate::leftovers;

/// The subcommand of the first process of a lane.
pub(crate) const INSIDE: &str = "inside-lane";

/// Exit status of a lane whose program did not end in time.
const TIMED_OUT: u8 = 124;
/// Exit status of a lane whose program left something behind.
const LEFT_BEHIND: u8 = 123;

/// Processes that were told to end do so within this time.
const GRACE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// What a lane has beyond its limit to end what runs in it.
const END_MAX: Duration = Duration::from_secs(30);

/// How a lane ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// What it left: one line each.
    LeftBehind(Vec<String>),
    /// Its limit, and what it left beside its processes.
    TimedOut(Duration, Vec<String>),
}

impl Outcome {
    /// Why it is not a success.
    pub(crate) fn why(&self) -> Option<String> {
        let list = |what: &[String]| format!("left behind:\n  {}", what.join("\n  "));
        match self {
            Outcome::Passed => None,
            Outcome::Failed(why) => Some(why.clone()),
            Outcome::LeftBehind(what) => Some(list(what)),
            Outcome::TimedOut(limit, what) if what.is_empty() => {
                Some(format!("did not end within {limit:?}"))
            }
            Outcome::TimedOut(limit, what) => {
                Some(format!("did not end within {limit:?}, {}", list(what)))
            }
        }
    }
}

/// The directory of this process's lanes, removed at the end.
pub(crate) struct Home {
    dir: PathBuf,
    _lock: fs::File,
}

impl Home {
    /// A fresh one. Those of killed checks, whose lock is free, are removed.
    pub(crate) fn new() -> Result<Home> {
        let parent = std::env::temp_dir();
        for old in fs::read_dir(&parent)?.flatten() {
            let is_ours = old.file_name().to_string_lossy().starts_with(PREFIX);
            let lock = fs::File::open(old.path().join(LOCK));
            if is_ours && lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
                let _of_another_user = fs::remove_dir_all(old.path());
            }
        }
        let dir = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        let lock = fs::File::create(dir.join(LOCK))?;
        lock.lock()?;
        // a later build may replace our own file
        let copy = dir.join(COPY);
        fs::copy("/proc/self/exe", &copy).with_context(|| copy.display().to_string())?;
        Ok(Home { dir, _lock: lock })
    }

    /// A lane with a fresh directory called `name`.
    pub(crate) fn lane(&self, name: &str, limit: Duration) -> Result<Lane> {
        Lane::new(&self.dir, name, limit)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("xtask: {}: {error}", self.dir.display());
        }
    }
}

const PREFIX: &str = "nacre-check-";
const LOCK: &str = "lock";
/// This program, for the lanes' first processes.
const COPY: &str = "xtask";

/// What to run in a lane.
pub(crate) struct Lane {
    /// A fresh directory: run directory, scratch and output of the program are in it.
    dir: PathBuf,
    /// This program.
    program: PathBuf,
    limit: Duration,
}

impl Lane {
    fn new(parent: &Path, name: &str, limit: Duration) -> Result<Lane> {
        let lane = Lane { dir: parent.join(name), program: parent.join(COPY), limit };
        for dir in [&lane.dir, &lane.run_dir(), &lane.scratch()] {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        // as /tmp is: tests run programs as users without privileges
        let anyone = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions(lane.scratch(), anyone)?;
        Ok(lane)
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    fn scratch(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    fn output(&self) -> PathBuf {
        self.dir.join("output")
    }

    /// What the program printed.
    pub(crate) fn text(&self) -> String {
        let bytes = fs::read(self.output()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Runs `program` in the lane. Its output goes to a file, and passes through if it is `shown`.
    pub(crate) fn run(
        &self,
        program: &Path,
        args: &[&str],
        envs: &[(&str, &str)],
        shown: bool,
    ) -> Result<Outcome> {
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .arg(&self.program)
            .args([INSIDE, &self.limit.as_secs().to_string()])
            .arg(&self.dir)
            .arg(program)
            .args(args)
            .envs(envs.iter().copied())
            .env("NACRE_RUN", self.run_dir())
            .env("NACRE_ANSWER_WAIT", "30") // other lanes run beside
            .env("TMPDIR", self.scratch())
            .current_dir(crate::run::root())
            .stdin(Stdio::piped());
        let file = fs::File::create(self.output())?;
        let mut passing = None;
        if shown {
            let (from, into) = std::io::pipe()?;
            command.stdout(into.try_clone()?).stderr(into);
            passing = Some(std::thread::spawn(|| pass_through(from, file)));
        } else {
            command.stdout(file.try_clone()?).stderr(file);
        }
        let mut child = command.spawn().context("unshare did not start")?;
        drop(command); // our ends of the pipe
        let alive = child.stdin.take(); // closed when we end, however we end: the lane ends too
        let Some(status) = wait_within(&mut child, self.limit + END_MAX)? else {
            drop(alive);
            eprintln!("a process of this lane cannot be killed: it sleeps in the kernel");
            return Ok(Outcome::TimedOut(self.limit, leftovers::loops_below(&self.dir)));
        };
        drop(alive);
        if let Some(passing) = passing {
            let _has_told_why = passing.join(); // with the lane the last process that writes ended
        }
        let mut left: Vec<String> = fs::read_to_string(self.dir.join("left"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        left.extend(leftovers::loops_below(&self.dir));
        fs::remove_dir_all(self.scratch())?;
        Ok(match status.code() {
            Some(0) if left.is_empty() => Outcome::Passed,
            Some(0) => Outcome::LeftBehind(left),
            Some(code) if code == i32::from(LEFT_BEHIND) => Outcome::LeftBehind(left),
            Some(code) if code == i32::from(TIMED_OUT) => Outcome::TimedOut(self.limit, left),
            _ if left.is_empty() => Outcome::Failed(status.to_string()),
            _ => Outcome::Failed(format!("{status}, and left behind: {}", left.join("; "))),
        })
    }
}

/// What comes is shown at once, and kept.
fn pass_through(mut from: PipeReader, mut file: fs::File) {
    let mut bytes = vec![0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut out = std::io::stdout();
        let _nobody_reads = out.write_all(&bytes[..count]).and_then(|()| out.flush());
        if let Err(error) = file.write_all(&bytes[..count]) {
            eprintln!("xtask: what a lane printed is not kept: {error}");
        }
    }
}

/// `None`: it still runs after `limit`.
fn wait_within(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

/// The first process of a lane: `LIMIT DIR PROGRAM [ARG...]`.
pub(crate) fn inside(args: &[String]) -> ExitCode {
    match watch(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("xtask: lane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn watch(args: &[String]) -> Result<u8> {
    let [limit, dir, program, args @ ..] = args else { bail!("LIMIT DIR PROGRAM [ARG...]") };
    if std::process::id() != 1 {
        bail!("only the first process of a process namespace does this");
    }
    let (limit, dir) = (Duration::from_secs(limit.parse()?), Path::new(dir));
    std::thread::spawn(|| {
        // the other end is closed when the check ends, also when it was killed
        let _nothing_comes = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    setup("ip", &["link", "set", "lo", "up"])?;
    // processes of two namespaces have the same ids, so sockets in /run would meet
    setup("mount", &["-t", "tmpfs", "none", "/run"])?;
    // killed programs under libfaketime leave their segments
    setup("mount", &["-t", "tmpfs", "none", "/dev/shm"])?;
    let mounts = mounted();
    let mut command = Command::new(program);
    let child = command.args(args).stdin(Stdio::null()).spawn().context(program.clone())?;
    let (id, start) = (i32::try_from(child.id()).context("a process id")?, Instant::now());
    let status = loop {
        if let Some(status) = reap(id) {
            break status;
        }
        if start.elapsed() > limit {
            eprintln!("xtask: still there after {} s:", limit.as_secs());
            processes().iter().for_each(|line| eprintln!("  {line}"));
            fs::write(dir.join("left"), stays(&mounts, dir).join("\n"))?;
            return Ok(TIMED_OUT);
        }
        std::thread::sleep(LOOK);
    };
    let ended = Instant::now();
    let left = loop {
        while reap(id).is_some() {}
        let left = left_behind(&mounts, dir);
        if left.is_empty() || ended.elapsed() > GRACE {
            break left;
        }
        std::thread::sleep(LOOK);
    };
    if !left.is_empty() {
        fs::write(dir.join("left"), left.join("\n"))?;
    }
    Ok(match status {
        0 if left.is_empty() => 0,
        0 => LEFT_BEHIND,
        _ => 1,
    })
}

fn setup(program: &str, args: &[&str]) -> Result<()> {
    let status = Command::new(program).args(args).status().with_context(|| program.to_owned())?;
    if status.success() { Ok(()) } else { bail!("{program} {}: {status}", args.join(" ")) }
}

/// Takes every process that has ended; the status of `child` (0 or another) once it is among them.
fn reap(child: i32) -> Option<i32> {
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if Pid::as_raw(Some(pid)) == child {
            return Some(status.exit_status().unwrap_or(1));
        }
    }
    None
}

fn mounted() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Every process of the namespace but the first, as a line.
fn processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: u32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let state = state.rsplit(')').next()?.split_whitespace().next()?.to_owned();
        (state != "Z" && state != "X").then(|| format!("process {pid} ({state}) {words}"))
    };
    pids.filter(|pid| *pid != 1).filter_map(line).collect()
}

fn left_behind(before: &BTreeSet<String>, dir: &Path) -> Vec<String> {
    let mut left = processes();
    left.extend(stays(before, dir));
    left
}

/// What is there without a process.
fn stays(before: &BTreeSet<String>, dir: &Path) -> Vec<String> {
    let mut left: Vec<String> =
        mounted().difference(before).map(|line| format!("mount {line}")).collect();
    for (what, dir) in [("scratch", dir.join("tmp")), ("namespace", "/run/netns".into())] {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        left.extend(entries.map(|entry| format!("{what} {}", entry.path().display())));
    }
    left
}
