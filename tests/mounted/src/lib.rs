//! A whole file system under test: `nacre up --separate` on a scratch directory, with functions to
//! kill, cut and watch it.
//!
//! Everything here is real: processes, sockets, files, a FUSE mount. A fixture cleans up when
//! dropped, also when the test panics. If FUSE or root is missing, the fixture fails, because a
//! skipped test proves nothing.

pub mod chaos;
pub mod cut;
mod figure;
pub mod line;
pub mod load;
pub mod nodes;
pub mod posix;
pub mod range;
pub mod work;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

pub use figure::{Figure, figure};
use fusedev::{Channel, UringOffer};

/// How long a file system may take to come up, and an operation to come back, before a test gives
/// up on it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The binary under test: `NACRE_BIN`, else the build of profile `ci`.
#[must_use]
pub fn nacre_bin() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = std::env::var_os("NACRE_BIN")
        .map_or_else(|| PathBuf::from("target/ci/nacre"), PathBuf::from);
    let path = if path.is_absolute() { path } else { root.join(path) };
    assert!(path.exists(), "{} is missing: cargo build --profile ci -p nacre", path.display());
    path.canonicalize().expect("it exists")
}

/// Whether the counts of a release are wanted (`cargo xtask check --full`).
#[must_use]
pub fn full() -> bool {
    std::env::var("NACRE_FULL").is_ok_and(|value| value == "1")
}

/// `small` in CI, `large` before a release.
#[must_use]
pub fn count(small: usize, large: usize) -> usize {
    if full() { large } else { small }
}

/// A scratch directory, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A fresh one below the system's temporary directory.
    #[must_use]
    pub fn new(name: &str) -> Scratch {
        let unique = format!("nacre-{name}-{}-{}", std::process::id(), unique());
        let path = std::env::temp_dir().join(unique);
        fs::create_dir_all(&path).expect("a scratch directory");
        Scratch(path)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn unique() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// The transports that this kernel has: both, or the classic one alone. Fails where the check has
/// seen the second one and it is gone.
#[must_use]
pub fn transports() -> Vec<Channel> {
    let mut all = vec![Channel::Classic];
    if UringOffer::is_possible() {
        all.push(Channel::Uring);
    } else {
        let expected = std::env::var("NACRE_EXPECT_URING").is_ok_and(|value| value == "1");
        assert!(!expected, "the kernel had FUSE over io_uring when the check began");
        eprintln!("this kernel has no FUSE over io_uring: the classic transport alone is tested");
    }
    all
}

/// The transport of mounts that do not choose theirs: `NACRE_TRANSPORT`, else the classic one.
fn transport_drawn() -> Channel {
    match std::env::var("NACRE_TRANSPORT").as_deref() {
        Ok("uring") => Channel::Uring,
        Ok("classic") | Err(_) => Channel::Classic,
        Ok(other) => panic!("NACRE_TRANSPORT={other}: classic or uring"),
    }
}

fn offer(transport: Channel) -> Option<UringOffer> {
    (transport == Channel::Uring)
        .then(|| UringOffer::make().expect("root, and a kernel that has it"))
}

fn word(transport: Channel) -> &'static str {
    match transport {
        Channel::Auto => "auto",
        Channel::Classic => "classic",
        Channel::Uring => "uring",
    }
}

/// A running `nacre up --separate`.
pub struct Up {
    child: Child,
    scratch: Scratch,
    mount: PathBuf,
    data: PathBuf,
    more: Vec<PathBuf>,
    log: PathBuf,
    transport: Channel,
    /// What was killed since the last check.
    killed: AtomicU8,
}

/// Values of what was killed, and of a file system that is damaged on purpose.
const NOTHING: u8 = 0;
const SERVERS: u8 = 1;
const EVERYTHING: u8 = 2;
const DAMAGED: u8 = 3;

impl Up {
    /// A fresh file system with one MDT and four OSTs, whose servers may be killed as often as the
    /// test likes.
    #[must_use]
    pub fn new(name: &str) -> Up {
        Up::over(transport_drawn(), name)
    }

