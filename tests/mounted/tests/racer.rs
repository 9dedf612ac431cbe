//! Threads on two mounts make, change, move and remove the same few names of four MDTs, while these
//! die and come back. A call succeeds, or fails with an error that such a race allows. In the end
//! both mounts show the same tree, and `nacre fsck` finds nothing wrong with it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mounted::{Scratch, Up, count, is_alive, nacre_bin, until};
use types::SplitMix64;

/// Names of a directory.
const NAMES: u64 = 6;
/// Names of a path below the directory of the race, at most.
const DEPTH: u64 = 3;
/// Threads of each mount.
const WORKERS: u64 = 4;
/// Long enough for an MDT to come back.
const PAUSE: Duration = Duration::from_millis(2_500);
/// Longest file.
const BYTES_MAX: u64 = 20_000;

/// A call on random names below a directory.
struct Kind {
    name: &'static str,
    call: fn(&mut SplitMix64, &Path) -> io::Result<()>,
    /// Allowed beside those of [`WALK`].
    errors: &'static [i32],
}

/// Another thread has changed what the path leads through. ESTALE: twice amid the call
/// (docs/semantics.md).
const WALK: &[i32] = &[libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::ESTALE];

const KINDS: &[Kind] = &[
    Kind { name: "create", call: create, errors: &[libc::EISDIR] },
    Kind { name: "mkdir", call: mkdir, errors: &[libc::EEXIST] },
    Kind {
        name: "rename",
        call: rename,
        errors: &[libc::EISDIR, libc::EEXIST, libc::ENOTEMPTY, libc::EINVAL],
    },
    Kind { name: "link", call: link, errors: &[libc::EEXIST, libc::EPERM] },
    Kind { name: "unlink", call: unlink, errors: &[libc::EISDIR, libc::EPERM] },
    Kind { name: "rmdir", call: rmdir, errors: &[libc::ENOTEMPTY, libc::EEXIST] },
    Kind { name: "symlink", call: make_symlink, errors: &[libc::EEXIST] },
    Kind { name: "chmod", call: chmod, errors: &[] },
    Kind { name: "list", call: list, errors: &[] },
];

fn path(rng: &mut SplitMix64, dir: &Path) -> PathBuf {
    let depth = 1 + rng.below(DEPTH);
    (0..depth).fold(dir.to_owned(), |path, _| path.join(rng.below(NAMES).to_string()))
}

fn create(rng: &mut SplitMix64, dir: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(rng.below(2) == 0);
    let mut file = options.open(path(rng, dir))?;
    file.write_all(&vec![rng.below(256) as u8; rng.below(BYTES_MAX) as usize])
}

fn mkdir(rng: &mut SplitMix64, dir: &Path) -> io::Result<()> {
    fs::create_dir(path(rng, dir))
}

fn rename(rng: &mut SplitMix64, dir: &Path) -> io::Result<()> {
    fs::rename(path(rng, dir), path(rng, dir))
}

fn link(rng: &mut SplitMix64, dir: &Path) -> io::Result<()> {
    fs::hard_link(path(rng, dir), path(rng, dir))
}

fn unlink(rng: &mut SplitMix64, dir: &Path) -> io::Result<()> {
    fs::remove_file(path(rng, dir))
}

fn rmdir(rng: &mut SplitMix64, dir: &Path) -> io::Result<()> {
    fs::remove_dir(path(rng, dir))
}

fn make_symlink(rng: &mut SplitMix64, dir: &Path) -> io::Result<()> {
    symlink(rng.below(NAMES).to_string(), path(rng, dir))
}

fn chmod(rng: &mut SplitMix64, dir: &Path) -> io::Result<()> {
    let mode = 0o700 | rng.below(0o100) as u32;
    fs::set_permissions(path(rng, dir), fs::Permissions::from_mode(mode))
}

fn list(rng: &mut SplitMix64, dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path(rng, dir))? {
        entry?.metadata()?;
    }
    Ok(())
}

/// Calls of each kind: how many succeeded, and how many did not.
type Tally = BTreeMap<&'static str, (u64, u64)>;

/// Calls until `stop`. An error that no race allows stops all.
fn race(dir: &Path, seed: u64, stop: &AtomicBool) -> Result<Tally, String> {
    let (mut rng, mut tally) = (SplitMix64::new(seed), Tally::new());
    while !stop.load(Ordering::SeqCst) {
        let kind = &KINDS[rng.below(KINDS.len() as u64) as usize];
        let outcome = (kind.call)(&mut rng, dir);
        let calls = tally.entry(kind.name).or_default();
        match outcome {
            Ok(()) => calls.0 += 1,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                if !WALK.contains(&errno) && !kind.errors.contains(&errno) {
                    stop.store(true, Ordering::SeqCst);
                    return Err(format!("{} of worker {seed}: {error}", kind.name));
                }
                calls.1 += 1;
            }
        }
    }
    Ok(tally)
}

