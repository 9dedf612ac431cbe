//! Real mounts on `/dev/fuse`. They need root or `fusermount3`. Without FUSE they fail, on purpose.

#![allow(unsafe_code, reason = "signals and locks by system call")]

#[path = "../examples/null/memory.rs"]
mod memory;

// the fuzzer instruments all programs of a package: each links what instrumented code calls
use bolero as _;

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::thread::JoinHandleExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fusedev::abi::cap;
use fusedev::{Channel, Connection, InitInfo, MountOptions, UringOffer};
use rustix::fs::{Mode, OFlags};

/// Tells the re-executed test binary to serve at this place.
const SERVE: &str = "FUSEDEV_TEST_SERVE";
const SERVE_URING: &str = "FUSEDEV_TEST_SERVE_URING";

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("proc is mounted");
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// For everything that must come, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A served mount in a directory of its own; gone when dropped.
struct Mounted {
    dir: PathBuf,
    info: InitInfo,
    server: Option<JoinHandle<()>>,
}

fn fresh_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("fusedev-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a temporary directory");
    dir
}

/// Mounts by the transport that is asked for.
fn mount(options: &MountOptions) -> Connection {
    let offer = (options.transport == Channel::Uring)
        .then(|| UringOffer::make().expect("root, and a kernel that has it"));
    let connection = Connection::mount(options).expect("FUSE mounts here");
    drop(offer);
    assert!(
        options.transport == Channel::Auto || connection.info().transport() == options.transport
    );
    connection
}

fn serve(options: &MountOptions, told: impl FnOnce(InitInfo)) {
    let connection = mount(options);
    told(connection.info());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    tokio::task::LocalSet::new()
        .block_on(&runtime, connection.serve(Rc::new(memory::Memory::new())))
        .expect("served");
}

/// Runs a case over each transport that this kernel has; one that it has not must be refused.
fn over_each_transport(case: impl Fn(Channel)) {
    case(Channel::Classic);
    if UringOffer::is_possible() {
        case(Channel::Uring);
    } else {
        let dir = fresh_dir("refused");
        let options = MountOptions { transport: Channel::Uring, ..memory::options(&dir) };
        let refused =
            Connection::mount(&options).err().expect("a transport that the kernel has not");
        assert!(!is_mounted(&dir), "{refused}");
        fs::remove_dir(&dir).expect("an empty directory");
    }
}

