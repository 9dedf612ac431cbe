//! Directories of very many entries: 20,000 in CI. Before a release, 1,000,000 in a plain directory
//! and 2,000,000 in one over four MDTs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use mounted::range::{self, Kind};
use mounted::{Scratch, Up, count, full};

const THREADS: usize = 4;

fn name(index: usize) -> String {
    format!("entry-{index:07}")
}

/// Names of `dir`; none comes twice.
fn names(dir: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(dir).expect("readdir") {
        let name = entry.expect("an entry").file_name().into_string().expect("ASCII");
        assert!(all.insert(name.clone()), "{name} came twice");
    }
    all
}

/// Does `work` for every index, in some threads.
fn each(total: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            let work = &work;
            scope.spawn(move || (first..total).step_by(THREADS).for_each(work));
        }
    });
}

fn timed(what: &str, total: usize, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let seconds = start.elapsed().as_secs_f64();
    println!("large: {what} {total}: {seconds:.1} s, {:.0} a second", total as f64 / seconds);
}

#[test]
fn a_large_directory_is_whole_at_every_client() {
    let total = count(20_000, 1_000_000);
    let mut up = Up::new("large");
    let second = up.second_mount(31);
    let (one, two) = (up.at("large"), second.join("large"));
    fs::create_dir(&one).expect("mkdir");
    timed("created", total, || {
        each(total, |index| drop(File::create_new(one.join(name(index))).expect("create")))
    });
    let all: BTreeSet<String> = (0..total).map(name).collect();
    timed("listed", total, || assert!(names(&two) == all, "another client sees other names"));
    timed("looked up", total / 10, || {
        each(total / 10, |index| {
            assert!(fs::metadata(two.join(name(index * 10))).expect("stat").is_file())
        });
    });
    assert!(!two.join("entry-none").exists());
    // A listing that runs while others make and remove names shows what is there all the time
    // exactly once.
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for index in (1..total.min(20_000)).step_by(2) {
                fs::remove_file(one.join(name(index))).expect("unlink");
                File::create_new(one.join(format!("more-{index}"))).expect("create");
            }
        });
        let seen = names(&two);
        changes.join().expect("the changes");
        assert!(
            (0..total).step_by(2).all(|index| seen.contains(&name(index))),
            "a name that stayed was not shown"
        );
    });
    fs::rename(one.join(name(0)), one.join("moved")).expect("rename within it");
    assert!(fs::remove_dir(&two).is_err(), "it is not empty");
    let rest: Vec<String> = names(&two).into_iter().collect();
    assert_eq!(rest.len(), total);
    timed("removed", total, || {
        each(total, |index| fs::remove_file(two.join(&rest[index])).expect("unlink"))
    });
    assert!(names(&one).is_empty());
    fs::remove_dir(&one).expect("an empty directory goes");
    up.stop();
}

/// Which of `total` names a listing of `dir` shows; no name comes twice.
fn listed(dir: &Path, total: usize) -> Vec<bool> {
    let mut seen = vec![false; total];
    for entry in fs::read_dir(dir).expect("readdir") {
        let name = entry.expect("an entry").file_name().into_string().expect("ASCII");
        let number = name.strip_prefix("entry-").and_then(|number| number.parse::<usize>().ok());
        let seen = &mut seen[number.expect("a name of the test")];
        assert!(!std::mem::replace(seen, true), "{name} came twice");
    }
    seen
}

#[test]
fn a_large_directory_over_four_mdts_is_whole_at_every_client() {
    let total = count(20_000, 2_000_000);
    let mut up = Up::with(Scratch::new("large-mdts"), None, &["--mdts", "4"]);
    let second = up.second_mount(31);
    drop(up.tool(&["lfs", "mkdir", "-c", "4", "large"]));
    let (one, two) = (up.at("large"), second.join("large"));
    timed("made over 4 MDTs", total, || {
        each(total, |index| {
            let made = range::mknod(&one.join(name(index)), Kind::RegularFile, 0o644, (0, 0));
            made.expect("mknod");
        });
    });
    timed("listed over 4 MDTs", total, || {
        assert!(listed(&two, total).iter().all(|is_seen| *is_seen), "a name is not listed");
    });
    timed("looked up over 4 MDTs", total / 100, || {
        each(total / 100, |index| {
            assert!(fs::metadata(two.join(name(index * 100))).expect("stat").is_file());
        });
    });
    assert!(!two.join("entry-none").exists());
    // others remove every tenth name while it is listed
    std::thread::scope(|scope| {
        let removals = scope.spawn(|| {
            each(total / 10, |index| fs::remove_file(two.join(name(index * 10))).expect("unlink"));
        });
        let seen = listed(&one, total);
        removals.join().expect("the removals");
        let is_whole =
            seen.iter().enumerate().all(|(index, is_seen)| index.is_multiple_of(10) || *is_seen);
        assert!(is_whole, "a name that stayed was not shown");
    });
    let left = listed(&one, total).iter().filter(|is_seen| **is_seen).count();
    assert_eq!(left, total - total / 10);
    up.stop();
    if !full() {
        up.fsck(); // it has a record of each file in memory
    }
}
