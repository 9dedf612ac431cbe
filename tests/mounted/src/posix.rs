//! System calls that the standard library does not offer, as safe functions with `io::Result`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a test's path has no NUL")
}

fn check(outcome: i64) -> io::Result<i64> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

/// `close`, and what it says.
pub fn close(file: File) -> io::Result<()> {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the descriptor is ours alone, and nobody uses it afterwards
    let outcome = unsafe { libc::close(file.into_raw_fd()) };
    check(i64::from(outcome)).map(drop)
}

/// `renameat2` with `flags`.
pub fn rename2(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c_path(from), c_path(to));
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: both paths are NUL-terminated and outlive the call
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            flags,
        )
    };
    check(outcome).map(drop)
}

/// Asks where a file lies: `FS_IOC_FIEMAP`, for the number of its extents alone.
pub fn fiemap(file: &impl AsRawFd) -> io::Result<()> {
    /// `_IOWR('f', 11, struct fiemap)`.
    const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
    let mut map = [0_u64, u64::MAX, 0, 0];
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: a `struct fiemap` without room for extents, of 32 bytes, which outlives the call
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, map.as_mut_ptr()) };
    check(outcome.into()).map(drop)
}

pub fn setxattr(path: &Path, name: &str, value: &[u8], flags: i32) -> io::Result<()> {
    let (path, name) = (c_path(path), CString::new(name).expect("no NUL"));
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the strings are NUL-terminated, value is a live slice of the given length
    let outcome = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)
    };
    check(outcome.into()).map(drop)
}

pub fn getxattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let (path, name) = (c_path(path), CString::new(name).expect("no NUL"));
    let mut value = vec![0; 65_536];
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the strings are NUL-terminated, value is a live buffer of the given length
    let outcome = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    value.truncate(usize::try_from(check(outcome as i64)?).expect("not negative"));
    Ok(value)
}

pub fn listxattr(path: &Path) -> io::Result<Vec<String>> {
    let path = c_path(path);
    let mut names = vec![0_u8; 65_536];
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the path is NUL-terminated, names is a live buffer of the given length
    let outcome = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(check(outcome as i64)?).expect("not negative"));
    Ok(names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

pub fn removexattr(path: &Path, name: &str) -> io::Result<()> {
    let (path, name) = (c_path(path), CString::new(name).expect("no NUL"));
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the strings are NUL-terminated
    let outcome = unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) };
    check(outcome.into()).map(drop)
}

/// By its name, without opening it.
pub fn truncate(path: &Path, bytes: i64) -> io::Result<()> {
    let path = c_path(path);
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the path is NUL-terminated
    let outcome = unsafe { libc::truncate(path.as_ptr(), bytes) };
    check(outcome.into()).map(drop)
}

pub fn flock(file: &impl AsRawFd, operation: i32) -> io::Result<()> {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the descriptor is open for as long as `file` lives
    let outcome = unsafe { libc::flock(file.as_raw_fd(), operation) };
    check(outcome.into()).map(drop)
}

/// `fcntl` lock of `[start, start + len)`: `kind` F_RDLCK, F_WRLCK or F_UNLCK; `command` F_SETLK or
/// F_SETLKW.
pub fn fcntl_lock(
    file: &impl AsRawFd,
    command: i32,
    kind: i32,
    start: i64,
    len: i64,
) -> io::Result<()> {
    let lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the descriptor is open and the struct lives through the call
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const lock) };
    check(outcome.into()).map(drop)
}

/// Whom an exclusive `fcntl` lock of the whole file would meet: the pid, or nothing.
pub fn fcntl_conflict(file: &impl AsRawFd) -> io::Result<Option<i32>> {
    let found = fcntl_question(file, libc::F_GETLK, libc::F_WRLCK)?;
    Ok((found.l_type != libc::F_UNLCK as i16).then_some(found.l_pid))
}

/// Asks which locks the open file has itself, which only newer kernels answer.
pub fn ask_for_own_locks(file: &impl AsRawFd) -> io::Result<()> {
    fcntl_question(file, libc::F_OFD_GETLK, libc::F_UNLCK).map(drop)
}

