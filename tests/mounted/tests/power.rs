//! Power cuts: the disks under all targets stop at once in the middle of work, and return with the
//! bytes that were on the platter.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mounted::cut::Disk;
use mounted::{Scratch, Up, nacre_bin, until};

/// Name of the file that is overwritten in place.
const OVERWRITTEN: &str = "over";

/// Cuts of one run.
const CUTS: usize = 20;

/// Bytes of the file of round `round`, number `index`; every other of those that are fsynced goes
/// around the page cache of its OST.
fn content(round: usize, index: usize) -> Vec<u8> {
    let len = if index % 14 == 6 { 2 << 20 } else { 1000 + index * 977 % 150_000 };
    format!("{round}/{index} ").into_bytes().iter().copied().cycle().take(len).collect()
}

#[test]
fn power_cuts_keep_a_prefix_with_all_that_was_fsynced() {
    let scratch = Scratch::new("power");
    let mut disk = Disk::new(&scratch, "disk", 4096);
    let data = disk.dir().join("data");
    let mut up = Up::with(scratch, Some(data), &[]);
    for round in 0..CUTS {
        let dir = up.at(&format!("round-{round}"));
        fs::create_dir(&dir).expect("mkdir");
        let synced = AtomicUsize::new(0);
        let started = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| write_until_the_cut(&dir, round, &started, &synced));
            let start = Instant::now();
            while synced.load(Ordering::SeqCst) == 0 && start.elapsed() < mounted::PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(500 + 150 * (round as u64 % 5)));
            disk.cut();
            up.kill_everything();
        });
        disk.unmount();
        disk.mount();
        up.start_again(&[]);
        check_round(
            &up.at(&format!("round-{round}")),
            round,
            started.into_inner(),
            synced.into_inner(),
        );
        fs::remove_dir_all(&dir).expect("room for the next round");
    }
    up.stop();
    up.fsck();
    disk.unmount();
}

/// Blocks of the file that is overwritten in place while the power goes.
const BLOCKS: usize = 64;
const BLOCK_BYTES: usize = 4096;

/// Bytes of a block after its `turn`-th overwriting: those of no other block, round or turn.
fn block_content(round: usize, block: usize, turn: usize) -> Vec<u8> {
    let text = format!("{round:04}/{block:04}/{turn:08} ");
    text.into_bytes().iter().copied().cycle().take(BLOCK_BYTES).collect()
}

/// Each block of `path` is what one turn up to `turns` wrote there, or it was never written again
/// and is the synced one.
fn check_blocks(path: &std::path::Path, round: usize, turns: usize) {
    let bytes = fs::read(path).expect("its first content was fsynced");
    assert_eq!(bytes.len(), BLOCKS * BLOCK_BYTES);
    for (block, there) in bytes.chunks(BLOCK_BYTES).enumerate() {
        let turn = std::str::from_utf8(&there[10..18]).ok().and_then(|text| text.parse().ok());
        let turn: usize = turn.unwrap_or_else(|| panic!("block {block} holds foreign bytes"));
        assert!(turn <= turns, "block {block} holds turn {turn} of {turns}");
        assert!(
            there == block_content(round, block, turn),
            "block {block} is not what turn {turn} wrote"
        );
    }
}

/// Numbered files in one directory, in order; every seventh is fsynced. Ends with the first error.
fn write_until_the_cut(
    dir: &std::path::Path,
    round: usize,
    started: &AtomicUsize,
    synced: &AtomicUsize,
) {
    let Ok(over) = overwritten(dir, round) else { return };
    for index in 0.. {
        let block = index * 29 % BLOCKS;
        let turn = block_content(round, block, index + 1);
        if over.write_all_at(&turn, (block * BLOCK_BYTES) as u64).is_err() {
            return;
        }
        started.store(index + 1, Ordering::SeqCst);
        let outcome = File::create(dir.join(format!("f{index}"))).and_then(|mut file| {
            file.write_all(&content(round, index))?;
            if index % 7 == 6 { file.sync_all() } else { Ok(()) }
        });
        if outcome.is_err() {
            return;
        }
        if index % 7 == 6 {
            synced.store(index + 1, Ordering::SeqCst);
        }
    }
}

