//! The cost of checksums of records, and the cost that checksums of objects would have.
//!
//! `cargo run --profile ci -p osd-disk --example checksums -- DIR`
//!
//! `... -- --create` prints the first of them alone, for the records of one create.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 64 << 20;
const WRITES: u64 = 2_000;

/// Bytes of keys and of values of the records that an MDT writes for a create (docs/sizing.md).
/// Changes of a record before a commit are summed once. So a close adds none, and the last three
/// are summed less often than here.
static WRITTEN: [(&str, usize, usize); 7] = [
    ("entry", 24, 44),
    ("back-link", 40, 20),
    ("inode", 16, 176),
    ("layout", 16, 52),
    ("inode of the directory", 16, 176),
    ("reply", 20, 370),
    ("last transaction", 12, 8),
];
/// The same of those that it reads, where they are not waiting for a commit.
static READ: [(&str, usize, usize); 2] = [("inode of the directory", 16, 176), ("inode", 16, 176)];
/// As `PIECE_BYTES` of `meta/sums.rs`.
const PIECE_BYTES: usize = 512;
/// Creates in a run.
const CREATES: u64 = 100_000;

/// The fastest of five runs, for one call of `count`.
fn fastest(count: u64, mut call: impl FnMut(u64)) -> Duration {
    let run = |call: &mut dyn FnMut(u64)| {
        let start = Instant::now();
        (0..count).for_each(call);
        start.elapsed()
    };
    let best = (0..5).map(|_| run(&mut call)).min().unwrap_or_default();
    best / u32::try_from(count).unwrap_or(u32::MAX)
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory, or --create");
    create();
    if dir == "--create" {
        return;
    }
    for bytes in [64, 200, 4_096, 65_536, 1 << 20] {
        let data = vec![7_u8; bytes];
        let each = fastest((1 << 28) / bytes as u64 / 4, |_| {
            black_box(crc32c::crc32c(black_box(&data)));
        });
        let rate = bytes as f64 / each.as_secs_f64() / 1e9;
        println!("CRC-32C of {bytes} bytes: {each:?}, {rate:.1} GB/s");
    }
    let path = Path::new(&dir).join("checksums");
    let file = open(&path);
    let chunk = vec![1; 1 << 20];
    for at in 0..FILE_BYTES >> 20 {
        file.write_all_at(&chunk, at << 20).expect("writes");
    }
    file.sync_all().expect("syncs");
    for block in [0, 4_096, 16_384, 65_536] {
        let each = fastest(WRITES, |number| write(&file, number, block));
        println!("4 KiB write, sums of {block} bytes: {each:?}");
    }
    let _gone = std::fs::remove_file(path);
}

/// The sums of all records of a create.
fn create() {
    let records = || WRITTEN.iter().chain(&READ);
    let bytes = records().map(|(_, key, value)| key + value).max().expect("there are records");
    let data = vec![7_u8; bytes];
    let each = fastest(CREATES, |_| {
        for (_, key, value) in records() {
            black_box(sum(black_box(&data[..*key]), black_box(&data[..*value])));
        }
    });
    println!("{} sums of the records of a create: {each:?}", records().count());
    figure(each.as_secs_f64() * 1e6);
}

/// As a store sums a record.
fn sum(key: &[u8], value: &[u8]) -> u32 {
    let mut piece = [0; PIECE_BYTES];
    let (behind_key, end) = (3 + key.len(), 3 + key.len() + value.len());
    piece[..3].copy_from_slice(&[1, key.len() as u8, 0]);
    piece[3..behind_key].copy_from_slice(key);
    piece[behind_key..end].copy_from_slice(value);
    crc32c::crc32c(&piece[..end])
}

/// Appends a line of JSON to the file that `NACRE_FIGURES` names, for the tables of
/// `bench/README.md`.
fn figure(us: f64) {
    let Some(path) = std::env::var_os("NACRE_FIGURES") else { return };
    let (id, title) = ("checksums/create", "checksums of the records of a create");
    let line = format!(r#"{{"id":"{id}","title":"{title}","unit":"us","value":{us}}}"#);
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| writeln!(file, "{line}")).expect("the file of the figures");
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).open(path).expect("opens")
}

/// Writes 4 KiB somewhere; with blocks that are larger, the rest of the block is read for its sum.
fn write(file: &File, number: u64, block: usize) {
    let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (FILE_BYTES / 4_096) * 4_096;
    let data = [number as u8; 4_096];
    if block > data.len() {
        let first = at / block as u64 * block as u64;
        let mut whole = vec![0; block];
        file.read_exact_at(&mut whole, first).expect("reads");
        let inside = (at - first) as usize;
        whole[inside..inside + data.len()].copy_from_slice(&data);
        black_box(crc32c::crc32c(&whole));
    } else if block > 0 {
        black_box(crc32c::crc32c(&data));
    }
    file.write_all_at(&data, at).expect("writes");
}
