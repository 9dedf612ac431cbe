//! Full and read-only disks: the caller gets the error before anything is acknowledged, and deletes
//! work.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use mounted::cut::Disk;
use mounted::{PATIENCE, Scratch, Up, nacre_bin, range, until};

fn is_full(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSPC)
}

#[test]
fn a_full_ost_refuses_and_recovers() {
    let scratch = Scratch::new("full-ost");
    let mut disk = Disk::new(&scratch, "data/testfs-OST0000", 160);
    let mut up = Up::with(scratch, None, &["--osts", "1"]);
    let mut kept = Vec::new();
    let mut full = false;
    for index in 0..400_u32 {
        let path = up.at(&format!("f{index}"));
        let data = vec![index as u8; 1 << 20];
        let outcome = File::create(&path)
            .and_then(|mut file| file.write_all(&data).and_then(|()| file.sync_all()));
        match outcome {
            Ok(()) => kept.push((path, data)),
            Err(error) => {
                assert!(is_full(&error), "a full OST says ENOSPC, not {error}");
                let _ = fs::remove_file(path);
                full = true;
                break;
            }
        }
    }
    assert!(full, "160 MiB took {} MiB", kept.len());
    for (path, data) in &kept {
        assert!(
            fs::read(path).expect("acknowledged") == *data,
            "{} changed on a full disk",
            path.display()
        );
    }
    for (path, _) in kept.drain(..kept.len() / 2) {
        fs::remove_file(path).expect("deletes work when full");
    }
    wait_for_room(&up.at("again"), &vec![9; 4 << 20]);
    for (path, data) in &kept {
        assert!(fs::read(path).expect("acknowledged") == *data);
    }
    let mut rest = File::create(up.at("rest")).expect("create");
    names_are_made_when_full(&up, &mut rest);
    fs::remove_file(up.at("again")).expect("deletes work when full");
    finds_room("the next write", || rest.write_all(&[8; 2 << 20]));
    fs::remove_file(&kept.pop().expect("half of them").0).expect("deletes work when full");
    let end = rest.metadata().expect("stat").len();
    finds_room("an allocation", || range::fallocate(&rest, 0, end, 2 << 20));
    up.stop();
    disk.unmount();
}

/// A call that finds no room waits at most this long for objects of removed files (the MDT's
/// `ROOM_WAIT`).
const ROOM_WAIT: Duration = Duration::from_secs(3);

/// Room that was made is there for the next call. If a busy OST removes objects later than that
/// call waits, the room is there for a call behind it.
fn finds_room(what: &str, mut call: impl FnMut() -> io::Result<()>) {
    let begun = Instant::now();
    loop {
        let start = Instant::now();
        let Err(refused) = call() else { return };
        assert!(is_full(&refused), "{what}: {refused}");
        assert!(start.elapsed() >= ROOM_WAIT, "{what} did not wait: {:?}", start.elapsed());
        assert!(begun.elapsed() < PATIENCE, "{what} finds no room");
    }
}

