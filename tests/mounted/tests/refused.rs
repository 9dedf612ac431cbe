//! Calls that are not promised (docs/semantics.md), and the guarantees that still hold: calls that
//! are refused, and calls that continue without their caller.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mounted::posix::Mapping;
use mounted::{Up, posix, range, until};

fn refused<T>(outcome: io::Result<T>) -> i32 {
    let error = outcome.err().expect("it is refused");
    error.raw_os_error().expect("an error of the system")
}

fn create(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).expect("create")
}

#[test]
fn what_is_not_offered_is_refused_and_changes_nothing() {
    let mut up = Up::new("refused");
    let file = create(&up.at("f"));
    file.write_all_at(&[7; 64 << 10], 0).expect("write");
    let whiteout = posix::rename2(&up.at("f"), &up.at("g"), libc::RENAME_WHITEOUT);
    assert_eq!(refused(whiteout), libc::EINVAL);
    for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
        assert_eq!(refused(range::fallocate(&file, mode, 0, 4_096)), libc::EOPNOTSUPP);
    }
    let no_ioctl = [libc::ENOTTY, libc::EOPNOTSUPP, libc::ENOSYS];
    let flags = refused(range::set_flags(&file));
    assert!(no_ioctl.contains(&flags), "chattr: {flags}");
    let places = refused(posix::fiemap(&file));
    assert!(no_ioctl.contains(&places), "FIEMAP: {places}");
    assert_eq!(fs::read(up.at("f")).expect("as before"), [7; 64 << 10]);
    assert_eq!(refused(fs::metadata(up.at("g"))), libc::ENOENT);
    up.stop();
}

#[test]
fn a_copied_hole_is_zeros_that_take_room() {
    const LEN: u64 = 4 << 20;
    let mut up = Up::new("holes");
    let (from, to) = (create(&up.at("from")), create(&up.at("to")));
    from.set_len(LEN).expect("a hole");
    let mut done = 0;
    while done < LEN {
        let copied = range::copy_range(&from, done, &to, done, (LEN - done) as usize);
        done += copied.expect("copy") as u64;
    }
    to.sync_all().expect("fsync");
    assert!(fs::read(up.at("to")).expect("read").iter().all(|byte| *byte == 0));
    let room = |name: &str| fs::metadata(up.at(name)).expect("stat").blocks() * 512;
    assert!(room("from") < LEN / 4 && room("to") >= LEN, "{} {}", room("from"), room("to"));
    up.stop();
}

#[test]
fn a_new_mapping_reads_what_another_client_wrote() {
    let mut up = Up::new("mapped");
    let second = up.second_mount(22);
    fs::write(up.at("f"), [b'a'; 8_192]).expect("write");
    let open = || File::options().read(true).write(true).open(second.join("f")).expect("open");
    let file = open();
    let mut before = Mapping::new(&file, 8_192).expect("mmap");
    assert_eq!(before.bytes()[100], b'a');
    let writer = File::options().write(true).open(up.at("f")).expect("open");
    writer.write_all_at(&[b'b'; 8_192], 0).expect("write");
    let mut after = Mapping::new(&file, 8_192).expect("mmap");
    assert_eq!((after.bytes()[100], after.bytes()[8_000]), (b'b', b'b'));
    drop(before);
    up.stop();
}

/// Whether a process sleeps, and as far as the kernel tells where, in a request to a FUSE file
/// system.
fn waits_for_mount(pid: u32) -> bool {
    let read = |what: &str| fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let (place, stat) = (read("wchan"), read("stat"));
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    let is_there = place == "0" || place.contains("request_wait_answer") || place.contains("fuse");
    matches!(state, Some('S' | 'D')) && is_there
}

/// The caller is killed while an OST stands still: it goes at once, what it asked for is made to
/// its end, and others lock the file behind it.
#[test]
fn a_killed_truncate_fallocate_or_open_goes_on_to_its_end() {
    let mut up = Up::new("goes-on");
    let second = up.second_mount(23);
    let calls: [(&str, &[&str], usize); 3] = [
        ("cut", &["perl", "-e", "truncate($ARGV[0], 5)"], 5),
        ("opened", &["perl", "-e", "open(F, '>', $ARGV[0])"], 0),
        ("longer", &["fallocate", "-l", "200000"], 200_000),
    ];
    for (name, _, _) in calls {
        let path = up.at(name).to_string_lossy().into_owned();
        assert_eq!(up.tool(&["lfs", "setstripe", "-c", "1", "-i", "1", &path]), "");
        fs::write(&path, [1; 100_000]).expect("write");
        let sized = || fs::metadata(second.join(name)).is_ok_and(|meta| meta.len() == 100_000);
        until("its size is known", sized);
    }
    let ost = up.server("OST0001");
    mounted::kill(ost, libc::SIGSTOP);
    let mut callers = calls.map(|(name, call, _)| {
        let caller = Command::new(call[0]).args(&call[1..]).arg(up.at(name)).spawn();
        caller.expect("it starts")
    });
    for caller in &callers {
        until("the caller waits for the mount", || waits_for_mount(caller.id()));
    }
    // past its open: what it asks for has begun, under the file's lock
    let locks = ["lctl", "get_param", "-n", "--of", "testfs-MDT0000", "mdt.*.locks_held"];
    until("each call holds its file's lock", || {
        up.tool(&locks).trim().parse::<u32>().is_ok_and(|held| held >= 3)
    });
    let signals = callers.each_mut().map(|caller| {
        caller.kill().expect("our child");
        mounted::wait_bounded(caller).expect("the kill is answered").signal()
    });
    mounted::kill(ost, libc::SIGCONT);
    assert_eq!(signals, [Some(libc::SIGKILL); 3], "they waited for the OST");
    for (name, _, len) in calls {
        let path = second.join(name);
        until(name, || fs::metadata(&path).is_ok_and(|meta| meta.len() == len as u64));
        let mut log = OpenOptions::new().append(true).open(&path).expect("open");
        log.write_all(b"more").expect("append");
        let ones = len.min(100_000);
        let held = [&vec![1; ones][..], &vec![0; len - ones], b"more"].concat();
        assert!(fs::read(up.at(name)).expect("read") == held, "{name}");
    }
    up.stop();
}

/// An append needs the MDT's lock: it waits for an MDT that stands still, and is made whole.
#[test]
fn an_append_waits_for_an_mdt_that_stands_still() {
    let mut up = Up::new("stands");
    fs::write(up.at("f"), b"first ").expect("write");
    let mdt = up.server("MDT0000");
    mounted::kill(mdt, libc::SIGSTOP);
    let line = format!("printf second >> {}", up.at("f").display());
    let mut append =
        Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).spawn().expect("sh starts");
    std::thread::sleep(Duration::from_secs(1));
    let waits = append.try_wait().expect("our child").is_none();
    mounted::kill(mdt, libc::SIGCONT);
    assert!(waits, "it needs the MDT");
    assert!(mounted::wait_bounded(&mut append).expect("it ends").success());
    assert_eq!(fs::read(up.at("f")).expect("read"), b"first second");
    up.stop();
}
