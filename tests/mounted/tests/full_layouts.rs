//! Full disks under layouts: a file that grows at a full MDT, a full pool, and a migration to an
//! OST that fills up. Each test shows the caller's result, and that written bytes stay.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use mounted::cut::Disk;
use mounted::line::{good, nacre};
use mounted::{Scratch, Up, until};

const MIB: usize = 1 << 20;
/// Bytes of a file that are at the MDT.
const BORDER: usize = 64 << 10;

/// One target has a small disk. A write is refused itself, not the fsync behind it.
fn start(scratch: Scratch, osts: &str) -> Up {
    let up = Up::with(scratch, None, &["--osts", osts]);
    up.set("lod.*.qos_maxage", "1");
    up.set("llite.*.writeback", "0");
    up
}

/// What a layout says of a component.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    pattern: String,
    pool: String,
    osts: Vec<u64>,
}

/// The components of a file; a plain layout is one.
fn parts(up: &Up, file: &str) -> Vec<Part> {
    let shown = good(up, &format!("lfs getstripe --json {file}"));
    let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let part = |part: &serde_json::Value| {
        let text = |name: &str| part[name].as_str().unwrap_or_default().to_owned();
        let objects = part["lmm_objects"].as_array().expect("a list").iter();
        let osts = objects.map(|object| object["l_ost_idx"].as_u64().expect("an index")).collect();
        Part { pattern: text("lmm_pattern"), pool: text("lmm_pool"), osts }
    };
    match value[0]["components"].as_array() {
        Some(parts) => parts.iter().map(part).collect(),
        None => vec![part(&value[0])],
    }
}

fn osts(up: &Up, file: &str) -> Vec<u64> {
    parts(up, file).into_iter().flat_map(|part| part.osts).collect()
}

fn open(up: &Up, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(up.at(name)).expect("opens")
}

/// The bytes of every file from an offset on.
fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn assert_full(error: &io::Error) {
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "a full disk is ENOSPC: {error}");
}

/// Writes at the end of a file of this length until there is no room. Returns the length of all
/// that was acknowledged.
fn fill(file: &File, len: usize) -> usize {
    let mut len = len;
    for _ in 0..2_000 {
        match file.write_at(&bytes(len, MIB), len as u64) {
            Ok(written) => len += written,
            Err(error) => {
                assert_full(&error);
                return len;
            }
        }
    }
    panic!("{len} bytes found room on a small disk");
}

/// A file has all bytes that were acknowledged. Behind them, a byte is that of the refused write,
/// or was not written.
fn assert_whole(up: &Up, name: &str, acknowledged: usize) {
    let there = fs::read(up.at(name)).expect("reads");
    assert!(there.len() >= acknowledged, "{name}: {} bytes of {acknowledged}", there.len());
    let want = bytes(0, there.len());
    assert!(there[..acknowledged] == want[..acknowledged], "{name} has other bytes");
    let mut rest = there[acknowledged..].iter().zip(&want[acknowledged..]);
    assert!(rest.all(|(byte, right)| byte == right || *byte == 0), "{name} has foreign bytes");
}

/// A new file that is refused room, or is elsewhere than it should be, is removed again.
fn is_made(up: &Up, name: &str, len: usize, is_right: impl Fn(&[Part]) -> bool) -> bool {
    let made = File::create(up.at(name)).and_then(|file| file.write_all_at(&bytes(0, len), 0));
    if let Err(error) = &made {
        assert_full(error);
    }
    let is_made = made.is_ok() && is_right(&parts(up, name));
    if !is_made {
        let _ = fs::remove_file(up.at(name));
    }
    is_made
}

/// The bytes of small files share the disk of their MDT.
#[test]
fn a_full_mdt_refuses_bytes_of_a_file_and_new_files_go_to_osts() {
    let scratch = Scratch::new("full-dom");
    let mut disk = Disk::new(&scratch, "data/testfs-MDT0000", 160);
    let mut up = start(scratch, "1");
    up.set("lod.*.dom_stripesize", "256M");
    fs::create_dir(up.at("dir")).expect("made");
    good(&up, "lfs setstripe -E 64K -L mdt -E -1 -c 1 dir");
    good(&up, "lfs setstripe -E 256M -L mdt -E -1 -c 1 large");
    good(&up, "lfs setstripe -E 256M -L mdt -E -1 -c 1 grown");
    good(&up, "lfs setstripe -E 64K -L mdt -E -1 -c 1 past");
    let [large, grown, past] = ["large", "grown", "past"].map(|name| open(&up, name));
    for (file, len) in [(&grown, MIB), (&past, BORDER)] {
        file.write_all_at(&bytes(0, len), 0).and_then(|()| file.sync_all()).expect("room");
    }

    let filled = fill(&large, 0);
    assert!(filled > 0, "an empty disk has room");
    let len = fill(&grown, MIB);
    assert_whole(&up, "large", filled);
    assert_whole(&up, "grown", len);
    assert_eq!(osts(&up, "grown"), [0_u64; 0], "it does not leave the MDT");

    until("a file grows behind its part at the MDT", || {
        let done = past.write_all_at(&bytes(BORDER, MIB), BORDER as u64);
        done.inspect_err(assert_full).is_ok()
    });
    assert_whole(&up, "past", BORDER + MIB);
    assert_eq!(osts(&up, "past"), [0]);
    let is_on_osts = |parts: &[Part]| parts.iter().all(|part| part.pattern == "raid0");
    until("a new file is on OSTs", || is_made(&up, "dir/new", 2 * BORDER, is_on_osts));
    assert_whole(&up, "dir/new", 2 * BORDER);

    drop(large);
    fs::remove_file(up.at("large")).expect("deletes work when full");
    until("there is room again", || {
        let done = grown.write_all_at(&bytes(len, MIB), len as u64);
        done.inspect_err(assert_full).is_ok()
    });
    assert_whole(&up, "grown", len + MIB);
    drop((grown, past));
    up.stop();
    disk.unmount();
}

