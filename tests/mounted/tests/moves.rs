//! Names of a directory that move to other MDTs and back, while programs on two mounts use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mounted::line::{good, nacre, refused};
use mounted::{Scratch, Up, nacre_bin};

/// Files that are there from the beginning to the end.
const FILES: u32 = 5_000;

fn up(name: &str) -> Up {
    Up::with(Scratch::new(name), None, &["--crashes-max", "1000", "--mdts", "4"])
}

fn fill(dir: &Path, files: u32) -> BTreeMap<String, u64> {
    fs::create_dir(dir).expect("made");
    let make = |number: u32| {
        let (name, path) = (format!("kept.{number}"), dir.join(format!("kept.{number}")));
        fs::write(&path, number.to_string()).expect("written");
        (name, fs::metadata(&path).expect("there").ino())
    };
    (0..files).map(make).collect()
}

/// Names of a directory that are to stay; none is listed twice.
fn kept(dir: &Path) -> BTreeSet<String> {
    let (mut all, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(dir).expect("opens") {
        let name = entry.expect("reads").file_name().into_string().expect("text");
        assert!(all.insert(name.clone()), "{name} is listed twice");
        if name.starts_with("kept.") {
            kept.insert(name);
        }
    }
    kept
}

/// A thread that makes, reads and removes files; returns its files and its longest call.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(BTreeSet<String>, Duration)>,
}

impl Writer {
    fn start(dir: PathBuf, name: &'static str) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut left, mut longest) = (BTreeSet::new(), Duration::ZERO);
            for number in 0_u32.. {
                if own.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                let (one, path) =
                    (format!("{name}.{number}"), dir.join(format!("{name}.{number}")));
                fs::write(&path, name).expect("written");
                left.insert(one);
                if number % 3 == 0 && number >= 9 {
                    let old = format!("{name}.{}", number - 9);
                    fs::remove_file(dir.join(&old)).expect("removed");
                    left.remove(&old);
                }
                if number % 3 == 1 {
                    let (old, new) = (format!("{name}.{number}"), format!("{name}.moved.{number}"));
                    fs::rename(dir.join(&old), dir.join(&new)).expect("renamed");
                    left.remove(&old);
                    left.insert(new);
                }
                longest = longest.max(began.elapsed());
            }
            (left, longest)
        });
        Writer { stop, thread }
    }

    fn end(self) -> (BTreeSet<String>, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the writer has no errors")
    }
}

fn is_moving(dir: &Path) -> bool {
    good(dir, "lfs getdirstripe -H .").contains("migrating")
}

/// Lists until all names have moved; each listing has each name that stays.
fn list_until_moved(dir: &Path, names: &BTreeSet<String>, mut each: impl FnMut(u32)) -> u32 {
    let began = Instant::now();
    for round in 0.. {
        assert_eq!(&kept(dir), names, "listing {round}");
        if !is_moving(dir) {
            return round;
        }
        each(round);
        assert!(began.elapsed() < Duration::from_secs(200), "names move for ever");
    }
    unreachable!("a listing ends it")
}

