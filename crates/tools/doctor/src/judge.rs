//! Judges facts. Pure: each function makes one check of the facts that it names.

use crate::Check;
use crate::facts::{Clock, Facts, Fuse, Limits, Memory, Port, Storage, Tried};

/// FUSE 7.31: every structure of the protocol has its present size.
const KERNEL_MIN: (u32, u32) = (5, 4);

/// Shared mappings of files with direct I/O.
const KERNEL_GOOD: (u32, u32) = (6, 6);

/// Rings take no locked memory from here on.
const KERNEL_RINGS_FREE: (u32, u32) = (5, 12);

/// Background requests that a mount asks for.
const BACKGROUND: u64 = 512;

/// An OST keeps 4,096 descriptors of objects, and at most an eighth of the process's.
const NOFILE: u64 = 32_768;

/// Locked memory for the rings of an older kernel.
const MEMLOCK: u64 = 8 << 20;

/// Threads of a server, of a mount and of the programs beside them.
const PIDS: u64 = 1_024;

/// 2025 and 2100, in seconds since 1970.
const YEARS: std::ops::Range<u64> = 1_735_689_600..4_102_444_800;

/// KiB that a server and its clients need beside each other.
const MEMORY_MIN: u64 = 512 << 10;
const MEMORY_GOOD: u64 = 2 << 20;

/// An OST with less than this part free, in thousandths, gets no new files; and a warning before.
const FREE_MIN: u64 = 1;
const FREE_GOOD: u64 = 100;

/// Objects that should be free.
const FILES_GOOD: u64 = 10_000;

/// All checks, in the order of the report.
#[must_use]
pub fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![
        kernel(&facts.kernel),
        device(&facts.fuse),
        helper(&facts.fuse, facts.is_root),
        other_users(&facts.fuse, facts.is_root),
        background(&facts.fuse, facts.is_root),
        requests(&facts.fuse),
        transport(&facts.fuse),
        io_uring(&facts.io_uring),
        nofile(&facts.limits),
        memlock(&facts.limits, &facts.kernel, facts.is_root),
        pids(&facts.limits),
        port(&facts.port, facts.is_root),
        wall_clock(&facts.clock),
        synchronised(&facts.clock),
        memory(&facts.memory),
        cpus(facts.cpus),
    ];
    match &facts.storage {
        None => {}
        Some(Err(why)) => checks.push(
            Check::bad("storage", why.as_str())
                .change("mkdir -p DIR, or mount its disk", "targets need a directory"),
        ),
        Some(Ok(storage)) => checks.extend(below(storage)),
    }
    checks
}

/// The checks of a directory.
fn below(storage: &Storage) -> [Check; 7] {
    [
        kind(storage),
        options(storage),
        journal(storage),
        space(storage),
        inodes(storage),
        direct(storage),
        ranges(storage),
    ]
}

/// `6.1.0-18-amd64`: major and minor.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(release: &str) -> Check {
    let name = "kernel";
    let change = "install Linux 6.6 or later (Debian 12: apt-get install -t bookworm-backports \
        linux-image-amd64), then reboot";
    let finding = format!("Linux {release}");
    match version(release) {
        None => Check::warn(name, finding).change(change, "this version is not known"),
        Some(version) if version < KERNEL_MIN => {
            Check::bad(name, finding).change(change, "mounts need FUSE 7.31, which Linux 5.4 has")
        }
        Some(version) if version < KERNEL_GOOD => {
            let why = "before Linux 6.6, shared mappings of files go through the page cache";
            Check::warn(name, finding).change(change, why)
        }
        Some(_) => Check::ok(name, finding),
    }
}

const DEVICE_WHY: &str = "every mount reads and writes it; servers alone do without";

fn device(fuse: &Fuse) -> Check {
    let name = "/dev/fuse";
    match &fuse.device {
        Ok(()) => Check::ok(name, "opens"),
        Err(why) if fuse.is_there => Check::bad(name, format!("does not open: {why}")).change(
            "chmod 666 /dev/fuse (in a container: --device /dev/fuse --cap-add SYS_ADMIN)",
            DEVICE_WHY,
        ),
        Err(_) => Check::bad(name, "is not there").change(
            "modprobe fuse (in a container: --device /dev/fuse --cap-add SYS_ADMIN)",
            DEVICE_WHY,
        ),
    }
}