    /// The same with every mount over this transport. The module parameter is what it was when the
    /// mount is there.
    #[must_use]
    pub fn over(transport: Channel, name: &str) -> Up {
        Up::over_with(transport, name, &[])
    }

    /// The same with further arguments of `up`.
    #[must_use]
    pub fn over_with(transport: Channel, name: &str, args: &[&str]) -> Up {
        let args = [&["--crashes-max", "1000"], args].concat();
        Up::begin(transport, Scratch::new(name), None, &args)
    }

    /// In `scratch`; data in `data` where given (a loop mount, say), else below the scratch
    /// directory. It has one MDT unless `args` say otherwise.
    #[must_use]
    pub fn with(scratch: Scratch, data: Option<PathBuf>, args: &[&str]) -> Up {
        Up::begin(transport_drawn(), scratch, data, args)
    }

    fn begin(transport: Channel, scratch: Scratch, data: Option<PathBuf>, args: &[&str]) -> Up {
        let data = data.unwrap_or_else(|| scratch.path().join("data"));
        let mount = scratch.path().join("mnt");
        let log = scratch.path().join("up.log");
        let offer = offer(transport);
        let child = spawn_up(&data, &mount, &log, transport, args);
        let (more, killed) = (Vec::new(), AtomicU8::new(NOTHING));
        let mut up = Up { child, scratch, mount, data, more, log, transport, killed };
        up.wait_mounted(0);
        drop(offer);
        up
    }

