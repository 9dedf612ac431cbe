//! An unmount waits until acknowledged work is durable, and reports the work that it gives up.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mounted::cut::Disk;
use mounted::{PATIENCE, Scratch, Up, daemon_of, is_alive, kill, nacre_bin, until, wait_bounded};

const OST: &str = "OST0001";
/// What the other bounds of an unmount take together, on a busy machine: a daemon that is there
/// after it waits for what is not durable.
const LONGER_THAN_ANY_OTHER: Duration = Duration::from_secs(14);
/// An unmount that gives up asks for names and hangs up; nothing else takes time.
const AT_ONCE: Duration = Duration::from_secs(20);

/// A file system whose servers make nothing durable of their own accord, and a second mount.
fn begin(name: &str, options: &str) -> (Up, PathBuf) {
    let args = ["--osts", "2", "--crashes-max", "1000", "--commit-interval-ms", "60000"];
    let mut up = Up::with(Scratch::new(name), None, &args);
    let mount = up.second_mount_with(21, options);
    (up, mount)
}

fn content() -> Vec<u8> {
    (0..3_u32 << 20).map(|at| (at % 251) as u8).collect()
}

/// Writes a file through `mount` whose OST stops before it is durable. Tells OST and daemon.
fn write_to_an_ost_that_stops(up: &Up, mount: &Path) -> (u32, u32) {
    let path = mount.join("f");
    assert_eq!(up.tool(&["lfs", "setstripe", "-c", "1", "-i", "1", &path.to_string_lossy()]), "");
    fs::write(&path, content()).expect("write");
    // the last bytes may be on their way after the close
    let wanted = format!("testfs-{OST}: 1 files, 3145728 bytes, ");
    let is_sent = || up.param("llite.*.unconfirmed").contains(&wanted);
    until(&format!("unconfirmed says {wanted}"), is_sent);
    let ost = up.server(OST);
    kill(ost, libc::SIGSTOP);
    (ost, daemon_of(mount))
}

fn nacre_umount(mount: &Path, options: &[&str]) -> Child {
    let mut command = Command::new(nacre_bin());
    command.arg("umount").args(options).arg(mount).stderr(Stdio::piped());
    command.spawn().expect("nacre starts")
}

fn rest_of_stderr(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut text).expect("text");
    text
}

