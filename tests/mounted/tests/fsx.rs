//! Random reads, writes, truncates and mappings against a model, on several mounts, while servers
//! are killed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mounted::{Up, count};
use types::SplitMix64;

/// Last byte of the NID of the second mount; further mounts follow.
const SECOND_NID: u8 = 51;

/// Kills servers in turn until `work` has ended on all mounts.
fn on_mounts_under_kills(name: &str, count: u8, work: impl Fn(&Path, usize) + Sync) {
    let mut up = Up::new(name);
    let mut mounts = vec![up.mount().to_path_buf()];
    for more in 1..count {
        mounts.push(up.second_mount(SECOND_NID + more - 1));
    }
    let running = std::sync::atomic::AtomicUsize::new(mounts.len());
    std::thread::scope(|scope| {
        for (index, mount) in mounts.iter().enumerate() {
            let (work, running) = (&work, &running);
            scope.spawn(move || {
                let guard = CountDown(running);
                work(mount, index);
                drop(guard);
            });
        }
        for victim in
            ["OST0001", "MDT0000", "OST0002", "MGS", "OST0000", "OST0003"].into_iter().cycle()
        {
            std::thread::sleep(Duration::from_millis(1_500));
            if running.load(Ordering::SeqCst) == 0 {
                return;
            }
            up.kill_server(victim);
        }
    });
    up.stop();
}

/// Counts a worker out, also when it panics.
struct CountDown<'a>(&'a std::sync::atomic::AtomicUsize);

impl Drop for CountDown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// fsx from crates.io: `NACRE_FSX`, else where `cargo xtask check` installs it.
fn fsx() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/fsx");
    let path = std::env::var_os("NACRE_FSX").map_or(here, PathBuf::from);
    assert!(
        path.exists(),
        "{} is missing: cargo install fsx --version 0.3.2 --root target/tools",
        path.display()
    );
    path
}

/// The layout of each mount's files. Files of the last one begin at the MDT and grow past that.
const LAYOUTS: [&str; 3] = [
    "-c 1",
    "-E 64K -E 192K -c 2 -S 64K -E -1 -c 4",
    "-E 64K -L mdt -E 192K -c 2 -S 64K -E -1 -c 4",
];

#[test]
fn fsx_finds_no_difference() {
    let seconds = count(20, 600) as u64;
    on_mounts_under_kills("fsx", LAYOUTS.len() as u8, |mount, index| {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut seed = 1 + index as u64;
        let dir = mount.join(format!("dir{index}"));
        std::fs::create_dir(&dir).expect("made");
        let mut setstripe = Command::new(mounted::nacre_bin());
        setstripe.args(["lfs", "setstripe"]).args(LAYOUTS[index].split(' ')).arg(&dir);
        assert!(setstripe.status().expect("lfs starts").success());
        while Instant::now() < end {
            let file = format!("fsx-{index}-{seed}");
            let output = Command::new(fsx())
                .args(["-N", "400", "-S", &seed.to_string(), "-P", "/tmp", &file])
                .current_dir(&dir)
                .output();
            let output = output.expect("fsx starts");
            assert!(
                output.status.success(),
                "fsx, seed {seed}:\n{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            seed += LAYOUTS.len() as u64;
        }
    });
}

/// Mounts that share a file.
const SHARERS: u8 = 8;
/// Regions of each of them.
const REGIONS: usize = 4;
/// Bytes of each region. The file's components get their objects while both write; they are
/// striped in pieces smaller than a region.
const REGION: usize = 1 << 20;

/// One file, eight mounts: each owns every eighth region, writes and checks there what it wrote.
#[test]
fn eight_mounts_share_a_file_by_region() {
    let seconds = count(12, 600) as u64;
    let ready = AtomicBool::new(false);
    on_mounts_under_kills("regions", SHARERS, |mount, index| {
        if index == 0 {
            let mut setstripe = Command::new(mounted::nacre_bin());
            setstripe
                .args(["lfs", "setstripe"])
                .args([
                    "-E", "2M", "-S", "128k", "-E", "5M", "-c", "2", "-E", "-1", "-c", "4",
                    "shared",
                ])
                .current_dir(mount);
            assert!(setstripe.status().expect("lfs starts").success());
            ready.store(true, Ordering::SeqCst);
        }
        while !ready.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        region_worker(&mount.join("shared"), index, Duration::from_secs(seconds));
    });
}

fn region_worker(path: &Path, index: usize, time: Duration) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("open");
    let mut models = vec![vec![0_u8; REGION]; REGIONS];
    let mut chance = SplitMix64::new(77 + index as u64);
    let end = Instant::now() + time;
    let mut operations = 0;
    while Instant::now() < end {
        let region = chance.below(models.len() as u64) as usize;
        let base = ((region * usize::from(SHARERS) + index) * REGION) as u64;
        let at = chance.below(REGION as u64 - 1) as usize;
        let len = 1 + chance.below((REGION - at).min(200_000) as u64) as usize;
        if chance.below(2) == 0 {
            let data = vec![chance.bits() as u8; len];
            file.write_all_at(&data, base + at as u64).expect("write");
            models[region][at..at + len].copy_from_slice(&data);
        } else {
            let mut there = vec![0; len];
            let got = read_at_most(&file, &mut there, base + at as u64);
            let expected = &models[region][at..at + len];
            assert!(
                there[..got] == expected[..got],
                "region {region} of mount {index} at {at}+{len}"
            );
            assert!(
                expected[got..].iter().all(|byte| *byte == 0),
                "the file ends before what was written"
            );
        }
        operations += 1;
    }
    println!("regions: mount {index} did {operations} operations");
}

/// Reads until the buffer is full or the file ends.
fn read_at_most(file: &std::fs::File, buffer: &mut [u8], offset: u64) -> usize {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], offset + got as u64).expect("read") {
            0 => break,
            more => got += more,
        }
    }
    got
}