    /// Waits until `up` says that the mount is there, behind `from` bytes of what it printed: a
    /// dead mount may be in that place, and answer from the kernel's memory.
    fn wait_mounted(&mut self, from: usize) {
        let start = Instant::now();
        while !self.log_text()[from..].contains("is mounted at") || !is_mounted(&self.mount) {
            let ended = self.child.try_wait().expect("our child");
            assert!(ended.is_none(), "nacre up ended with {ended:?}:\n{}", self.log_text());
            assert!(
                start.elapsed() < PATIENCE,
                "nacre up did not mount in {PATIENCE:?}:\n{}",
                self.log_text()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it printed to stderr so far.
    #[must_use]
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    #[must_use]
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// Where the targets live.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// A path in the mount.
    #[must_use]
    pub fn at(&self, path: &str) -> PathBuf {
        self.mount.join(path)
    }

    /// The `NID:/fsname` that it printed for further clients.
    #[must_use]
    pub fn address(&self) -> String {
        let start = Instant::now();
        loop {
            let text = self.log_text();
            if let Some(word) = text.split_whitespace().find(|word| word.contains("@tcp:/")) {
                return word.trim_matches(['\'', '"', '`']).to_owned();
            }
            assert!(start.elapsed() < PATIENCE, "no address was printed:\n{text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A further mount of its own daemon, with its own NID `127.0.0.<last>@tcp`.
    pub fn second_mount(&mut self, last: u8) -> PathBuf {
        self.second_mount_with(last, "")
    }

    /// The same with more mount options.
    pub fn second_mount_with(&mut self, last: u8, options: &str) -> PathBuf {
        let dir = self.scratch.path().join(format!("mnt{last}"));
        if !is_mounted(&dir) {
            fs::create_dir_all(&dir).expect("a mount point");
        }
        let options =
            format!("nid=127.0.0.{last}@tcp,transport={},{options}", word(self.transport));
        let offer = offer(self.transport);
        let status = Command::new(nacre_bin())
            .args(["mount", &self.address()])
            .arg(&dir)
            .args(["-o", &options])
            .status();
        drop(offer);
        assert!(status.expect("nacre starts").success(), "nacre mount failed");
        assert!(is_mounted(&dir) && is_there(&dir), "nacre mount returned before its mount");
        self.more.push(dir.clone());
        dir
    }

    /// Directory of target `name`.
    #[must_use]
    pub fn target(&self, name: &str) -> PathBuf {
        self.data.join(if name == "MGS" { name.to_owned() } else { format!("testfs-{name}") })
    }

    /// Process of the server that serves target `name` (`MGS`, `MDT0000`, `OST0002`), once it runs.
    #[must_use]
    pub fn server(&self, name: &str) -> u32 {
        let start = Instant::now();
        loop {
            if let Some(pid) = self.find_server(name) {
                return pid;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no server for {name} in {PATIENCE:?}:\n{}",
                self.log_text()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn find_server(&self, name: &str) -> Option<u32> {
        let wanted = self.target(name);
        processes()
            .into_iter()
            .find(|(_, words)| {
                words.iter().any(|word| word == "serve")
                    && words.iter().any(|word| Path::new(word) == wanted)
            })
            .map(|(pid, _)| pid)
    }

    /// kill -9 of the server of `name`. It is dead then: the next kill meets another process.
    pub fn kill_server(&self, name: &str) {
        self.killed.fetch_max(SERVERS, Ordering::SeqCst);
        let pid = self.server(name);
        kill(pid, libc::SIGKILL);
        until("a killed server is dead", || !is_alive(pid));
    }

    /// kill -9 of everything at once: up, servers, client daemons. Their mounts stay and are dead.
    pub fn kill_everything(&mut self) {
        self.killed.fetch_max(EVERYTHING, Ordering::SeqCst);
        let mut pids: Vec<u32> = self.family();
        pids.push(self.child.id());
        pids.iter().for_each(|pid| kill(*pid, libc::SIGKILL));
        let _ = self.child.wait();
        let start = Instant::now();
        while !is_dead(&self.mount) || pids.iter().any(|pid| is_alive(*pid)) {
            let alive: Vec<_> =
                processes().into_iter().filter(|(pid, _)| pids.contains(pid)).collect();
            assert!(start.elapsed() < PATIENCE, "after kill -9 of everything: alive {alive:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts again on the same data after [`Up::kill_everything`] or [`Up::stop`].
    pub fn start_again(&mut self, args: &[&str]) {
        let offer = offer(self.transport);
        let from = self.log_text().len();
        self.child = spawn_up(&self.data, &self.mount, &self.log, self.transport, args);
        self.wait_mounted(from);
        drop(offer);
    }

    /// SIGTERM; waits for the clean end. If servers were killed before, `nacre fsck` finds nothing
    /// wrong then. Objects that were not durable may be lost when everything died at once.
    pub fn stop(&mut self) {
        kill(self.child.id(), libc::SIGTERM);
        let status = self.wait_end();
        assert!(status.success(), "up ended with {status}:\n{}", self.log_text());
        assert!(!is_mounted(&self.mount), "up left its mount behind");
        match self.killed.load(Ordering::SeqCst) {
            SERVERS => self.fsck(),
            EVERYTHING => self.fsck_but("lost-object"),
            _ => return,
        }
        self.killed.store(NOTHING, Ordering::SeqCst);
    }

    /// The test damages it, or loses work of clients on purpose: [`Up::stop`] checks nothing.
    pub fn will_be_damaged(&self) {
        self.killed.store(DAMAGED, Ordering::SeqCst);
    }

    /// Checks it after [`Up::stop`]: nothing is wrong.
    ///
    /// # Panics
    /// If something is.
    pub fn fsck(&self) {
        fsck(&self.data);
    }

    /// The same, and findings of this rule are no failure.
    fn fsck_but(&self, rule: &str) {
        let mut fsck = Command::new(nacre_bin());
        let done = fsck.args(["fsck", "--json", "--data"]).arg(&self.data).output();
        let done = done.expect("nacre starts");
        let out = String::from_utf8_lossy(&done.stdout);
        let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|error| {
            let said = String::from_utf8_lossy(&done.stderr);
            panic!("nacre fsck ended with {}: {error}:\n{out}{said}", done.status)
        });
        let findings = report["findings"].as_array().expect("a list");
        let is_clean = findings.iter().all(|finding| finding["rule"] == rule);
        assert!(is_clean, "after a kill of everything: {findings:#?}");
    }

    /// Waits until it ends by itself.
    pub fn wait_end(&mut self) -> std::process::ExitStatus {
        wait_bounded(&mut self.child)
            .unwrap_or_else(|| panic!("up did not end in {PATIENCE:?}:\n{}", self.log_text()))
    }

    /// Processes that work for this file system: children of `up` and daemons of further mounts.
    fn family(&self) -> Vec<u32> {
        let scratch = self.scratch.path().as_os_str().to_string_lossy().into_owned();
        let data = self.data.as_os_str().to_string_lossy().into_owned();
        let own = std::process::id();
        processes()
            .into_iter()
            .filter(|(pid, words)| {
                *pid != own && words.first().is_some_and(|word| word.ends_with("nacre"))
            })
            .filter(|(_, words)| {
                words.iter().any(|word| word.contains(&scratch) || word.contains(&data))
            })
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Value of the one parameter that `name` matches.
    #[must_use]
    pub fn param(&self, name: &str) -> String {
        self.tool(&["lctl", "get_param", "-n", name])
    }

    /// Sets every parameter that `name` matches.
    pub fn set(&self, name: &str, value: &str) {
        self.try_set(&[(name, value)]).unwrap_or_else(|error| panic!("{name}={value}: {error}"));
    }

    /// Sets parameters in one command; what `lctl` says when it fails.
    pub fn try_set(&self, all: &[(&str, &str)]) -> Result<(), String> {
        let mut words = vec!["lctl".to_owned(), "set_param".to_owned(), "-n".to_owned()];
        words.extend(all.iter().map(|(name, value)| format!("{name}={value}")));
        self.try_tool(&words).map(drop)
    }

    /// Runs `lfs`, `lctl` or another subcommand against this file system and returns what it
    /// printed.
    #[must_use]
    pub fn tool(&self, args: &[&str]) -> String {
        self.try_tool(args).unwrap_or_else(|error| panic!("nacre {args:?}: {error}"))
    }

    /// Objects of these targets (`OST0001`, `DOM0000`), if all of them can be asked.
    #[must_use]
    pub fn objects(&self, targets: &[&str]) -> Option<usize> {
        let mut count = 0;
        for target in targets {
            let name = format!("testfs-{target}");
            let listed = self.try_tool(&["list-objects", name.as_str()]).ok()?;
            count += listed.lines().filter(|line| !line.contains(" end ")).count();
        }
        Some(count)
    }

    fn try_tool(&self, args: &[impl AsRef<std::ffi::OsStr>]) -> Result<String, String> {
        let output = Command::new(nacre_bin())
            .args(args)
            .current_dir(&self.mount)
            .output()
            .expect("nacre starts");
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).expect("text"));
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Its mount.
impl AsRef<Path> for Up {
    fn as_ref(&self) -> &Path {
        self.mount()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let mut hangs = false;
        for dir in &self.more {
            let _ = Command::new("umount").arg("-l").arg(dir).stderr(Stdio::null()).status();
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            kill(self.child.id(), libc::SIGTERM);
            if wait_bounded(&mut self.child).is_none() {
                hangs = true;
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
        for pid in self.family() {
            kill(pid, libc::SIGKILL);
        }
        let _ = Command::new("umount").arg("-l").arg(&self.mount).stderr(Stdio::null()).status();
        if std::thread::panicking() {
            eprintln!("---- what up said\n{}", self.log_text());
            eprintln!("---- what the servers said\n{}", tails(&self.data.join("log")));
        }
        assert!(!hangs || std::thread::panicking(), "up did not end in {PATIENCE:?}");
    }
}

/// The last lines of every log in `dir`.
fn tails(dir: &Path) -> String {
    let mut out = String::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        out.push_str(&format!(
            "== {}\n{}\n",
            entry.path().display(),
            lines[lines.len().saturating_sub(15)..].join("\n")
        ));
    }
    out
}

/// Checks a stopped file system, whose targets are below `data`: nothing is wrong.
///
/// # Panics
/// If something is.
pub fn fsck(data: &Path) {
    let done = Command::new(nacre_bin()).arg("fsck").arg("--data").arg(data).output();
    let done = done.expect("nacre starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, said) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "nacre fsck ended with {}:\n{out}{said}", done.status);
}

fn spawn_up(data: &Path, mount: &Path, log: &Path, transport: Channel, args: &[&str]) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(log).expect("a log file");
    let mut command = Command::new(nacre_bin());
    command.args(["up", "--separate", "--data"]).arg(data).arg("--mount").arg(mount);
    let (mut args, mut options) = (args.to_vec(), format!("transport={}", word(transport)));
    if let Some(at) = args.iter().position(|arg| *arg == "-o") {
        let more = args.remove(at + 1);
        options = format!("{options},{more}");
        args.remove(at);
    }
    if !args.contains(&"--mdts") {
        args.extend(["--mdts", "1"]); // what is there stays
    }
    command.args(args).args(["-o", options.trim_end_matches(',')]);
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
    command.spawn().expect("nacre starts")
}

/// Waits at most [`PATIENCE`] for a child.
pub fn wait_bounded(child: &mut Child) -> Option<std::process::ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("our child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Sends `signal` to `pid`.
pub fn kill(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("a pid");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid is not zero");
    let signal = match signal {
        libc::SIGKILL => rustix::process::Signal::KILL,
        libc::SIGSTOP => rustix::process::Signal::STOP,
        libc::SIGCONT => rustix::process::Signal::CONT,
        libc::SIGHUP => rustix::process::Signal::HUP,
        libc::SIGUSR1 => rustix::process::Signal::USR1,
        _ => rustix::process::Signal::TERM,
    };
    let _ = rustix::process::kill_process(pid, signal);
}

/// A stopped process, which goes on when this is dropped.
pub struct Stopped(u32);

impl Stopped {
    #[must_use]
    pub fn new(pid: u32) -> Stopped {
        kill(pid, libc::SIGSTOP);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill(self.0, libc::SIGCONT);
    }
}

/// Waits at most [`PATIENCE`] until `holds`; `what` is in the message if it never does.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the process exists and is no zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next())
        .is_some_and(|state| state != 'Z' && state != 'X')
}

/// Whether a mount is at `dir` whose daemon is gone. Asks the daemon: the kernel may know the
/// attributes of `dir` for seconds longer.
#[must_use]
pub fn is_dead(dir: &Path) -> bool {
    rustix::fs::statvfs(dir).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

/// Whether `dir` can be looked at. Unlike [`is_dead`] this waits for no OST. The kernel may answer,
/// also for a mount that has died.
#[must_use]
pub fn is_there(dir: &Path) -> bool {
    fs::metadata(dir).is_ok()
}

/// The daemon of the `nacre mount` at `dir`.
#[must_use]
pub fn daemon_of(dir: &Path) -> u32 {
    let wanted = dir.to_string_lossy().into_owned();
    let found = processes()
        .into_iter()
        .find(|(_, words)| words.iter().any(|word| word == "mount") && words.contains(&wanted));
    found.unwrap_or_else(|| panic!("no daemon serves {wanted}")).0
}

/// Whether something is mounted at `dir`, dead or alive.
#[must_use]
pub fn is_mounted(dir: &Path) -> bool {
    let wanted = dir.to_string_lossy();
    let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc is there");
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(&wanted))
}

/// All processes with their words.
#[must_use]
pub fn processes() -> Vec<(u32, Vec<String>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is there").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let mut bytes = Vec::new();
        if let Ok(mut file) = fs::File::open(entry.path().join("cmdline")) {
            let _ = file.read_to_end(&mut bytes);
        }
        let words = bytes
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned());
        if is_alive(pid) {
            found.push((pid, words.collect()));
        }
    }
    found
}

/// Runs a shell script in `dir`; fails the test where it fails.
pub fn shell(dir: &Path, script: &str) -> String {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(dir)
        .output()
        .expect("bash");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{script}\nended with {}\n{}{stderr}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
