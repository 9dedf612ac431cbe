//! The processes of a run: five servers, each on a disk that can lose its power, and the mounts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::found::{Kind, Wrong};
use super::life::Run;
use super::net::{Net, nid, tool, try_tool};
use super::times::{MDS, MOUNTS, OSTS, is_mount, mount, name};
use crate::cut::Disk;
use crate::{Scratch, is_mounted, is_there, kill, nacre_bin, wait_bounded};

const NODES: usize = 1 + OSTS + MOUNTS + 1;
/// The mount that looks at everything at the end.
const FRESH: usize = NODES - 1;
const DISK_MIB: u64 = 2_048;
const FSNAME: &str = "chaos";
/// What mounting and unmounting may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);
/// `nacre serve` ended because its storage failed.
const STORAGE_FAILED: i32 = 75;

/// A mount in the foreground prints this when it can be used.
const READY: &str = "ready";

/// A node's process.
struct Node {
    child: Option<Child>,
    /// It shall run: where it does not, nobody but itself has ended it.
    wanted: bool,
    starts: usize,
}

pub(super) struct Machines {
    out: PathBuf,
    scratch: Scratch,
    net: Net,
    disks: Vec<Disk>,
    nodes: Vec<Node>,
}

impl Machines {
    /// Formats and starts all; returns when both mounts are there.
    pub(super) fn start(out: &Path) -> Machines {
        let scratch = Scratch::new("chaos");
        let _there_may_be_none = fs::remove_dir_all(out);
        fs::create_dir_all(out).expect("a directory for logs");
        let net = Net::new(NODES);
        let disks = (0..=OSTS).map(|node| Disk::new(&scratch, &name(node), DISK_MIB)).collect();
        let node = |_| Node { child: None, wanted: true, starts: 0 };
        let nodes = (0..NODES).map(node).collect();
        let mut all = Machines { out: out.to_owned(), scratch, net, disks, nodes };
        (0..NODES).for_each(|node| all.set_clock(node, 0));
        for node in (0..NODES).filter(|node| is_mount(*node)) {
            fs::create_dir(all.mount_dir(node)).expect("a mount point");
        }
        all.nodes[FRESH].wanted = false;
        (0..=OSTS).for_each(|node| all.format(node));
        (0..=OSTS).for_each(|node| all.spawn(node));
        (0..MOUNTS).for_each(|index| all.mount_now(mount(index)).expect("the first mounts"));
        all
    }

    fn format(&self, node: usize) {
        let dir = self.target(node);
        let (index, mgs) = ((node.max(1) - 1).to_string(), nid(MDS));
        let kind: &[&str] =
            if node == MDS { &["--mgs", "--mdt"] } else { &["--ost", "--mgsnode", &mgs] };
        let mut args = vec!["format", "--fsname", FSNAME, "--index", &index];
        args.extend(kind);
        args.push(&dir);
        tool(&nacre_bin().to_string_lossy(), &args);
    }

    fn target(&self, node: usize) -> String {
        self.disks[node].dir().join("target").to_string_lossy().into_owned()
    }

    pub(super) fn mount_dirs(&self) -> [PathBuf; MOUNTS] {
        [self.mount_dir(mount(0)), self.mount_dir(mount(1))]
    }

    /// Nothing looks at it from here: a mount that is frozen does not answer.
    fn mount_dir(&self, node: usize) -> PathBuf {
        self.scratch.path().join(name(node))
    }

    /// Whether clocks can be moved here.
    pub(super) fn has_clocks(&self) -> bool {
        Path::new(&fake_time_library()).exists()
    }

    /// The node's wall clock is `ahead` seconds ahead of the machine's from now on.
    pub(super) fn set_clock(&self, node: usize, ahead: i64) {
        fs::write(self.clock(node), format!("{ahead:+}\n")).expect("scratch");
    }

    fn clock(&self, node: usize) -> PathBuf {
        self.scratch.path().join(format!("{}.clock", name(node)))
    }

    /// A fresh one for each start.
    fn log(&self, node: usize) -> PathBuf {
        let start = self.nodes[node].starts;
        self.out.join(format!("{}.{start}.log", name(node)))
    }

