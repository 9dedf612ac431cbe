//! An MDT whose disk is lost and that is recreated from an export. Everything in the export is
//! there, later work is listed, and no client reads another file's bytes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mounted::{Up, nacre_bin};

const MDT: &str = "testfs-MDT0000";
const OSTS: usize = 4;

/// Bytes that say whose they are.
fn content(name: &str, bytes: usize) -> Vec<u8> {
    format!("{name};").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// Files of one and of four stripes, on disk.
fn make(up: &Up, dir: &str, count: usize) -> Vec<PathBuf> {
    fs::create_dir(up.at(dir)).expect("mkdir");
    let mut made = Vec::new();
    for number in 0..count {
        let path = up.at(&format!("{dir}/f{number}"));
        let stripes = if number % 4 == 0 { "4" } else { "1" };
        let shown = path.to_string_lossy().into_owned();
        assert_eq!(up.tool(&["lfs", "setstripe", "-c", stripes, "-S", "64k", &shown]), "");
        let mut file = fs::OpenOptions::new().write(true).open(&path).expect("open");
        file.write_all(&content(&shown, BYTES)).expect("write");
        file.sync_all().expect("fsync");
        made.push(path);
    }
    made
}

/// Bytes of a file as it was made.
const BYTES: usize = 300_000;

fn check(path: &Path) {
    check_bytes(path, BYTES);
}

fn check_bytes(path: &Path, bytes: usize) {
    let mut found = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut found)).expect("read");
    assert_eq!(found.len(), bytes, "{}", path.display());
    assert!(found == content(&path.to_string_lossy(), bytes), "{}", path.display());
    assert_eq!(fs::metadata(path).expect("stat").len(), bytes as u64);
}

/// Goes on with a file, or cuts it.
fn resize(path: &Path, bytes: usize) {
    let mut file = fs::OpenOptions::new().append(true).open(path).expect("open");
    match content(&path.to_string_lossy(), bytes).get(BYTES..) {
        Some(more) => file.write_all(more).expect("write"),
        None => file.set_len(bytes as u64).expect("truncate"),
    }
    file.sync_all().expect("fsync");
}

fn nacre(words: &[&str]) -> Output {
    Command::new(nacre_bin()).args(words).output().expect("nacre starts")
}

fn printed(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    text
}

/// Lists of the objects of all OSTs, in one file.
fn lists(up: &Up) -> PathBuf {
    let mut text = String::new();
    for ost in 0..OSTS {
        text += &printed(&nacre(&["list-objects", &format!("testfs-OST{ost:04}")]));
    }
    let path = up.data().with_extension("objects");
    fs::write(&path, text).expect("written");
    path
}

/// The FID of a file.
fn fid(up: &Up, path: &Path) -> String {
    up.tool(&["lfs", "path2fid", &path.to_string_lossy()]).trim().to_owned()
}