#[test]
fn a_full_pool_refuses_or_spills_as_configured() {
    let scratch = Scratch::new("full-pool");
    let mut disk = Disk::new(&scratch, "data/testfs-OST0000", 160);
    let mut up = start(scratch, "2");
    for (pool, ost) in [("flash", 0), ("disk", 1)] {
        good(&up, &format!("lctl pool_new testfs.{pool}"));
        good(&up, &format!("lctl pool_add testfs.{pool} OST000{ost}"));
    }
    for (dir, options) in
        [("dir", "-p flash -c 1"), ("steps", "-E 1G -z 64M -p flash -E -1 -p disk")]
    {
        fs::create_dir(up.at(dir)).expect("made");
        good(&up, &format!("lfs setstripe {options} {dir}"));
    }
    let large = File::create(up.at("dir/large")).expect("made");
    let filled = fill(&large, 0);
    assert_eq!(osts(&up, "dir/large"), [0]);

    // without another pool, the name is made and the write is refused
    let refused = File::create(up.at("dir/refused")).expect("a name needs no room on an OST");
    assert!(fill(&refused, 0) < 4 * MIB, "the pool is full");
    assert_eq!(osts(&up, "dir/refused"), [0]);

    // an extendable component gets no step there, and the one behind it has the bytes
    let is_on = |parts: &[Part]| parts.iter().flat_map(|part| &part.osts).eq(&[1_u64]);
    until("the next component goes on", || is_made(&up, "steps/f", 4 * MIB, is_on));
    assert_whole(&up, "steps/f", 4 * MIB);

    up.set("lod.*.pool.flash.spill_target", "disk");
    let is_in = |pool: &'static str, ost: u64| {
        move |parts: &[Part]| parts.iter().all(|part| part.pool == pool && part.osts == [ost])
    };
    until("new files go to the other pool", || is_made(&up, "dir/new", 4 * MIB, is_in("disk", 1)));
    assert_whole(&up, "dir/new", 4 * MIB);
    let more = fill(&large, filled);
    assert_whole(&up, "dir/large", more);
    assert_eq!(osts(&up, "dir/large"), [0], "a file that has begun in the pool stays there");

    drop((large, refused));
    fs::remove_file(up.at("dir/large")).expect("deletes work when full");
    until("the pool has room again", || is_made(&up, "dir/later", 4 * MIB, is_in("flash", 0)));
    assert_whole(&up, "dir/later", 4 * MIB);
    up.stop();
    disk.unmount();
}

#[test]
fn a_migration_to_an_ost_that_fills_up_leaves_the_file_as_it_was() {
    const FILE: usize = 48 * MIB;
    const ALL: &[&str] = &["OST0000", "OST0001"];
    let scratch = Scratch::new("full-migrate");
    let mut disk = Disk::new(&scratch, "data/testfs-OST0000", 160);
    let mut up = start(scratch, "2");
    for (name, ost) in [("large", 0), ("f", 1)] {
        good(&up, &format!("lfs setstripe -c 1 -i {ost} {name}"));
    }
    let [large, file] = ["large", "f"].map(|name| open(&up, name));
    file.write_all_at(&bytes(0, FILE), 0).and_then(|()| file.sync_all()).expect("room");
    let filled = fill(&large, 0);
    assert!(filled > FILE, "{filled} bytes on an empty disk");
    // half of the file has room
    large.set_len((filled - FILE / 2) as u64).expect("cut");
    let known = up.objects(ALL).expect("both OSTs answer");
    let status = Cell::new(None);
    until("the MDT knows of the room", || {
        status.set(nacre(&up, "lfs migrate -o 0 f").status.code());
        status.get() != Some(libc::EREMOTEIO)
    });
    assert_eq!(status.get(), Some(libc::ENOSPC));
    assert_eq!(osts(&up, "f"), [1]);
    assert_whole(&up, "f", FILE);
    file.write_all_at(&bytes(FILE, MIB), FILE as u64).expect("writes go on");
    until("the copy is gone", || up.objects(ALL) == Some(known));

    drop(large);
    fs::remove_file(up.at("large")).expect("deletes work when full");
    until("it moves when there is room", || nacre(&up, "lfs migrate -o 0 f").status.success());
    assert_eq!(osts(&up, "f"), [0]);
    assert_whole(&up, "f", FILE + MIB);
    drop(file);
    up.stop();
    disk.unmount();
}
