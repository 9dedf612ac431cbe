//! Targets that an administrator marks: an OST is emptied and removed while files on it are read
//! and written, and another one joins. A degraded, read-only or draining target shows its letter.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use mounted::line::{good, nacre, refused};
use mounted::{Scratch, Up, nacre_bin};

/// The letters of a target in `lfs df`.
fn letters(up: &Up, target: &str) -> String {
    letters_if_there(up, target).expect("a line of the target")
}

/// The same; none while the target gives no answer.
fn letters_if_there(up: &Up, target: &str) -> Option<String> {
    let shown = good(up, "lfs df .");
    let line = shown.lines().find(|line| line.starts_with(&format!("testfs-{target}_UUID")))?;
    Some(line.rsplit_once(']')?.1.trim().to_owned())
}

fn ost_of(up: &Up, file: &str) -> u32 {
    good(up, &format!("lfs getstripe -i {file}")).trim().parse().expect("an index")
}

/// Makes files until 20 of them in a row are on an OST that `is_good`. A file may still go to a
/// read-only OST while the MDT does not know of the state.
fn until_files_are_on(up: &Up, prefix: &str, is_good: impl Fn(u32) -> bool) {
    let mut row = 0;
    for number in 0..5_000 {
        let name = format!("{prefix}{number}");
        if let Err(error) = fs::write(up.at(&name), b"x") {
            assert_eq!(error.raw_os_error(), Some(libc::EROFS), "{name}");
        }
        row = if is_good(ost_of(up, &name)) { row + 1 } else { 0 };
        if row == 20 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("files go on to be made elsewhere");
}

const FILES: usize = 12;
const BLOCK: usize = 64 << 10;
const BLOCKS: u64 = 16;

/// The block of a file after `round` rounds of writing.
fn block(file: usize, at: u64, round: u8) -> Vec<u8> {
    vec![(file as u8).wrapping_mul(31) ^ (at as u8).wrapping_mul(7) ^ round; BLOCK]
}

/// Writes every block of the files again and again, and reads what it wrote; the last round.
fn work(mount: &Path, ends: &AtomicBool) -> u8 {
    let open = |file: usize| {
        let options =
            fs::OpenOptions::new().read(true).write(true).open(mount.join(format!("d/{file}")));
        options.expect("the file is there")
    };
    let mut round = 0_u8;
    while !ends.load(Ordering::Relaxed) && round < u8::MAX {
        for number in 0..FILES {
            let file = open(number);
            for at in 0..BLOCKS {
                let mut read = vec![0; BLOCK];
                file.read_exact_at(&mut read, at * BLOCK as u64).expect("reads");
                assert!(read == block(number, at, round), "file {number} at {at}, round {round}");
                file.write_all_at(&block(number, at, round + 1), at * BLOCK as u64)
                    .expect("writes");
            }
        }
        round += 1;
    }
    round
}

/// The commands of docs/operations.md.
const DRAIN: &str = "set -e
    nacre lctl set_param -n -P obdfilter.testfs-OST0001.no_create=1
    while nacre lfs find . -type f -ost 1 -print0 | grep -qz .; do
        nacre lfs find . -type f -ost 1 -print0 | xargs -0 -r nacre lfs migrate || sleep 1
    done
    until nacre forget testfs-OST0001 2>../forget.err; do sleep 1; done";

#[test]
fn an_ost_is_emptied_and_removed_under_programs_and_another_one_joins() {
    let mut up = Up::with(Scratch::new("drain"), None, &["--osts", "2"]);
    let other = up.second_mount(201);
    fs::create_dir(up.at("d")).expect("made");
    good(&up, "lfs setstripe -c 1 d");
    for file in 0..FILES {
        let bytes: Vec<u8> = (0..BLOCKS).flat_map(|at| block(file, at, 0)).collect();
        fs::write(up.at(&format!("d/{file}")), bytes).expect("written");
    }
    good(&up, "lfs setstripe -c -1 wide");
    fs::write(up.at("wide"), vec![7; 3 << 20]).expect("written");
    assert!(good(&up, "lfs find d -type f -ost 1").lines().count() > 2);
    refused(&up, "forget testfs-OST0001", 1, "testfs-OST0001 is not empty");

    let ends = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let working = scope.spawn(|| work(&other, &ends));
        let script = DRAIN.replace("nacre", &nacre_bin().display().to_string());
        mounted::shell(up.mount(), &script);
        ends.store(true, Ordering::Relaxed);
        working.join().expect("it ends")
    });
    assert!(rounds > 0);
    for file in 0..FILES {
        let bytes: Vec<u8> = (0..BLOCKS).flat_map(|at| block(file, at, rounds)).collect();
        assert!(fs::read(up.at(&format!("d/{file}"))).expect("reads") == bytes, "{file}");
    }
    assert!(fs::read(other.join("wide")).expect("reads") == vec![7; 3 << 20]);
    mounted::until("no mount lists it", || {
        let lists = |mount: &Path| nacre(mount, "lfs osts .").stdout;
        [up.mount(), &other]
            .iter()
            .all(|mount| !String::from_utf8_lossy(&lists(mount)).contains("OST0001"))
    });

    let address = up.address();
    let (mgs, _) = address.split_once(":/").expect("NID:/FSNAME");
    let dir = up.data().join("new-ost");
    let shown = dir.display();
    good(&up, &format!("format --fsname testfs --ost --index 7 --mgsnode {mgs} {shown}"));
    let mut server = Command::new(nacre_bin())
        .args(["serve", "--listen", "127.0.249.7@tcp"])
        .arg(&dir)
        .spawn()
        .expect("nacre starts");
    mounted::until("a new file is on the new OST", || {
        fs::write(other.join("fresh"), b"fresh").expect("there is room");
        let is_there = ost_of(&up, "fresh") == 7;
        if !is_there {
            fs::remove_file(other.join("fresh")).expect("removed");
        }
        is_there
    });
    assert_eq!(fs::read(up.at("fresh")).expect("reads"), b"fresh");
    up.stop();
    mounted::kill(server.id(), libc::SIGTERM);
    assert!(server.wait().expect("our child").success());

    // the disk of a forgotten OST may be taken away
    fs::rename(up.data().join("testfs-OST0001"), up.data().join("../gone")).expect("moved");
    let check = Command::new(nacre_bin()).arg("fsck").arg("--data").arg(up.data()).output();
    let said = String::from_utf8_lossy(&check.expect("nacre starts").stderr).into_owned();
    assert!(said.contains("1 MDTs, 2 OSTs: "), "{said}");
}

