//! State that a check must not leave on a machine and cannot isolate in a lane: loop devices, and
//! FUSE's parameters.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

/// Parameters of the kernel that tests set for a moment. Each setter holds a lock on the file
/// meanwhile, where another setter may come.
const PARAMETERS: &[&str] =
    &["/sys/module/fuse/parameters/enable_uring", "/proc/sys/fs/fuse/max_pages_limit"];

/// How long a setter may hold a parameter.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);

/// The parameters as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(&'static str, Option<String>)>);

impl Parameters {
    /// Looks around.
    pub(crate) fn now() -> Parameters {
        Parameters(PARAMETERS.iter().map(|path| (*path, settled(path))).collect())
    }

    /// Puts back what differs, and says so.
    pub(crate) fn restore(&self) -> Vec<String> {
        let mut changed = Vec::new();
        for ((path, before), (_, after)) in self.0.iter().zip(Parameters::now().0) {
            if let Some(before) = before
                && after.as_ref() != Some(before)
            {
                let put_back = fs::write(path, before);
                changed.push(format!("{path} was {before}, became {after:?}: {put_back:?}"));
            }
        }
        changed
    }

    /// Fails where something had to be put back.
    pub(crate) fn compare(&self) -> Result<()> {
        let changed = self.restore();
        if changed.is_empty() { Ok(()) } else { bail!("changed: {}", changed.join("; ")) }
    }
}

/// The value while no setter holds the file.
fn settled(path: &str) -> Option<String> {
    let file = File::open(path).ok()?;
    let tries = PATIENCE.as_millis() / LOOK.as_millis();
    for _ in 0..tries {
        if file.try_lock_shared().is_ok() {
            break;
        }
        std::thread::sleep(LOOK);
    }
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Loop devices whose file was in `dir`, one line each. Those of a mount that has just gone are
/// waited for; those that stay are detached.
pub(crate) fn loops_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for _ in 0..60 {
        found = loops(dir);
        if found.is_empty() {
            return Vec::new();
        }
        std::thread::sleep(LOOK);
    }
    for (device, _) in &found {
        let _said_below = std::process::Command::new("losetup").args(["-d", device]).status();
    }
    found.into_iter().map(|(device, file)| format!("loop device {device} on {file}")).collect()
}

fn loops(dir: &Path) -> Vec<(String, String)> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
            let name = device.file_name().to_string_lossy().into_owned();
            file.starts_with(&*dir.to_string_lossy())
                .then(|| (format!("/dev/{name}"), file.trim().to_owned()))
        })
        .collect()
}
