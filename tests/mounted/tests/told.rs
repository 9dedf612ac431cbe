//! Evicted clients report it, by each handle (docs/semantics.md). A client is evicted because its
//! daemon is stopped.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mounted::cut::Disk;
use mounted::{PATIENCE, Scratch, Up, daemon_of, kill, posix};

const OST: &str = "OST0001";

/// A file system whose servers make nothing durable of their own accord, and the mount whose daemon
/// will stand still.
fn begin(name: &str) -> (Up, PathBuf) {
    let args = ["--osts", "2", "--crashes-max", "1000", "--commit-interval-ms", "60000"];
    let mut up = Up::with(Scratch::new(name), None, &args);
    up.will_be_damaged(); // work of the evicted client is lost
    let mount = up.second_mount(21);
    up.set("llite.*.writeback", "0"); // what is written is at the OSTs
    (up, mount)
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("open")
}

fn is_eio<T>(outcome: io::Result<T>) -> bool {
    outcome.is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
}

/// One of several closes of a handle.
fn close(file: &File) -> io::Result<()> {
    posix::close(file.try_clone().expect("a descriptor"))
}

/// Until a mount counts changes that are lost.
fn wait_until_lost(up: &Up) {
    let start = Instant::now();
    while up.param("llite.*.lost").lines().all(|count| count == "0") {
        assert!(start.elapsed() < PATIENCE, "no mount has heard of lost work");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Until `up` has printed a line that begins like this.
fn wait_until_said(up: &Up, begin: &str) -> String {
    let start = Instant::now();
    loop {
        let text = up.log_text();
        if let Some(line) = text.lines().find(|line| line.starts_with(begin)) {
            return line.to_owned();
        }
        assert!(start.elapsed() < PATIENCE, "up does not say '{begin}':\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The handle hears of lost work: by each close until its fsync, by one fsync.
fn hears_once(file: &File) {
    assert!(is_eio(close(file)) && is_eio(close(file)), "close before fsync");
    assert!(is_eio(file.sync_all()), "the first fsync");
    file.sync_all().expect("the second fsync");
    close(file).expect("close after fsync");
}

/// The handle hears of it by `msync` likewise.
fn hears_once_by_msync(file: &File, mapping: &posix::Mapping) {
    assert!(is_eio(close(file)), "close before msync");
    assert!(is_eio(mapping.sync()), "the first msync");
    mapping.sync().expect("the second msync");
    close(file).expect("close after msync");
}

#[test]
fn what_a_restarted_ost_has_not_is_told_to_each_handle_once() {
    let (mut up, mount) = begin("told-ost");
    for name in ["f", "other"] {
        let path = mount.join(name);
        assert_eq!(
            up.tool(&["lfs", "setstripe", "-c", "1", "-i", "1", &path.to_string_lossy()]),
            ""
        );
    }
    let [first, second, mapped, other] =
        ["f", "f", "f", "other"].map(|name| open(&mount.join(name)));
    let mapping = posix::Mapping::new(&mapped, 4_096).expect("mmap");
    for file in [&first, &other] {
        file.write_all_at(b"durable", 0).and_then(|()| file.sync_all()).expect("write");
    }
    first.write_all_at(b"lost", 0).expect("write");
    let daemon = daemon_of(&mount);
    kill(daemon, libc::SIGSTOP);
    up.kill_server(OST);
    fs::read(up.at("f")).expect("when the OST has given the stopped client up");
    kill(daemon, libc::SIGCONT);

    wait_until_lost(&up);
    let line =
        wait_until_said(&up, &format!("nacre up: testfs-{OST} is recovering and waits for "));
    assert!(line.contains(&*mount.to_string_lossy()), "{line}");
    wait_until_said(&up, &format!("nacre up: testfs-{OST} has recovered, after "));
    hears_once(&first);
    hears_once(&second);
    hears_once_by_msync(&mapped, &mapping);
    other.sync_all().and_then(|()| close(&other)).expect("nothing of this file is lost");
    first.write_all_at(b"again", 0).and_then(|()| first.sync_all()).expect("the handle works");
    assert_eq!(&fs::read(up.at("f")).expect("read")[..5], b"again");
    up.stop();
}

#[test]
fn what_a_restarted_mdt_has_not_is_told_and_handles_of_then_are_void() {
    let (mut up, mount) = begin("told-mdt");
    let dir = mount.join("d");
    fs::create_dir(&dir).expect("mkdir");
    let file = open(&dir.join("f"));
    let opened = File::open(&dir).expect("a directory");
    file.sync_all().and_then(|()| opened.sync_all()).expect("fsync");
    fs::create_dir(dir.join("lost")).expect("mkdir");
    let daemon = daemon_of(&mount);
    kill(daemon, libc::SIGSTOP);
    up.kill_server("MDT0000");
    assert!(!up.at("d/lost").exists(), "the MDT has given the stopped client up");
    kill(daemon, libc::SIGCONT);

    wait_until_lost(&up);
    assert!(is_eio(opened.sync_all()), "the first fsync of the directory");
    opened.sync_all().expect("the second one");
    for _ in 0..2 {
        assert!(is_eio(file.sync_all()) && is_eio(file.write_at(b"x", 0)), "its open is void");
        assert!(is_eio(close(&file)));
    }
    fs::write(dir.join("f"), b"new").expect("an open of now");
    up.stop();
}

#[test]
fn a_client_whose_lock_another_one_took_hears_of_it() {
    let (mut up, mount) = begin("told-lock");
    let held = open(&mount.join("f"));
    held.write_all_at(b"kept", 0).expect("write");
    posix::flock(&held, libc::LOCK_EX).expect("lock");
    let rival = open(&up.at("f"));
    let daemon = daemon_of(&mount);
    kill(daemon, libc::SIGSTOP);
    posix::flock(&rival, libc::LOCK_EX).expect("when the MDT has given the stopped client up");
    kill(daemon, libc::SIGCONT);

    let start = Instant::now();
    while !is_eio(held.write_at(b"late", 0)) {
        assert!(start.elapsed() < PATIENCE, "the handle is not void");
        std::thread::sleep(Duration::from_millis(50));
    }
    for _ in 0..2 {
        assert!(is_eio(held.sync_all()) && is_eio(close(&held)), "fsync and close");
    }
    assert_eq!(open(&mount.join("f")).sync_all().ok(), Some(()), "an open of now");
    up.stop();
}

/// Empties all objects of an OST behind its back.
fn empty_objects(objects: &Path) -> u32 {
    let mut emptied = 0;
    for dir in fs::read_dir(objects).expect("objects").flatten() {
        for object in fs::read_dir(dir.path()).expect("a directory").flatten() {
            OpenOptions::new()
                .write(true)
                .open(object.path())
                .and_then(|file| file.set_len(0))
                .expect("an object");
            emptied += 1;
        }
    }
    emptied
}

/// Takes all room below `dir`.
fn fill(dir: &Path) -> PathBuf {
    let path = dir.join("filler");
    let filler = File::create(&path).expect("a file");
    let (mut at, mut step) = (0, 8 << 20);
    while step >= 4_096 {
        match mounted::range::fallocate(&filler, 0, at, step) {
            Ok(()) => at += step,
            Err(_) => step /= 2,
        }
    }
    path
}

/// What was acknowledged and not durable did not reach the OST's disk, and somebody else took its
/// room before the OST was back: it cannot do again what the client replays.
#[test]
fn a_replay_that_is_refused_is_told() {
    let scratch = Scratch::new("told-refused");
    let mut disk = Disk::new(&scratch, &format!("data/testfs-{OST}"), 160);
    let args = ["--osts", "2", "--crashes-max", "1000", "--commit-interval-ms", "60000"];
    let mut up = Up::with(scratch, None, &args);
    up.will_be_damaged(); // the full OST loses work
    let mount = up.second_mount(21);
    for name in ["f", "other"] {
        let path = mount.join(name).to_string_lossy().into_owned();
        let index = if name == "f" { "1" } else { "0" };
        assert_eq!(up.tool(&["lfs", "setstripe", "-c", "1", "-i", index, &path]), "");
    }
    let [file, other] = ["f", "other"].map(|name| open(&mount.join(name)));
    file.write_all_at(&vec![7; 3 << 20], 0).expect("acknowledged");
    other.write_all_at(b"kept", 0).expect("acknowledged");
    assert!(empty_objects(&up.target(OST).join("objects")) > 0);
    let filler = fill(disk.dir());
    up.kill_server(OST);

    wait_until_lost(&up);
    hears_once(&file);
    other.sync_all().and_then(|()| close(&other)).expect("nothing of this file is lost");
    let server = fs::read_to_string(up.data().join(format!("log/testfs-{OST}.log")));
    let server = server.expect("the OST's log");
    assert!(server.contains("a replay is refused: acknowledged work is lost"), "{server}");
    let name = mount.display().to_string().trim_matches('/').replace('/', "-");
    let run = std::env::var_os("NACRE_RUN").map_or_else(|| "/run/nacre".into(), PathBuf::from);
    let log = fs::read_to_string(run.join(format!("mount-{name}.log"))).expect("a log");
    assert!(log.contains("repeating it was refused") && log.contains("is lost"), "{log}");
    fs::remove_file(filler).expect("removed");
    file.write_all_at(b"again", 0).and_then(|()| file.sync_all()).expect("the handle works");
    up.stop();
    disk.unmount();
}