#[test]
fn marked_osts_show_letters_and_get_files_as_they_may() {
    let mut up = Up::with(Scratch::new("drain-marks"), None, &["--osts", "3"]);
    for ost in 0..3 {
        good(&up, &format!("lfs setstripe -c 1 -i {ost} on{ost}"));
        fs::write(up.at(&format!("on{ost}")), b"before").expect("written");
    }
    up.set("obdfilter.testfs-OST0000.degraded", "1");
    up.set("obdfilter.testfs-OST0001.no_create", "1");
    fs::write(up.at("on2"), b"before").expect("acknowledged before the mark");
    up.set("obdfilter.testfs-OST0002.readonly", "1");
    assert_eq!(
        ["OST0000", "OST0001", "OST0002", "MDT0000"].map(|name| letters(&up, name)),
        ["D", "N", "R", ""]
    );
    let status = Command::new(nacre_bin()).arg("status").output().expect("nacre starts");
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    for (target, state) in [("OST0000", "up D"), ("OST0001", "up N"), ("OST0002", "up R")] {
        let line = status.lines().find(|line| line.contains(&format!("{target}  OST")));
        assert!(line.is_some_and(|line| line.contains(state)), "{target}: {status}");
    }

    // what is there is read, and written but where the OST is read-only
    for ost in 0..3 {
        let name = format!("on{ost}");
        assert_eq!(fs::read(up.at(&name)).expect("reads"), b"before");
        let mut options = fs::OpenOptions::new();
        options.write(true).custom_flags(libc::O_SYNC);
        let wrote = options.open(up.at(&name)).and_then(|file| file.write_all_at(b"after!", 0));
        let errno = wrote.err().and_then(|error| error.raw_os_error());
        assert_eq!(errno, (ost == 2).then_some(libc::EROFS), "{name}");
    }
    until_files_are_on(&up, "new", |ost| ost == 0);
    let name = "name another OST, or set obdfilter.testfs-OST0001.no_create=0";
    refused(&up, "lfs setstripe -o 1 listed", libc::EREMOTEIO, name);
    refused(&up, "lfs setstripe -i 1 begun", libc::EREMOTEIO, name);
    refused(&up, "lfs setstripe -o 0,2 both", libc::EREMOTEIO, "OST0002.readonly=0");
    good(&up, "lfs setstripe -o 0 listed");

    up.set("obdfilter.*.no_create", "0");
    up.set("obdfilter.*.readonly", "0");
    until_files_are_on(&up, "more", |ost| ost != 0); // the degraded one alone is left out
    fs::remove_file(up.at("on2")).expect("removed");

    // a mark ends with its server, unless it is permanent
    good(&up, "lctl set_param -n -P obdfilter.testfs-OST0001.no_create=1");
    mounted::until("it is set", || letters(&up, "OST0001") == "N");
    up.kill_server("OST0000");
    up.kill_server("OST0001");
    mounted::until("both are back", || {
        letters_if_there(&up, "OST0001").as_deref() == Some("N")
            && nacre(up.mount(), "lfs check osts").status.success()
    });
    mounted::until("it has no letter", || letters_if_there(&up, "OST0000").as_deref() == Some(""));
    up.stop();
}

