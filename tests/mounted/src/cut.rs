//! Power cuts and small disks: ext4 on a loop device, shut down without a log flush.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Scratch, until};

/// `EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Neither data nor journal reaches the disk any more.
const NO_LOG_FLUSH: u32 = 2;

/// `FIFREEZE` and `FITHAW`, `_IOWR('X', 119, int)` and 120.
const FREEZE: libc::c_ulong = 0xc004_5877;
const THAW: libc::c_ulong = 0xc004_5878;

/// A loop-mounted ext4 that can lose its power.
pub struct Disk {
    image: PathBuf,
    dir: PathBuf,
    mounted: bool,
}

impl Disk {
    /// A fresh file system of `mib` MiB, mounted at `name` below `scratch`.
    #[must_use]
    pub fn new(scratch: &Scratch, name: &str, mib: u64) -> Disk {
        let image = scratch.path().join(format!("{}.img", name.replace('/', "-")));
        let dir = scratch.path().join(name);
        File::create(&image).and_then(|file| file.set_len(mib << 20)).expect("an image file");
        fs::create_dir_all(&dir).expect("a mount point");
        command("mkfs.ext4", &["-q", "-m", "0", &image.to_string_lossy()]);
        let mut disk = Disk { image, dir, mounted: false };
        disk.mount();
        disk
    }

    /// Where it is mounted.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn mount(&mut self) {
        command(
            "mount",
            &[
                "-o",
                "loop,errors=remount-ro",
                &self.image.to_string_lossy(),
                &self.dir.to_string_lossy(),
            ],
        );
        self.mounted = true;
    }

    /// The power is gone: nothing more reaches the disk, every access fails.
    pub fn cut(&self) {
        let dir = File::open(&self.dir).expect("the mounted directory");
        let flags = NO_LOG_FLUSH;
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the descriptor is open, the argument is a live u32 as the ioctl wants it
        let outcome = unsafe { libc::ioctl(dir.as_raw_fd(), SHUTDOWN, &raw const flags) };
        assert_eq!(outcome, 0, "ext4 shutdown: {}", std::io::Error::last_os_error());
    }

    /// The disk answers no more writes until what is returned is dropped: they wait in the kernel.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        let dir = File::open(&self.dir).expect("the mounted directory");
        ask(&dir, FREEZE).expect("FIFREEZE");
        Frozen(dir)
    }

    /// The kernel finds an error in the file system and makes it read-only, open files or not.
    pub fn turn_read_only(&self) {
        let output = Command::new("findmnt")
            .args(["-no", "SOURCE"])
            .arg(&self.dir)
            .output()
            .expect("findmnt");
        let device = String::from_utf8(output.stdout).expect("a device's name");
        let name = device.trim().trim_start_matches("/dev/");
        fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "a disk that went bad\n")
            .expect("ext4's own switch");
        let probe = File::create(self.dir.join("probe"));
        let errno = probe.expect_err("it is read-only").raw_os_error();
        assert_eq!(errno, Some(libc::EROFS));
    }

    /// Unmounts it when the last process on it has let go: threads of one that was killed may still
    /// end.
    pub fn unmount(&mut self) {
        until(&format!("{} is not busy", self.dir.display()), || {
            let mut umount = Command::new("umount");
            umount.arg(&self.dir).stderr(std::process::Stdio::null());
            umount.status().is_ok_and(|status| status.success())
        });
        self.mounted = false;
    }
}

/// A disk that stands still.
pub struct Frozen(File);

impl Drop for Frozen {
    fn drop(&mut self) {
        let _thawed = ask(&self.0, THAW);
    }
}

fn ask(dir: &File, what: libc::c_ulong) -> std::io::Result<()> {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the descriptor is open, and the kernel ignores the argument
    let outcome = unsafe { libc::ioctl(dir.as_raw_fd(), what, 0) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
        let _ = fs::remove_file(&self.image);
    }
}

fn command(program: &str, args: &[&str]) {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