/// The file that is overwritten, with its first content on disk.
fn overwritten(dir: &std::path::Path, round: usize) -> std::io::Result<File> {
    let first: Vec<u8> = (0..BLOCKS).flat_map(|block| block_content(round, block, 0)).collect();
    let mut file = File::create_new(dir.join(OVERWRITTEN))?;
    file.write_all(&first)?;
    file.sync_all()?;
    Ok(file)
}

fn check_round(dir: &std::path::Path, round: usize, started: usize, synced: usize) {
    let mut names: Vec<PathBuf> = match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| entry.expect("readdir").path()).collect(),
        Err(_) if synced == 0 => Vec::new(),
        Err(error) => panic!("{}: {synced} files were fsynced in it: {error}", dir.display()),
    };
    println!("power cut {round}: {started} started, {} there, up to {synced} fsynced", names.len());
    assert!(synced > 0, "the cut came before anything was fsynced: the test proves nothing");
    check_blocks(&dir.join(OVERWRITTEN), round, started);
    names.retain(|path| !path.ends_with(OVERWRITTEN));
    // creates were made in order by one client: what is there is 0..n without a hole
    for index in 0..names.len() {
        assert!(
            names.contains(&dir.join(format!("f{index}"))),
            "f{index} is missing below {} others: no prefix",
            names.len()
        );
    }
    assert!(names.len() >= synced && names.len() <= started);
    let (mut lost, mut partial) = (0, 0);
    for index in 0..names.len() {
        let there = fs::read(dir.join(format!("f{index}")));
        if index < synced && index % 7 == 6 {
            let there = there.expect("an fsynced file");
            assert!(
                there == content(round, index),
                "f{index} was fsynced and has other content ({} bytes)",
                there.len()
            );
            continue;
        }
        let whole = content(round, index);
        match there {
            Ok(there) => {
                // each byte is the one that was written at its place, or was not written yet
                assert!(
                    there.len() <= whole.len()
                        && there
                            .iter()
                            .zip(&whole)
                            .all(|(there, right)| there == right || *there == 0),
                    "f{index} was not fsynced and holds foreign bytes ({} bytes)",
                    there.len()
                );
                partial += usize::from(there != whole);
            }
            Err(error) => {
                assert_eq!(
                    error.raw_os_error(),
                    Some(libc::EIO),
                    "f{index}: an object that did not come back: {error}"
                );
                lost += 1;
            }
        }
    }
    println!(
        "power cut {round}: of the files that were not fsynced, {lost} have lost an object, {partial} \
         have part of their content"
    );
}

/// Files of these lengths end in the first, second and third component of [`PARTS`].
const LENGTHS: [usize; 3] = [30_000, 300_000, 900_000];
const PARTS: &str = "-E 64K -L mdt -E 512K -c 1 -S 64K -E -1 -c 2 -S 128K";

/// The file that moves from one of these layouts to the next.
const MOVED: &str = "moved";
const MOVED_BYTES: usize = 12 << 20;
const SHAPES: [&str; 3] =
    ["-c 4 -S 64K", "-E 64K -L mdt -E -1 -c 2 -S 128K", "-E 1M -c 1 -E 4M -c 2 -E -1 -c 4"];

/// Where bytes of files are.
const TARGETS: &[&str] = &["OST0000", "OST0001", "OST0002", "OST0003", "DOM0000"];

/// Every one of so many files is fsynced.
const SYNCED_EVERY: usize = 5;

/// Bytes of this file and no other.
fn text(round: usize, name: &str, len: usize) -> Vec<u8> {
    format!("{round}/{name} ").into_bytes().iter().copied().cycle().take(len).collect()
}

fn growing(round: usize, index: usize) -> Vec<u8> {
    text(round, &format!("f{index}"), LENGTHS[index % LENGTHS.len()])
}

fn nacre(dir: &Path, line: &str) -> std::io::Result<Output> {
    Command::new(nacre_bin()).args(line.split_whitespace()).current_dir(dir).output()
}

