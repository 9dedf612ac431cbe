//! The promises of each call, on one mount and between two mounts with daemons of their own
//! (docs/semantics.md).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fusedev::Channel;
use mounted::posix::{self, Mapping};
use mounted::{PATIENCE, Up, shell, until};
use types::SplitMix64;

fn errno<T>(outcome: std::io::Result<T>) -> i32 {
    match outcome {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().expect("an error of the system"),
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A name, and what to do with its directory as the first and as the second mount show it.
type Case = (&'static str, fn(&Path, &Path));

#[test]
fn calls_keep_their_promises() {
    for transport in mounted::transports() {
        eprintln!("transport {transport:?}");
        calls_over(transport);
    }
}

/// One file system, two mounts: every case gets a directory of its own in it.
fn calls_over(transport: Channel) {
    let mut up = Up::over(transport, "calls");
    let second = up.second_mount(21);
    let cases: &[Case] = &[
        ("create", create_exclusive_truncate),
        ("append", append_is_atomic_between_clients),
        ("long", long_appends_stay_whole),
        ("async", an_asynchronous_append_is_in_order),
        ("uring", appends_by_io_uring_stay_whole),
        ("cut", an_append_that_is_cut_by_a_signal_lets_others_append),
        ("sparse", sparse_and_truncate_both_ways),
        ("offsets", writes_of_any_size_at_any_offset),
        ("links", hard_and_symbolic_links),
        ("rename", renames),
        ("observed", a_rename_is_atomic_for_an_observer),
        ("dirs", directories),
        ("stat", attributes_and_times),
        ("utimes", times_set_under_a_writer),
        ("owners", permissions_are_checked_by_the_server),
        ("xattr", extended_attributes),
        ("mmap", shared_mappings),
        ("flock", whole_file_locks_between_mounts),
        ("fcntl", range_locks_between_mounts),
        ("ofd", locks_of_open_files_between_mounts),
        ("waits", waits_for_locks_between_mounts_are_interrupted),
        ("held", open_unlinked_files),
        ("coherent", two_mounts_agree),
        ("statfs", space),
        ("names", long_names),
        ("bytes", names_of_any_byte),
        ("setid", set_user_id_falls_under_a_handle_opened_earlier),
        ("text", a_program_that_runs_elsewhere_is_not_written),
    ];
    for (name, case) in cases {
        eprintln!("case {name}");
        let (one, two) = (up.at(name), second.join(name));
        fs::create_dir(&one).expect("a directory for the case");
        case(&one, &two);
    }
    let status = Command::new(mounted::nacre_bin())
        .arg("umount")
        .arg(&second)
        .status()
        .expect("nacre starts");
    assert!(status.success() && !mounted::is_mounted(&second), "nacre umount left the mount");
    up.stop();
}

fn create_exclusive_truncate(one: &Path, two: &Path) {
    let file = one.join("f");
    File::create_new(&file).expect("O_EXCL on a free name");
    assert_eq!(errno(File::create_new(two.join("f"))), libc::EEXIST);
    fs::write(&file, b"long content").expect("write");
    fs::write(two.join("f"), b"short").expect("O_TRUNC and write");
    assert_eq!(read(&file), b"short");
    assert_eq!(errno(File::open(one.join("absent"))), libc::ENOENT);
    assert_eq!(errno(File::open(one.join("f/below"))), libc::ENOTDIR);
    let mut synced =
        OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(&file).expect("O_SYNC");
    synced.write_all(b"SHORT").expect("synchronous write");
    assert_eq!(read(&two.join("f")), b"SHORT");
}

fn append_is_atomic_between_clients(one: &Path, two: &Path) {
    const LINES: usize = 60;
    File::create(one.join("log")).expect("create");
    let writer = |dir: &Path, mark: u8| {
        let mut file =
            OpenOptions::new().append(true).open(dir.join("log")).expect("open for append");
        for _ in 0..LINES {
            file.write_all(&[mark; 100]).expect("append");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| writer(one, b'a'));
        scope.spawn(|| writer(two, b'b'));
    });
    let log = read(&one.join("log"));
    assert_eq!(log.len(), 2 * LINES * 100, "an append was lost or overwritten");
    assert!(
        log.chunks(100).all(|line| line.iter().all(|byte| *byte == line[0])),
        "two appends were mixed"
    );
}

fn append_to(dir: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(dir.join("log")).expect("open for append")
}

/// Bytes that are alike, in a row: what they are and how many.
fn rows(bytes: &[u8]) -> Vec<(u8, usize)> {
    bytes.chunk_by(|one, next| one == next).map(|row| (row[0], row.len())).collect()
}

/// The kernel sends an append of more than 1 MiB in pieces.
fn long_appends_stay_whole(one: &Path, two: &Path) {
    const CALLS: u8 = 5;
    let writer = |dir: &Path, first: u8, len: usize, misaligned: usize| {
        let mut file = append_to(dir);
        for mark in first..first + CALLS {
            let data = vec![mark; len + misaligned];
            assert_eq!(file.write(&data[misaligned..]).expect("append"), len, "a short write");
        }
    };
    const LEN: usize = 4 << 20;
    std::thread::scope(|scope| {
        scope.spawn(|| writer(one, 1, LEN, 0));
        scope.spawn(|| writer(two, 101, LEN - 5, 100));
    });
    let mut rows = rows(&read(&one.join("log")));
    rows.sort_unstable();
    let calls = |first: u8, len| (first..first + CALLS).map(move |mark| (mark, len));
    assert_eq!(rows, calls(1, LEN).chain(calls(101, LEN - 5)).collect::<Vec<_>>());
}

/// The pieces of an asynchronous append are sent all at once, with offsets that count from what
/// this mount takes for the end of the file.
fn an_asynchronous_append_is_in_order(one: &Path, two: &Path) {
    let file = append_to(one);
    append_to(two).write_all(b"what another client appended").expect("append");
    let data: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(posix::aio_write(&file, &data).expect("asynchronous append"), data.len());
    append_to(two).write_all(b"the end").expect("append");
    let log = read(&two.join("log"));
    let data = [b"what another client appended", &data[..], b"the end"].concat();
    assert!(log == data, "{} bytes differ from {}", log.len(), data.len());
}

/// A thread of the kernel makes the call, so the daemon cannot look up how long it is. With
/// O_DIRECT its pieces are sent all at once, without it one after the other.
fn appends_by_io_uring_stay_whole(one: &Path, two: &Path) {
    const CALLS: u8 = 3;
    const LEN: usize = 4 << 20;
    let writer = |dir: &Path, first: u8, flags: i32| {
        let mut options = OpenOptions::new();
        options.append(true).create(true).custom_flags(flags);
        let file = options.open(dir.join("log")).expect("open for append");
        for mark in first..first + CALLS {
            let written = posix::io_uring_write(&file, &vec![mark; LEN]).expect("io_uring");
            assert_eq!(written, LEN, "a short write");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| writer(one, 1, 0));
        scope.spawn(|| writer(two, 101, libc::O_DIRECT));
    });
    let mut rows = rows(&read(&two.join("log")));
    rows.sort_unstable();
    let marks = (1..1 + CALLS).chain(101..101 + CALLS);
    assert_eq!(rows, marks.map(|mark| (mark, LEN)).collect::<Vec<_>>());
}

/// Whether the signal came while the append was under way.
fn cut_an_append(one: &Path, two: &Path) -> bool {
    let mut dd = Command::new("dd")
        .args(["if=/dev/zero", "of=log", "oflag=append", "conv=notrunc", "bs=512M", "count=1"])
        .current_dir(one)
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("dd starts");
    let start = std::time::Instant::now();
    while fs::metadata(two.join("log")).map_or(0, |meta| meta.len()) == 0 {
        assert!(start.elapsed() < mounted::PATIENCE, "dd writes nothing");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    dd.kill().expect("our child");
    !dd.wait().expect("our child").success()
}

fn an_append_that_is_cut_by_a_signal_lets_others_append(one: &Path, two: &Path) {
    // a busy machine may deliver the signal late
    let is_cut = (0..5).any(|_| {
        fs::remove_file(two.join("log")).ok();
        cut_an_append(one, two)
    });
    assert!(is_cut, "dd always ended before its signal");
    let start = std::time::Instant::now();
    append_to(two).write_all(&[7; 3 << 20]).expect("append");
    assert!(start.elapsed().as_secs() < 20, "others waited {:?}", start.elapsed());
    let log = read(&one.join("log"));
    assert!(log.len() > 3 << 20 && log.len() <= 515 << 20, "{} bytes", log.len());
    let zeros = log.len() - (3 << 20);
    assert_eq!(rows(&log), [(0, zeros), (7, 3 << 20)]);
}

fn sparse_and_truncate_both_ways(one: &Path, two: &Path) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(one.join("f"))
        .expect("create");
    file.write_all_at(b"tail", 10 << 20).expect("write far behind the end");
    let meta = fs::metadata(two.join("f")).expect("stat");
    assert_eq!(meta.len(), (10 << 20) + 4);
    assert!(meta.blocks() * 512 < 1 << 20, "a hole takes space: {} blocks", meta.blocks());
    let mut hole = vec![1; 4096];
    file.read_exact_at(&mut hole, 5 << 20).expect("read of a hole");
    assert!(hole.iter().all(|byte| *byte == 0));
    file.set_len(3).expect("cut");
    assert_eq!(fs::metadata(two.join("f")).expect("stat").len(), 3);
    file.set_len(4 << 20).expect("extend");
    let all = read(&two.join("f"));
    assert!(
        all.len() == 4 << 20 && all.iter().all(|byte| *byte == 0),
        "what was cut off came back"
    );
}

fn writes_of_any_size_at_any_offset(one: &Path, two: &Path) {
    let status = Command::new(mounted::nacre_bin())
        .args(["lfs", "setstripe", "-c", "4", "-S", "64k"])
        .arg(one)
        .status();
    assert!(status.expect("lfs starts").success(), "setstripe on a directory");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(one.join("f"))
        .expect("create");
    let mut model = vec![0_u8; 3 << 20];
    let mut chance = SplitMix64::new(12_345);
    for round in 0..120_u64 {
        let at = chance.below(model.len() as u64 - 1) as usize;
        let len = 1 + chance.below((model.len() - at).min(700_000) as u64) as usize;
        let data = vec![round as u8 + 1; len];
        file.write_all_at(&data, at as u64).expect("write");
        model[at..at + len].copy_from_slice(&data);
    }
    let end = model.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    assert!(read(&two.join("f")) == model[..end], "content differs from the model");
}

fn hard_and_symbolic_links(one: &Path, two: &Path) {
    fs::write(one.join("f"), b"x").expect("write");
    assert_eq!(errno(fs::hard_link(one.join("f"), two.join("g"))), libc::EXDEV);
    fs::hard_link(two.join("f"), two.join("g")).expect("link");
    let (f, g) =
        (fs::metadata(one.join("f")).expect("stat"), fs::metadata(one.join("g")).expect("stat"));
    assert_eq!((f.ino(), f.nlink(), g.nlink()), (g.ino(), 2, 2));
    fs::remove_file(one.join("f")).expect("unlink");
    assert_eq!(fs::metadata(two.join("g")).expect("stat").nlink(), 1);
    symlink("g", one.join("s")).expect("symlink");
    assert_eq!(fs::read_link(two.join("s")).expect("readlink"), Path::new("g"));
    assert_eq!(read(&two.join("s")), b"x");
    symlink("loop", one.join("loop")).expect("symlink");
    assert_eq!(errno(File::open(one.join("loop"))), libc::ELOOP);
    assert_eq!(errno(fs::hard_link(one, one.join("dirlink"))), libc::EPERM);
}

fn renames(one: &Path, two: &Path) {
    fs::create_dir(one.join("a")).expect("mkdir");
    fs::create_dir(one.join("b")).expect("mkdir");
    fs::write(one.join("a/f"), b"1").expect("write");
    fs::write(one.join("b/g"), b"2").expect("write");
    fs::rename(two.join("a/f"), two.join("b/g"))
        .expect("rename over an existing file of another directory");
    assert_eq!(read(&one.join("b/g")), b"1");
    assert_eq!(errno(fs::metadata(one.join("a/f"))), libc::ENOENT);
    fs::write(one.join("a/h"), b"3").expect("write");
    assert_eq!(
        errno(posix::rename2(&one.join("a/h"), &one.join("b/g"), libc::RENAME_NOREPLACE)),
        libc::EEXIST
    );
    posix::rename2(&one.join("a/h"), &one.join("b/h"), libc::RENAME_NOREPLACE)
        .expect("NOREPLACE on a free name");
    assert_eq!(errno(fs::rename(one.join("a"), one.join("a/below"))), libc::EINVAL);
    assert_eq!(errno(fs::rename(one.join("a"), one.join("b"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::rename(one.join("b/g"), one.join("a"))), libc::EISDIR);
    assert_eq!(errno(fs::rename(one.join("a"), one.join("b/g"))), libc::ENOTDIR);
    fs::rename(one.join("b"), one.join("a/b")).expect("a directory moves");
    assert_eq!(read(&two.join("a/b/h")), b"3");
    assert_eq!(
        fs::metadata(one).expect("stat").nlink(),
        3,
        "a directory's links are 2 and one for each subdirectory"
    );
}

/// Who looks at a name that is renamed over sees what was there before or what came, and never
/// nothing. The kernel opens a file in two steps and tries again once where it went in between.
fn a_rename_is_atomic_for_an_observer(one: &Path, two: &Path) {
    const LEN: usize = 5_000;
    const ROUNDS: u8 = 100;
    let put = |mark: u8| {
        fs::write(one.join("next"), vec![mark; LEN]).expect("write");
        fs::rename(one.join("next"), one.join("now")).expect("rename");
    };
    put(0);
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let (mut last, mut looks) = (0, 0);
            while last < ROUNDS {
                let looked = fs::read(two.join("now"));
                if looked.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ESTALE)) {
                    continue;
                }
                let seen = rows(&looked.expect("the name is there all the time"));
                assert!(seen.len() == 1 && seen[0].1 == LEN && seen[0].0 >= last, "{seen:?}");
                (last, looks) = (seen[0].0, looks + 1);
            }
            looks
        });
        (1..=ROUNDS).for_each(put);
        assert!(observer.join().expect("the observer") > 0);
    });
}