fn wait_for_the_end_of(daemon: u32) {
    let start = Instant::now();
    while is_alive(daemon) {
        assert!(start.elapsed() < PATIENCE, "the daemon does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_daemon_outlives_its_mount_until_all_is_durable() {
    let (mut up, mount) = begin("unmount-waits", "");
    let (ost, daemon) = write_to_an_ost_that_stops(&up, &mount);
    let status = Command::new("umount").arg(&mount).status().expect("umount starts");
    assert!(status.success() && !mounted::is_mounted(&mount));
    std::thread::sleep(LONGER_THAN_ANY_OTHER);
    assert!(is_alive(daemon), "the daemon left what the OST had not made durable");
    assert_eq!(up.second_mount(21), mount, "another daemon takes over the mount point");
    kill(ost, libc::SIGCONT);
    wait_for_the_end_of(daemon);
    assert!(fs::read(mount.join("f")).expect("read") == content());
    let status = nacre_umount(&mount, &[]).wait().expect("our child");
    assert!(status.success(), "the new mount is found, although the old daemon has ended since");
    up.stop();
}

#[test]
fn umount_says_for_whom_it_waits_and_what_is_replayed_meanwhile_is_there() {
    let (mut up, mount) = begin("unmount-says", "");
    let (ost, daemon) = write_to_an_ost_that_stops(&up, &mount);
    let mut umount = nacre_umount(&mount, &[]);
    let mut said = BufReader::new(umount.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with(&format!("nacre umount: waiting for testfs-{OST}: 1 file, 3 MiB")) {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "umount ended");
    }
    assert!(is_alive(daemon));
    kill(ost, libc::SIGKILL); // up starts another one
    assert!(wait_bounded(&mut umount).is_some_and(|status| status.success()));
    wait_for_the_end_of(daemon);
    assert!(fs::read(up.at("f")).expect("read") == content());
    up.stop();
    up.fsck();
}

#[test]
fn a_forced_umount_ends_at_once_and_prints_what_it_gives_up() {
    let (mut up, mount) = begin("unmount-forced", "");
    let (ost, daemon) = write_to_an_ost_that_stops(&up, &mount);
    let start = Instant::now();
    let mut umount = nacre_umount(&mount, &["-f"]);
    let status = wait_bounded(&mut umount).expect("it ends");
    assert!(status.success() && start.elapsed() < AT_ONCE, "{status} {:?}", start.elapsed());
    let said = rest_of_stderr(&mut umount);
    let is_told =
        |line: &str| line.contains("/f: bytes 0..3145728 of ") && line.ends_with("testfs-OST0001");
    assert!(said.lines().any(is_told), "{said}");
    wait_for_the_end_of(daemon);
    kill(ost, libc::SIGCONT);
    up.stop();
}

#[test]
fn when_unmount_wait_is_over_umount_and_the_log_name_the_files() {
    let (mut up, mount) = begin("unmount-over", "unmount_wait=2");
    let (ost, daemon) = write_to_an_ost_that_stops(&up, &mount);
    let mut umount = nacre_umount(&mount, &[]);
    let status = wait_bounded(&mut umount).expect("it ends");
    let said = rest_of_stderr(&mut umount);
    assert_eq!(status.code(), Some(1), "{said}");
    wait_for_the_end_of(daemon);
    let name = mount.display().to_string().trim_matches('/').replace('/', "-");
    let run = std::env::var_os("NACRE_RUN").map_or_else(|| "/run/nacre".into(), PathBuf::from);
    let log = fs::read_to_string(run.join(format!("mount-{name}.log"))).expect("a log");
    for text in [&said, &log] {
        assert!(text.contains("given up: /f: bytes 0..3145728 of "), "{text}");
    }
    kill(ost, libc::SIGCONT);
    up.stop();
}

/// Until `up` has printed a line that begins like this.
fn wait_until_said(log: &Path, begin: &str) -> String {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(log).expect("a log");
        if let Some(line) = text.lines().find(|line| line.starts_with(begin)) {
            return line.to_owned();
        }
        assert!(start.elapsed() < PATIENCE, "up does not say '{begin}':\n{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_up_whose_own_disk_hangs_says_for_what_it_waits_and_what_it_gives_up() {
    let scratch = Scratch::new("unmount-embedded");
    let mut disk = Disk::new(&scratch, "data/testfs-OST0000", 160);
    let (log, mount) = (scratch.path().join("up.log"), scratch.path().join("mnt"));
    let file = fs::File::create(&log).expect("a log file");
    let mut up = Command::new(nacre_bin())
        .args(["up", "--mdts", "1", "--osts", "1", "--commit-interval-ms", "60000", "--data"])
        .arg(scratch.path().join("data"))
        .arg("--mount")
        .arg(&mount)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .expect("nacre starts");
    wait_until_said(&log, "Ctrl-C");
    fs::write(mount.join("f"), content()).expect("write");
    // the last bytes may be on their way after the close
    until("the OST has all bytes", || {
        let mut lctl = Command::new(nacre_bin());
        let told = lctl.args(["lctl", "get_param", "-n", "llite.*.unconfirmed"]).output();
        let told = told.expect("nacre starts").stdout;
        String::from_utf8_lossy(&told).contains("testfs-OST0000: 1 files, 3145728 bytes, ")
    });
    let frozen = disk.freeze();
    kill(up.id(), libc::SIGTERM);
    wait_until_said(&log, "nacre up: waiting for testfs-OST0000: 1 file, 3 MiB");
    assert!(is_alive(up.id()) && !mounted::is_mounted(&mount));
    kill(up.id(), libc::SIGTERM);
    wait_until_said(&log, "nacre up: SIGTERM: waiting no longer");
    let line = wait_until_said(&log, "nacre up: given up: /f: bytes 0..3145728 of ");
    assert!(line.ends_with("testfs-OST0000"), "{line}");
    drop(frozen);
    assert!(wait_bounded(&mut up).is_some_and(|status| status.success()));
    disk.unmount();
}