fn helper(fuse: &Fuse, is_root: bool) -> Check {
    let name = "fusermount3";
    let why = "an ordinary user mounts with its help";
    match &fuse.helper {
        Some(path) => Check::ok(name, path.display().to_string()),
        None if is_root => {
            Check::ok(name, "is not on the path; root does not need it").change(INSTALL, why)
        }
        None => Check::bad(name, "is not on the path").change(INSTALL, why),
    }
}

const INSTALL: &str = "apt-get install fuse3";

fn other_users(fuse: &Fuse, is_root: bool) -> Check {
    let name = "allow_other";
    match (fuse.user_allow_other, is_root) {
        (true, _) => Check::ok(name, "/etc/fuse.conf has user_allow_other"),
        (false, true) => Check::ok(name, "root's mounts have it by default"),
        (false, false) => Check::warn(name, "/etc/fuse.conf has no user_allow_other").change(
            "echo user_allow_other >> /etc/fuse.conf (as root)",
            "without it, other users cannot enter your mount, and -o allow_other is refused",
        ),
    }
}

fn background(fuse: &Fuse, is_root: bool) -> Check {
    let name = "background";
    match fuse.max_user_bgreq {
        Some(most) if most < BACKGROUND && !is_root => {
            Check::warn(name, format!("your mounts have {most} background requests at most"))
                .change(
                    format!(
                        "echo {BACKGROUND} > /sys/module/fuse/parameters/max_user_bgreq (as root)"
                    ),
                    format!("a mount asks for {BACKGROUND}; fewer requests are under way at once"),
                )
        }
        Some(most) => Check::ok(name, format!("ordinary users' mounts: {most} requests")),
        None => Check::ok(name, "the kernel does not report its limit"),
    }
}

fn requests(fuse: &Fuse) -> Check {
    let name = "request size";
    let change = "sysctl fs.fuse.max_pages_limit=1024";
    match fuse.max_pages {
        Some(pages) if pages < 1_024 => Check::ok(name, format!("{pages} pages"))
            .change(change, "streams of large requests are faster with 4 MiB"),
        Some(pages) => Check::ok(name, format!("{pages} pages")),
        None => Check::ok(name, "256 pages, which this kernel has fixed"),
    }
}

fn transport(fuse: &Fuse) -> Check {
    let name = "transport";
    match fuse.enable_uring {
        Some(true) => Check::ok(name, "FUSE over io_uring"),
        Some(false) => Check::ok(name, "/dev/fuse; FUSE over io_uring is off").change(
            "echo Y > /sys/module/fuse/parameters/enable_uring",
            "new mounts then save system calls and copies",
        ),
        None => Check::ok(name, "/dev/fuse; this kernel has no FUSE over io_uring"),
    }
}

fn io_uring(tried: &Tried) -> Check {
    let name = "io_uring";
    match tried {
        Ok(()) => Check::ok(name, "permitted"),
        Err(why) => Check::warn(name, format!("refused: {why}")).change(
            "sysctl kernel.io_uring_disabled=0 (in a container: --security-opt seccomp=unconfined)",
            "without it, small transfers of OSTs and requests of mounts take slower paths",
        ),
    }
}

fn or_none(limit: Option<u64>) -> String {
    limit.map_or_else(|| "no limit".into(), |limit| limit.to_string())
}

fn nofile(limits: &Limits) -> Check {
    let name = "open files";
    let finding = format!("{} (hard: {})", or_none(limits.nofile), or_none(limits.nofile_hard));
    match limits.nofile {
        Some(limit) if limit < NOFILE => Check::warn(name, finding).change(
            format!("ulimit -n {NOFILE}; in a unit of systemd: LimitNOFILE={NOFILE}"),
            "an OST keeps an eighth of them for objects, and a server's connections share the rest",
        ),
        _ => Check::ok(name, finding),
    }
}

fn memlock(limits: &Limits, release: &str, is_root: bool) -> Check {
    let name = "locked memory";
    let is_free = is_root || version(release).is_none_or(|version| version >= KERNEL_RINGS_FREE);
    match limits.memlock {
        Some(limit) if limit < MEMLOCK && !is_free => Check::warn(
            name,
            format!("{} KiB", limit >> 10),
        )
        .change(
            format!("ulimit -l {}; in a unit of systemd: LimitMEMLOCK={MEMLOCK}", MEMLOCK >> 10),
            "before Linux 5.12, rings of io_uring are locked memory",
        ),
        Some(limit) => Check::ok(name, format!("{} KiB", limit >> 10)),
        None => Check::ok(name, "no limit"),
    }
}