fn directories(one: &Path, two: &Path) {
    let dir = one.join("d");
    fs::create_dir(&dir).expect("mkdir");
    assert_eq!(errno(fs::create_dir(two.join("d"))), libc::EEXIST);
    let total = mounted::count(5_000, 100_000);
    for index in 0..total {
        File::create(dir.join(format!("entry-{index}"))).expect("create");
    }
    // entries that stay appear once, whatever happens to the others meanwhile
    let mut listing = fs::read_dir(two.join("d")).expect("opendir");
    let mut seen = BTreeSet::new();
    let mut doubled = 0;
    for round in 0.. {
        let Some(entry) = listing.next() else { break };
        let name = entry.expect("readdir").file_name().into_string().expect("our names are text");
        doubled += usize::from(!seen.insert(name));
        if round % 10 == 0 {
            let _ = fs::remove_file(dir.join(format!("entry-{}", round + 1)));
            File::create(dir.join(format!("late-{round}"))).expect("create meanwhile");
        }
    }
    assert_eq!(doubled, 0, "an entry appeared twice");
    let stable = (0..total).filter(|index| index % 10 != 1).map(|index| format!("entry-{index}"));
    let missing: Vec<_> = stable.filter(|name| !seen.contains(name)).take(5).collect();
    assert!(missing.is_empty(), "entries that were there all the time are missing: {missing:?}");
    assert_eq!(errno(fs::remove_dir(&dir)), libc::ENOTEMPTY);
    fs::remove_dir_all(&dir).expect("rm -r");
    assert_eq!(errno(fs::read_dir(two.join("d"))), libc::ENOENT);
    assert_eq!(errno(fs::remove_file(one)), libc::EISDIR);
}