/// A name needs no room on an OST: it is the write that is refused, however long the MDT has known
/// that the OST is full. Room that late destroys give back is used up by `rest`.
fn names_are_made_when_full(up: &Up, rest: &mut File) {
    let end = Instant::now() + Duration::from_secs(7); // the MDT asks for room every 5 s
    let mut refusals = 0;
    while Instant::now() < end || refusals < 10 {
        while rest.write_all(&[8; 1 << 20]).is_ok() {}
        let mut file = File::create(up.at("name")).expect("a name on a full OST");
        if let Err(refused) = file.write_all(&[1; 1 << 20]).and_then(|()| file.sync_all()) {
            assert!(is_full(&refused), "{refused}");
            refusals += 1;
        }
        fs::remove_file(up.at("name")).expect("deletes work when full");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Destroys reach the OST after the MDT's commit: room comes back within seconds.
fn wait_for_room(path: &Path, data: &[u8]) {
    until("there is room where half of a full OST was deleted", || fs::write(path, data).is_ok());
    assert_eq!(fs::read(path).expect("written").len(), data.len());
}

#[test]
fn a_full_mdt_refuses_and_recovers() {
    let scratch = Scratch::new("full-mdt");
    let mut disk = Disk::new(&scratch, "data/testfs-MDT0000", 64);
    let mut up = Up::with(scratch, None, &["--osts", "1"]);
    let mut made = 0;
    let mut full = false;
    'fill: for dir in 0..200 {
        if let Err(error) = fs::create_dir(up.at(&format!("d{dir}"))) {
            assert!(is_full(&error), "a full MDT says ENOSPC, not {error}");
            full = true;
            break;
        }
        for index in 0..2_000 {
            match File::create_new(up.at(&format!("d{dir}/{index}-{}", "x".repeat(200)))) {
                Ok(_) => made += 1,
                Err(error) => {
                    assert!(is_full(&error), "a full MDT says ENOSPC, not {error}");
                    full = true;
                    break 'fill;
                }
            }
        }
    }
    assert!(full, "64 MiB took {made} files");
    let there: usize = (0..200)
        .map(|dir| fs::read_dir(up.at(&format!("d{dir}"))).map_or(0, Iterator::count))
        .sum();
    assert_eq!(there, made, "acknowledged creates on a filling MDT");
    fs::remove_dir_all(up.at("d0")).expect("deletes work when full");
    up.kill_server("MDT0000");
    assert!(!up.at("d0").exists(), "a delete was lost");
    up.stop();
    disk.unmount();
}

#[test]
fn an_ost_on_a_read_only_disk_refuses_and_comes_back() {
    let scratch = Scratch::new("ro-ost");
    let mut disk = Disk::new(&scratch, "data/testfs-OST0000", 160);
    let mut up = Up::with(scratch, None, &["--osts", "1", "--crashes-max", "1000"]);
    let data = vec![7; 3 << 20];
    fs::write(up.at("kept"), &data).expect("an empty disk takes 3 MiB");
    File::open(up.at("kept")).and_then(|file| file.sync_all()).expect("durable");
    disk.turn_read_only();
    let refused = fs::write(up.at("refused"), &data).expect_err("nothing can be kept");
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS), "{refused}");
    assert!(fs::read(up.at("kept")).expect("reads go on") == data);
    fs::remove_file(up.at("refused")).expect("the name is the MDT's");
    disk.unmount();
    disk.mount();
    fs::write(up.at("again"), &data).expect("the OST is back");
    assert!(fs::read(up.at("kept")).expect("acknowledged") == data);
    assert!(fs::read(up.at("again")).expect("acknowledged") == data);
    up.stop();
    disk.unmount();
}

#[test]
fn an_mdt_on_a_read_only_disk_loses_nothing() {
    let scratch = Scratch::new("ro-mdt");
    let mut disk = Disk::new(&scratch, "data/testfs-MDT0000", 160);
    let mut up = Up::with(scratch, None, &["--osts", "1", "--crashes-max", "1000"]);
    (0..100).for_each(|index| {
        drop(File::create_new(up.at(&format!("before{index}"))).expect("created"))
    });
    disk.turn_read_only();
    // Some are answered before the commit fails and the MDT ends, the others wait until it is back.
    let during: Vec<_> = (0..20).map(|index| up.at(&format!("during{index}"))).collect();
    let creating =
        thread::spawn(move || during.iter().filter(|path| File::create_new(path).is_ok()).count());
    wait_for_line(&up.data().join("log"), "Read-only file system");
    disk.unmount();
    disk.mount();
    drop(File::create_new(up.at("after")).expect("the MDT is back"));
    let acknowledged = creating.join().expect("no panic");
    assert_eq!(acknowledged, 20, "the disk came back: no create fails");
    let names = fs::read_dir(up.mount()).expect("listed").count();
    assert_eq!(
        names,
        100 + acknowledged + 1,
        "acknowledged creates, before and after the disk turned read-only"
    );
    up.stop();
    disk.unmount();
}

#[test]
fn a_missing_or_read_only_target_directory_is_named() {
    let scratch = Scratch::new("no-dir");
    let disk = Disk::new(&scratch, "target", 64);
    disk.turn_read_only();
    let nowhere = scratch.path().join("nowhere");
    let format = &[
        "format",
        "--fsname",
        "testfs",
        "--ost",
        "--index",
        "0",
        "--mgsnode",
        "127.0.0.2@tcp",
    ][..];
    let cases = [
        (&["serve"][..], nowhere.as_path(), "no such directory"),
        (&["serve"], disk.dir(), "no target here"),
        (format, disk.dir(), "Read-only file system"),
    ];
    for (verb, dir, wanted) in cases {
        let output = Command::new(nacre_bin()).args(verb).arg(dir).output().expect("nacre starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{verb:?} {}", dir.display());
        assert!(
            text.contains(&*dir.to_string_lossy()) && text.contains(wanted),
            "{verb:?} does not say '{wanted}': {text}"
        );
    }
}

fn wait_for_line(log: &Path, wanted: &str) {
    until(&format!("a log says '{wanted}'"), || {
        let texts = fs::read_dir(log)
            .expect("logs")
            .map(|entry| fs::read_to_string(entry.expect("a log").path()));
        texts.flatten().any(|text| text.contains(wanted))
    });
}