/// Everything below `dir`: attributes, target and content of each name.
fn tree(dir: &Path, below: &Path, all: &mut BTreeMap<PathBuf, (String, Vec<u8>)>) {
    for entry in fs::read_dir(dir).expect("opens") {
        let name = entry.expect("reads").file_name();
        let (path, at) = (dir.join(&name), below.join(&name));
        let meta = fs::symlink_metadata(&path).expect("nothing changes any more");
        let target = fs::read_link(&path).unwrap_or_default();
        let size = if meta.is_dir() { 0 } else { meta.len() };
        let (ino, mode, links) = (meta.ino(), meta.mode(), meta.nlink());
        let line = format!("inode {ino} {mode:o}, {links} links, {size} bytes, {target:?}");
        let content = if meta.is_file() { fs::read(&path).expect("reads") } else { Vec::new() };
        let twice = all.insert(at.clone(), (line, content));
        assert!(twice.is_none(), "{} is listed twice", at.display());
        if meta.is_dir() {
            tree(&path, &at, all);
        }
    }
}

fn answers(up: &Up, servers: &str) -> bool {
    let mut check = Command::new(nacre_bin());
    let done = check.args(["lfs", "check", servers]).current_dir(up.mount()).output();
    done.expect("nacre starts").status.success()
}

#[test]
fn racers_on_two_mounts_leave_a_whole_tree_although_mdts_die() {
    let args = ["--crashes-max", "1000", "--mdts", "4"];
    let mut up = Up::with(Scratch::new("racer"), None, &args);
    let other = up.second_mount(31);
    drop(up.tool(&["lfs", "mkdir", "-c", "4", "race"]));
    drop(up.tool(&["lfs", "setdirstripe", "-D", "-c", "2", "race"]));
    let dirs = [up.at("race"), other.join("race")];
    let stop = AtomicBool::new(false);
    let kills = count(8, 40);
    let tallies: Vec<_> = std::thread::scope(|scope| {
        let (dirs, stop) = (&dirs, &stop);
        let workers: Vec<_> = (0..2 * WORKERS)
            .map(|worker| {
                let dir = &dirs[(worker % 2) as usize];
                scope.spawn(move || race(dir, worker, stop))
            })
            .collect();
        for kill in 0..kills {
            std::thread::sleep(PAUSE);
            if stop.load(Ordering::SeqCst) {
                break;
            }
            up.kill_server(["MDT0001", "MDT0003", "MDT0000", "MDT0002"][kill % 4]);
        }
        std::thread::sleep(PAUSE);
        stop.store(true, Ordering::SeqCst);
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect()
    });
    let mut total = Tally::new();
    for tally in tallies {
        for (name, (succeeded, failed)) in tally.unwrap_or_else(|what| panic!("{what}")) {
            let calls = total.entry(name).or_default();
            *calls = (calls.0 + succeeded, calls.1 + failed);
        }
    }
    println!("racer: {kills} kills; calls that succeeded, and others: {total:?}");
    for kind in KINDS {
        let succeeded = total.get(kind.name).map_or(0, |calls| calls.0);
        assert!(succeeded > 0, "no {} succeeded: {total:?}", kind.name);
    }

    let mdts = ["MDT0000", "MDT0001", "MDT0002", "MDT0003"];
    let osts = ["OST0000", "OST0001", "OST0002", "OST0003"];
    for name in mdts.iter().chain(&osts).chain(&["MGS"]) {
        assert!(is_alive(up.server(name)), "{name} lives");
    }
    until("all servers answer", || answers(&up, "mdts") && answers(&up, "osts"));
    let mut trees = [BTreeMap::new(), BTreeMap::new()];
    for (dir, all) in dirs.iter().zip(&mut trees) {
        tree(dir, Path::new(""), all);
    }
    assert!(!trees[0].is_empty(), "something is left");
    let differs = trees[0].iter().zip(&trees[1]).find(|(one, two)| one != two);
    let shown = differs.map(|((one, (at, _)), (two, (there, _)))| (one, at, two, there));
    assert!(trees[0] == trees[1], "the mounts show different trees, first {shown:?}");
    up.stop();
}
