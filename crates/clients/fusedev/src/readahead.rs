//! How far the kernel reads ahead in files that are read through its page cache.
//!
//! The kernel takes the lesser of the client's wish and 128 KiB. Only the mount's entry in sysfs
//! lifts that bound, and only root may write there.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::mount::MountOptions;

/// Where the kernel shows what it knows of each mount's storage.
const BACKINGS: &str = "/sys/class/bdi";
/// What some kernels put behind the number of a mount.
const SUFFIXES: [&str; 2] = ["", "-fuse"];

/// Lets the kernel read as far ahead as `options` says. The mount was just made.
pub(crate) fn set(options: &MountOptions) {
    if let Err(error) = try_set(&options.mountpoint, options.max_readahead) {
        tracing::debug!(%error, "the kernel reads ahead as far as it does by default");
    }
}

fn try_set(mountpoint: &Path, bytes: u32) -> io::Result<()> {
    // The kernel answers by itself: no request is served yet.
    let found = rustix::fs::statx(CWD, mountpoint, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    if found.stx_dev_major != 0 {
        return Err(io::Error::other("the mount point shows another file system"));
    }
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for suffix in SUFFIXES {
        let file = format!("{BACKINGS}/0:{}{suffix}/read_ahead_kb", found.stx_dev_minor);
        let opened = OpenOptions::new().write(true).open(file);
        outcome = opened.and_then(|mut file| write!(file, "{}", bytes / 1_024));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