    fn spawn(&mut self, node: usize) {
        self.nodes[node].starts += 1;
        let mut command = Net::command(node, &nacre_bin());
        if is_mount(node) {
            let options = format!("nid={},insecure", nid(node));
            command.args(["mount", "--foreground", &format!("{}:/{FSNAME}", nid(MDS))]);
            command.arg(self.mount_dir(node)).args(["-o", &options]);
        } else {
            command.args(["serve", &self.target(node), "--listen", &nid(node), "--insecure"]);
        }
        let log = File::options().create(true).append(true).open(self.log(node));
        let log = log.expect("a log file");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        if self.has_clocks() {
            self.fake_time(node, &mut command);
        }
        self.nodes[node].child = Some(command.spawn().expect("nsenter starts"));
    }

    fn fake_time(&self, node: usize, command: &mut Command) {
        command.env("LD_PRELOAD", fake_time_library());
        command.env("FAKETIME_TIMESTAMP_FILE", self.clock(node));
        command.env("FAKETIME_CACHE_DURATION", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command.env("FAKETIME_DISABLE_SHM", "1");
    }

    fn pid(&self, node: usize) -> Option<u32> {
        self.nodes[node].child.as_ref().map(Child::id)
    }

    /// kill -9; it stays away until [`Machines::start_again`].
    pub(super) fn kill(&mut self, node: usize, run: &Run) {
        self.nodes[node].wanted = false;
        if is_mount(node) {
            run.mount_dies(node - mount(0));
        }
        let Some(mut child) = self.nodes[node].child.take() else { return };
        kill(child.id(), libc::SIGKILL);
        let _its_status_is_ours = wait_bounded(&mut child);
    }

    /// The power of these servers goes: nothing is said any more, not of the failing disk either,
    /// and what the disks had not taken is lost.
    pub(super) fn power_cut(&mut self, nodes: &[usize], run: &Run) {
        nodes.iter().for_each(|node| self.freeze(*node));
        nodes.iter().for_each(|node| self.disks[*node].cut());
        for node in nodes {
            self.kill(*node, run);
            self.disks[*node].unmount();
        }
    }

    pub(super) fn power_again(&mut self, node: usize) {
        if !is_mount(node) {
            self.disks[node].mount();
        }
        self.start_again(node);
    }

    /// Mounts are usable later: [`Machines::tend`] sees it.
    pub(super) fn start_again(&mut self, node: usize) {
        self.nodes[node].wanted = true;
        self.spawn(node);
    }

    pub(super) fn freeze(&self, node: usize) {
        self.pid(node).into_iter().for_each(|pid| kill(pid, libc::SIGSTOP));
    }

    pub(super) fn thaw(&self, node: usize) {
        self.pid(node).into_iter().for_each(|pid| kill(pid, libc::SIGCONT));
    }

    pub(super) fn cut(&mut self, from: usize, to: usize, both: bool) {
        self.net.cut(from, to, both);
    }

    pub(super) fn heal(&mut self, from: usize, to: usize, both: bool) {
        self.net.heal(from, to, both);
    }

    /// Starts what has ended by itself, which is a violation; notices mounts that are there again.
    pub(super) fn tend(&mut self, run: &Run) {
        for node in 0..FRESH {
            let Some(child) = &mut self.nodes[node].child else { continue };
            let ended = child.try_wait().expect("our child");
            if let Some(status) = ended {
                self.ended_alone(node, status.code(), run);
            }
        }
        for index in 0..MOUNTS {
            let node = mount(index);
            if self.nodes[node].wanted && !run.is_alive(index) && self.is_usable(node) {
                run.mount_lives(index);
            }
        }
    }

    fn ended_alone(&mut self, node: usize, code: Option<i32>, run: &Run) {
        self.nodes[node].child = None;
        let is_first_try = is_mount(node) && !run.is_alive(node - mount(0));
        if !is_first_try {
            let told = if code == Some(STORAGE_FAILED) { ": its storage failed" } else { "" };
            let text = format!("{} ended with {code:?}{told}", name(node));
            run.found.add(Wrong::new(run.times.now(), Kind::Machine, text));
            if is_mount(node) {
                run.mount_dies(node - mount(0));
            }
        }
        if self.nodes[node].wanted {
            std::thread::sleep(LOOK);
            self.spawn(node);
        }
    }

    fn is_usable(&self, node: usize) -> bool {
        let text = fs::read_to_string(self.log(node)).unwrap_or_default();
        let dir = self.mount_dir(node);
        text.lines().any(|line| line == READY) && is_mounted(&dir) && is_there(&dir)
    }

    fn mount_now(&mut self, node: usize) -> Result<(), String> {
        self.nodes[node].wanted = true;
        self.spawn(node);
        let start = Instant::now();
        while !self.is_usable(node) {
            let ended = self.nodes[node].child.as_mut().and_then(|child| child.try_wait().ok());
            if ended.flatten().is_some() || start.elapsed() > PATIENCE {
                return Err(format!(
                    "{} did not mount, see {}",
                    name(node),
                    self.log(node).display()
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The mount that sees it all at the end.
    pub(super) fn fresh_mount(&mut self) -> Result<PathBuf, String> {
        self.mount_now(FRESH)?;
        Ok(self.mount_dir(FRESH))
    }

    /// A directory that both mounts see, whose files are on one server, or on all in pieces of
    /// 64 KiB.
    pub(super) fn make_dir(&self, path: &str, place: Option<usize>) {
        let dir = self.mount_dir(mount(0)).join(path);
        fs::create_dir_all(&dir).expect("mkdir on a fresh file system");
        let dir = dir.to_string_lossy();
        let index = place.unwrap_or(0).to_string();
        let layout: &[&str] =
            if place.is_some() { &["-c", "1", "-i", &index] } else { &["-c", "-1", "-S", "64k"] };
        let args = [&["lfs", "setstripe"], layout, &[&*dir]].concat();
        let start = Instant::now();
        while let Err(error) = try_tool(&nacre_bin().to_string_lossy(), &args) {
            assert!(start.elapsed() < PATIENCE, "{error}"); // not all servers have registered
            std::thread::sleep(LOOK);
        }
    }

    /// A mount that is still starting is mounted first.
    pub(super) fn unmount_all(&mut self, run: &Run) {
        let start = Instant::now();
        while self.has_starting_mounts(run) && start.elapsed() < PATIENCE {
            self.tend(run);
            std::thread::sleep(LOOK);
        }
        (0..MOUNTS).for_each(|index| self.end(mount(index), run));
    }

    fn has_starting_mounts(&self, run: &Run) -> bool {
        (0..MOUNTS).any(|index| self.nodes[mount(index)].wanted && !run.is_alive(index))
    }

    /// SIGTERM, and what it takes to end in good order.
    fn end(&mut self, node: usize, run: &Run) {
        self.nodes[node].wanted = false;
        let Some(mut child) = self.nodes[node].child.take() else { return };
        kill(child.id(), libc::SIGTERM);
        let status = wait_bounded(&mut child);
        if status.is_none() {
            kill(child.id(), libc::SIGKILL);
            let _its_status_is_ours = child.wait();
        }
        if status.is_none_or(|status| !status.success()) {
            let text = format!("{} was to end in good order: {status:?}", name(node));
            run.found.add(Wrong::new(run.times.now(), Kind::Machine, text));
        }
    }

    pub(super) fn restart_servers(&mut self, run: &Run) {
        (0..=OSTS).for_each(|node| self.end(node, run));
        (0..=OSTS).for_each(|node| self.start_again(node));
    }

    /// Panics in logs are violations.
    pub(super) fn look_at_logs(&self, run: &Run) {
        for entry in fs::read_dir(&self.out).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            for line in text.lines().filter(|line| line.contains("panicked at")) {
                let text = format!("{}: {line}", entry.file_name().to_string_lossy());
                run.found.at_the_end(Kind::Machine, text);
            }
            let has = |word: &str| text.lines().filter(|line| line.contains(word)).count() as u64;
            run.found.count("lines of level ERROR in logs", has(" ERROR "));
            run.found.count("evictions in logs", has("evicted"));
        }
    }

    pub(super) fn stop(&mut self, run: &Run) {
        self.end(FRESH, run);
        (0..=OSTS).for_each(|node| self.end(node, run));
        (0..=OSTS).for_each(|node| self.disks[node].unmount());
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for node in (0..NODES).rev() {
            if let Some(mut child) = self.nodes[node].child.take() {
                let _may_have_ended = child.kill();
                let _its_status_is_ours = child.wait();
            }
        }
        for node in (0..NODES).filter(|node| is_mount(*node)) {
            let dir = self.mount_dir(node);
            let mut umount = Command::new("umount");
            let _is_none = umount.arg("-l").arg(dir).stderr(Stdio::null()).status();
        }
    }
}

/// Where Debian has libfaketime.
fn fake_time_library() -> String {
    format!("/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH)
}
