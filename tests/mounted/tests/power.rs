//! Power cuts: the disks under all targets stop at once in the middle of work, and return with what
//! was on the platter.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mounted::cut::Disk;
use mounted::{Scratch, Up};

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
