//! The life of `nacre up` and of targets: exit codes, ends, locks on storage, several file systems
//! on one machine.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use fusedev::Channel;
use mounted::{Scratch, Up, nacre_bin};

fn up(scratch: &Scratch, separate: bool, run: &str) -> std::process::Output {
    let mut command = Command::new(nacre_bin());
    command
        .arg("up")
        .arg("--data")
        .arg(scratch.path().join("data"))
        .arg("--mount")
        .arg(scratch.path().join("mnt"));
    if separate {
        command.arg("--separate");
    }
    command.args(["--run", run]).stdin(Stdio::null()).output().expect("nacre starts")
}

#[test]
fn the_exit_code_of_the_command_is_ours() {
    for separate in [false, true] {
        let scratch = Scratch::new("life-exit");
        let output = up(&scratch, separate, "echo hello > f; cat f; exit 7");
        assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "hello\n",
            "only the command writes to stdout"
        );
        let output = up(&scratch, separate, "cat f");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "hello\n",
            "data is kept over restarts"
        );
        assert!(!mounted::is_mounted(&scratch.path().join("mnt")));
    }
}

/// Files below a mount are not lost, and easily thought to be.
#[test]
fn a_mount_point_with_files_hides_them_and_says_so() {
    let scratch = Scratch::new("life-hidden");
    let mount = scratch.path().join("mnt");
    fs::create_dir(&mount).expect("a mount point");
    fs::write(mount.join("own"), "below").expect("written");
    let output = up(&scratch, false, "ls; touch f");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let hint = format!("{} is not empty: the mount hides its files", mount.display());
    assert!(said.contains(&hint), "{said}");
    assert_eq!(fs::read(mount.join("own")).expect("it is there again"), b"below");
    assert!(!mount.join("f").exists(), "it is in the file system");
}

#[test]
fn two_file_systems_live_side_by_side() {
    let (mut one, mut two) = (Up::new("life-one"), Up::new("life-two"));
    fs::write(one.at("f"), b"one").expect("write");
    fs::write(two.at("f"), b"two").expect("write");
    assert_eq!(
        (fs::read(one.at("f")).expect("read"), fs::read(two.at("f")).expect("read")),
        (b"one".to_vec(), b"two".to_vec())
    );
    one.stop();
    two.stop();
}

#[test]
fn a_file_system_leaves_its_old_addresses_alone() {
    let mut first = Up::new("life-first");
    for number in 0..8 {
        let mut file = fs::File::create(first.at(&format!("f{number}"))).expect("create");
        file.write_all(&[1; 100_000]).and_then(|()| file.sync_all()).expect("write");
    }
    let addresses = first.address();
    first.kill_everything();
    let mut second = Up::new("life-second");
    assert_eq!(second.address(), addresses, "the addresses were free");
    let data = |number: u8| vec![number; 100_000];
    for number in 0..24 {
        fs::write(second.at(&format!("f{number}")), data(number)).expect("write");
    }
    first.start_again(&[]);
    // long enough for the MDT to sweep what its predecessor may have left on the OSTs, which it
    // knows where they were
    std::thread::sleep(std::time::Duration::from_secs(5));
    for number in 0..24 {
        let found = fs::read(second.at(&format!("f{number}")))
            .unwrap_or_else(|error| panic!("f{number}: {error}"));
        assert!(found == data(number), "f{number} is another one");
    }
    assert_eq!(fs::read(first.at("f7")).expect("read"), vec![1; 100_000]);
    first.stop();
    second.stop();
}

