//! `passthrough_hp` of libfuse: a FUSE file system that only hands each call on to a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, getrlimit};

use super::public;

const PASSTHROUGH: &str = "passthrough_hp";

/// How long its mount may take.
const MOUNT_WAIT: Duration = Duration::from_secs(10);

pub(crate) fn is_installed() -> bool {
    public::is_installed(PASSTHROUGH)
}

/// Files and directories that its kernel can know at a time: it has each of them open, and raises
/// its own limit as far as it may.
pub(super) fn files_max() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// `passthrough_hp` over a directory.
pub(super) struct Passthrough {
    child: Child,
    mount: PathBuf,
}

impl Passthrough {
    pub(super) fn over(source: &Path, mount: PathBuf) -> Result<Passthrough> {
        fs::create_dir_all(&mount)?;
        let child = Command::new(PASSTHROUGH)
            .arg("--foreground")
            .args([source, &mount])
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("{PASSTHROUGH} starts"))?;
        let passthrough = Passthrough { child, mount };
        let begun = Instant::now();
        while !mounted::is_mounted(&passthrough.mount) {
            ensure!(begun.elapsed() < MOUNT_WAIT, "{PASSTHROUGH} does not mount");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(passthrough)
    }

    pub(super) fn mount(&self) -> &Path {
        &self.mount
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        let _it_may_be_gone = Command::new("umount").arg("-l").arg(&self.mount).status();
        let _it_may_have_ended = self.child.kill();
        let _ = self.child.wait();
    }
}
