//! A fresh ext4 with a journal on a loop device with direct I/O. The servers and the comparison
//! directory share it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use mounted::Scratch;

use crate::machine::output;

/// Inodes of the file system: creates of some seconds make a million files.
const INODES: &str = "8000000";

/// The mounted file system. It is unmounted and its image removed at the end.
pub(crate) struct Disk {
    device: String,
    image: PathBuf,
    dir: PathBuf,
    _scratch: Scratch,
}

impl Disk {
    /// `gib` GiB in a file in the temporary directory. Its blocks are allocated before anything is
    /// measured. Those of a sparse file lie in the order of the first writes, and reads of a side
    /// whose writes met others then differ by a quarter.
    pub(crate) fn make(gib: u64) -> Result<Disk> {
        let scratch = Scratch::new("bench-disk");
        let (image, dir) = (scratch.path().join("disk.img"), scratch.path().join("disk"));
        let free = free_gib(scratch.path())?;
        ensure!(
            free > gib,
            "{gib} GiB are needed below {}, {free} GiB are free there; TMPDIR=DIR chooses another place",
            scratch.path().display()
        );
        fs::create_dir_all(&dir)?;
        let path = image.to_str().context("a path of text")?;
        output("fallocate", &["-l", &format!("{gib}GiB"), path])?;
        output("mkfs.ext4", &["-q", "-m0", "-E", "nodiscard", "-N", INODES, path])?;
        let device = output("losetup", &["--find", "--show", "--direct-io=on", path])?;
        let disk = Disk { device, image, dir, _scratch: scratch };
        output("mount", &[&disk.device, disk.dir.to_str().context("a path of text")?])?;
        Ok(disk)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let quiet = |program: &str, args: &[&str]| {
            Command::new(program)
                .args(args)
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|s| s.success())
        };
        let dir = self.dir.to_string_lossy();
        if !quiet("umount", &[&dir]) && !quiet("umount", &["-l", &dir]) {
            eprintln!("{dir} is still mounted");
        }
        if !quiet("losetup", &["-d", &self.device]) {
            eprintln!("{} is still there", self.device);
        }
        let _removed_with_its_scratch = fs::remove_file(&self.image);
    }
}

/// GiB that are free where a directory is.
pub(crate) fn free_gib(dir: &Path) -> Result<u64> {
    let text = output("df", &["--output=avail", "-BG", dir.to_str().context("a path of text")?])?;
    let last = text.lines().last().context("df prints a line")?;
    last.trim().trim_end_matches('G').parse().context("df prints a number")
}