impl Mounted {
    fn new(name: &str, transport: Channel, change: impl FnOnce(&mut MountOptions)) -> Mounted {
        let dir = fresh_dir(&format!("{name}-{transport:?}"));
        let mut options = memory::options(&dir);
        options.transport = transport;
        change(&mut options);
        let (tell, told) = mpsc::channel();
        let server = std::thread::spawn(move || {
            serve(&options, |info| tell.send(info).expect("the test waits"))
        });
        let info = told.recv().expect("mounted");
        Mounted { dir, info, server: Some(server) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        fusedev::unmount_detached(&self.dir).expect("still mounted");
        let served = self.server.take().expect("joined once").join();
        let _ = fs::remove_dir(&self.dir);
        assert!(served.is_ok() || std::thread::panicking(), "the server panicked");
    }
}

#[test]
fn files_can_be_made_written_read_listed_and_removed() {
    over_each_transport(files_are_made_and_removed);
}

fn files_are_made_and_removed(transport: Channel) {
    let mount = Mounted::new("files", transport, |_| {});
    let big: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(mount.at("big"), &big).expect("written");
    assert!(fs::read(mount.at("big")).expect("read") == big, "what was written is read");
    assert_eq!(fs::metadata(mount.at("big")).expect("stat").len(), big.len() as u64);
    for n in 0..3_000 {
        fs::File::create(mount.at(&format!("f{n}"))).expect("made");
    }
    assert_eq!(fs::read_dir(&mount.dir).expect("listed").count(), 3_002);
    fs::remove_file(mount.at("big")).expect("removed");
    assert_eq!(fs::read(mount.at("big")).expect_err("gone").kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_listing_that_the_kernel_cannot_use_ends_and_is_forgotten() {
    over_each_transport(an_unusable_entry_is_forgotten);
}

/// Linux asks to forget such an entry while it holds the directory's lock; over a ring it waits for
/// its entry to come back.
fn an_unusable_entry_is_forgotten(transport: Channel) {
    let mount = Mounted::new("unusable", transport, |_| {});
    fs::File::create(mount.at(memory::UNUSABLE)).expect("made");
    let before = memory::FORGOTTEN.load(Relaxed);
    let lister = Command::new("ls").arg(&mount.dir).stdout(Stdio::null()).spawn().expect("ls");
    let mut lister = Killed(lister);
    eventually("the end of the listing", || lister.0.try_wait().expect("a child").is_some());
    eventually("the entry is given back", || memory::FORGOTTEN.load(Relaxed) > before);
    assert_eq!(fs::read_dir(&mount.dir).expect("listed again").count(), 2);
}

#[test]
fn many_threads_work_over_cloned_descriptors() {
    let mount = Mounted::new("clones", Channel::Classic, |options| options.clones = 4);
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let path = mount.at(&format!("t{thread}"));
            scope.spawn(move || {
                let file = fs::File::options()
                    .create(true)
                    .read(true)
                    .write(true)
                    .truncate(true)
                    .open(path)
                    .expect("open");
                let mut back = [0; 512];
                for round in 0..200_u64 {
                    file.write_all_at(&[thread; 512], round * 512).expect("write");
                    file.read_exact_at(&mut back, round * 512).expect("read");
                    assert_eq!(back, [thread; 512]);
                }
            });
        }
    });
}

#[test]
fn a_mount_works_without_each_masked_capability() {
    over_each_transport(works_without_capabilities);
}

fn works_without_capabilities(transport: Channel) {
    // The ring itself is negotiated in the extension.
    let extension =
        if transport == Channel::Uring { cap::DIRECT_IO_ALLOW_MMAP } else { cap::INIT_EXT };
    let mask = cap::MAX_PAGES | cap::DO_READDIRPLUS | extension;
    let mount = Mounted::new("masked", transport, |options| options.mask = mask);
    assert_eq!(mount.info.max_write, 128 << 10);
    assert!(!mount.info.has(cap::DIRECT_IO_ALLOW_MMAP));
    fs::write(mount.at("a"), vec![7; 1 << 20]).expect("written in small pieces");
    assert_eq!(fs::read(mount.at("a")).expect("read"), vec![7; 1 << 20]);
    assert_eq!(fs::read_dir(&mount.dir).expect("listed").count(), 2);
}

/// The kernel's limit of pages in a request while it lives; afterwards it is what it was. One at a
/// time on a machine.
struct PagesLimit(fs::File, String);

impl PagesLimit {
    const SYSCTL: &str = "/proc/sys/fs/fuse/max_pages_limit";

    fn set(pages: u32) -> PagesLimit {
        let lock = fs::File::open(Self::SYSCTL).expect("Linux 6.13");
        lock.lock().expect("others let go");
        let before = fs::read_to_string(Self::SYSCTL).expect("a number");
        fs::write(Self::SYSCTL, pages.to_string()).expect("root");
        PagesLimit(lock, before)
    }
}

impl Drop for PagesLimit {
    fn drop(&mut self) {
        fs::write(Self::SYSCTL, &self.1).expect("what it was");
        drop(self.0.unlock());
    }
}

