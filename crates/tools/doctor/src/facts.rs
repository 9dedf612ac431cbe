//! Looks at the machine. Each fact has a small function. A fact that cannot be had is none, or the
//! system's reason; it is never an error of the command.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use io_uring::IoUring;
use rustix::fs::FallocateFlags;
use rustix::process::{Resource, getrlimit};

use crate::tables::{self, Below};

/// The file system's alignment for direct transfers, at most.
const ALIGN: usize = 4_096;

/// Bytes that the tries allocate.
const TRY_BYTES: u64 = 64 << 10;

/// Worked, or the system's reason.
pub type Tried = Result<(), String>;

/// Everything that is judged.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Release of the kernel.
    pub kernel: String,
    pub is_root: bool,
    pub fuse: Fuse,
    pub limits: Limits,
    /// Whether a ring could be made.
    pub io_uring: Tried,
    pub port: Port,
    pub clock: Clock,
    pub memory: Memory,
    pub cpus: usize,
    /// Of the directory that was named.
    pub storage: Option<Result<Storage, String>>,
}

/// The kernel's FUSE, and its helper.
#[derive(Clone, Debug)]
pub struct Fuse {
    /// Whether `/dev/fuse` could be opened.
    pub device: Tried,
    /// Whether the device is there.
    pub is_there: bool,
    /// The helper, where it is on the path.
    pub helper: Option<PathBuf>,
    /// `/etc/fuse.conf` permits `allow_other`.
    pub user_allow_other: bool,
    /// Background requests of an ordinary user's mounts.
    pub max_user_bgreq: Option<u64>,
    /// Whether the kernel offers io_uring; none where it cannot.
    pub enable_uring: Option<bool>,
    /// Pages of a request.
    pub max_pages: Option<u64>,
}

/// Limits of a process that is started here; none is no limit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub nofile: Option<u64>,
    pub nofile_hard: Option<u64>,
    pub memlock: Option<u64>,
    /// Of processes and threads: the user's, and the control group's.
    pub pids: Option<u64>,
}

/// The port of servers.
#[derive(Clone, Debug)]
pub struct Port {
    pub number: u16,
    /// Whether it could be taken on all addresses.
    pub taken: Tried,
    /// Sockets that listen there.
    pub listeners: Vec<SocketAddr>,
    /// The first port that an ordinary user may take.
    pub first_unprivileged: u16,
}

/// The machine's time of day.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Seconds since 1970.
    pub now: u64,
    /// Whether a program keeps it right; none where the kernel does not say.
    pub is_synchronised: Option<bool>,
}

/// Memory, KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub total: u64,
    pub available: u64,
}

/// The file system below targets.
#[derive(Clone, Debug)]
pub struct Storage {
    pub dir: PathBuf,
    pub kind: String,
    pub source: String,
    pub options: Vec<String>,
    /// Whether ext4 has a journal; none where that is not known, and for other kinds.
    pub has_journal: Option<bool>,
    pub bytes: u64,
    pub bytes_free: u64,
    pub files: u64,
    pub files_free: u64,
    /// Whether a file could be made.
    pub write: Tried,
    pub direct: Tried,
    pub allocate: Tried,
    pub punch: Tried,
}