/// A time that is set while the file is open elsewhere, and written to before, holds until the next
/// write.
fn times_set_under_a_writer(one: &Path, two: &Path) {
    let mut file = File::create(one.join("log")).expect("create");
    file.write_all(b"first").expect("write");
    let at = |sec| std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(sec, 5);
    let seen = || {
        [one, two]
            .map(|mount| fs::metadata(mount.join("log")).expect("stat").modified().expect("a time"))
    };
    for sec in [1_000_000_000, 8_000_000_000] {
        let other = File::options().write(true).open(two.join("log")).expect("open");
        other.set_times(fs::FileTimes::new().set_modified(at(sec))).expect("utimensat");
        assert_eq!(seen(), [at(sec); 2]);
        file.write_all(b"more").expect("write");
        assert!(
            seen().iter().all(|time| *time > at(1_500_000_000) && *time < at(8_000_000_000)),
            "{:?}",
            seen()
        );
        file.set_times(fs::FileTimes::new().set_modified(at(sec))).expect("utimensat");
        drop(other);
        assert_eq!(seen(), [at(sec); 2]);
    }
    drop(file);
    assert_eq!(seen(), [at(8_000_000_000); 2], "the close tells no older write");
}

fn attributes_and_times(one: &Path, two: &Path) {
    let file = File::create(one.join("f")).expect("create");
    let time =
        std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
    file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time)).expect("utimensat");
    drop(file);
    let meta = fs::metadata(two.join("f")).expect("stat");
    assert_eq!(
        (meta.mtime(), meta.mtime_nsec(), meta.atime_nsec()),
        (1_234_567_890, 123_456_789, 123_456_789)
    );
    fs::set_permissions(one.join("f"), fs::Permissions::from_mode(0o640)).expect("chmod");
    std::os::unix::fs::chown(one.join("f"), Some(1234), Some(5678)).expect("chown");
    let meta = fs::metadata(two.join("f")).expect("stat");
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o640, 1234, 5678));
    fs::write(one.join("data"), vec![7; 300_000]).expect("write");
    let meta = fs::metadata(two.join("data")).expect("stat");
    assert_eq!(meta.len(), 300_000);
    assert!((586..=608).contains(&meta.blocks()), "{} blocks for 300,000 bytes", meta.blocks());
    let before = fs::metadata(one).expect("stat");
    std::thread::sleep(std::time::Duration::from_millis(20));
    File::create(one.join("new")).expect("create");
    let after = fs::metadata(two).expect("stat");
    assert!(
        (after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()),
        "a directory's mtime stands still"
    );
    let masked = shell(one, "umask 027; touch masked; mkdir dmasked; stat -c %a masked dmasked");
    assert_eq!(masked.split_whitespace().collect::<Vec<_>>(), ["640", "750"]);
}