#[test]
fn requests_are_as_large_as_the_kernel_allows() {
    if !Path::new(PagesLimit::SYSCTL).exists() {
        let mount = Mounted::new("pages", Channel::Classic, |_| {});
        assert_eq!(mount.info.max_write, 1 << 20, "a kernel without the limit takes 256 pages");
        return;
    }
    let data: Vec<u8> = (0..4_u32 << 20).map(|n| (n % 251) as u8).collect();
    over_each_transport(|transport| {
        let limit = PagesLimit::set(1_024);
        let mount = Mounted::new("pages", transport, |_| {});
        drop(limit);
        assert_eq!(mount.info.max_write, 4 << 20);
        memory::LONGEST_WRITE.store(0, Relaxed);
        let file = fs::File::options()
            .create(true)
            .read(true)
            .write(true)
            .truncate(true)
            .open(mount.at("a"))
            .expect("open");
        file.write_all_at(&data, 0).expect("written");
        // The buffer may begin within a page: then the last of 1,024 pages is in the next request.
        assert!(
            memory::LONGEST_WRITE.load(Relaxed) > (4 << 20) - 4_096,
            "{:?}",
            memory::LONGEST_WRITE
        );
        let mut back = vec![0; data.len()];
        file.read_exact_at(&mut back, 0).expect("read");
        assert!(back == data);
    });
}

#[test]
fn a_signal_ends_the_wait_for_a_lock() {
    over_each_transport(a_lock_yields_to_a_signal);
}

fn a_lock_yields_to_a_signal(transport: Channel) {
    let mount = Mounted::new("interrupt", transport, |_| {});
    let file = fs::File::create(mount.at("locked")).expect("made");
    // A handler without SA_RESTART, so that the signal shows as EINTR. Without a handler the first
    // signal would end this process, however late the thread begins.
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a plain system call with a pointer to a live value of the right type.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
    let thread = std::thread::spawn(move || {
        // SAFETY: plain system calls with pointers to live values of the right types.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::F_WRLCK as libc::c_short;
            let result = libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const lock);
            (result, std::io::Error::last_os_error().raw_os_error())
        }
    });
    let started = Instant::now();
    while !thread.is_finished() {
        assert!(started.elapsed() < PATIENCE, "the wait was not interrupted");
        std::thread::sleep(Duration::from_millis(50));
        // SAFETY: the thread was not joined, so its id is valid.
        unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
    }
    assert_eq!(thread.join().expect("no panic"), (-1, Some(libc::EINTR)));
}

#[test]
fn more_callers_wait_for_locks_than_a_queue_has_entries() {
    over_each_transport(many_wait_and_others_work);
}

fn many_wait_and_others_work(transport: Channel) {
    const WAITERS: usize = 300;
    let mount = Mounted::new("waiters", transport, |options| options.want |= cap::FLOCK_LOCKS);
    let path = mount.at("locked");
    fs::File::create(&path).expect("made");
    let waiters: Vec<Killed> = (0..WAITERS)
        .map(|_| {
            let script = "exec 3<>\"$0\"; exec flock 3";
            let child =
                Command::new("sh").args(["-c", script]).arg(&path).spawn().expect("a shell");
            Killed(child)
        })
        .collect();
    let waits = |pid: u32| {
        fs::read_to_string(format!("/proc/{pid}/wchan"))
            .is_ok_and(|place| place.contains("wait_answer"))
    };
    eventually("everybody waits", || {
        fs::metadata(&path).expect("others are served");
        waiters.iter().filter(|waiter| waits(waiter.0.id())).count() == WAITERS
    });
    fs::write(mount.at("other"), b"still served").expect("written");
    assert_eq!(fs::read(mount.at("other")).expect("read"), b"still served");
}

/// Not a test of its own: what the killed daemon runs.
#[test]
fn a_mount_goes_while_a_release_is_under_way() {
    over_each_transport(unmounts_behind_a_close);
}