fn pids(limits: &Limits) -> Check {
    let name = "processes";
    match limits.pids {
        Some(limit) if limit < PIDS => Check::warn(name, format!("{limit} at most")).change(
            format!("ulimit -u {PIDS}; in a unit of systemd: TasksMax={PIDS}"),
            "threads count as processes, and a server whose threads cannot start does not serve",
        ),
        limit => Check::ok(name, or_none(limit)),
    }
}

fn port(port: &Port, is_root: bool) -> Check {
    let (name, Port { number, listeners, first_unprivileged, .. }) = ("port", port);
    if !listeners.is_empty() {
        let at: Vec<String> = listeners.iter().map(ToString::to_string).collect();
        return Check::warn(name, format!("{number} is taken at {}", at.join(", "))).change(
            format!(
                "ss -ltnp 'sport = :{number}' shows the program; or serve at another port: \
                 --listen ADDR@tcp:PORT, up --port PORT"
            ),
            "a new server cannot listen at these addresses; servers of Nacre that run are no fault",
        );
    }
    match &port.taken {
        Ok(()) => Check::ok(name, format!("{number} is free")),
        Err(_) if number < first_unprivileged && !is_root => Check::warn(
            name,
            format!("{number} is for root; yours begin at {first_unprivileged}"),
        )
        .change(
            "serve as root or with CAP_NET_BIND_SERVICE, or choose another port: up --port 3988",
            "an ordinary user cannot listen there; mounts are not affected",
        ),
        Err(why) => Check::warn(name, format!("{number} cannot be taken: {why}"))
            .change("choose another port: up --port 3988", "a server cannot listen there"),
    }
}

fn wall_clock(clock: &Clock) -> Check {
    let name = "wall clock";
    let finding = format!("{} s since 1970", clock.now);
    if YEARS.contains(&clock.now) {
        return Check::ok(name, finding);
    }
    Check::bad(name, finding).change(
        "date -s 'YYYY-MM-DD HH:MM:SS', then hwclock --systohc",
        "the clock is wrong by years; times of files, and new ids after a loss, come from it",
    )
}

fn synchronised(clock: &Clock) -> Check {
    let name = "time service";
    match clock.is_synchronised {
        Some(true) => Check::ok(name, "keeps the clock right"),
        Some(false) => Check::warn(name, "none keeps the clock right").change(
            "timedatectl set-ntp true, or apt-get install chrony",
            "times of files differ between machines with different clocks",
        ),
        None => Check::ok(name, "the kernel does not report it"),
    }
}

fn memory(memory: &Memory) -> Check {
    let name = "memory";
    let Memory { total, available } = memory;
    let finding = format!("{} MiB, {} MiB available", total >> 10, available >> 10);
    let change = "add memory, or run fewer programs here";
    match *available {
        few if few < MEMORY_MIN => {
            Check::bad(name, finding).change(change, "servers may be killed for want of memory")
        }
        few if few < MEMORY_GOOD => Check::warn(name, finding).change(
            format!("{change}; or lctl set_param req_bytes_max=BYTES"),
            "requests that wait on a server may take 2 GiB",
        ),
        _ => Check::ok(name, finding),
    }
}

fn cpus(cpus: usize) -> Check {
    let name = "CPUs";
    match cpus {
        0 | 1 => Check::warn(name, cpus.to_string())
            .change("run servers and programs on different machines", "they share one CPU"),
        _ => Check::ok(name, cpus.to_string()),
    }
}

fn kind(storage: &Storage) -> Check {
    let name = "file system";
    let Storage { dir, kind, source, .. } = storage;
    let finding = format!("{} is on {kind} ({source})", dir.display());
    let change = "mkfs.ext4 DEVICE (or mkfs.xfs DEVICE), mount DEVICE DIR";
    match kind.as_str() {
        "ext4" | "xfs" => Check::ok(name, finding),
        "tmpfs" | "ramfs" => {
            Check::warn(name, finding).change(change, "everything is lost when the machine stops")
        }
        "overlay" | "overlayfs" => Check::warn(name, finding).change(
            "give the container a volume for DIR",
            "the files go with the container, and direct I/O may not work",
        ),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" | "lustre" => {
            Check::bad(name, finding)
                .change(change, "LMDB and locks of targets need a local file system")
        }
        other if other.starts_with("fuse") => Check::bad(name, finding)
            .change(change, "LMDB and locks of targets need a local file system"),
        _ => Check::warn(name, finding).change(change, "Nacre is tested on ext4 and XFS"),
    }
}