fn permissions_are_checked_by_the_server(one: &Path, two: &Path) {
    fs::write(one.join("secret"), b"s").expect("write");
    fs::set_permissions(one.join("secret"), fs::Permissions::from_mode(0o600)).expect("chmod");
    fs::create_dir(one.join("closed")).expect("mkdir");
    fs::set_permissions(one.join("closed"), fs::Permissions::from_mode(0o700)).expect("chmod");
    let as_nobody = |script: &str| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script])
            .current_dir(two)
            .output()
    };
    let refused = [
        "cat secret",
        "touch closed/x",
        "touch new",
        "chmod 666 secret",
        "ls closed",
        "rm secret",
        "chown 65534 secret",
    ];
    for script in refused {
        let output = as_nobody(script).expect("setpriv starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && (text.contains("denied") || text.contains("not permitted")),
            "'{script}' was not refused: {text}"
        );
    }
    fs::create_dir(one.join("open")).expect("mkdir");
    fs::set_permissions(one.join("open"), fs::Permissions::from_mode(0o1777)).expect("chmod");
    assert!(
        as_nobody("echo mine > open/mine && cat open/mine")
            .expect("setpriv starts")
            .status
            .success()
    );
    assert_eq!(fs::metadata(one.join("open/mine")).expect("stat").uid(), 65_534);
    fs::write(one.join("open/roots"), b"r").expect("write");
    assert!(
        !as_nobody("rm -f open/roots").expect("setpriv starts").status.success(),
        "the sticky bit does not hold"
    );
}