#[test]
fn a_directory_is_split_and_merged_under_load_and_an_mdt_dies_meanwhile() {
    let mut up = up("moves-load");
    let other = up.second_mount(201);
    let dir = up.at("d");
    let files = fill(&dir, FILES);
    let names: BTreeSet<String> = files.keys().cloned().collect();
    let writers = [Writer::start(dir.clone(), "one"), Writer::start(other.join("d"), "two")];
    let is_seen = |_: u32| {
        let said = good(up.mount(), "lfs setdirstripe -c 4 d");
        let begin = "d: names move to 4 MDTs in the background, inodes stay";
        assert!(said.starts_with(begin), "{said}");
        let again = nacre(up.mount(), "lfs setdirstripe -c 2 d");
        let is_busy = again.status.code() == Some(libc::EBUSY);
        assert!(is_busy || again.status.success(), "{again:?}");
        let rounds = list_until_moved(&dir, &names, |round| {
            if round == 0 {
                up.kill_server("MDT0002");
            }
        });
        let is_seen = is_busy && rounds > 0;
        if !is_seen {
            good(up.mount(), "lfs setdirstripe -c 1 --wait d");
        }
        is_seen
    };
    // all names may have moved before a busy machine lists them
    assert!((0..5).any(is_seen), "no listing ran meanwhile");
    assert_eq!(good(&dir, "lfs getdirstripe -c ."), "4\n");
    assert_eq!(good(&dir, "lfs getdirstripe -H ."), "crush2,fixed\n");
    assert_eq!(kept(&other.join("d")), names);
    good(up.mount(), "lfs setdirstripe -c 1 --wait d");
    assert_eq!(good(&dir, "lfs getdirstripe -c ."), "0\n");
    let mut all: BTreeSet<String> = names.clone();
    for (left, longest) in writers.map(Writer::end) {
        println!("longest round of calls of a writer: {longest:?}");
        all.extend(left);
    }
    for at in [&dir, &other.join("d")] {
        let found: BTreeSet<String> = fs::read_dir(at)
            .expect("opens")
            .map(|entry| entry.expect("reads").file_name().into_string().expect("text"))
            .collect();
        assert_eq!(found, all);
    }
    for (name, ino) in &files {
        let found = fs::metadata(other.join("d").join(name)).expect("there");
        assert_eq!(found.ino(), *ino, "{name}: inodes stay");
    }
    fs::remove_dir_all(&dir).expect("removed");
    up.stop();
}

#[test]
fn a_tree_moves_to_another_mdt_under_load_and_a_second_run_has_nothing_to_do() {
    let mut up = up("moves-tree");
    good(up.mount(), "lfs setdirstripe -d .");
    good(up.mount(), "lfs mkdir -i 0 d");
    let (dir, here) = (up.at("d"), up.mount().to_owned());
    let names: BTreeMap<String, u64> = fill(&dir.join("kept"), 1_000);
    for number in 0..40 {
        fs::create_dir_all(dir.join(format!("sub.{number}/below"))).expect("made");
    }
    let writer = Writer::start(dir.join("kept"), "own");
    let mut child = Command::new(nacre_bin());
    let mut child =
        child.args(["lfs", "migrate", "-m", "1", "d"]).current_dir(&here).spawn().expect("starts");
    std::thread::sleep(Duration::from_millis(100));
    child.kill().expect("killed"); // what it has begun goes on
    child.wait().expect("it is over");
    up.kill_server("MDT0001");
    mounted::until("it is back", || nacre(&here, "lfs check mdts").status.success());
    let said = good(&here, "lfs migrate -v -m 1 d");
    assert!(said.contains("d/kept: "), "{said}");
    assert_eq!(said.lines().count(), 82, "each directory has its line: {said}");
    let counts = good(&here, "lfs getdirstripe -r -c d"); // a name, then its number
    let (ones, lines) =
        (counts.lines().filter(|line| *line == "1").count(), counts.lines().count());
    assert_eq!((ones, lines), (82, 164), "{counts}");
    assert_eq!(good(&here, "lfs migrate -m 1 d"), "d: all names are on MDT0001 already\n");
    fs::write(dir.join("sub.7/new"), "x").expect("written");
    assert_eq!(good(&here, "lfs find d/sub.7 -type f -mdt 1"), "d/sub.7/new\n");
    let (left, _) = writer.end();
    let found = fs::read_dir(dir.join("kept")).expect("opens").count();
    assert_eq!(found, left.len() + names.len());
    for (name, ino) in &names {
        assert_eq!(fs::metadata(dir.join("kept").join(name)).expect("there").ino(), *ino);
    }
    good(&here, "lfs migrate -d -m 2,3 -c 2 d");
    assert_eq!(good(&here, "lfs getdirstripe -c d"), "2\n");
    assert_eq!(good(&here, "lfs getdirstripe -c d/kept"), "1\n", "only the directory itself");
    good(&here, "lfs migrate -m 0 d");
    assert_eq!(good(&here, "lfs getdirstripe -c d"), "0\n", "it is plain on its own MDT");

    refused(&here, "lfs migrate -m 9 d", libc::ENODEV, "MDT index 9 does not exist");
    refused(&here, "lfs migrate -m 1 .", libc::EINVAL, "the root of a file system stays");
    refused(&here, "lfs migrate -m 1 d/sub.7/new", libc::ENOTDIR, "is not a directory");
    up.set("mdt.testfs-MDT0001.no_create", "1");
    refused(&here, "lfs migrate -m 1 d", libc::EREMOTEIO, "testfs-MDT0001 gets no new directories");
    fs::remove_dir_all(&dir).expect("removed");
    up.stop();
}

