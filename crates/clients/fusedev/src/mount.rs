//! Mounting: by `mount(2)` if it is permitted, otherwise with the help of `fusermount3`.

use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use tokio::sync::oneshot;

use crate::abi::cap;
use crate::device::Device;
use crate::request_size::request_bytes;

/// By which way requests come and answers go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// io_uring where the kernel offers it, else the device.
    #[default]
    Auto,
    /// Reads and writes of `/dev/fuse`.
    Classic,
    /// io_uring; the mount fails where the kernel does not offer it.
    Uring,
}

/// How to mount and what to ask of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Where; an existing directory.
    pub mountpoint: PathBuf,
    /// What the mount table names as the source.
    pub source: String,
    /// Other users may enter.
    pub allow_other: bool,
    /// The kernel checks permissions by mode, owner and ACL.
    pub default_permissions: bool,
    pub read_only: bool,
    /// Set-user-id bits and devices count; root only.
    pub suid_dev: bool,
    /// No programs are run from it.
    pub no_exec: bool,
    /// Every write is durable when it returns.
    pub sync: bool,
    /// How access times are kept, for the mount table: NOATIME, NODIRATIME, STRICTATIME. The kernel
    /// keeps none of FUSE's.
    pub atime: MountFlags,
    /// Longest write in one request, bytes; the kernel's limit of pages may lower it.
    pub max_write: u32,
    /// Longest readahead, bytes.
    pub max_readahead: u32,
    /// Background requests under way at once.
    pub max_background: u16,
    /// Descriptors to read from, at least one.
    pub clones: usize,
    /// The way of requests and answers.
    pub transport: Channel,
    /// Capabilities to ask for ([`crate::abi::cap`]).
    pub want: u64,
    /// Capabilities to behave as if the kernel did not have them: an older kernel, for tests.
    pub mask: u64,
    /// The command line by which this executable, started again, calls [`crate::run_guard`]; the
    /// first word is the name of the process. Empty: no guard.
    pub guard: Vec<OsString>,
}

impl MountOptions {
    /// Asks for what every file system wants; nothing that changes meanings.
    #[must_use]
    pub fn new(mountpoint: impl Into<PathBuf>) -> MountOptions {
        MountOptions {
            mountpoint: mountpoint.into(),
            source: "nacre".to_owned(),
            allow_other: false,
            default_permissions: true,
            read_only: false,
            suid_dev: false,
            no_exec: false,
            sync: false,
            atime: MountFlags::empty(),
            max_write: request_bytes(),
            max_readahead: 1 << 20,
            max_background: 512,
            clones: 1,
            transport: Channel::Auto,
            want: cap::ASYNC_READ
                | cap::BIG_WRITES
                | cap::MAX_PAGES
                | cap::PARALLEL_DIROPS
                | cap::ASYNC_DIO,
            mask: 0,
            guard: Vec::new(),
        }
    }
}

/// Mounts; the device has the kernel's INIT waiting.
pub(crate) fn mount(options: &MountOptions) -> io::Result<Device> {
    if rustix::process::geteuid().is_root() {
        mount_directly(options)
    } else {
        mount_with_helper(options)
    }
}

fn mount_directly(options: &MountOptions) -> io::Result<Device> {
    let device = Device::open()?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}{}{}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        if options.default_permissions { ",default_permissions" } else { "" },
        if options.allow_other { ",allow_other" } else { "" },
    );
    let mut flags = options.atime;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID | MountFlags::NODEV, !options.suid_dev);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    let data = CString::new(data)?;
    rustix::mount::mount(
        options.source.as_str(),
        &options.mountpoint,
        "fuse.nacre",
        flags,
        Some(data.as_c_str()),
    )?;
    Ok(device)
}

fn mount_with_helper(options: &MountOptions) -> io::Result<Device> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // The helper inherits its end; ours stays closed to it.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    let status = Command::new("fusermount3")
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .args(["-o", &helper_options(options), "--"])
        .arg(&options.mountpoint)
        .stdin(Stdio::null())
        .status()?;
    drop(theirs);
    if !status.success() {
        return Err(io::Error::other(format!("fusermount3 could not mount: {status}")));
    }
    Device::from_fd(receive_fd(&ours)?)
}