fn set_user_id_falls_under_a_handle_opened_earlier(one: &Path, two: &Path) {
    let tool = one.join("tool");
    fs::write(&tool, b"old").expect("write");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o666)).expect("chmod");
    let nobody = |work: &mut (dyn FnMut() + Send)| posix::as_user(65_534, 65_534, work);
    let mut file = None;
    nobody(&mut || {
        let opened = OpenOptions::new().write(true).open(two.join("tool"));
        file = Some(opened.expect("open"));
    });
    let mut file = file.expect("opened");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4777)).expect("chmod u+s");
    std::thread::sleep(std::time::Duration::from_millis(100));
    nobody(&mut || file.write_all(b"new").expect("write"));
    let mode = fs::metadata(&tool).expect("stat").mode();
    assert_eq!(mode & 0o7777, 0o777, "a program with another's content keeps set-user-id");
}

fn a_program_that_runs_elsewhere_is_not_written(one: &Path, two: &Path) {
    let (here, there) = (one.join("sleep"), two.join("sleep"));
    fs::copy("/bin/sleep", &here).expect("a copy");
    let text = read(&here);
    let write = || OpenOptions::new().write(true).open(&there);
    let cut = || posix::truncate(&there, 0);
    // the kernel of a mount reports a last close, and the end of a program, in the background
    let has_run = |path: &Path| {
        let status = Command::new(path).arg("0").status();
        status.is_ok_and(|status| status.success())
    };
    until("its writer has closed it", || has_run(&there));
    let mut runs = Command::new(&here).arg("1000").spawn().expect("it runs");
    assert_eq!((errno(write()), errno(cut())), (libc::ETXTBSY, libc::ETXTBSY));
    assert_eq!(errno(File::create(&there)), libc::ETXTBSY);
    assert_eq!(read(&there), text, "reading it goes on");
    assert!(has_run(&there), "so does running it");
    runs.kill().expect("ours");
    runs.wait().expect("it ends");
    until("nobody runs it any more", || write().is_ok());
    let writer = write().expect("nobody runs it any more");
    assert_eq!(errno(Command::new(&here).arg("0").spawn()), libc::ETXTBSY);
    drop(writer);
    until("nobody writes it any more", || has_run(&here));
}