/// Looks at everything.
#[must_use]
pub fn gather(data: Option<&Path>, port: u16) -> Facts {
    Facts {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        is_root: rustix::process::geteuid().is_root(),
        fuse: fuse(),
        limits: limits(),
        io_uring: IoUring::new(2).map(drop).map_err(|error| error.to_string()),
        port: port_of(port),
        clock: Clock { now: seconds(), is_synchronised: synchronised() },
        memory: memory(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        storage: data
            .map(|dir| storage(dir).map_err(|error| format!("{}: {error}", dir.display()))),
    }
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn number(path: impl AsRef<Path>) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

fn tried<T>(done: io::Result<T>) -> Tried {
    done.map(drop).map_err(|error| error.to_string())
}

fn fuse() -> Fuse {
    let device = Path::new("/dev/fuse");
    let parameter = |name: &str| format!("/sys/module/fuse/parameters/{name}");
    let conf = text("/etc/fuse.conf").unwrap_or_default();
    Fuse {
        device: tried(OpenOptions::new().read(true).write(true).open(device)),
        is_there: device.exists(),
        helper: on_path("fusermount3"),
        user_allow_other: conf.lines().any(|line| line.trim() == "user_allow_other"),
        max_user_bgreq: number(parameter("max_user_bgreq")),
        enable_uring: text(parameter("enable_uring")).map(|text| text.trim() == "Y"),
        max_pages: number("/proc/sys/fs/fuse/max_pages_limit"),
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

fn limits() -> Limits {
    let nofile = getrlimit(Resource::Nofile);
    let pids = [getrlimit(Resource::Nproc).current, pids_of_group()];
    Limits {
        nofile: nofile.current,
        nofile_hard: nofile.maximum,
        memlock: getrlimit(Resource::Memlock).current,
        pids: pids.into_iter().flatten().min(),
    }
}

/// Of the control group of this process; `max` is no limit.
fn pids_of_group() -> Option<u64> {
    let groups = text("/proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    number(Path::new("/sys/fs/cgroup").join(group).join("pids.max"))
}

fn port_of(number: u16) -> Port {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| text(path).unwrap_or_default());
    let first = text("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    Port {
        number,
        taken: tried(TcpListener::bind((Ipv4Addr::UNSPECIFIED, number))),
        listeners: tables.iter().flat_map(|table| tables::listeners(table, number)).collect(),
        first_unprivileged: first.and_then(|text| text.trim().parse().ok()).unwrap_or(1_024),
    }
}

/// Zero where the clock is before 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[expect(unsafe_code, reason = "adjtimex has no safe wrapper")]
fn synchronised() -> Option<bool> {
    // SAFETY: a `timex` is integers only, for which zeros are valid.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure, which lives as long as the call; modes of zero change
    // nothing.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    (state >= 0).then_some(timex.status & libc::STA_UNSYNC == 0)
}

fn memory() -> Memory {
    let table = text("/proc/meminfo").unwrap_or_default();
    let of = |name: &str| tables::memory_kib(&table, name).unwrap_or(0);
    Memory { total: of("MemTotal"), available: of("MemAvailable") }
}

fn storage(dir: &Path) -> io::Result<Storage> {
    let dir = dir.canonicalize()?;
    let room = rustix::fs::statvfs(dir.as_path())?;
    let table = text("/proc/self/mountinfo").unwrap_or_default();
    let below = tables::below(&table, &dir).unwrap_or_default();
    let has_journal = journal(&below);
    let path = dir.join(format!(".nacre-doctor-{}", std::process::id()));
    let scratch = Scratch::new(path);
    Ok(Storage {
        has_journal,
        bytes: room.f_blocks.saturating_mul(room.f_frsize),
        bytes_free: room.f_bavail.saturating_mul(room.f_frsize),
        files: room.f_files,
        files_free: room.f_ffree,
        write: on_file(&scratch, |_| Ok(())),
        direct: on_file(&scratch, direct),
        allocate: on_file(&scratch, |scratch| allocate(scratch, FallocateFlags::empty())),
        punch: on_file(&scratch, |scratch| {
            allocate(scratch, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
        }),
        kind: below.kind,
        source: below.source,
        options: below.options,
        dir,
    })
}

/// An ext4 shows its mode of data only where it has a journal.
fn journal(below: &Below) -> Option<bool> {
    if below.kind != "ext4" {
        return None;
    }
    let device = fs::read_link(format!("/sys/dev/block/{}", below.device)).ok()?;
    let options = text(Path::new("/proc/fs/ext4").join(device.file_name()?).join("options"))?;
    Some(options.lines().any(|line| line.starts_with("data=")))
}

/// A file that is removed again.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn new(path: PathBuf) -> io::Result<Scratch> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Scratch { path, file })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _stays_where_the_disk_failed = fs::remove_file(&self.path);
    }
}

fn on_file(scratch: &io::Result<Scratch>, attempt: fn(&Scratch) -> io::Result<()>) -> Tried {
    match scratch {
        Ok(scratch) => tried(attempt(scratch)),
        Err(error) => Err(error.to_string()),
    }
}

/// One write around the page cache, aligned in memory and file.
fn direct(scratch: &Scratch) -> io::Result<()> {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&scratch.path)?;
    let room = vec![0_u8; 2 * ALIGN];
    let from = room.as_ptr().align_offset(ALIGN);
    let page = room.get(from..from.saturating_add(ALIGN)).ok_or(io::ErrorKind::InvalidInput)?;
    file.write_all_at(page, 0)
}

fn allocate(scratch: &Scratch, flags: FallocateFlags) -> io::Result<()> {
    Ok(rustix::fs::fallocate(&scratch.file, flags, 0, TRY_BYTES)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_leaves_no_file_behind() {
        let dir = std::env::temp_dir().join(format!("nacre-doctor-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let facts = gather(Some(&dir), 0);
        let storage = facts.storage.expect("a directory was named").expect("it is there");
        assert_eq!(storage.write, Ok(()));
        assert!(storage.bytes > 0 && !storage.kind.is_empty());
        assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 0);
        fs::remove_dir(&dir).expect("cleaned up");
        assert!(facts.cpus > 0 && facts.memory.total > facts.memory.available);
        assert!(facts.kernel.contains('.'));
        assert_eq!(facts.port.taken, Ok(()), "port 0 is any free one");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let facts = gather(Some(Path::new("/nacre/is/not/here")), 0);
        let why = facts.storage.expect("a directory was named").expect_err("it is not there");
        assert!(why.starts_with("/nacre/is/not/here: "), "{why}");
    }
}
