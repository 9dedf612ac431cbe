//! `lfs migrate` on a mount. A file's bytes move into other objects while programs on two mounts
//! write and read it. Holes stay holes, times stay, and no object is left behind.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mounted::line::{good, nacre};
use mounted::posix::Mapping;
use mounted::{Up, nacre_bin, until};

const MIB: usize = 1 << 20;
const SLOT: usize = 64 << 10;
const SLOTS: usize = 128;

fn refused(dir: &Path, line: &str, part: &str) {
    let done = nacre(dir, line);
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && error.contains(part), "{line}: '{part}' is not in: {error}");
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(path).expect("opens")
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(seed | 1) >> 7) as u8).collect()
}

/// Objects of each component.
fn objects(dir: &Path, file: &str) -> Vec<usize> {
    let shown = good(dir, &format!("lfs getstripe --json {file}"));
    let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    match value[0]["components"].as_array() {
        Some(parts) => {
            let count =
                |part: &serde_json::Value| part["lmm_objects"].as_array().map_or(0, Vec::len);
            parts.iter().map(count).collect()
        }
        None => vec![value[0]["lmm_objects"].as_array().expect("objects").len()],
    }
}

/// Objects of all OSTs and of the data target.
fn objects_in_all(up: &Up) -> usize {
    let osts = (0..4).map(|ost| format!("testfs-OST{ost:04}"));
    let all = osts.chain(["testfs-DOM0000".to_owned()]);
    let listed = all.map(|name| good(up.mount(), &format!("list-objects {name}")));
    listed.map(|text| text.lines().filter(|line| !line.contains(" end ")).count()).sum()
}

const SHAPES: [(&str, &[usize]); 6] = [
    ("-c 4 -S 64K", &[4]),
    ("-E 64K -L mdt -E -1 -c 2 -S 128K", &[0, 2]),
    ("-E 1M -c 1 -E 4M -c 2 -E -1 -c 4", &[1, 2, 4]),
    ("-c 1 -S 1M", &[1]),
    ("-E 1M -L mdt -E -1 -c 1", &[0, 1]),
    ("-E 64K -L mdt -E -1 -c 3", &[0, 3]),
];

#[test]
fn bytes_times_and_holes_stay_and_the_old_objects_go() {
    let mut up = Up::new("migrate");
    let there = up.second_mount(203);
    let here = up.mount().to_owned();
    let (whole, path) = (bytes(8 * MIB + 777, 5), here.join("f"));
    fs::write(&path, &whole).expect("room");
    let sparse = open(&here.join("sparse"));
    sparse.write_all_at(&bytes(MIB, 9), 20 * MIB as u64).expect("room");
    sparse.set_len(64 * MIB as u64 + 5).expect("grows");
    let file = open(&path);
    let elsewhere = open(&there.join("f"));
    let mut mapping = Mapping::new(&file, 8192).expect("mmap");
    fs::write(here.join("empty"), "").expect("made");
    let before = fs::metadata(&path).expect("there");
    for (shape, want) in SHAPES {
        for name in ["f", "sparse", "empty"] {
            good(&here, &format!("lfs migrate {shape} {name}"));
        }
        assert_eq!(objects(&here, "f"), want, "{shape}");
        let now = fs::metadata(&path).expect("there");
        assert_eq!((now.ino(), now.len()), (before.ino(), before.len()), "{shape}");
        assert_eq!((now.mtime(), now.mtime_nsec()), (before.mtime(), before.mtime_nsec()));
        assert!(fs::read(there.join("f")).expect("reads") == whole, "{shape}");
        let mut through = vec![0; whole.len()];
        elsewhere.read_exact_at(&mut through, 0).expect("an old handle");
        assert!(through == whole, "{shape}");
        assert_eq!(mapping.bytes()[..8192], whole[..8192], "{shape}");
        let shown = fs::metadata(there.join("sparse")).expect("there");
        assert_eq!(shown.len(), 64 * MIB as u64 + 5, "{shape}");
        assert!(shown.blocks() * 512 < 4 * MIB as u64, "{shape}: {} blocks", shown.blocks());
        let mut part = vec![0; MIB + 2];
        open(&there.join("sparse")).read_exact_at(&mut part, 20 * MIB as u64 - 1).expect("reads");
        assert!(part[0] == 0 && part[MIB + 1] == 0 && part[1..=MIB] == bytes(MIB, 9));
        assert_eq!(fs::read(there.join("empty")).expect("reads"), b"");
    }
    elsewhere.write_all_at(b"written by an old handle", 3 * MIB as u64).expect("writes");
    let mut seen = [0; 24];
    file.read_exact_at(&mut seen, 3 * MIB as u64).expect("reads");
    assert_eq!(&seen, b"written by an old handle");
    let said = good(&here, "lfs migrate -v -b -c 2 f");
    assert!(said.starts_with("f: 8.0M in 1 round, "), "{said}");
    let (nobody_reads, out) = std::io::pipe().expect("a pipe");
    drop(nobody_reads);
    let words = "lfs migrate -v -b -c 2 f".split_whitespace();
    let unheard = Command::new(nacre_bin()).args(words).current_dir(&here).stdout(out).output();
    let unheard = unheard.expect("nacre starts");
    assert!(unheard.status.success() && unheard.stderr.is_empty(), "{unheard:?}");

    fs::create_dir(here.join("dir")).expect("made");
    refused(&here, "lfs migrate -c 2 dir", "is a directory: name files");
    refused(&here, "lfs migrate -m 0 f", "is not a directory");
    refused(&here, "lfs migrate -c 2 none", "No such file");
    refused(&here, "lfs migrate -E 1M -c 1 f", "ends before the file does");
    refused(&here, "lfs migrate -i 9 f", "OST index 9 does not exist");
    assert_eq!(objects(&here, "f"), [2], "as it was");
    good(&here, "lfs setstripe -c 3 -S 64K like");
    good(&here, "lfs migrate -n --copy like f");
    assert_eq!(objects(&here, "f"), [3]);

    drop((file, elsewhere, sparse, mapping));
    for name in ["f", "sparse", "empty", "like"] {
        fs::remove_file(here.join(name)).expect("removes");
    }
    until("no object is left", || objects_in_all(&up) == 0);
}