/// The options as `fusermount3` reads them.
fn helper_options(options: &MountOptions) -> String {
    let mut words =
        vec![format!("fsname={}", escaped(&options.source)), "subtype=nacre".to_owned()];
    for (on, word) in [
        (options.default_permissions, "default_permissions"),
        (options.allow_other, "allow_other"),
        (options.read_only, "ro"),
        (options.no_exec, "noexec"),
        (options.sync, "sync"),
        (options.atime.contains(MountFlags::NOATIME), "noatime"),
    ] {
        if on {
            words.push(word.to_owned());
        }
    }
    words.join(",")
}

/// A value as `fusermount3` writes it. A source may name several servers, with commas between them,
/// and a comma ends an option.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,")
}

/// The descriptor that the next message brings.
pub(crate) fn receive_fd(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut byte = [0_u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| io::Error::other("no descriptor came"))
}

/// A mount of this process: its directory, and the file system that is there.
#[derive(Clone)]
pub(crate) struct Place {
    dir: PathBuf,
    /// None if the kernel did not say.
    device: Option<(u32, u32)>,
}

impl Place {
    /// Of the mount that was just made at `dir`.
    pub(crate) fn of(dir: &Path) -> Place {
        Place { dir: dir.to_path_buf(), device: device_at(dir).ok() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes the mount out of the tree from a thread of its own. The last user of a mount waits in
    /// the kernel for requests under way; over io_uring the serving thread has to fetch those
    /// first, so it must never be that user.
    pub(crate) fn unmount_aside(&self) -> oneshot::Receiver<io::Result<()>> {
        let (told, done) = oneshot::channel();
        let place = self.clone();
        std::thread::spawn(move || {
            let _receiver_may_be_gone = told.send(place.unmount());
        });
        done
    }

    /// Not if another mount is there by now: over this one, or where this one was before it was
    /// detached while it was in use.
    fn unmount(&self) -> io::Result<()> {
        if let (Some(ours), Ok(there)) = (self.device, device_at(&self.dir))
            && there != ours
        {
            let text = format!("{}: another file system is there", self.dir.display());
            return Err(io::Error::other(text));
        }
        unmount_detached(&self.dir)
    }
}

/// Major and minor number of the file system at `dir`. The kernel answers by itself, whoever serves
/// that file system.
fn device_at(dir: &Path) -> io::Result<(u32, u32)> {
    let found = rustix::fs::statx(CWD, dir, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Takes the mount out of the tree at once; what is still open ends by itself.
///
/// # Errors
/// Nothing is mounted there, or we may not.
pub fn unmount_detached(mountpoint: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(rustix::mount::unmount(mountpoint, UnmountFlags::DETACH)?);
    }
    unmount_by_helper(mountpoint, true)
}

/// Unmounts an ordinary user's mount; if not lazily, only one that no program uses.
///
/// # Errors
/// Nothing is mounted there, we may not, or it is in use. The helper has said so on stderr.
pub fn unmount_by_helper(mountpoint: &Path, is_lazy: bool) -> io::Result<()> {
    let status = Command::new("fusermount3")
        .args(helper_words(is_lazy))
        .arg(mountpoint)
        .stdin(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("fusermount3 could not unmount: {status}")))
    }
}

fn helper_words(is_lazy: bool) -> &'static [&'static str] {
    if is_lazy { &["-u", "-z", "--"] } else { &["-u", "--"] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_with_several_servers_is_one_option_of_the_helper() {
        let source = r"10.0.0.1@tcp,10.0.0.2@tcp:/a\b".to_owned();
        let options = MountOptions { source, read_only: true, ..MountOptions::new("/mnt") };
        assert_eq!(
            helper_options(&options),
            r"fsname=10.0.0.1@tcp\,10.0.0.2@tcp:/a\\b,subtype=nacre,default_permissions,ro"
        );
    }
}
