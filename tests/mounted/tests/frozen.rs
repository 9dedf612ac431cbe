//! Stores that versions 1 and 2 wrote must always open. `fixtures/store-v*.tar.gz` are the data
//! directories of two file systems, each with two OSTs. One was stopped in order. The processes of
//! the other were all killed while a client worked.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use mounted::{Scratch, Up};

fn thaw(name: &str) -> Up {
    let scratch = Scratch::new(name);
    let image =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(format!("{name}.tar.gz"));
    let data = scratch.path().join("data");
    fs::create_dir(&data).expect("a directory");
    let status = Command::new("tar")
        .arg("xzf")
        .arg(image)
        .arg("-C")
        .arg(&data)
        .status()
        .expect("tar starts");
    assert!(status.success());
    Up::with(scratch, Some(data), &["--osts", "2"])
}

fn check_tree(up: &Up) {
    assert_eq!(fs::read_to_string(up.at("hello")).expect("there"), "hello\n");
    for index in 1..=18 {
        let text = fs::read_to_string(up.at(&format!("dir/f{index}"))).expect("there");
        assert_eq!(text, format!("file {index}\n"));
    }
    assert_eq!(fs::read_to_string(up.at("dir/sub/renamed")).expect("there"), "file 19\n");
    assert!(!up.at("dir/f19").exists() && !up.at("dir/f20").exists());
    assert_eq!(fs::read_link(up.at("dir/link")).expect("a link"), Path::new("../hello"));
    let hello = fs::metadata(up.at("hello")).expect("there");
    assert_eq!((hello.mode(), hello.nlink()), (0o100_640, 2));
    assert_eq!(hello.ino(), fs::metadata(up.at("dir/hard")).expect("there").ino());
    let owned = fs::metadata(up.at("dir/f1")).expect("there");
    assert_eq!((owned.uid(), owned.gid()), (1_000, 2_000));
    let dated = fs::metadata(up.at("dir/f3")).expect("there");
    assert_eq!((dated.mtime(), dated.mtime_nsec()), (1_580_702_706, 789_000_000));
    let sparse = fs::read(up.at("sparse")).expect("there");
    assert!(
        sparse.len() == 10_000_003
            && sparse.ends_with(b"end")
            && sparse[..10_000_000].iter().all(|byte| *byte == 0)
    );
    assert_eq!(fs::metadata(up.at("empty")).expect("there").len(), 0);
    assert_eq!(fs::metadata(up.at(&format!("dir/{}", "n".repeat(255)))).expect("there").len(), 0);
    let stripes = Command::new(mounted::nacre_bin())
        .args(["lfs", "getstripe", "-c"])
        .arg(up.at("wide/numbers"))
        .output();
    assert_eq!(String::from_utf8_lossy(&stripes.expect("lfs starts").stdout).trim(), "2");
    let note = Command::new("getfattr")
        .args(["--only-values", "-n", "user.note"])
        .arg(up.at("dir/f2"))
        .output();
    assert_eq!(note.expect("getfattr starts").stdout, b"kept");
}

fn numbers() -> String {
    (1..=60_000).map(|number| format!("{number}\n")).collect()
}

fn stopped_in_order(version: u32) {
    let mut up = thaw(&format!("store-v{version}-clean"));
    check_tree(&up);
    assert!(fs::read_to_string(up.at("wide/numbers")).expect("there") == numbers());
    fs::write(up.at("dir/new"), "written by a later version").expect("it takes new files");
    up.stop();
}

fn killed(version: u32) {
    let mut up = thaw(&format!("store-v{version}-killed"));
    check_tree(&up);
    let mut wanted = numbers();
    wanted.replace_range(100..107, "CHANGED");
    assert!(fs::read_to_string(up.at("wide/numbers")).expect("there") == wanted);
    for index in 0..50 {
        assert_eq!(
            fs::read_to_string(up.at(&format!("dir/k{index}"))).expect("there"),
            format!("k{index}\n")
        );
    }
    assert_eq!(fs::read_to_string(up.at("late/x")).expect("there"), "late\n");
    assert!(!up.at("dir/open").exists());
    fs::write(up.at("dir/new"), "written by a later version").expect("it takes new files");
    up.stop();
}

#[test]
fn a_store_that_was_stopped_in_order_opens() {
    stopped_in_order(1);
}

#[test]
fn a_store_whose_servers_and_clients_were_killed_recovers() {
    killed(1);
}

#[test]
fn a_store_with_checksums_that_was_stopped_in_order_opens() {
    stopped_in_order(2);
}

#[test]
fn a_store_with_checksums_whose_servers_and_clients_were_killed_recovers() {
    killed(2);
}