/// What the kernel says of a lock of the whole file.
fn fcntl_question(file: &impl AsRawFd, command: i32, kind: i32) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the descriptor is open and the struct lives through the call
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    check(outcome.into())?;
    Ok(lock)
}

/// Does `work` as a user without privileges, who is in `group` only, in a thread of its own.
pub fn as_user<T: Send>(uid: u32, group: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            #[expect(unsafe_code, reason = "system calls that change this thread only")]
            // SAFETY: no pointer is followed for an empty list
            unsafe {
                assert_eq!(
                    libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()),
                    0,
                    "as root only"
                );
                libc::setfsgid(group);
                libc::setfsuid(uid);
            }
            work()
        });
        worker.join().expect("the user's thread")
    })
}

/// Does `work` with this effective user, in a thread of its own. It is the user that a Unix socket
/// shows to its peer.
pub fn as_effective_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    let kept = libc::uid_t::MAX;
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            #[expect(unsafe_code, reason = "a system call that changes this thread only")]
            // SAFETY: it takes no pointer
            let outcome = unsafe { libc::syscall(libc::SYS_setresuid, kept, uid, kept) };
            assert_eq!(outcome, 0, "as root only");
            work()
        });
        worker.join().expect("the user's thread")
    })
}

/// A shared mapping of the first `len` bytes of a file.
pub struct Mapping(*mut u8, usize);

impl Mapping {
    /// To be written.
    pub fn new(file: &impl AsRawFd, len: usize) -> io::Result<Mapping> {
        Mapping::with(file, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// To be read.
    pub fn read_only(file: &impl AsRawFd, len: usize) -> io::Result<Mapping> {
        Mapping::with(file, len, libc::PROT_READ)
    }

    fn with(file: &impl AsRawFd, len: usize, protection: i32) -> io::Result<Mapping> {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: a fresh shared mapping of an open descriptor; the kernel picks the address
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Mapping(address.cast(), len))
        }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        #[expect(unsafe_code, reason = "the mapping's memory")]
        // SAFETY: mapped readable and writable for `self.1` bytes until drop
        unsafe {
            std::slice::from_raw_parts_mut(self.0, self.1)
        }
    }

    /// The byte at `offset`, as it is now.
    pub fn byte(&self, offset: usize) -> u8 {
        assert!(offset < self.1, "the byte is mapped");
        #[expect(unsafe_code, reason = "the mapping's memory")]
        // SAFETY: mapped readable for `self.1` bytes until drop; others may write it
        unsafe {
            self.0.add(offset).read_volatile()
        }
    }

    /// `msync`.
    pub fn sync(&self) -> io::Result<()> {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the range is ours
        let outcome = unsafe { libc::msync(self.0.cast(), self.1, libc::MS_SYNC) };
        check(outcome.into()).map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the range is ours and nobody uses it after drop
        unsafe {
            libc::munmap(self.0.cast(), self.1);
        }
    }
}

/// Does `call`, and `after` a while interrupts this thread with a signal that has a handler. The
/// signal comes again until the call has ended, because a busy machine may begin the call later.
pub fn interrupted<T>(after: Duration, call: impl FnOnce() -> T) -> T {
    extern "C" fn ignore(_signal: i32) {}
    let handler: extern "C" fn(i32) = ignore;
    #[expect(unsafe_code, reason = "system calls")]
    // SAFETY: the struct is filled before it is handed over, and the handler does nothing
    let caller = unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = handler as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        libc::pthread_self()
    };
    std::thread::scope(|scope| {
        let (ended, hears) = mpsc::channel::<()>();
        scope.spawn(move || {
            while hears.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                #[expect(unsafe_code, reason = "a system call")]
                // SAFETY: the caller's thread lives until this scope ends
                unsafe {
                    libc::pthread_kill(caller, libc::SIGUSR1);
                }
            }
        });
        let done = call();
        drop(ended);
        done
    })
}

