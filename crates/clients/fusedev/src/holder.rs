//! The holder: a small process that outlives a daemon that is killed, and detaches its mount.
//!
//! It holds the read end of a pipe whose write end only the daemon has. A byte means a clean end:
//! it leaves. End of file means that the daemon is dead: it gives up its `/dev/fuse` descriptor,
//! which ends the connection so that nothing can wait for an answer any more, detaches the mount,
//! and leaves.
//!
//! A fork of a process with threads may do nothing but system calls that are safe in signal
//! handlers, so everything it needs is made before the fork.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::device::{Device, pipe};

pub(crate) struct Holder {
    pid: libc::pid_t,
    alive: Option<OwnedFd>,
}

impl Holder {
    pub(crate) fn start(device: &Device, mountpoint: &Path) -> io::Result<Holder> {
        let target = CString::new(mountpoint.as_os_str().as_bytes())?;
        let helper = c"/usr/bin/fusermount3";
        let argv = [
            c"fusermount3".as_ptr(),
            c"-u".as_ptr(),
            c"-z".as_ptr(),
            c"--".as_ptr(),
            target.as_ptr(),
            std::ptr::null(),
        ];
        let (watch, alive) = pipe()?;
        let (watch_fd, device_fd) = (watch.as_raw_fd(), device.as_raw_fd());
        // SAFETY: the child calls only functions that are safe after a fork with threads and never
        // returns.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            // SAFETY: this is the child; all pointers were made before the fork and are valid in
            // its copy.
            unsafe { hold(watch_fd, device_fd, target.as_ptr(), helper.as_ptr(), argv.as_ptr()) }
        }
        Ok(Holder { pid, alive: Some(alive) })
    }

    /// The mount is gone: the holder may go. Waits for it, which takes no longer than its exit.
    pub(crate) fn release(&mut self) {
        let Some(alive) = self.alive.take() else { return };
        let _ = rustix::io::write(&alive, b"q");
        drop(alive);
        let mut status = 0;
        // SAFETY: the kernel writes the status into the variable.
        while unsafe { libc::waitpid(self.pid, &raw mut status, 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.release();
    }
}

/// Life of the holder.
///
/// # Safety
/// Only in a freshly forked child, with NUL-terminated strings.
unsafe fn hold(
    watch: RawFd,
    device: RawFd,
    target: *const libc::c_char,
    helper: *const libc::c_char,
    argv: *const *const libc::c_char,
) -> ! {
    // SAFETY: plain system calls on descriptors of this process; each is async-signal-safe, and
    // none keeps a pointer.
    unsafe {
        // Not in the daemon's session or group: a signal from its terminal must not end it first.
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"nacre-holder".as_ptr());
        // A busy working directory would keep some other mount from going.
        libc::chdir(c"/".as_ptr());
        // Everything else that the daemon had open, write ends of other holders' pipes above all,
        // is none of ours. The device goes first to a number out of the way, since either may be 0
        // or 1 already.
        let device = libc::fcntl(device, libc::F_DUPFD, 10);
        let watch = libc::fcntl(watch, libc::F_DUPFD, 10);
        libc::dup2(watch, 0);
        libc::dup2(device, 1);
        libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
        let mut byte = 0_u8;
        let got = loop {
            let got = libc::read(0, (&raw mut byte).cast(), 1);
            if got >= 0 || *libc::__errno_location() != libc::EINTR {
                break got;
            }
        };
        if got > 0 {
            libc::_exit(0);
        }
        libc::close(1);
        if libc::umount2(target, libc::MNT_DETACH) != 0 && libc::geteuid() != 0 {
            libc::execv(helper, argv);
        }
        libc::_exit(0)
    }
}