fn extended_attributes(one: &Path, two: &Path) {
    let (file, other) = (one.join("f"), two.join("f"));
    fs::write(&file, b"").expect("create");
    posix::setxattr(&file, "user.colour", b"nacre", 0).expect("setxattr");
    assert_eq!(posix::getxattr(&other, "user.colour").expect("getxattr"), b"nacre");
    assert_eq!(
        errno(posix::setxattr(&other, "user.colour", b"x", libc::XATTR_CREATE)),
        libc::EEXIST
    );
    assert_eq!(
        errno(posix::setxattr(&other, "user.absent", b"x", libc::XATTR_REPLACE)),
        libc::ENODATA
    );
    posix::setxattr(&other, "user.big", &[5; 20_000], 0).expect("20,000 bytes");
    assert_eq!(posix::getxattr(&file, "user.big").expect("getxattr").len(), 20_000);
    let names = posix::listxattr(&file).expect("listxattr");
    assert!(
        names.contains(&"user.colour".to_owned()) && names.contains(&"user.big".to_owned()),
        "{names:?}"
    );
    posix::removexattr(&file, "user.colour").expect("removexattr");
    assert_eq!(errno(posix::getxattr(&other, "user.colour")), libc::ENODATA);
}

fn shared_mappings(one: &Path, two: &Path) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(one.join("f"))
        .expect("create");
    file.write_all_at(&[b'.'; 8192], 0).expect("write");
    let mut mapping = Mapping::new(&file, 8192).expect("mmap");
    assert_eq!(mapping.bytes()[5000], b'.');
    mapping.bytes()[4096..4101].copy_from_slice(b"hello");
    mapping.sync().expect("msync");
    let text = read(&two.join("f"));
    assert_eq!(&text[4096..4101], b"hello");
    assert_eq!(text.len(), 8192);
}

/// A client that is gone keeps its locks for this long. One that gives a lock back does not.
const LEASE: Duration = Duration::from_secs(10);

fn whole_file_locks_between_mounts(one: &Path, two: &Path) {
    fs::write(one.join("f"), b"").expect("create");
    let (first, second) =
        (File::open(one.join("f")).expect("open"), File::open(two.join("f")).expect("open"));
    posix::flock(&first, libc::LOCK_EX).expect("lock");
    assert_eq!(errno(posix::flock(&second, libc::LOCK_EX | libc::LOCK_NB)), libc::EWOULDBLOCK);
    let (unlocked, locked) = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            posix::flock(&second, libc::LOCK_EX).expect("the lock comes");
            std::time::Instant::now()
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        let unlocked = std::time::Instant::now();
        posix::flock(&first, libc::LOCK_UN).expect("unlock");
        (unlocked, waiter.join().expect("the waiter"))
    });
    assert!(locked >= unlocked, "the lock was given twice");
    assert!(locked - unlocked < LEASE, "waited {:?}", locked - unlocked);
    drop(second);
    // The kernel tells of a last close behind the caller's back, so another client may be a moment
    // too early.
    until("a closed file holds no lock", || {
        posix::flock(&first, libc::LOCK_EX | libc::LOCK_NB).is_ok()
    });
}