/// Objects of files that are `lost` are shown with their sizes, and go; no others do.
fn remove_unnamed(up: &Up, lost: &BTreeSet<String>) {
    let start = std::time::Instant::now();
    let found = loop {
        let found = nacre(&["unnamed", MDT]);
        let is_over = !String::from_utf8_lossy(&found.stderr).contains("in recovery");
        if is_over {
            break found;
        }
        assert!(start.elapsed() < mounted::PATIENCE, "the recovery does not end");
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(3), "{text}{}", String::from_utf8_lossy(&found.stderr));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let files: BTreeSet<String> = lines.iter().map(|line| line[3].to_owned()).collect();
    let bytes: u64 = lines.iter().map(|line| line[4].parse::<u64>().expect("a number")).sum();
    assert_eq!((&files, bytes), (lost, (lost.len() * BYTES) as u64), "{text}");
    let removed = printed(&nacre(&["unnamed", MDT, "--remove"]));
    assert_eq!(removed, text.replace("unnamed ", "removed "));
    while !printed_if_none(&nacre(&["unnamed", MDT])) {
        assert!(start.elapsed() < mounted::PATIENCE, "they stay");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let text = fs::read_to_string(lists(up)).expect("lists");
    assert!(lost.iter().all(|file| !text.contains(file)), "{text}");
}

fn printed_if_none(output: &Output) -> bool {
    output.status.success() && output.stdout.is_empty()
}

#[test]
fn a_lost_mdt_comes_back_from_its_export() {
    let mut up = Up::new("export");
    let export = up.data().with_extension("export").to_string_lossy().into_owned();
    let mut before = make(&up, "before", 12);
    let gone = before.pop().expect("twelve");
    printed(&nacre(&["export-meta", MDT, "-o", &export]));
    let gone_fid = fid(&up, &gone);
    fs::remove_file(&gone).expect("unlink");
    let after = make(&up, "after", 6);
    let lost: BTreeSet<String> = after.iter().map(|path| fid(&up, path)).collect();
    fs::rename(&before[0], up.at("renamed")).expect("rename");
    // longer and shorter, of four stripes and of one
    let changed = [(4, 700_000), (5, 500_000), (6, 100_000), (8, 130_000)];
    changed.iter().for_each(|(number, bytes)| resize(&before[*number], *bytes));

    // objects of what was unlinked go in the background
    let objects_of_gone = || fs::read_to_string(lists(&up)).expect("lists").contains(&gone_fid);
    let start = std::time::Instant::now();
    while objects_of_gone() {
        assert!(start.elapsed() < mounted::PATIENCE, "its objects stay");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let objects = lists(&up).to_string_lossy().into_owned();
    up.will_be_damaged();
    up.kill_everything();
    let dir = up.target("MDT0000");
    fs::remove_dir_all(&dir).expect("the disk is lost");

    let shown = dir.to_string_lossy().into_owned();
    let text = printed(&nacre(&["import-meta", &export, &shown, "--objects", &objects]));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let unnamed: BTreeSet<String> =
        lines.iter().filter(|line| line[0] == "unnamed").map(|line| line[3].to_owned()).collect();
    assert_eq!(unnamed, lost, "{text}");
    let missing: Vec<_> = lines.iter().filter(|line| line[0] == "missing").collect();
    assert!(!missing.is_empty() && missing.iter().all(|line| line[4] == "before/f11"), "{text}");
    let again = nacre(&["check-meta", &shown, "--objects", &objects]);
    assert_eq!(again.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&again.stdout), text, "the same differences");
    let refused = nacre(&["import-meta", &export, &shown]);
    assert!(!refused.status.success(), "the target is there");

    up.start_again(&[]);
    for (number, path) in before.iter().enumerate() {
        let now = changed.iter().find(|(changed, _)| *changed == number);
        check_bytes(path, now.map_or(BYTES, |(_, bytes)| *bytes));
    }
    assert!(!up.at("after").exists() && !up.at("renamed").exists());
    assert!(fs::read(&gone).is_err(), "a name without an object is EIO");
    fs::remove_file(&gone).expect("unlink");
    let later = make(&up, "after", 24);
    later.iter().chain(&before[9..]).for_each(|path| check(path));
    let given: BTreeSet<String> = later.iter().map(|path| fid(&up, path)).collect();
    assert!(given.is_disjoint(&lost), "an id was given twice");
    remove_unnamed(&up, &lost);
    later.iter().chain(&before[9..]).for_each(|path| check(path));
    up.stop();
    let _ = fs::remove_file(objects);
    let _ = fs::remove_file(export);
}

#[test]
fn clients_of_before_are_evicted_and_read_what_is_there() {
    let mut up = Up::new("exportlive");
    up.will_be_damaged();
    let export = up.data().with_extension("export").to_string_lossy().into_owned();
    let before = make(&up, "before", 4);
    printed(&nacre(&["export-meta", MDT, "-o", &export]));
    let after = make(&up, "after", 4);
    let mut open = File::open(&after[0]).expect("open");

    // the server dies with its disk; `up` tries to start it until it can
    let dir = up.target("MDT0000");
    let aside = dir.with_extension("lost");
    fs::rename(&dir, &aside).expect("the disk is lost");
    up.kill_server("MDT0000");
    let shown = dir.to_string_lossy().into_owned();
    let text = printed(&nacre(&["import-meta", &export, &shown]));
    assert!(text.lines().all(|line| line.starts_with("unnamed ")), "{text}");
    assert!(text.lines().count() >= 4, "{text}");

    before.iter().for_each(|path| check(path));
    let start = std::time::Instant::now();
    while up.at("after").exists() {
        assert!(start.elapsed() < mounted::PATIENCE, "a name of before the loss stays");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let mut found = Vec::new();
    let read = open.read_to_end(&mut found);
    let is_its_own = read.is_err() || found == content(&after[0].to_string_lossy(), BYTES);
    assert!(is_its_own, "an open file of before shows {} other bytes", found.len());
    drop(open);
    make(&up, "after", 8).iter().for_each(|path| check(path));
    let log = fs::read_to_string(up.data().join("log/up.log")).expect("a log of the mount");
    assert!(log.contains("evicted: open files and locks of this session are void"), "{log}");
    fs::remove_dir_all(aside).expect("removed");
    up.stop();
    let _ = fs::remove_file(export);
}
