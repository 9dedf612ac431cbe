//! Orders to a real kernel to forget names: over `/dev/fuse`, with the kernel's locks.

#[path = "../examples/null/memory.rs"]
mod memory;

// the fuzzer instruments all programs of a package: each links what instrumented code calls
use bolero as _;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fusedev::abi::ROOT_ID;
use fusedev::{Channel, Connection, Handler, LocalFuture, MountOptions, Notifier, Op, Request};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

/// Tells the re-executed test binary to serve at this place.
const SERVE: &str = "FUSEDEV_TEST_STUCK";
/// A thread that has begun to wait in the kernel waits there by then.
const WAITS_BY_THEN: Duration = Duration::from_millis(100);

/// Answers no UNLINK: it tells the kernel of the name instead, which waits for the directory's
/// lock, and the kernel holds that for the UNLINK. For the name `held` it does so at the next
/// STATFS, which needs no lock. A look at `none` makes all names old, which waits for nothing.
struct Stuck {
    memory: Rc<memory::Memory>,
    notifier: Notifier,
    kept: RefCell<Vec<Request>>,
    told: PathBuf,
}

impl Handler for Stuck {
    fn handle(self: Rc<Self>, request: Request) -> LocalFuture {
        match &request.op {
            Op::Unlink { name } if &name[..] == b"held" => {
                self.kept.borrow_mut().push(request);
                fs::write(&self.told, "held").expect("the test looks here");
                Box::pin(std::future::ready(()))
            }
            Op::Statfs => {
                drop(self.notifier.inval_entries(&[(ROOT_ID, (&b"held"[..]).into())]));
                fs::write(&self.told, "told").expect("the test looks here");
                self.memory.clone().handle(request)
            }
            Op::Unlink { name } => {
                let told = self.notifier.inval_entries(&[(ROOT_ID, (&name[..]).into())]);
                self.kept.borrow_mut().push(request);
                Box::pin(async move {
                    let sleeper = tokio::task::spawn_local(told);
                    fs::write(&self.told, "told").expect("the test looks here");
                    drop(sleeper.await);
                })
            }
            Op::Lookup { name } if &name[..] == b"none" => {
                let known = self.notifier.inc_epoch();
                fs::write(&self.told, format!("{known:?}")).expect("the test looks here");
                self.memory.clone().handle(request)
            }
            _ => self.memory.clone().handle(request),
        }
    }

    fn forget(&self, nodeid: u64, nlookup: u64) {
        self.memory.forget(nodeid, nlookup);
    }
}

fn told_file(dir: &Path) -> PathBuf {
    dir.with_extension("told")
}

#[test]
fn serves_when_told_to() {
    let Some(dir) = std::env::var_os(SERVE) else { return };
    let dir = Path::new(&dir);
    let guard = ["guard", "--exact", "guards_when_told_to", "--nocapture"].map(OsString::from);
    let options =
        MountOptions { transport: Channel::Classic, guard: guard.to_vec(), ..memory::options(dir) };
    let connection = Connection::mount(&options).expect("FUSE mounts here");
    let handler = Rc::new(Stuck {
        memory: Rc::new(memory::Memory::new()),
        notifier: connection.notifier(),
        kept: RefCell::default(),
        told: told_file(dir),
    });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, connection.serve(handler)).expect("served");
}

/// Not a test of its own either: the guard of that daemon, which has its environment.
#[test]
fn guards_when_told_to() {
    if std::env::var_os(SERVE).is_some() {
        fusedev::run_guard().expect("the daemon has begun it");
    }
}

/// A daemon that serves a directory of its own; killed and cleared away however the test ends.
struct Daemon {
    dir: PathBuf,
    child: std::process::Child,
}