fn range_locks_between_mounts(one: &Path, two: &Path) {
    fs::write(one.join("f"), [0; 100]).expect("create");
    let open =
        |dir: &Path| OpenOptions::new().read(true).write(true).open(dir.join("f")).expect("open");
    let (first, second) = (open(one), open(two));
    posix::fcntl_lock(&first, libc::F_SETLK, libc::F_WRLCK, 0, 50).expect("lock of the first half");
    assert_eq!(
        errno(posix::fcntl_lock(&second, libc::F_SETLK, libc::F_WRLCK, 40, 20)),
        libc::EAGAIN
    );
    posix::fcntl_lock(&second, libc::F_SETLK, libc::F_WRLCK, 50, 50)
        .expect("lock of the second half");
    assert!(posix::fcntl_conflict(&second).expect("F_GETLK").is_some());
    posix::fcntl_lock(&first, libc::F_SETLK, libc::F_UNLCK, 0, 50).expect("unlock");
    assert_eq!(posix::fcntl_conflict(&second).expect("F_GETLK"), None);
    // a wait for a lock ends with a signal
    posix::fcntl_lock(&second, libc::F_SETLK, libc::F_WRLCK, 0, 100).expect("lock of all");
    posix::flock(&first, libc::LOCK_EX).expect("flock is another kind of lock");
    let (start, path) = (std::time::Instant::now(), two.join("f"));
    let status = Command::new("flock").args(["--timeout", "1"]).arg(path).arg("true").status();
    let took = start.elapsed();
    // Its own status when its alarm interrupts the wait. Nothing else ends that: the lock is held.
    assert_eq!(status.expect("flock starts").code(), Some(1), "flock(1) after {took:?}");
    let bounds = Duration::from_secs(1)..PATIENCE;
    assert!(bounds.contains(&took), "the signal ended the wait after {took:?}");
}

/// Locks of an open file (`F_OFD_SETLK`): another client is refused until that file is closed,
/// whatever else the process closes.
fn locks_of_open_files_between_mounts(one: &Path, two: &Path) {
    fs::write(one.join("f"), [0; 100]).expect("create");
    let open =
        |dir: &Path| OpenOptions::new().read(true).write(true).open(dir.join("f")).expect("open");
    let lock = |file: &File, command| posix::fcntl_lock(file, command, libc::F_WRLCK, 0, 50);
    let (first, second) = (open(one), open(two));
    lock(&first, libc::F_OFD_SETLK).expect("lock of an open file");
    drop(open(one));
    for command in [libc::F_OFD_SETLK, libc::F_SETLK] {
        assert_eq!(errno(lock(&second, command)), libc::EAGAIN);
    }
    posix::fcntl_lock(&second, libc::F_OFD_SETLK, libc::F_WRLCK, 50, 50).expect("the other half");
    drop(first);
    until("a closed file holds no lock", || lock(&second, libc::F_OFD_SETLK).is_ok());
}

fn waits_for_locks_between_mounts_are_interrupted(one: &Path, two: &Path) {
    fs::write(one.join("f"), [0; 100]).expect("create");
    let open =
        |dir: &Path| OpenOptions::new().read(true).write(true).open(dir.join("f")).expect("open");
    let (first, second) = (open(one), open(two));
    let after = Duration::from_millis(300);
    for (take, wait) in [(libc::F_SETLK, libc::F_SETLKW), (libc::F_OFD_SETLK, libc::F_OFD_SETLKW)] {
        let lock = || posix::fcntl_lock(&first, take, libc::F_WRLCK, 0, 100);
        let unlock = || posix::fcntl_lock(&first, take, libc::F_UNLCK, 0, 100).expect("unlock");
        let is_alone = || {
            until("the lock is free", || lock().is_ok());
            let waited = posix::interrupted(after, || {
                posix::fcntl_lock(&second, wait, libc::F_WRLCK, 0, 100)
            });
            assert_eq!(errno(waited), libc::EINTR);
            unlock();
            lock().is_ok()
        };
        // The call waits 1 s for the MDT to forget it. An MDT on a busy machine may take longer.
        assert!((0..5).any(|_| is_alone()), "somebody stands in line");
        unlock();
    }
    posix::flock(&first, libc::LOCK_EX).expect("lock");
    let waited = posix::interrupted(after, || posix::flock(&second, libc::LOCK_EX));
    assert_eq!(errno(waited), libc::EINTR);
}