/// One asynchronous write (`io_submit`) of `data`, waited for; its result.
pub fn aio_write(file: &impl AsRawFd, data: &[u8]) -> io::Result<usize> {
    const PWRITE: u16 = 1;
    let mut context = 0_u64;
    // as `struct iocb`: data, key and flags, opcode and priority with the descriptor, buffer,
    // length, offset, three words that are not used
    let fd = u64::try_from(file.as_raw_fd()).expect("a descriptor");
    let address = data.as_ptr() as u64;
    let block = [0, 0, u64::from(PWRITE) | fd << 32, address, data.len() as u64, 0, 0, 0];
    let (blocks, mut event) = ([&raw const block], [0_u64; 4]);
    #[expect(unsafe_code, reason = "system calls")]
    // SAFETY: everything that is pointed at lives until the write has been waited for
    unsafe {
        check(libc::syscall(libc::SYS_io_setup, 1, &raw mut context))?;
        let begun = check(libc::syscall(libc::SYS_io_submit, context, 1, blocks.as_ptr()));
        let ended = begun.and_then(|_| {
            let (none, event) = (std::ptr::null_mut::<libc::timespec>(), event.as_mut_ptr());
            check(libc::syscall(libc::SYS_io_getevents, context, 1, 1, event, none))
        });
        libc::syscall(libc::SYS_io_destroy, context);
        ended?;
    }
    let result = event[2] as i64;
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result as i32))
}

/// One write of `data` by io_uring, waited for; its result. An error where the kernel has none.
pub fn io_uring_write(file: &impl AsRawFd, data: &[u8]) -> io::Result<usize> {
    let mut ring = io_uring::IoUring::new(1)?;
    let len = u32::try_from(data.len()).expect("a length of 32 bits");
    let fd = io_uring::types::Fd(file.as_raw_fd());
    let entry = io_uring::opcode::Write::new(fd, data.as_ptr(), len).build();
    #[expect(unsafe_code, reason = "memory that the kernel reads")]
    // SAFETY: file and data live until the write has been waited for
    let pushed = unsafe { ring.submission().push(&entry) };
    pushed.expect("an empty queue has room");
    while ring.completion().is_empty() {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    let result = ring.completion().next().expect("it was waited for").result();
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// What `name_to_handle_at` gives: names a file to the kernel without a path.
pub struct FileHandle(Vec<u32>);

/// Length of the opaque part and its type come before it.
const HANDLE_HEAD_WORDS: usize = 2;
const HANDLE_BYTES_MAX: u32 = 128;

impl FileHandle {
    pub fn of(path: &Path) -> io::Result<FileHandle> {
        let path = c_path(path);
        let mut words = vec![0_u32; HANDLE_HEAD_WORDS + HANDLE_BYTES_MAX as usize / 4];
        words[0] = HANDLE_BYTES_MAX;
        let mut mount_id = 0_i32;
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the path is NUL-terminated, `words` has the room that its head names
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path.as_ptr(),
                words.as_mut_ptr(),
                &raw mut mount_id,
                0,
            )
        };
        check(outcome).map(|_| FileHandle(words))
    }

    /// Opens the file for reading, in the file system of `mount`.
    pub fn open(&self, mount: &Path) -> io::Result<File> {
        let (mount, mut words) = (File::open(mount)?, self.0.clone());
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: `words` is as the kernel filled it and outlives the call
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                words.as_mut_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC,
            )
        };
        let fd = i32::try_from(check(outcome)?).expect("a descriptor");
        #[expect(unsafe_code, reason = "a descriptor of our own")]
        // SAFETY: the kernel has just given it, and nothing else knows it
        Ok(unsafe { File::from_raw_fd(fd) })
    }
}

/// `statvfs`: (blocks, free blocks, files, free files, longest name).
pub fn statvfs(path: &Path) -> io::Result<(u64, u64, u64, u64, u64)> {
    let path = c_path(path);
    let mut out = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the path is NUL-terminated, `out` has room for the struct
    let outcome = unsafe { libc::statvfs(path.as_ptr(), out.as_mut_ptr()) };
    check(outcome.into())?;
    #[expect(unsafe_code, reason = "filled by the kernel")]
    // SAFETY: statvfs succeeded
    let out = unsafe { out.assume_init() };
    Ok((out.f_blocks, out.f_bfree, out.f_files, out.f_ffree, out.f_namemax))
}
