//! Orders to a real kernel to forget names: over `/dev/fuse`, with the kernel's locks.

#[path = "../examples/null/memory.rs"]
mod memory;

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fusedev::abi::ROOT_ID;
use fusedev::{Channel, Connection, Handler, LocalFuture, MountOptions, Notifier, Op, Request};

/// Tells the re-executed test binary to serve at this place.
const SERVE: &str = "FUSEDEV_TEST_STUCK";

/// Answers no UNLINK: it tells the kernel of the name instead, which waits for the directory's
/// lock, and the kernel holds that for the UNLINK. A look at `none` makes all names old, which
/// waits for nothing.
struct Stuck {
    memory: Rc<memory::Memory>,
    notifier: Notifier,
    kept: RefCell<Vec<Request>>,
    told: PathBuf,
}

impl Handler for Stuck {
    fn handle(self: Rc<Self>, request: Request) -> LocalFuture {
        match &request.op {
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
    let options = MountOptions { transport: Channel::Classic, ..memory::options(dir) };
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
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fusedev::unmount_detached(&self.dir);
        let _ = fs::remove_file(told_file(&self.dir));
        let _ = fs::remove_dir(&self.dir);
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_daemon_that_waits_for_a_directory_can_be_killed() {
    let mut daemon = Daemon::new("stuck");
    let name = daemon.dir.join("fixed");
    let remover = std::thread::spawn(move || fs::remove_file(name));
    assert_eq!(daemon.told(), "told");
    std::thread::sleep(Duration::from_millis(100)); // its thread waits by then
    assert!(!remover.is_finished(), "nobody has answered");
    daemon.child.kill().expect("it runs");
    eventually("it is gone", || daemon.child.try_wait().expect("our child").is_some());
    eventually("its caller goes on", || remover.is_finished());
    remover.join().expect("no panic").expect_err("it was not removed");
    let dead = fs::metadata(daemon.dir.join("fixed")).expect_err("nobody serves");
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
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
