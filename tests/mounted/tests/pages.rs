//! Files in the kernel's page cache: repeated reads ask no OST, and bytes that another mount writes
//! are seen at once.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mounted::posix::Mapping;
use mounted::{Up, shell, until};

const FILE_BYTES: usize = 5 << 20;

/// A new file is not kept for 50 ms (docs/design/fuse.md).
const UNGUARDED: Duration = Duration::from_millis(200);

/// Bytes read from all OSTs, by their statistics.
fn ost_reads(up: &Up) -> u64 {
    let stats = up.param("obdfilter.*.stats");
    let count = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    stats.lines().filter(|line| line.contains("read_bytes")).filter_map(count).sum()
}

/// Whether this mount can keep pages: it must be able to tell the kernel to drop them.
fn keeps_pages(up: &Up) -> bool {
    up.param("llite.*.transport").trim().ends_with("classic")
}

fn read_all(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("a file");
    file.read_to_end(&mut bytes).expect("it can be read");
    bytes
}

fn overwrite(path: &Path, byte: u8) {
    let mut file = File::options().write(true).open(path).expect("it can be opened");
    file.write_all(&vec![byte; FILE_BYTES]).expect("there is room");
}

/// A file with so many bytes of one kind, of which the size is known to the MDT.
fn make(path: &Path, byte: u8) {
    fs::write(path, vec![byte; FILE_BYTES]).expect("there is room");
}

#[test]
fn a_second_read_asks_no_ost_unless_the_page_cache_is_off() {
    let mut up = Up::new("second-read");
    let path = up.at("f");
    make(&path, 1);
    std::thread::sleep(UNGUARDED);
    let asked = |up: &Up| {
        let before = ost_reads(up);
        assert_eq!(fs::read(&path).expect("it is there"), vec![1; FILE_BYTES]);
        ost_reads(up) - before
    };
    // The MDT may hear late of the writer's close, and tests beside this one drop pages.
    let are_kept = || until("a repeated read asks no OST", || asked(&up) == 0);
    if keeps_pages(&up) {
        are_kept();
    }
    up.set("llite.*.page_cache", "0");
    assert!(asked(&up) > 0);
    assert!(asked(&up) > 0);
    up.set("llite.*.page_cache", "1");
    if keeps_pages(&up) {
        are_kept();
    }
    up.stop();
}

#[test]
fn what_another_mount_writes_is_seen_by_the_next_read_of_any_handle() {
    let mut up = Up::new("other-writes");
    let far = up.second_mount(57).join("f");
    let near = up.at("f");
    make(&near, 1);
    let mut held = File::open(&near).expect("it is there");
    let mapped = Mapping::read_only(&held, FILE_BYTES).expect("it can be mapped");
    for byte in 2..12 {
        assert_eq!(read_all(&mut held), vec![byte - 1; FILE_BYTES]);
        assert_eq!(mapped.byte(FILE_BYTES - 1), byte - 1, "the mapping is of the page cache");
        let writer = File::options().write(true).open(&far).expect("it can be opened");
        (&writer).write_all(&vec![byte; FILE_BYTES]).expect("there is room");
        assert_eq!(read_all(&mut held), vec![byte; FILE_BYTES], "while it is open for writing");
        drop(writer);
        assert_eq!(read_all(&mut held), vec![byte; FILE_BYTES]);
        assert_eq!(fs::read(&near).expect("it is there"), vec![byte; FILE_BYTES]);
        until("the mapping shows what was written", || mapped.byte(FILE_BYTES - 1) == byte);
        if byte % 3 == 0 {
            held = File::open(&near).expect("it is there");
        }
    }
    // and what this mount writes or cuts beside a handle that reads
    overwrite(&near, 20);
    assert_eq!(read_all(&mut held), vec![20; FILE_BYTES]);
    let cut = File::options().write(true).open(&far).expect("it can be opened");
    cut.set_len(9).expect("it can be cut");
    assert_eq!(read_all(&mut held), vec![20; 9]);
    drop(cut);
    mounted::posix::truncate(&near, 3).expect("it can be cut");
    assert_eq!(read_all(&mut held), vec![20; 3]);
    fs::remove_file(&far).expect("it is there");
    assert_eq!(read_all(&mut held), vec![20; 3], "removed and open");
    up.stop();
}

#[test]
fn a_program_on_the_mount_runs_and_another_mount_replaces_it() {
    let mut up = Up::new("runs");
    let far = up.second_mount(58);
    let script = |text: &str| {
        let (path, text) = (far.join("script"), format!("#!/bin/sh\necho {text}\n"));
        until("it is not running", || fs::write(&path, &text).is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    };
    fs::copy("/bin/true", up.at("true")).expect("there is room");
    fs::copy("/bin/echo", up.at("said")).expect("there is room");
    let asked = || {
        let before = ost_reads(&up);
        assert_eq!(shell(up.mount(), "./true && ./said yes").trim(), "yes");
        ost_reads(&up) - before
    };
    for _ in 0..3 {
        asked();
    }
    if keeps_pages(&up) {
        until("its text is in the page cache", || asked() == 0);
    }
    // the kernel of a mount reports a last close, and the end of a program, in the background
    let is_closed = |name: &str| {
        let run = || Command::new(up.at(name)).output().is_ok();
        until("nobody writes it any more", run);
    };
    for text in ["one", "two", "three"] {
        script(text);
        is_closed("script");
        assert_eq!(shell(up.mount(), "./script; ./script"), format!("{text}\n{text}\n"));
    }
    until("it is not running", || fs::copy("/bin/echo", far.join("true")).is_ok());
    is_closed("true");
    assert_eq!(shell(up.mount(), "./true new").trim(), "new");
    up.stop();
}