fn options(storage: &Storage) -> Check {
    let name = "mount options";
    let has = |wanted: &str| storage.options.iter().any(|option| option == wanted);
    let remount = |options: &str| format!("mount -o remount,{options} MOUNTPOINT, and /etc/fstab");
    if has("ro") {
        return Check::bad(name, "ro").change(remount("rw"), "targets are written");
    }
    if let Err(why) = &storage.write {
        let finding = format!("no file can be made in {}: {why}", storage.dir.display());
        return Check::bad(name, finding)
            .change("chown USER DIR, or run as its owner", "targets are written");
    }
    if has("nobarrier") || has("barrier=0") {
        let why = "after a power cut, work that was reported durable is lost or damaged";
        return Check::bad(name, "nobarrier").change(remount("barrier"), why);
    }
    if has("data=writeback") {
        let why = "after a power cut, files may show bytes of deleted ones";
        return Check::warn(name, "data=writeback")
            .change("mount again without data=writeback, and change /etc/fstab", why);
    }
    if has("journal_async_commit") {
        let why = "the file system may not see that its journal is torn";
        return Check::warn(name, "journal_async_commit")
            .change("mount again without it, and change /etc/fstab", why);
    }
    if has("sync") {
        return Check::warn(name, "sync")
            .change(remount("async"), "every write waits for the disk");
    }
    Check::ok(name, storage.options.join(","))
}

fn journal(storage: &Storage) -> Check {
    let name = "journal";
    match (storage.kind.as_str(), storage.has_journal) {
        ("ext4", Some(true)) => Check::ok(name, "ext4 has one"),
        ("ext4", Some(false)) => Check::bad(name, "this ext4 has none").change(
            "umount DEVICE; tune2fs -j DEVICE; mount DEVICE DIR",
            "after a power cut, files and names that were durable may be gone",
        ),
        ("ext4", None) => Check::ok(name, "not known: the kernel's tables are not visible here"),
        ("ext2", _) => Check::bad(name, "ext2 has none")
            .change("tune2fs -j DEVICE; mount -t ext4 DEVICE DIR", "names may be lost"),
        (kind, _) => Check::ok(name, format!("as {kind} has it")),
    }
}

/// Thousandths of `all`.
fn thousandths(free: u64, all: u64) -> u64 {
    let share = u128::from(free) * 1_000 / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(1_000)
}

fn space(storage: &Storage) -> Check {
    let name = "free space";
    let share = thousandths(storage.bytes_free, storage.bytes);
    let finding = format!(
        "{} of {} MiB ({}.{} %)",
        storage.bytes_free >> 20,
        storage.bytes >> 20,
        share / 10,
        share % 10
    );
    let change = "delete files, or give the target a larger disk";
    match share {
        few if few < FREE_MIN => {
            Check::bad(name, finding).change(change, "an OST there gets no new files")
        }
        few if few < FREE_GOOD => {
            Check::warn(name, finding).change(change, "calls return ENOSPC when it is full")
        }
        _ => Check::ok(name, finding),
    }
}

fn inodes(storage: &Storage) -> Check {
    let name = "free inodes";
    let finding = format!("{} of {}", storage.files_free, storage.files);
    match (storage.files, storage.files_free) {
        (0, _) => Check::ok(name, "no limit"),
        (_, free) if free < FILES_GOOD => Check::warn(name, finding).change(
            "for a new target: mkfs.ext4 -N COUNT DEVICE",
            "each object of an OST is a file, and the number of files is fixed by mkfs",
        ),
        _ => Check::ok(name, finding),
    }
}

fn direct(storage: &Storage) -> Check {
    let name = "O_DIRECT";
    match &storage.direct {
        Ok(()) => Check::ok(name, "works"),
        Err(why) => Check::warn(name, why.as_str()).change(
            "use ext4 or XFS on a local disk",
            "large transfers go through the page cache, which takes CPU and memory",
        ),
    }
}

fn ranges(storage: &Storage) -> Check {
    let name = "fallocate";
    let change = "use ext4 or XFS on a local disk";
    match (&storage.allocate, &storage.punch) {
        (Ok(()), Ok(())) => Check::ok(name, "allocates and punches holes"),
        (Err(why), _) => Check::bad(name, format!("does not allocate: {why}"))
            .change(change, "an OST reserves room for a write before it acknowledges it"),
        (Ok(()), Err(why)) => Check::warn(name, format!("punches no holes: {why}"))
            .change(change, "fallocate(2) of applications fails, and holes keep their room"),
    }
}

#[cfg(test)]
mod tests;