fn open_unlinked_files(one: &Path, two: &Path) {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(one.join("f"))
        .expect("create");
    file.write_all(b"still here").expect("write");
    fs::remove_file(two.join("f")).expect("unlink on the other mount");
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).expect("seek");
    file.read_to_string(&mut text).expect("read");
    assert_eq!(text, "still here");
    file.write_all(b" and growing").expect("write");
    assert_eq!(file.metadata().expect("fstat").len(), 22);
    assert_eq!(file.metadata().expect("fstat").nlink(), 0);
    file.set_permissions(fs::Permissions::from_mode(0o600)).expect("fchmod");
    fs::write(one.join("f"), b"another").expect("the name is free");
    assert_eq!(file.metadata().expect("fstat").len(), 22);
}

fn two_mounts_agree(one: &Path, two: &Path) {
    for round in 0..20_u8 {
        let (a, b) = if round % 2 == 0 { (one, two) } else { (two, one) };
        assert_eq!(errno(fs::metadata(b.join("f"))), libc::ENOENT);
        fs::write(a.join("f"), vec![round; 1000 + usize::from(round)]).expect("write");
        assert_eq!(read(&b.join("f")), vec![round; 1000 + usize::from(round)]);
        OpenOptions::new()
            .append(true)
            .open(b.join("f"))
            .expect("open")
            .write_all(b"more")
            .expect("append");
        assert_eq!(fs::metadata(a.join("f")).expect("stat").len(), 1004 + u64::from(round));
        fs::set_permissions(a.join("f"), fs::Permissions::from_mode(0o600 + u32::from(round % 8)))
            .expect("chmod");
        assert_eq!(
            fs::metadata(b.join("f")).expect("stat").mode() & 0o7777,
            0o600 + u32::from(round % 8)
        );
        fs::rename(b.join("f"), b.join("g")).expect("rename");
        assert_eq!(errno(fs::metadata(a.join("f"))), libc::ENOENT);
        fs::remove_file(a.join("g")).expect("unlink");
        assert_eq!(fs::read_dir(b).expect("readdir").count(), 0);
    }
    let mut winners = 0;
    for round in 0..20 {
        let name = format!("race-{round}");
        std::thread::scope(|scope| {
            let racers =
                [one, two].map(|dir| scope.spawn(|| File::create_new(dir.join(&name)).is_ok()));
            winners += racers
                .into_iter()
                .map(|racer| usize::from(racer.join().expect("racer")))
                .sum::<usize>();
        });
    }
    assert_eq!(winners, 20, "O_EXCL has one winner each time");
}

fn space(one: &Path, two: &Path) {
    let (blocks, free, files, files_free, name_max) = posix::statvfs(one).expect("statvfs");
    assert!(
        blocks > 0 && free > 0 && free <= blocks && files > 0 && files_free <= files,
        "{blocks} {free} {files} {files_free}"
    );
    assert_eq!(name_max, 255);
    assert_eq!(posix::statvfs(two).expect("statvfs").0, blocks);
}

fn long_names(one: &Path, two: &Path) {
    let longest = "n".repeat(255);
    fs::write(one.join(&longest), b"x").expect("255 bytes");
    assert_eq!(read(&two.join(&longest)), b"x");
    assert_eq!(errno(fs::write(one.join("n".repeat(256)), b"x")), libc::ENAMETOOLONG);
    let strange = "line\nbreak \u{1f980} \"quote\" *";
    fs::write(one.join(strange), b"y").expect("any byte but / and NUL");
    assert!(
        fs::read_dir(two)
            .expect("readdir")
            .any(|entry| entry.expect("entry").file_name() == strange)
    );
    let mut deep = one.to_path_buf();
    for _ in 0..40 {
        deep.push("d".repeat(60));
        fs::create_dir(&deep).expect("mkdir");
    }
    fs::write(deep.join("f"), b"z").expect("a deep file");
}

fn names_of_any_byte(one: &Path, two: &Path) {
    let bytes: Vec<u8> = (1..=u8::MAX).filter(|byte| *byte != b'/').collect();
    let name = OsStr::from_bytes(&bytes);
    fs::write(one.join(name), b"x").expect("write");
    assert_eq!(read(&two.join(name)), b"x");
    let listed: Vec<_> = fs::read_dir(two)
        .expect("readdir")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    assert_eq!(listed, [name]);
    fs::rename(two.join(name), two.join("plain")).expect("rename");
    assert_eq!(errno(fs::metadata(one.join(name))), libc::ENOENT);
}