/// Lets the threads beside end, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Each slot has one number, which only grows.
#[test]
fn programs_go_on_while_their_file_moves() {
    let mut up = Up::new("migrate-busy");
    let there = up.second_mount(204);
    let here = up.mount().to_owned();
    good(&here, "lfs setstripe -c 1 f");
    let file = open(&here.join("f"));
    for slot in 0..SLOTS {
        file.write_all_at(&0_u64.to_le_bytes().repeat(SLOT / 8), (slot * SLOT) as u64)
            .expect("room");
    }
    let written: Vec<AtomicU64> = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0_u64;
            while !ends.load(Ordering::SeqCst) {
                number += 1;
                let slot = (number as usize).wrapping_mul(37) % SLOTS;
                let data = number.to_le_bytes().repeat(SLOT / 8);
                file.write_all_at(&data, (slot * SLOT) as u64).expect("a write never fails");
                written[slot].store(number, Ordering::SeqCst);
            }
            number
        });
        let reader = scope.spawn(|| {
            let (file, mut reads) = (open(&there.join("f")), 0_usize);
            while !ends.load(Ordering::SeqCst) {
                reads += 1;
                let slot = reads.wrapping_mul(11) % SLOTS;
                let atleast = written[slot].load(Ordering::SeqCst);
                let mut head = [0; 8];
                file.read_exact_at(&mut head, (slot * SLOT) as u64).expect("a read never fails");
                let seen = u64::from_le_bytes(head);
                assert!(seen >= atleast, "slot {slot}: {seen} after {atleast}");
            }
            reads
        });
        let end = Ends(&ends);
        for round in 0..mounted::count(2, 10) {
            for (shape, want) in SHAPES {
                good(&here, &format!("lfs migrate {shape} f"));
                assert_eq!(objects(&here, "f"), want, "{shape}");
            }
            assert!(!writer.is_finished() && !reader.is_finished(), "round {round}");
        }
        until("a migration gives way to a writer", || {
            !nacre(&here, "lfs migrate -n -c 2 f").status.success()
        });
        drop(end);
        let (writes, reads) = (writer.join().expect("writes"), reader.join().expect("reads"));
        assert!(writes > 100 && reads > 100, "{writes} writes, {reads} reads");
    });
    let whole = fs::read(there.join("f")).expect("reads");
    assert_eq!(whole.len(), SLOTS * SLOT);
    for (slot, number) in written.iter().enumerate() {
        let want = number.load(Ordering::SeqCst).to_le_bytes().repeat(SLOT / 8);
        assert!(whole[slot * SLOT..(slot + 1) * SLOT] == want[..], "slot {slot}");
    }
}