/// Programs that write by path must not write below the mount, where nobody looks.
#[test]
fn when_up_dies_its_servers_go_and_its_mount_says_so() {
    let mut up = Up::new("life-orphans");
    let servers = ["MGS", "MDT0000", "OST0000"].map(|name| up.server(name));
    let mut file = fs::File::create(up.at("f")).expect("create");
    file.write_all(b"x").and_then(|()| file.sync_all()).expect("write");
    drop(file);
    let parent = mounted::processes().into_iter().find(|(_, words)| {
        words.iter().any(|word| word == "up")
            && words.iter().any(|word| word.contains(&*up.data().to_string_lossy()))
    });
    mounted::kill(parent.expect("up runs").0, libc::SIGKILL);
    let start = Instant::now();
    while !mounted::is_dead(up.mount()) || servers.iter().any(|pid| mounted::is_alive(*pid)) {
        assert!(start.elapsed() < mounted::PATIENCE, "something outlived up");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    refuses_writes(up.mount());
    up.kill_everything();
    refuses_writes(up.mount());
    up.start_again(&[]);
    assert_eq!(fs::read(up.at("f")).expect("replaced by the new mount"), b"x");
    up.stop();
    assert_eq!(fs::read_dir(up.mount()).expect("the directory below").count(), 0);
}

fn refuses_writes(mount: &Path) {
    for path in [mount.join("new"), mount.join("f")] {
        let refused = fs::write(&path, b"y").expect_err("nothing is written below");
        assert_eq!(refused.raw_os_error(), Some(libc::ENOTCONN), "{refused}");
    }
    assert!(mounted::is_mounted(mount));
}

#[test]
fn a_mount_whose_daemon_was_killed_stays_until_it_is_replaced_or_unmounted() {
    let mut up = Up::over(Channel::Classic, "life-dead");
    fs::write(up.at("f"), b"x").expect("write");
    for _ in 0..2 {
        let dir = up.second_mount(43); // the second round replaces a dead one
        assert_eq!(fs::read(dir.join("f")).expect("read"), b"x");
        let daemon = mounted::daemon_of(&dir);
        let guard = guard_of(daemon).expect("a mount over /dev/fuse has one");
        mounted::kill(daemon, libc::SIGKILL);
        let start = Instant::now();
        while !mounted::is_dead(&dir) || mounted::is_alive(guard) {
            assert!(start.elapsed() < mounted::PATIENCE, "a dead mount does not say so");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        refuses_writes(&dir);
    }
    let dir = up.mount().with_file_name("mnt43");
    let status = Command::new(nacre_bin()).arg("umount").arg(&dir).status();
    assert!(status.expect("nacre starts").success() && !mounted::is_mounted(&dir));
    assert_eq!(fs::read_dir(&dir).expect("the directory below").count(), 0, "nothing came below");
    up.stop();
    up.fsck();
}

/// The guard of the mount that this process serves.
fn guard_of(daemon: u32) -> Option<u32> {
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let is_guard = |words: &[String]| words.last().is_some_and(|word| word == "mount-guard");
    mounted::processes()
        .into_iter()
        .find(|(pid, words)| is_guard(words) && parent(*pid) == Some(daemon))
        .map(|(pid, _)| pid)
}

#[test]
fn a_server_that_dies_five_times_is_given_up_alone() {
    let mut up = Up::with(Scratch::new("life-crashes"), None, &["--osts", "2"]);
    assert_eq!(up.tool(&["lfs", "setstripe", "-c", "1", "-i", "1", "kept"]), "");
    fs::write(up.at("kept"), b"kept").expect("write");
    for _ in 0..5 {
        up.kill_server("OST0000");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let wanted = "for the 5th time within a minute and is given up; the end of";
    let start = Instant::now();
    while !up.log_text().contains(wanted) {
        assert!(start.elapsed() < mounted::PATIENCE, "{}", up.log_text());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let text = up.log_text();
    assert!(text.contains("testfs-OST0000 died"), "{text}");
    assert!(text.contains("the other targets and the mount go on"), "{text}");
    assert_eq!(fs::read(up.at("kept")).expect("another OST has it"), b"kept");
    fs::create_dir(up.at("dir")).expect("the MDT serves");
    up.stop();
}

/// An OST that will never come back is taken out by the command: nothing waits for it any more.
#[test]
fn a_forgotten_ost_holds_nobody_up() {
    let mut up = Up::with(Scratch::new("life-forget"), None, &["--osts", "2"]);
    up.will_be_damaged(); // an OST is forgotten with its objects
    for (name, ost) in [("kept", "0"), ("lost", "1")] {
        assert_eq!(up.tool(&["lfs", "setstripe", "-c", "1", "-i", ost, name]), "");
        fs::write(up.at(name), name).expect("write");
    }
    rustix::fs::syncfs(fs::File::open(up.mount()).expect("open")).expect("durable");
    for _ in 0..5 {
        up.kill_server("OST0001");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let forget = |words: &[&str]| {
        let done = Command::new(nacre_bin()).arg("forget").args(words).output();
        let done = done.expect("nacre starts");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (status, text) = forget(&["testfs-OST0001"]);
    assert_eq!(status, Some(1), "it may be slow, and have objects: {text}");
    assert!(text.contains("cannot be asked whether it has objects"), "{text}");
    let (status, text) = forget(&["--force", "testfs-OST0001"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("testfs-OST0001 is forgotten"), "{text}");
    let (status, text) = forget(&["--force", "testfs-OST0001"]);
    assert_eq!(status, Some(1), "{text}");
    let (status, text) = forget(&["testfs-MDT0000"]);
    assert_eq!(status, Some(1), "{text}");

    // whoever waits for it gets EIO once his mount has heard of it
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).open(up.at("lost"))?;
        file.write_all(b"more")?;
        file.sync_all()
    };
    let told = write().expect_err("nobody has the object");
    assert_eq!(told.raw_os_error(), Some(libc::EIO), "{told}");
    assert_eq!(fs::read(up.at("kept")).expect("another OST has it"), b"kept");
    mounted::posix::statvfs(up.mount()).expect("the other OST answers");
    for number in 0..4 {
        fs::write(up.at(&format!("new{number}")), b"new").expect("made on the other OST");
    }
    fs::remove_file(up.at("lost")).expect("a name needs no object");
    up.stop();
}

/// What the others of its process have acknowledged is durable.
#[test]
fn a_target_that_the_mgs_refuses_ends_others_in_order() {
    let mut up = Up::with(Scratch::new("life-refused"), None, &["--osts", "1"]);
    let address = up.address();
    let (mgs, _) = address.split_once(":/").expect("NID:/FSNAME");
    let made = |index: &str| {
        let dir = up.data().join(format!("another-{index}"));
        let mut format = Command::new(nacre_bin());
        format.args(["format", "--fsname", "testfs", "--ost", "--mgsnode", mgs]);
        let done = format.args(["--index", index]).arg(&dir).output().expect("nacre starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        dir
    };
    let mut serve = Command::new(nacre_bin());
    serve.arg("serve").args([made("5"), made("0")]).args(["--listen", "127.0.249.8@tcp"]);
    let served = serve.output().expect("nacre starts");
    let text = String::from_utf8_lossy(&served.stderr).into_owned();
    assert_eq!(served.status.code(), Some(1), "{text}");
    assert!(text.contains("testfs-OST0000: the MGS knows another storage"), "{text}");
    assert!(text.contains("testfs-OST0005: stopped"), "{text}");
    up.stop();
}

/// A logger that dies, `| head`: what is said then goes nowhere, and nothing ends.
#[test]
fn up_and_its_servers_go_on_when_nobody_reads_what_they_say() {
    let scratch = Scratch::new("life-unread");
    let (data, mount) = (scratch.path().join("data"), scratch.path().join("mnt"));
    let mut command = Command::new(nacre_bin());
    command.args(["up", "--separate", "--osts", "1", "--data"]).arg(&data);
    command.arg("--mount").arg(&mount).stdin(Stdio::null());
    let mut up =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nacre starts");
    let mut said = BufReader::new(up.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("Ctrl-C") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "up ended");
    }
    drop((said, up.stdout.take()));
    let pid_file = data.join("pid/testfs-OST0000");
    let server = || fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
    let first: u32 = server().expect("the OST's process");
    mounted::kill(first, libc::SIGKILL);
    let start = Instant::now();
    while server().is_none_or(|pid| pid == first) {
        assert!(start.elapsed() < mounted::PATIENCE, "up did not start the OST again");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    fs::write(mount.join("f"), b"x").expect("the file system works");
    mounted::kill(up.id(), libc::SIGTERM);
    let status = mounted::wait_bounded(&mut up).expect("up ends");
    assert!(status.success(), "{status}");
    mounted::fsck(&data);

    let mut serve = Command::new(nacre_bin());
    let mut serve = serve
        .args(["serve", "--listen", "127.0.0.78@tcp"])
        .arg(data.join("MGS"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nacre starts");
    drop(serve.stderr.take());
    mounted::until("it serves", || {
        let ping = Command::new(nacre_bin()).args(["lctl", "ping", "127.0.0.78@tcp"]).output();
        ping.expect("nacre starts").status.success()
    });
    mounted::kill(serve.id(), libc::SIGTERM);
    let status = mounted::wait_bounded(&mut serve).expect("serve ends");
    assert!(status.success(), "{status}");
}

/// systemd gives a service such a stderr, and its device and inode by a variable.
#[test]
fn a_server_whose_stderr_is_the_journals_begins_lines_with_their_priority() {
    let scratch = Scratch::new("life-journal");
    let (target, stream) = (scratch.path().join("MGS"), scratch.path().join("stream"));
    let mut format = Command::new(nacre_bin());
    let formatted = format.args(["format", "--fsname", "testfs", "--mgs"]).arg(&target).output();
    assert!(formatted.expect("nacre starts").status.success());
    let stderr = fs::File::create(&stream).expect("room");
    let found = stderr.metadata().expect("it is open");
    let mut serve = Command::new(nacre_bin());
    serve.args(["serve", "--listen", "127.0.249.9@tcp"]).arg(&target).stdout(Stdio::null());
    serve.env("JOURNAL_STREAM", format!("{}:{}", found.dev(), found.ino())).stderr(stderr);
    let mut serve = serve.spawn().expect("nacre starts");
    let said = |line: &str| {
        let text = fs::read_to_string(&stream).expect("it is there");
        text.lines().any(|there| there.starts_with(line))
    };
    mounted::until("a line of the server", || said("<6>MGS: served from "));
    mounted::kill(serve.id(), libc::SIGTERM);
    let status = mounted::wait_bounded(&mut serve).expect("serve ends");
    assert!(status.success() && said("<6>SIGTERM: stopping"), "{status}");
}

/// systemd receives datagrams at the socket that it names to a service.
#[test]
fn a_server_notifies_its_supervisor_when_its_target_has_registered() {
    let scratch = Scratch::new("life-notify");
    let format = |name: &str, args: &[&str]| {
        let mut format = Command::new(nacre_bin());
        format.args(["format", "--fsname", "testfs"]).args(args).arg(scratch.path().join(name));
        assert!(format.output().expect("nacre starts").status.success(), "{name}");
    };
    format("MGS", &["--mgs"]);
    format("OST", &["--ost", "--index", "0", "--mgsnode", "127.0.249.10@tcp"]);
    let at = scratch.path().join("notify");
    let socket = UnixDatagram::bind(&at).expect("a path of ours");
    socket.set_read_timeout(Some(mounted::PATIENCE)).expect("a socket");
    let log = |name: &str| scratch.path().join(format!("{name}.log"));
    let serve = |name: &str, nid: &str| {
        let mut serve = Command::new(nacre_bin());
        serve.args(["serve", "--listen", nid]).arg(scratch.path().join(name));
        let stderr = fs::File::create(log(name)).expect("room");
        serve.stdout(Stdio::piped()).stderr(stderr).stdin(Stdio::null());
        if name == "OST" {
            serve.env("NOTIFY_SOCKET", &at);
        }
        serve.spawn().expect("nacre starts")
    };
    let mut ost = serve("OST", "127.0.249.11:1988@tcp");
    let mut mgs = serve("MGS", "127.0.249.10@tcp");
    let mut line = String::new();
    let mut said = BufReader::new(ost.stdout.take().expect("a pipe"));
    let mut bytes = [0; 256];
    let length = socket.recv(&mut bytes).expect("a datagram");
    let state = String::from_utf8_lossy(&bytes[..length]);
    assert_eq!(state, "READY=1\nSTATUS=all targets have registered with the MGS");
    said.read_line(&mut line).expect("text");
    assert_eq!(line, "testfs-OST0000 127.0.249.11:1988@tcp\n", "it was printed before");
    let told = fs::read_to_string(log("MGS")).expect("it has a log");
    let nid = "nid=127.0.249.11:1988@tcp";
    let is_said = |line: &str| line.contains(" registered ") && line.contains(nid);
    assert!(told.lines().any(is_said), "the MGS says at which port: {told}");
    for server in [&mut ost, &mut mgs] {
        mounted::kill(server.id(), libc::SIGTERM);
        let status = mounted::wait_bounded(server).expect("serve ends");
        assert!(status.success(), "{status}");
    }
}

#[test]
fn storage_is_served_once_and_formatted_once() {
    let mut up = Up::new("life-once");
    let target = up.target("MDT0000");
    let serve = Command::new(nacre_bin())
        .arg("serve")
        .arg(&target)
        .args(["--listen", "127.0.0.77@tcp"])
        .output()
        .expect("nacre starts");
    let text = String::from_utf8_lossy(&serve.stderr);
    assert!(
        !serve.status.success() && text.contains("MDT0000"),
        "served twice, or not said clearly: {text}"
    );
    let format = Command::new(nacre_bin())
        .args([
            "format",
            "--fsname",
            "other",
            "--ost",
            "--index",
            "0",
            "--mgsnode",
            "127.0.0.2@tcp",
        ])
        .arg(&target)
        .output();
    assert!(!format.expect("nacre starts").status.success(), "format overwrote a target");
    let missing = Command::new(nacre_bin())
        .args(["serve", "/nonexistent/target"])
        .output()
        .expect("nacre starts");
    let text = String::from_utf8_lossy(&missing.stderr);
    assert!(!missing.status.success() && text.contains("/nonexistent/target"), "{text}");
    up.stop();
}

/// Serves a target whose superblock was changed; what it says when it refuses.
fn refusal_of(name: &str, change: fn(&mut Vec<u8>)) -> String {
    let mut up = Up::new(name);
    up.stop();
    let superblock = up.target("OST0000").join("nacre-super");
    let mut bytes = fs::read(&superblock).expect("a superblock");
    change(&mut bytes);
    fs::write(&superblock, &bytes).expect("write");
    let mut serve = Command::new(nacre_bin());
    let output = serve.arg("serve").arg(up.target("OST0000")).output().expect("nacre starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("OST0000"), "{text}");
    text
}

#[test]
fn a_newer_format_is_refused() {
    // the version, a u16 after the magic
    let text = refusal_of("life-newer", |bytes| bytes[8] += 1);
    assert!(text.contains("version 2 is newer than 1"), "{text}");
}

#[test]
fn a_damaged_superblock_is_refused() {
    let text = refusal_of("life-damaged", |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
    });
    assert!(text.contains("the checksum is wrong"), "{text}");
}

/// An `up` with its servers in the same process; its log and its address.
fn spawn_embedded(scratch: &Scratch) -> (std::process::Child, PathBuf) {
    spawn(scratch, &[])
}

fn spawn(scratch: &Scratch, more: &[&str]) -> (std::process::Child, PathBuf) {
    // the test may run under nohup
    spawn_by(&["env", "--default-signal=HUP"], scratch, more)
}

/// Started by another command, which becomes it.
fn spawn_by(by: &[&str], scratch: &Scratch, more: &[&str]) -> (std::process::Child, PathBuf) {
    let log = scratch.path().join("up.log");
    let file = fs::OpenOptions::new().create(true).append(true).open(&log).expect("a log file");
    let mut command = Command::new(by[0]);
    command.args(&by[1..]).arg(nacre_bin());
    command.args(["up", "--mdts", "1", "--osts", "1", "--data"]);
    command.arg(scratch.path().join("data"));
    command.arg("--mount").arg(scratch.path().join("mnt")).stdin(Stdio::null());
    command.args(more).stdout(file.try_clone().expect("a descriptor")).stderr(file);
    (command.spawn().expect("nacre starts"), log)
}

/// Until the log has a line that is `wanted`.
fn wait_for_line(log: &Path, wanted: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(log).expect("a log");
        if let Some(line) = text.lines().find(|line| wanted(line)) {
            return line.to_owned();
        }
        assert!(start.elapsed() < mounted::PATIENCE, "the line is not there:\n{text}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn an_up_says_for_whom_the_recovery_of_its_servers_waits() {
    let scratch = Scratch::new("life-recovery");
    let (mut up, log) = spawn_embedded(&scratch);
    let is_address = |line: &str| line.contains("@tcp:/testfs") && !line.contains(' ');
    let address = wait_for_line(&log, is_address);
    let other = scratch.path().join("other");
    fs::create_dir(&other).expect("a mount point");
    let mut mount = Command::new(nacre_bin());
    mount.args(["mount", &address]).arg(&other).args(["-o", "nid=127.0.0.41@tcp"]);
    assert!(mount.status().expect("nacre starts").success());
    let mut file = fs::File::create(other.join("f")).expect("create");
    file.write_all(b"x").and_then(|()| file.sync_all()).expect("the servers know this client");
    drop(file); // a process that is started closes it, and would wait for the stopped daemon
    let daemon = mounted::daemon_of(&other);
    mounted::kill(daemon, libc::SIGSTOP);
    mounted::kill(up.id(), libc::SIGKILL);
    up.wait().expect("our child");

    let (mut up, log) = spawn_embedded(&scratch);
    let name = other.to_string_lossy();
    for target in ["testfs-MDT0000", "testfs-OST0000"] {
        let waits = format!("nacre up: {target} is recovering and waits for ");
        wait_for_line(&log, |line| line.starts_with(&waits) && line.contains(&*name));
        let over = format!("nacre up: {target} has recovered, after ");
        wait_for_line(&log, |line| line.starts_with(&over));
    }
    let start = Instant::now();
    while fs::read_to_string(&log).expect("a log").matches("Ctrl-C").count() < 2 {
        assert!(start.elapsed() < mounted::PATIENCE, "the second up does not mount");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    mounted::kill(daemon, libc::SIGCONT);
    let status = Command::new(nacre_bin()).args(["umount", "-f"]).arg(&other).status();
    assert!(status.expect("nacre starts").success());
    mounted::kill(up.id(), libc::SIGTERM);
    assert!(mounted::wait_bounded(&mut up).is_some_and(|status| status.success()));
    mounted::fsck(&scratch.path().join("data"));
}

/// Until so many times an `up` has said that it is there.
fn wait_until_mounted(log: &Path, times: usize) {
    let start = Instant::now();
    while fs::read_to_string(log).expect("a log").matches("Ctrl-C").count() < times {
        let text = fs::read_to_string(log).expect("a log");
        assert!(start.elapsed() < mounted::PATIENCE, "up number {times} does not mount:\n{text}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn an_up_that_follows_a_killed_one_waits_for_its_servers_to_end() {
    let scratch = Scratch::new("life-followed");
    let (mut up, log) = spawn(&scratch, &["--separate"]);
    wait_until_mounted(&log, 1);
    mounted::kill(up.id(), libc::SIGKILL);
    up.wait().expect("our child");
    let (mut up, log) = spawn(&scratch, &["--separate"]);
    wait_until_mounted(&log, 2);
    let text = fs::read_to_string(&log).expect("a log");
    assert!(!text.contains("died"), "servers were started over living ones:\n{text}");
    mounted::kill(up.id(), libc::SIGTERM);
    assert!(mounted::wait_bounded(&mut up).is_some_and(|status| status.success()));
    mounted::fsck(&scratch.path().join("data"));
}

#[test]
fn an_up_ends_in_order_when_its_terminal_is_closed() {
    let scratch = Scratch::new("life-hangup");
    let (mut up, log) = spawn_embedded(&scratch);
    wait_until_mounted(&log, 1);
    mounted::kill(up.id(), libc::SIGHUP);
    assert!(mounted::wait_bounded(&mut up).is_some_and(|status| status.success()));
    let text = fs::read_to_string(&log).expect("a log");
    assert!(text.contains("SIGHUP: unmounting and stopping"), "{text}");
    assert!(!mounted::is_mounted(&scratch.path().join("mnt")));
}

#[test]
fn an_up_under_nohup_outlives_its_terminal_and_opens_its_log_again() {
    let scratch = Scratch::new("life-nohup");
    let (mut up, log) = spawn_by(&["nohup"], &scratch, &[]);
    wait_until_mounted(&log, 1);
    mounted::kill(up.id(), libc::SIGHUP);
    let own = scratch.path().join("data/log/up.log");
    wait_for_line(&own, |line| line.contains("SIGHUP: ignored"));
    let moved = scratch.path().join("moved.log");
    fs::rename(&own, &moved).expect("moved");
    fs::write(&own, "").expect("an empty file in its place");
    mounted::kill(up.id(), libc::SIGUSR1);
    wait_for_line(&own, |line| line.contains("SIGUSR1: the log is opened again"));
    let before = fs::read_to_string(&moved).expect("it is there");
    assert!(!before.contains("SIGUSR1"), "{before}");
    assert!(mounted::is_mounted(&scratch.path().join("mnt")));
    mounted::kill(up.id(), libc::SIGTERM);
    assert!(mounted::wait_bounded(&mut up).is_some_and(|status| status.success()));
}