impl Daemon {
    fn new(name: &str) -> Daemon {
        let dir = std::env::temp_dir().join(format!("fusedev-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary directory");
        let child = Command::new(std::env::current_exe().expect("known"))
            .args(["--exact", "serves_when_told_to", "--nocapture"])
            .env(SERVE, &dir)
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        let daemon = Daemon { dir, child };
        eventually("mounted", || fs::metadata(daemon.dir.join("fixed")).is_ok());
        daemon
    }

    /// What it noted, once it has.
    fn told(&self) -> String {
        let told = told_file(&self.dir);
        eventually("it says so", || fs::metadata(&told).is_ok_and(|told| told.len() > 0));
        fs::read_to_string(&told).expect("noted")
    }

    /// Waits until the last that it noted is `note`.
    fn has_told(&self, note: &str) {
        let told = told_file(&self.dir);
        eventually(note, || fs::read_to_string(&told).is_ok_and(|told| told == note));
    }

    /// Its guard, once that is a session of its own.
    fn guard(&self) -> u32 {
        let mut found = None;
        eventually("it has a guard", || {
            let pids = fs::read_dir("/proc").expect("proc is mounted").flatten();
            let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            found = pids.find(|pid| {
                Stat::of(*pid)
                    .is_some_and(|stat| stat.parent == self.child.id() && stat.session == *pid)
            });
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Kills it and waits for its end, which must come.
    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        eventually("it is gone", || self.child.try_wait().expect("our child").is_some());
    }
}

/// A process in `/proc`.
struct Stat {
    state: char,
    parent: u32,
    session: u32,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut words = text.rsplit(')').next()?.split_whitespace();
        let state = words.next()?.chars().next()?;
        let parent = words.next()?.parse().ok()?;
        let session = words.nth(1)?.parse().ok()?; // behind the group
        Some(Stat { state, parent, session })
    }
}

/// Whether it has ended, also where its new parent has not noticed.
fn has_ended(pid: u32) -> bool {
    Stat::of(pid).is_none_or(|stat| matches!(stat.state, 'Z' | 'X'))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // ends all requests, so that also a daemon ends that waits behind one
        let _ = rustix::mount::unmount(&self.dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
        let _ = self.child.wait();
        let _ = fusedev::unmount_detached(&self.dir);
        let _ = fs::remove_file(told_file(&self.dir));
        let _ = fs::remove_dir(&self.dir);
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_daemon_that_waits_for_a_directory_can_be_killed() {
    let mut daemon = Daemon::new("stuck");
    let name = daemon.dir.join("fixed");
    let remover = std::thread::spawn(move || fs::remove_file(name));
    assert_eq!(daemon.told(), "told");
    std::thread::sleep(WAITS_BY_THEN);
    assert!(!remover.is_finished(), "nobody has answered");
    daemon.kill();
    eventually("its caller goes on", || remover.is_finished());
    remover.join().expect("no panic").expect_err("it was not removed");
    let dead = fs::metadata(daemon.dir.join("fixed")).expect_err("nobody serves");
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
}

/// Once its descriptors are closed, the holder of the lock goes on. The next caller gets the lock
/// and sends a request that no process reads, and the daemon's thread waits behind that caller.
#[test]
fn a_daemon_that_waits_behind_another_caller_can_be_killed() {
    let mut daemon = Daemon::new("queue");
    let guard = daemon.guard();
    let [held, behind] = ["held", "behind"].map(|name| daemon.dir.join(name));
    for path in [&held, &behind] {
        fs::write(path, "").expect("made");
    }
    let holder = std::thread::spawn(move || fs::remove_file(held));
    daemon.has_told("held");
    let queued = std::thread::spawn(move || fs::remove_file(behind));
    std::thread::sleep(WAITS_BY_THEN);
    rustix::fs::statvfs(&daemon.dir).expect("answered");
    daemon.has_told("told");
    std::thread::sleep(WAITS_BY_THEN);
    assert!(!holder.is_finished() && !queued.is_finished(), "nobody has answered");
    daemon.kill();
    eventually("both callers go on", || holder.is_finished() && queued.is_finished());
    for caller in [holder, queued] {
        caller.join().expect("no panic").expect_err("it was not removed");
    }
    let dead = fs::metadata(daemon.dir.join("fixed")).expect_err("nobody serves");
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN), "and the mount stays");
    eventually("the guard has ended, too", || has_ended(guard));
}

#[test]
fn a_guard_stays_at_signals_and_ends_with_an_unmount() {
    let mut daemon = Daemon::new("guarded");
    let guard = daemon.guard();
    let pid = i32::try_from(guard).ok().and_then(Pid::from_raw).expect("a process id");
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        rustix::process::kill_process(pid, signal).expect("it lives");
    }
    std::thread::sleep(WAITS_BY_THEN);
    assert!(!has_ended(guard));
    let held: Vec<_> = fs::read_dir(format!("/proc/{guard}/fd")).expect("ours").collect();
    assert!(held.len() <= 4, "its streams and one more: {held:?}");
    fusedev::unmount_detached(&daemon.dir).expect("mounted");
    eventually("the daemon ends", || daemon.child.try_wait().expect("our child").is_some());
    assert!(has_ended(guard), "it has ended before the daemon");
}

#[test]
fn a_kernel_that_has_epochs_takes_a_new_one() {
    let daemon = Daemon::new("epoch");
    let missing = fs::metadata(daemon.dir.join("none")).expect_err("there is none");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let told = daemon.told();
    let is_new = kernel_version() >= (6, 16);
    assert_eq!(told == "Ok(())", is_new, "{told}");
    assert!(fs::metadata(daemon.dir.join("fixed")).is_ok());
}

/// Of the Linux that runs.
fn kernel_version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("proc is mounted");
    let mut parts = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
