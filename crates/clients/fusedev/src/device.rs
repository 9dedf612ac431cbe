//! One descriptor of `/dev/fuse`, non-blocking: reads requests, writes answers and notifications.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Os;
use types::Errno;
use zerocopy::IntoBytes;

use crate::abi;
use crate::reply::{Body, PIECES_MAX, Reply};

/// `_IOR(229, 0, uint32_t)`.
const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;

pub(crate) struct Device {
    pub(crate) fd: OwnedFd,
}

/// What a read gave.
pub(crate) enum Got {
    Message(usize),
    Empty,
    /// The mount is gone.
    Gone,
}

impl Device {
    pub(crate) fn open() -> io::Result<Device> {
        let fd = rustix::fs::open(
            "/dev/fuse",
            OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
        )?;
        Ok(Device { fd })
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Device> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        Ok(Device { fd })
    }

    /// Another descriptor of the same mount, with its own list of requests being worked on.
    pub(crate) fn clone_of(&self) -> io::Result<Device> {
        let clone = Device::open()?;
        let mut master =
            u32::try_from(self.fd.as_raw_fd()).expect("an open descriptor is not negative");
        // SAFETY: both descriptors are open, and the kernel reads a u32 through the pointer, which
        // outlives the call.
        let result =
            unsafe { libc::ioctl(clone.fd.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw mut master) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(clone) }
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Got> {
        loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(0) => return Ok(Got::Gone),
                Ok(len) => return Ok(Got::Message(len)),
                // ENOENT: the request was taken back while it was being handed over.
                Err(Os::INTR | Os::NOENT) => {}
                Err(Os::AGAIN) => return Ok(Got::Empty),
                Err(Os::NODEV | Os::CONNABORTED | Os::NOTCONN) => return Ok(Got::Gone),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers request `unique`.
    pub(crate) fn reply(&self, unique: u64, reply: &Reply) {
        let outcome = match reply {
            Ok(body) => self.reply_body(unique, body),
            Err(errno) => self.reply_error(unique, *errno),
        };
        match outcome {
            Ok(()) => {}
            // The caller is gone, or the mount is.
            Err(Os::NOENT | Os::NODEV | Os::CONNABORTED | Os::NOTCONN) => {}
            Err(error) => {
                tracing::warn!(%error, unique, "the kernel refused an answer");
                // It is told something all the same, or the caller would wait for ever.
                let _ = self.reply_error(unique, Errno::EIO);
            }
        }
    }

    fn reply_error(&self, unique: u64, errno: Errno) -> Result<(), Os> {
        let header =
            abi::OutHeader { len: size_of::<abi::OutHeader>() as u32, error: -errno.raw(), unique };
        rustix::io::write(&self.fd, header.as_bytes()).map(|_| ())
    }

    fn reply_body(&self, unique: u64, body: &Body) -> Result<(), Os> {
        if let Body::Pieces(pieces) = body
            && pieces.len() > PIECES_MAX
        {
            return self.reply_body(unique, &Body::Data(pieces.concat().into()));
        }
        let mut len = size_of::<abi::OutHeader>();
        body.parts(|part| len += part.len());
        let header =
            abi::OutHeader { len: u32::try_from(len).map_err(|_| Os::INVAL)?, error: 0, unique };
        self.send(header.as_bytes(), |each| body.parts(each))
    }

    /// A message of our own accord.
    pub(crate) fn notify(&self, code: i32, parts: &[&[u8]]) -> io::Result<()> {
        let len = size_of::<abi::OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = abi::OutHeader {
            len: u32::try_from(len).map_err(io::Error::other)?,
            error: code,
            unique: 0,
        };
        self.send(header.as_bytes(), |each| parts.iter().for_each(|part| each(part)))?;
        Ok(())
    }

    /// Header and parts in one call; the device takes a message whole or not at all.
    fn send<'a>(
        &self,
        header: &'a [u8],
        parts: impl FnOnce(&mut dyn FnMut(&'a [u8])),
    ) -> Result<(), Os> {
        let mut few = [IoSlice::new(header), IoSlice::new(&[]), IoSlice::new(&[])];
        let mut many = Vec::new();
        let mut count = 1;
        parts(&mut |part| {
            if part.is_empty() {
                return;
            }
            match few.get_mut(count) {
                Some(slot) if many.is_empty() => *slot = IoSlice::new(part),
                _ => {
                    if many.is_empty() {
                        many.extend_from_slice(&few);
                    }
                    many.push(IoSlice::new(part));
                }
            }
            count += 1;
        });
        let slices = if many.is_empty() { &few[..count] } else { &many[..] };
        loop {
            match rustix::io::writev(&self.fd, slices) {
                Err(Os::INTR) => {}
                other => return other.map(|_| ()),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Device {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}
