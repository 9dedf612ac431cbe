//! The guard of a mount: a process that ends the connection once the serving process has died.
//!
//! ```text
//!  serving process ------ socket ------ guard
//!    descriptors of /dev/fuse            the connection's file `abort`
//! ```
//! - When a process dies, the kernel closes its descriptors and ends the requests that were read
//!   from them. It ends a request that was not read only when no descriptor of the mount is open.
//! - A teller ([`crate::teller`]) keeps a descriptor while it waits for a directory's lock. The
//!   lock may belong to a caller whose request was not read. Then the caller waits for an answer,
//!   the teller waits for the caller, and neither ends. So another process ends the connection.
//! - The guard acts however the serving process ends, because a process that ends cleanly may have
//!   such a teller too. If the connection has ended before, nothing happens. The mount stays.
//! - The guard has no descriptor of `/dev/fuse` and is its own session. It ignores the signals that
//!   a terminal or a service manager sends to all processes of a daemon.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno as Os;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::init::InitInfo;
use crate::mount::{MountOptions, receive_fd};

/// Where the kernel's list of connections usually is.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
const NO_GUARD: &str = "no guard: this process may not end when it is killed, and calls may hang";
/// How long a guard may take to act before it is killed.
const END_MAX: Duration = Duration::from_secs(1);
const END_LOOK: Duration = Duration::from_millis(1);

/// The guard of a connection that this process serves. Dropped, it ends the connection.
pub(crate) struct Guard {
    /// The guard acts when this is closed, by the drop or by the end of the process.
    socket: Option<OwnedFd>,
    process: Child,
}

impl Guard {
    /// The guard of a mount that was just made; `None` if it needs none, or cannot have one.
    pub(crate) fn of(options: &MountOptions, info: InitInfo) -> Option<Guard> {
        let (name, arguments) = options.guard.split_first()?;
        // without notifications about names there are no tellers
        let guard = info.tells_names().then(|| start(name, arguments, &options.mountpoint))?;
        guard.inspect_err(|error| tracing::info!(%error, "{NO_GUARD}")).ok()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.socket.take());
        let start = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && start.elapsed() < END_MAX {
            std::thread::sleep(END_LOOK);
        }
        let _ = self.process.kill(); // has ended, unless it was stopped
        let _ = self.process.wait();
    }
}

/// Starts this executable again.
fn start(name: &OsStr, arguments: &[OsString], mountpoint: &Path) -> io::Result<Guard> {
    let abort = open_abort(mountpoint)?;
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    send_fd(&ours, abort.as_fd())?;
    // not by its path, which may lead to a newer file
    let process = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .current_dir("/")
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(Guard { socket: Some(ours), process })
}

/// A write to this file ends the connection of the mount, and of no later mount.
fn open_abort(mountpoint: &Path) -> io::Result<OwnedFd> {
    // The kernel answers by itself: no request is served yet.
    let found = rustix::fs::statx(CWD, mountpoint, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    if found.stx_dev_major != 0 {
        return Err(io::Error::other("the mount point shows another file system"));
    }
    let name = format!("{}/abort", found.stx_dev_minor);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open(format!("{CONNECTIONS}/{name}"), flags, Mode::empty()) {
        Err(Os::NOENT) => Ok(rustix::fs::openat(connections()?, name, flags, Mode::empty())?),
        other => Ok(other?),
    }
}

/// The kernel's list of connections as a mount that no path leads to. Needs root.
fn connections() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn send_fd(socket: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("the message has no room for a descriptor"));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// The whole work of a guard. Its process has just begun, by [`MountOptions::guard`], and ends when
/// this returns.
///
/// # Errors
/// The process was not begun that way, or the kernel refuses the write.
pub fn run_guard() -> io::Result<()> {
    ignore_signals();
    // SAFETY: the name is a C string, which the kernel copies.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"fuse guard".as_ptr()) };
    // SAFETY: the call has no pointers. Nothing in this process has opened a descriptor: those from
    // 3 on were inherited and belong to no value.
    if unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) } != 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::process::setsid()?;
    let socket = io::stdin();
    let abort = receive_fd(&socket)?;
    // Nothing is sent: the read ends with the other side.
    while matches!(rustix::io::read(&socket, &mut [0_u8; 1]), Ok(1) | Err(Os::INTR)) {}
    rustix::io::write(&abort, b"1")?;
    Ok(())
}

fn ignore_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
