//! Renames of files and directories among directories of four MDTs, from threads on two mounts,
//! while MDTs die. Nothing is replaced, so a model knows the end: everything is in one place. The
//! object at a name follows from the renames to it and from it that succeeded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mounted::{Scratch, Up, count};
use rustix::fs::{RenameFlags, renameat_with};
use types::SplitMix64;

/// Directories that stay, one on each MDT. As many move.
const MDTS: usize = 4;
/// Names of a directory.
const NAMES: u64 = 5;
/// Files of each directory that stays, at the beginning.
const FILES: usize = 3;
/// Threads of each mount.
const WORKERS: usize = 3;
/// Long enough for an MDT to come back.
const PAUSE: Duration = Duration::from_millis(2_500);

/// The name is not there, or is taken; the directory would lie below itself. The kernel says ELOOP
/// or ESTALE where the other mount has moved a directory that it knows elsewhere.
const ALLOWED: &[i32] =
    &[libc::ENOENT, libc::EEXIST, libc::EINVAL, libc::ENOTEMPTY, libc::ELOOP, libc::ESTALE];

/// A directory by its number, and a name in it.
type Place = (usize, String);

/// What the renames of a thread have brought to a name, less what they have taken from it.
type Sums = BTreeMap<Place, i64>;

fn stays(root: &Path, mdt: usize) -> PathBuf {
    root.join(format!("stays{mdt}"))
}

/// All directories: those that stay, then those that move, where they are at the beginning.
fn dirs(root: &Path) -> Vec<PathBuf> {
    let moves = (0..MDTS).map(|mdt| stays(root, mdt).join("0"));
    (0..MDTS).map(|mdt| stays(root, mdt)).chain(moves).collect()
}

/// Renames until `stop`, by open directories: their numbers stay while they move.
fn rename_until(dirs: &[File], seed: u64, stop: &AtomicBool) -> Result<(Sums, u64), String> {
    let (mut rng, mut sums, mut done) = (SplitMix64::new(seed), Sums::new(), 0);
    while !stop.load(Ordering::SeqCst) {
        let mut draw = || (rng.below(dirs.len() as u64) as usize, rng.below(NAMES).to_string());
        let (from, to) = (draw(), draw());
        let exchanges = rng.below(4) == 0;
        let flags = if exchanges { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        match renameat_with(&dirs[from.0], &*from.1, &dirs[to.0], &*to.1, flags) {
            Ok(()) => {
                done += 1;
                if !exchanges {
                    *sums.entry(from).or_default() -= 1;
                    *sums.entry(to).or_default() += 1;
                }
            }
            Err(error) if ALLOWED.contains(&error.raw_os_error()) => {}
            Err(error) => {
                stop.store(true, Ordering::SeqCst);
                return Err(format!("{from:?} to {to:?}, exchange: {exchanges}: {error}"));
            }
        }
    }
    Ok((sums, done))
}

/// What is at each name below directory `number`, which is at `dir`.
fn look(
    (dir, number): (&Path, usize),
    numbers: &BTreeMap<u64, usize>,
    found: &mut BTreeMap<Place, String>,
) {
    for entry in fs::read_dir(dir).expect("opens") {
        let name = entry.expect("reads").file_name().into_string().expect("text");
        let path = dir.join(&name);
        let meta = fs::symlink_metadata(&path).expect("nothing moves any more");
        let thing = if meta.is_dir() {
            let inner = numbers[&meta.ino()];
            look((&path, inner), numbers, found);
            format!("directory {inner}")
        } else {
            fs::read_to_string(&path).expect("reads")
        };
        let twice = found.insert((number, name), thing);
        assert!(twice.is_none(), "{} is listed twice", path.display());
    }
}

fn look_at_all(root: &Path, numbers: &BTreeMap<u64, usize>) -> BTreeMap<Place, String> {
    let mut found = BTreeMap::new();
    (0..MDTS).for_each(|mdt| look((&stays(root, mdt), mdt), numbers, &mut found));
    found
}

fn fill(up: &Up) {
    drop(up.tool(&["lfs", "mkdir", "-i", "0", "storm"]));
    let root = up.at("storm");
    for mdt in 0..MDTS {
        let (here, next) = (mdt.to_string(), ((mdt + 1) % MDTS).to_string());
        let stays = stays(&root, mdt);
        drop(up.tool(&["lfs", "mkdir", "-i", &here, &stays.to_string_lossy()]));
        drop(up.tool(&["lfs", "mkdir", "-i", &next, &stays.join("0").to_string_lossy()]));
        for file in 1..=FILES {
            fs::write(stays.join(file.to_string()), format!("file {mdt}.{file}")).expect("made");
        }
    }
}

/// All threads, while MDTs die in turn; the sums of all.
fn storm(up: &Up, roots: &[PathBuf; 2]) -> Sums {
    let stop = &AtomicBool::new(false);
    // before any of them moves
    let open = |dir: PathBuf| File::open(dir).expect("a directory");
    let all_of = |root: &PathBuf| dirs(root).into_iter().map(open).collect::<Vec<File>>();
    let opened = &roots.each_ref().map(all_of);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2 * WORKERS)
            .map(|worker| {
                let dirs = &opened[worker % 2];
                scope.spawn(move || rename_until(dirs, worker as u64, stop))
            })
            .collect();
        for kill in 0..count(4, 20) {
            std::thread::sleep(PAUSE);
            if stop.load(Ordering::SeqCst) {
                break;
            }
            up.kill_server(["MDT0002", "MDT0000", "MDT0003", "MDT0001"][kill % MDTS]);
        }
        std::thread::sleep(PAUSE);
        stop.store(true, Ordering::SeqCst);
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect()
    });
    let (mut sums, mut renames) = (Sums::new(), 0);
    for outcome in outcomes {
        let (own, done) = outcome.unwrap_or_else(|what| panic!("{what}"));
        renames += done;
        own.into_iter().for_each(|(place, sum)| *sums.entry(place).or_default() += sum);
    }
    println!("storm: {renames} renames succeeded");
    assert!(renames > 0, "nothing moved");
    sums
}

#[test]
fn renames_on_two_mounts_lose_nothing_although_mdts_die() {
    let args = ["--crashes-max", "1000", "--mdts", "4"];
    let mut up = Up::with(Scratch::new("storm"), None, &args);
    fill(&up);
    let roots = [up.at("storm"), up.second_mount(31).join("storm")];
    let dirs = dirs(&roots[0]);
    let ino = |dir: &PathBuf| fs::metadata(dir).expect("there").ino();
    let numbers: BTreeMap<u64, usize> = dirs.iter().map(ino).zip(0..).collect();
    let before = look_at_all(&roots[0], &numbers);
    let sums = storm(&up, &roots);

    let after = look_at_all(&roots[0], &numbers);
    let things = |at: &BTreeMap<Place, String>| at.values().cloned().collect::<BTreeSet<_>>();
    assert_eq!(things(&after), things(&before), "something is lost");
    assert_eq!(after.len(), before.len(), "something is at two places: {after:?}");
    for dir in 0..dirs.len() {
        for name in 0..NAMES {
            let place = (dir, name.to_string());
            let is_at = |all: &BTreeMap<Place, String>| i64::from(all.contains_key(&place));
            let sum = is_at(&before) + sums.get(&place).copied().unwrap_or_default();
            assert_eq!(is_at(&after), sum, "{place:?} by the renames that succeeded");
        }
    }
    assert_eq!(look_at_all(&roots[1], &numbers), after, "both mounts show the same");
    up.stop();
}