#[test]
fn power_cuts_amid_components_and_migrations_leave_whole_files() {
    let scratch = Scratch::new("power-layouts");
    let mut disk = Disk::new(&scratch, "disk", 4096);
    let data = disk.dir().join("data");
    let mut up = Up::with(scratch, Some(data), &[]);
    for round in 0..mounted::count(4, 20) {
        let dir = up.at(&format!("round-{round}"));
        begin_layouts(&dir, round);
        let [started, synced, moves] = [const { AtomicUsize::new(0) }; 3];
        std::thread::scope(|scope| {
            scope.spawn(|| grow_until_the_cut(&dir, round, &started, &synced));
            scope.spawn(|| move_until_the_cut(&dir, &moves));
            let start = Instant::now();
            let has_begun = || [&synced, &moves].iter().all(|one| one.load(Ordering::SeqCst) > 0);
            while !has_begun() && start.elapsed() < mounted::PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(200 + 130 * (round as u64 % 5)));
            disk.cut();
            up.kill_everything();
        });
        disk.unmount();
        disk.mount();
        up.start_again(&[]);
        let [started, synced, moves] = [started, synced, moves].map(AtomicUsize::into_inner);
        println!("power cut {round}: {started} files, {synced} fsynced, {moves} migrations");
        assert!(synced > 0 && moves > 0, "the cut came too early: the test proves nothing");
        check_layouts(&dir, round, started, synced);
        fs::remove_dir_all(&dir).expect("room for the next round");
        until("no object is left", || up.objects(TARGETS) == Some(0));
    }
    up.stop();
    up.fsck();
    disk.unmount();
}

/// A directory for files in components, and the file that moves, fsynced.
fn begin_layouts(dir: &Path, round: usize) {
    fs::create_dir(dir).expect("mkdir");
    let done = nacre(dir, &format!("lfs setstripe {PARTS} .")).expect("nacre starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let moved = File::create(dir.join(MOVED)).and_then(|mut file| {
        file.write_all(&text(round, MOVED, MOVED_BYTES))?;
        file.sync_all()
    });
    moved.expect("fsynced");
}

/// Files that grow from component to component. Ends with the first error.
fn grow_until_the_cut(dir: &Path, round: usize, started: &AtomicUsize, synced: &AtomicUsize) {
    for index in 0.. {
        started.store(index + 1, Ordering::SeqCst);
        let is_synced = index % SYNCED_EVERY == SYNCED_EVERY - 1;
        let outcome = File::create(dir.join(format!("f{index}"))).and_then(|mut file| {
            for part in growing(round, index).chunks(50_000) {
                file.write_all(part)?;
            }
            if is_synced { file.sync_all() } else { Ok(()) }
        });
        if outcome.is_err() {
            return;
        }
        if is_synced {
            synced.store(index + 1, Ordering::SeqCst);
        }
    }
}

/// Ends with the first migration that fails.
fn move_until_the_cut(dir: &Path, moves: &AtomicUsize) {
    for shape in SHAPES.iter().cycle() {
        let done = nacre(dir, &format!("lfs migrate {shape} {MOVED}"));
        if !done.is_ok_and(|done| done.status.success()) {
            return;
        }
        moves.fetch_add(1, Ordering::SeqCst);
    }
}

fn check_layouts(dir: &Path, round: usize, started: usize, synced: usize) {
    let moved = text(round, MOVED, MOVED_BYTES);
    assert!(fs::read(dir.join(MOVED)).expect("fsynced") == moved, "a byte of {MOVED} is wrong");
    let done = nacre(dir, &format!("lfs migrate {} {MOVED}", SHAPES[round % SHAPES.len()]));
    let done = done.expect("nacre starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(fs::read(dir.join(MOVED)).expect("reads") == moved, "it moves on");
    for index in 0..started {
        let whole = growing(round, index);
        let is_synced = index < synced && index % SYNCED_EVERY == SYNCED_EVERY - 1;
        match fs::read(dir.join(format!("f{index}"))) {
            Ok(there) if is_synced => assert!(there == whole, "f{index} was fsynced"),
            Ok(there) => {
                let mut bytes = there.iter().zip(&whole);
                let is_right = bytes.all(|(there, right)| there == right || *there == 0);
                assert!(there.len() <= whole.len() && is_right, "f{index} has foreign bytes");
            }
            Err(error) => {
                let errno = error.raw_os_error();
                let is_lost = [Some(libc::ENOENT), Some(libc::EIO)].contains(&errno);
                assert!(!is_synced && is_lost, "f{index}: {error}");
            }
        }
    }
}