/// The kernel sends RELEASE after `close` has returned; the unmount comes at once. A serving thread
/// that unmounted by itself would wait for that request for ever.
fn unmounts_behind_a_close(transport: Channel) {
    const ROUNDS: u32 = 30;
    let (tell, told) = mpsc::channel();
    let rounds = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            unmount_behind_a_close(transport, round);
            tell.send(()).expect("the test waits");
        }
    });
    for round in 0..ROUNDS {
        let gone = told.recv_timeout(PATIENCE);
        assert!(gone.is_ok(), "round {round}: the mount did not go");
    }
    rounds.join().expect("no round panics");
}

fn unmount_behind_a_close(transport: Channel, round: u32) {
    let dir = fresh_dir(&format!("release-{transport:?}-{round}"));
    let connection = mount(&MountOptions { transport, ..memory::options(&dir) });
    let (tell, closed) = tokio::sync::oneshot::channel();
    let path = dir.join("file");
    let user = std::thread::spawn(move || {
        drop(fs::File::create(path).expect("made"));
        tell.send(()).expect("the server waits");
    });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let unmount = async {
        closed.await.expect("the file was closed");
        connection.unmount().await
    };
    let serve = connection.serve(Rc::new(memory::Memory::new()));
    let (unmounted, served) = tokio::task::LocalSet::new()
        .block_on(&runtime, async { futures_lite::future::zip(unmount, serve).await });
    unmounted.and(served).expect("unmounted and served to the end");
    user.join().expect("the user does not panic");
    assert!(!is_mounted(&dir));
    fs::remove_dir(&dir).expect("an empty directory");
}

/// As when a mount was detached while a program had its directory there.
#[test]
fn the_end_of_a_mount_leaves_a_later_one_at_its_place_alone() {
    let dir = fresh_dir("replaced");
    let first = mount(&memory::options(&dir));
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let user = rustix::fs::open(&dir, flags, Mode::empty()).expect("no request is needed");
    fusedev::unmount_detached(&dir).expect("it is there");
    assert!(!is_mounted(&dir));
    let second = mount(&memory::options(&dir));
    drop(first);
    assert!(is_mounted(&dir), "the second one stays");
    drop(second);
    eventually("its end", || !is_mounted(&dir));
    drop(user);
    fs::remove_dir(&dir).expect("an empty directory");
}

#[test]
fn serves_when_told_to() {
    let Some(dir) = std::env::var_os(SERVE) else { return };
    let transport =
        if std::env::var_os(SERVE_URING).is_some() { Channel::Uring } else { Channel::Classic };
    serve(&MountOptions { transport, ..memory::options(Path::new(&dir)) }, |_| {
        println!("mounted");
        std::io::stdout().flush().expect("somebody reads");
    });
}

/// A process that ends with the test, however the test ends.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_mount_of_a_killed_daemon_stays_and_never_leads_below() {
    over_each_transport(a_dead_mount_says_so);
}

fn a_dead_mount_says_so(transport: Channel) {
    let dir = fresh_dir(&format!("killed-{transport:?}"));
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command
        .args(["--exact", "serves_when_told_to", "--nocapture"])
        .env(SERVE, &dir)
        .stdout(Stdio::null());
    if transport == Channel::Uring {
        command.env(SERVE_URING, "1");
    }
    let daemon = command.spawn().expect("started");
    let daemon = Killed(daemon);
    eventually("mounted", || is_mounted(&dir) && fs::metadata(dir.join("fixed")).is_ok());
    let file = fs::File::open(dir.join("fixed")).expect("open while it lives");
    drop(daemon);
    let is_dead = |error: std::io::Error| error.raw_os_error() == Some(libc::ENOTCONN);
    eventually("not connected", || fs::metadata(dir.join("fixed")).is_err_and(is_dead));
    assert!(fs::write(dir.join("new"), "x").is_err_and(is_dead), "nothing is written below");
    assert!(file.read_exact_at(&mut [0; 1], 0).is_err());
    drop(file);
    assert!(is_mounted(&dir));
    fusedev::unmount_detached(&dir).expect("unmounts");
    fs::remove_dir(&dir).expect("an empty directory again");
}
