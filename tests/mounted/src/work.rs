//! Workloads that remember acknowledged work. They run while servers die and are checked
//! afterwards.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a workload saw.
#[derive(Debug, Default)]
pub struct Seen {
    pub operations: usize,
    pub pause: Duration,
    /// Name and content of each file that must be there.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// Names that must not be there.
    pub gone: Vec<PathBuf>,
}

/// A workload in a thread of its own.
pub struct Worker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Worker {
    /// Creates, writes, renames, appends, removes below `dir` until stopped. Every error fails the
    /// test.
    #[must_use]
    pub fn start(dir: PathBuf, seed: u64) -> Worker {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = std::thread::spawn(move || mix(&dir, seed, &flag));
        Worker { stop, thread }
    }

    /// Stops it and returns what it saw.
    #[must_use]
    pub fn finish(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the workload saw no error")
    }
}

/// Runs `step` and keeps its time if it was the longest.
fn timed<T>(seen: &mut Seen, what: &str, step: impl FnOnce() -> std::io::Result<T>) -> T {
    let start = Instant::now();
    let outcome = step();
    seen.pause = seen.pause.max(start.elapsed());
    seen.operations += 1;
    outcome.unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn mix(dir: &Path, seed: u64, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    fs::create_dir_all(dir).expect("a directory for the workload");
    let mut round = 0_u64;
    let held = HeldOpen::new(dir);
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        one_round(dir, seed, round, &mut seen);
        // an application's pace: thousands of files would only slow the check down
        std::thread::sleep(Duration::from_millis(2));
    }
    held.check();
    seen
}

/// An unlinked file that stays open through every kill, with content that must stay readable.
struct HeldOpen(File);

impl HeldOpen {
    const TEXT: &[u8] = b"open and unlinked";

    fn new(dir: &Path) -> HeldOpen {
        let path = dir.join("held");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("create held");
        file.write_all(HeldOpen::TEXT).expect("write held");
        fs::remove_file(&path).expect("unlink held");
        HeldOpen(file)
    }

    fn check(mut self) {
        let mut text = Vec::new();
        self.0.seek(SeekFrom::Start(0)).expect("seek held");
        self.0.read_to_end(&mut text).expect("read held");
        assert_eq!(text, HeldOpen::TEXT, "an open unlinked file lost its content");
        assert_eq!(self.0.metadata().expect("fstat held").nlink(), 0);
    }
}

fn one_round(dir: &Path, seed: u64, round: u64, seen: &mut Seen) {
    let content = content(seed, round);
    let first = dir.join(format!("new-{round}"));
    let second = dir.join(format!("kept-{round}"));
    timed(seen, "create and write", || {
        let mut file = File::options().write(true).create_new(true).open(&first)?;
        file.write_all(&content)
    });
    timed(seen, "rename", || fs::rename(&first, &second));
    seen.gone.push(first);
    let mut content = content;
    if round.is_multiple_of(3) {
        timed(seen, "append", || {
            File::options().append(true).open(&second)?.write_all(b"appended")
        });
        content.extend_from_slice(b"appended");
    }
    if round.is_multiple_of(4) {
        timed(seen, "link", || fs::hard_link(&second, dir.join(format!("link-{round}"))));
        seen.files.insert(dir.join(format!("link-{round}")), content.clone());
    }
    if round.is_multiple_of(5) {
        timed(seen, "unlink", || fs::remove_file(&second));
        seen.gone.push(second);
    } else {
        seen.files.insert(second, content);
    }
}

/// Bytes that belong to one round and no other.
#[must_use]
pub fn content(seed: u64, round: u64) -> Vec<u8> {
    let size = 10 + (round.wrapping_mul(7_919) % 90_000) as usize;
    let word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    word.to_le_bytes().iter().copied().cycle().take(size).collect()
}

impl Seen {
    /// Fails unless everything acknowledged below the mount `from` is there, read through the mount
    /// `through`.
    pub fn check(&self, from: &Path, through: &Path) {
        let moved =
            |path: &Path| through.join(path.strip_prefix(from).expect("a path of the mount"));
        for (path, content) in &self.files {
            let path = moved(path);
            let there = fs::read(&path).unwrap_or_else(|error| {
                panic!("{} was acknowledged and is lost: {error}", path.display())
            });
            assert!(
                there == *content,
                "{}: {} bytes instead of {}, or others",
                path.display(),
                there.len(),
                content.len()
            );
        }
        for path in &self.gone {
            let path = moved(path);
            let there = fs::symlink_metadata(&path);
            assert!(
                there.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound),
                "{} was removed; now: {there:?}",
                path.display()
            );
        }
        assert!(self.operations > 0, "the workload did nothing");
    }
}