#[test]
fn a_draining_mdt_shows_its_letter_and_gets_no_directories() {
    let mut up = Up::with(Scratch::new("drain-mdt"), None, &["--mdts", "2", "--osts", "1"]);
    good(&up, "lfs setdirstripe -d .");
    good(&up, "lfs mkdir -i 1 far");
    good(&up, "lfs mkdir -i 1 -c 1 turns");
    good(&up, "lfs setdirstripe -D -i 1 turns");
    up.set("mdt.testfs-MDT0001.no_create", "1");
    assert_eq!((letters(&up, "MDT0001"), letters(&up, "MDT0000")), ("N".into(), String::new()));
    let name = "testfs-MDT0001 gets no new directories: name another MDT, or set \
        mdt.testfs-MDT0001.no_create=0";
    refused(&up, "lfs mkdir -i 1 no", libc::EREMOTEIO, name);
    refused(&up, "lfs mkdir -c 2 -i 0,1 no", libc::EREMOTEIO, name);
    for number in 0..8 {
        good(&up, &format!("lfs mkdir -i -1 any{number}"));
        fs::create_dir(up.at(&format!("far/{number}"))).expect("made");
        fs::create_dir(up.at(&format!("turns/{number}"))).expect("made");
        fs::write(up.at(&format!("far/f{number}")), b"x").expect("a file is with its directory");
    }
    let shown = good(&up, "lfs find . -type d -mdt 1");
    let mut on: Vec<&str> = shown.lines().collect();
    on.sort_unstable();
    assert_eq!(on, ["./far", "./turns"]);
    assert_eq!(good(&up, "lfs find far -type f -mdt 1").lines().count(), 8);
    up.set("mdt.testfs-MDT0001.no_create", "0");
    good(&up, "lfs mkdir -i 1 yes");
    fs::create_dir(up.at("far/again")).expect("made");
    assert_eq!(good(&up, "lfs find far -type d -mdt 1"), "far\nfar/again\n");
    up.stop();
}

#[test]
fn a_read_only_mdt_is_read_and_refuses_changes() {
    let mut up = Up::with(Scratch::new("readonly-mdt"), None, &["--mdts", "2", "--osts", "1"]);
    good(&up, "lfs setdirstripe -d .");
    good(&up, "lfs mkdir -i 1 far");
    fs::write(up.at("far/f"), b"bytes").expect("written");
    let open = fs::OpenOptions::new().write(true).open(up.at("far/f")).expect("opened");
    up.set("mdt.testfs-MDT0001.readonly", "1");
    assert_eq!((letters(&up, "MDT0001"), letters(&up, "MDT0000")), ("R".into(), String::new()));
    let name = "testfs-MDT0001 gets no new directories: name another MDT, or set \
        mdt.testfs-MDT0001.readonly=0";
    refused(&up, "lfs mkdir -i 1 no", libc::EREMOTEIO, name);
    let errno = |done: std::io::Result<()>| done.expect_err("refused").raw_os_error();
    let (far, near) = (up.at("far"), up.at("near"));
    let refused = [
        errno(fs::write(far.join("g"), b"x")),
        errno(fs::create_dir(far.join("d"))),
        errno(fs::remove_file(far.join("f"))),
        errno(fs::rename(far.join("f"), &near)),
        errno(fs::write(far.join("f"), b"x")),
        errno(fs::remove_dir(&far)),
    ];
    assert_eq!(refused[..5], [Some(libc::EROFS); 5]);
    assert!([Some(libc::EROFS), Some(libc::ENOTEMPTY)].contains(&refused[5]), "{refused:?}");
    open.write_all_at(b"BYTES", 0).expect("it was open before");
    open.sync_all().expect("durable");
    drop(open);
    assert_eq!(fs::read(up.at("far/f")).expect("read"), b"BYTES");
    fs::write(&near, b"x").expect("the other MDT takes changes");
    up.set("mdt.testfs-MDT0001.readonly", "0");
    fs::rename(&near, far.join("near")).expect("moved");
    up.stop();
}