#[test]
fn a_tree_moves_with_its_inodes_and_its_empty_mdt_is_removed() {
    let mut up = Up::with(Scratch::new("moves-inodes"), None, &["--mdts", "2"]);
    let other = up.second_mount(201);
    good(up.mount(), "lfs setdirstripe -d .");
    good(up.mount(), "lfs mkdir -i 1 d");
    let (dir, here) = (up.at("d"), up.mount().to_owned());
    fs::create_dir_all(dir.join("sub/below")).expect("made");
    fs::write(dir.join("sub/file"), "bytes").expect("written");
    fs::hard_link(dir.join("sub/file"), dir.join("second")).expect("linked");
    std::os::unix::fs::symlink("sub/file", dir.join("link")).expect("made");
    good(&here, "lfs setstripe -E 64k -L mdt -E -1 -c 1 d/dom");
    let many = vec![7_u8; 100_000];
    fs::write(dir.join("dom"), &many).expect("written");
    let before = fs::metadata(dir.join("sub/file")).expect("there");
    up.set("mdt.testfs-MDT0001.no_create", "1");
    let open = fs::File::open(other.join("d/sub/file")).expect("opens");
    refused(&here, "lfs migrate -m 0 --inodes d", libc::EBUSY, "a program has it open");
    drop(open);
    // the command waits 0.5 s for the close, of which the kernel tells in the background
    mounted::until("it moves when it is closed", || {
        nacre(&here, "lfs migrate -m 0 --inodes d").status.success()
    });
    for at in [&here, &other] {
        assert_eq!(fs::read(at.join("d/link")).expect("reads"), b"bytes");
        assert_eq!(fs::read(at.join("d/second")).expect("reads"), b"bytes");
        assert_eq!(fs::read(at.join("d/dom")).expect("reads"), many);
    }
    let after = fs::metadata(dir.join("sub/file")).expect("there");
    assert_ne!(after.ino(), before.ino(), "it has another number");
    let shown = |found: &fs::Metadata| (found.mode(), found.nlink(), found.len(), found.mtime());
    assert_eq!(shown(&after), shown(&before));
    assert!(good(&here, "lfs getstripe d/dom").contains("mdt"), "its first bytes are at its MDT");
    assert_eq!(good(&here, "lfs find d -mdt 1"), "");
    assert_eq!(good(&here, "lfs getdirstripe -c d"), "0\n", "it is plain");
    mounted::until("it is empty", || nacre(&here, "forget testfs-MDT0001").status.success());
    fs::write(dir.join("sub/new"), "x").expect("written");
    fs::remove_dir_all(&dir).expect("removed");
    up.stop();
}

#[test]
fn a_directory_that_grows_is_split_by_itself() {
    let mut up = up("moves-split");
    up.set("mdt.*.enable_dir_auto_split", "1");
    up.set("mdt.*.dir_split_count", "500");
    let dir = up.at("d");
    let files = fill(&dir, 1_000);
    mounted::until("it has shards", || good(&dir, "lfs getdirstripe -c .") == "4\n");
    mounted::until("its names have moved", || !is_moving(&dir));
    assert_eq!(kept(&dir), files.keys().cloned().collect::<BTreeSet<String>>());
    assert_eq!(good(&dir, "lfs getdirstripe -H ."), "crush2,split\n");
    assert!(up.param("mdt.*.dir_moves").contains("directory moved left"));
    for name in files.keys().skip(10) {
        fs::remove_file(dir.join(name)).expect("removed");
    }
    mounted::until("it is plain again", || good(&dir, "lfs getdirstripe -c .") == "0\n");
    assert_eq!(kept(&dir).len(), 10);
    up.stop();
    up.fsck();
}
