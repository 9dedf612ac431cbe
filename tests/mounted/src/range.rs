//! Ranges, files without names, and nodes: calls that the standard library does not offer, made
//! safely with `rustix`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, SeekFrom};

/// `fallocate` with the flags of the system.
pub fn fallocate(file: &File, flags: i32, offset: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::from_bits_retain(flags.cast_unsigned());
    Ok(rustix::fs::fallocate(file, flags, offset, len)?)
}

/// `lseek` with SEEK_DATA.
pub fn seek_data(file: &File, offset: u64) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, SeekFrom::Data(offset))?)
}

/// `lseek` with SEEK_HOLE.
pub fn seek_hole(file: &File, offset: u64) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, SeekFrom::Hole(offset))?)
}

/// `copy_file_range`, once.
pub fn copy_range(
    from: &File,
    mut from_offset: u64,
    to: &File,
    mut to_offset: u64,
    len: usize,
) -> io::Result<usize> {
    Ok(rustix::fs::copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), len)?)
}

/// `O_TMPFILE` in `dir`; with more flags of `open`.
pub fn tmpfile(dir: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o640)
        .custom_flags(libc::O_TMPFILE | flags)
        .open(dir)
}

/// Opens a file with `O_DIRECT`, for reads and writes.
pub fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Gives an open file a name.
pub fn link_open(file: &File, path: &Path) -> io::Result<()> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// What `chattr +d` does.
pub fn set_flags(file: &File) -> io::Result<()> {
    Ok(rustix::fs::ioctl_setflags(file, rustix::fs::IFlags::NODUMP)?)
}

pub fn mknod(path: &Path, kind: FileType, mode: u32, device: (u32, u32)) -> io::Result<()> {
    let device = rustix::fs::makedev(device.0, device.1);
    Ok(rustix::fs::mknodat(CWD, path, kind, Mode::from_bits_truncate(mode), device)?)
}

pub use rustix::fs::FileType as Kind;

/// `pwritev2` with RWF_DSYNC: this one write is durable.
pub fn write_durable(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev2(
        file,
        &[io::IoSlice::new(data)],
        offset,
        rustix::io::ReadWriteFlags::DSYNC,
    )?)
}

/// `F_SETFL`: whether writes append from now on.
pub fn set_append(file: &File, on: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(rustix::fs::OFlags::APPEND, on);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// `statx` for everything, asking the servers.
pub fn statx(path: &Path) -> io::Result<rustix::fs::Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    Ok(rustix::fs::statx(CWD, path, flags, rustix::fs::StatxFlags::ALL)?)
}

pub fn syncfs(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}
