//! Power cuts: the disks under all targets stop at once, mid-flight, and come back as they were on
//! the platter.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mounted::cut::Disk;
use mounted::{Scratch, Up};

/// Cuts of one run.
const CUTS: usize = 20;

/// Bytes of the file of round `round`, number `index`; every other of those that are fsynced goes
/// around the page cache of its OST.
fn content(round: usize, index: usize) -> Vec<u8> {
    let len = if index % 14 == 6 { 2 << 20 } else { 1000 + index * 977 % 150_000 };
    format!("{round}/{index} ").into_bytes().iter().copied().cycle().take(len).collect()
}

#[test]
fn what_was_fsynced_survives_power_cuts_and_the_rest_is_a_prefix() {
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
    disk.unmount();
}

/// Numbered files in one directory, in order; every seventh is fsynced. Ends with the first error.
fn write_until_the_cut(
    dir: &std::path::Path,
    round: usize,
    started: &AtomicUsize,
    synced: &AtomicUsize,
) {
    for index in 0.. {
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

fn check_round(dir: &std::path::Path, round: usize, started: usize, synced: usize) {
    let names: Vec<PathBuf> = match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| entry.expect("readdir").path()).collect(),
        Err(_) if synced == 0 => Vec::new(),
        Err(error) => panic!("{}: {synced} files were fsynced in it: {error}", dir.display()),
    };
    println!("power cut {round}: {started} started, {} there, up to {synced} fsynced", names.len());
    assert!(synced > 0, "the cut came before anything was fsynced: the test proves nothing");
    // creates were made in order by one client: what is there is 0..n without a hole
    for index in 0..names.len() {
        assert!(
            names.contains(&dir.join(format!("f{index}"))),
            "f{index} is missing below {} others: no prefix",
            names.len()
        );
    }
    assert!(names.len() >= synced && names.len() <= started);
    let mut lost = 0;
    for index in 0..names.len() {
        let there = fs::read(dir.join(format!("f{index}")));
        if index < synced && index % 7 == 6 {
            let there = there.expect("an fsynced file");
            assert!(
                there == content(round, index),
                "f{index} was fsynced and has other content ({} bytes)",
                there.len()
            );
        } else if let Err(error) = there {
            assert_eq!(
                error.raw_os_error(),
                Some(libc::EIO),
                "f{index}: an object that did not come back: {error}"
            );
            lost += 1;
        }
    }
    println!("power cut {round}: {lost} files that nobody fsynced have lost an object");
}
