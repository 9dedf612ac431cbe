//! Two nodes of `nacre serve` on this machine, with an MDT and an OST each: on two executors of one
//! process, or in two processes.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use crate::{fsck, kill, nacre_bin, wait_bounded};

/// Where the nodes listen; the MGS is at the first one.
pub const ADDRESSES: [&str; 2] = ["127.0.248.1@tcp", "127.0.248.2@tcp"];

/// An address for a client.
pub const CLIENT: &str = "127.0.248.3@tcp";

/// Targets of each node, as round robin divides them.
const TARGETS: [&[&str]; 2] =
    [&["MGS", "testfs-MDT0000", "testfs-OST0000"], &["testfs-MDT0001", "testfs-OST0001"]];

/// How the nodes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    OneProcess,
    TwoProcesses,
}

/// The nodes; they end with the value.
pub struct Nodes {
    dir: PathBuf,
    processes: Vec<Child>,
    mounted: Option<PathBuf>,
}

impl Nodes {
    /// Formats the targets below `dir`, which must not have them yet.
    #[must_use]
    pub fn format(dir: &Path) -> Nodes {
        for name in TARGETS.concat() {
            let mut command = Command::new(nacre_bin());
            command.args(["format", "--fsname", "testfs"]).arg(dir.join(name));
            let (kind, index) = match name.split_once('-').map(|(_, short)| short.split_at(3)) {
                Some(("MDT", index)) => ("--mdt", index),
                Some((_, index)) => ("--ost", index),
                None => ("--mgs", ""),
            };
            command.arg(kind);
            if !index.is_empty() {
                command.args(["--index", index, "--mgsnode", ADDRESSES[0]]);
            }
            assert!(command.status().expect("nacre starts").success(), "{name} is not formatted");
        }
        Nodes { dir: dir.to_owned(), processes: Vec::new(), mounted: None }
    }

    /// Starts them, with further arguments, and waits until the MGS knows all targets.
    pub fn start(&mut self, shape: Shape, args: &[&str]) {
        assert!(self.processes.is_empty(), "they are started once");
        let both = ADDRESSES.map(|at| ["--listen", at]);
        let mut outs = match shape {
            Shape::OneProcess => vec![self.serve(&TARGETS.concat(), &both.concat(), args)],
            Shape::TwoProcesses => {
                vec![self.serve(TARGETS[0], &both[0], args), self.serve(TARGETS[1], &both[1], args)]
            }
        };
        let lines = |(out, count): &mut (BufReader<ChildStdout>, usize)| {
            for _ in 0..*count {
                let mut line = String::new();
                assert!(out.read_line(&mut line).expect("a pipe") > 0, "a server has ended");
            }
        };
        outs.iter_mut().for_each(lines);
    }

    /// Starts a process; what it prints, and how many targets it has.
    fn serve(
        &mut self,
        targets: &[&str],
        listen: &[&str],
        args: &[&str],
    ) -> (BufReader<ChildStdout>, usize) {
        let dirs = targets.iter().map(|name| self.dir.join(name));
        let mut command = Command::new(nacre_bin());
        command.arg("serve").args(dirs).args(listen).args(args).stdout(Stdio::piped());
        let mut child = command.spawn().expect("nacre starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        self.processes.push(child);
        (out, targets.len())
    }

    /// The `NID:/fsname` for clients.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:/testfs", ADDRESSES[0])
    }

    /// The processes of the servers.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.processes.iter().map(Child::id).collect()
    }

    /// Mounts it at `dir`, in a daemon of its own.
    pub fn mount(&mut self, dir: &Path) {
        fs::create_dir_all(dir).expect("a mount point");
        let mut command = Command::new(nacre_bin());
        command.args(["mount", &self.address()]).arg(dir);
        let status = command.args(["-o", &format!("nid={CLIENT}")]).status();
        assert!(status.expect("nacre starts").success(), "nacre mount failed");
        self.mounted = Some(dir.to_owned());
    }

    /// Unmounts in order.
    pub fn unmount(&mut self) {
        let dir = self.mounted.take().expect("it is mounted");
        let status = Command::new(nacre_bin()).arg("umount").arg(dir).status();
        assert!(status.expect("nacre starts").success(), "nacre umount failed");
    }

    /// kill -9 of all servers at once.
    pub fn kill(&mut self) {
        self.processes.iter_mut().for_each(|child| child.kill().expect("it lives"));
        for mut child in self.processes.drain(..) {
            let _it_was_killed = child.wait();
        }
    }

    /// SIGTERM to all servers; how they ended.
    pub fn stop(&mut self) -> Vec<ExitStatus> {
        self.processes.iter().for_each(|child| kill(child.id(), libc::SIGTERM));
        let ended = |mut child| wait_bounded(&mut child).expect("it ends in time");
        self.processes.drain(..).map(ended).collect()
    }

    /// Checks it after [`Nodes::stop`]: nothing is wrong.
    pub fn fsck(&self) {
        fsck(&self.dir);
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if let Some(dir) = &self.mounted {
            let _it_may_be_gone = Command::new("umount").arg("-l").arg(dir).status();
        }
        for child in &mut self.processes {
            let _it_may_be_gone = child.kill();
            let _it_was_killed = child.wait();
        }
    }
}
