//! Logs in the run directory: `mount-PLACE.log`, and `.log.1` for the rotated part. Mounts that
//! ended leave their logs for later inspection. The youngest [`OLD_LOGS_MAX`] stay.
//!
//! A daemon holds a lock on its log (`flock`) while the log is open. So a process that sweeps logs
//! sees which ones are in use, whatever namespace the mount is in.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

/// Logs of mounts that are over, at most.
const OLD_LOGS_MAX: usize = 16;

/// Bytes of a place in the name of its log, at most: with `mount-` and `.log.1` a name has at most
/// 255.
const PLACE_BYTES_MAX: usize = 200;

/// The log of the mount at `place`.
pub(super) fn path(dir: &Path, place: &Path) -> PathBuf {
    let place = place.display().to_string().trim_matches('/').replace('/', "-");
    dir.join(format!("mount-{}.log", shortened(place)))
}

/// The end of a long place, behind a number that tells it from other places with this end.
fn shortened(place: String) -> String {
    if place.len() <= PLACE_BYTES_MAX {
        return place;
    }
    // FNV-1a
    let hash = place.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let head = format!("{hash:016x}-");
    let first = place.len() + head.len() - PLACE_BYTES_MAX;
    let end = (first..).find_map(|at| place.get(at..)).unwrap_or_default();
    head + end
}

/// Says that a log is in use, until all descriptors of this opening are closed.
pub(crate) fn keep(log: impl AsFd) {
    let _ = flock(log, FlockOperation::NonBlockingLockShared); // or a sweep has it this moment
}

/// Removes the oldest logs of mounts that are over.
pub(super) fn sweep(dir: &Path) -> io::Result<()> {
    let mut logs: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(dir)?.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let is_log = name.ends_with(".log") || name.ends_with(".log.1");
        if name.starts_with("mount-") && is_log && is_over(&path) {
            logs.push((entry.metadata()?.modified()?, path));
        }
    }
    logs.sort();
    let surplus = logs.len().saturating_sub(OLD_LOGS_MAX);
    logs.iter().take(surplus).try_for_each(|(_, path)| match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    })
}

/// Whether nobody has the log open. `FILE.1` is nobody's.
fn is_over(path: &Path) -> bool {
    let alone = |file: File| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    File::open(path).is_ok_and(alone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_long_place_has_a_log_of_its_own() {
        let dir = Path::new("/run/nacre");
        let log = |place: &str| path(dir, Path::new(place));
        assert_eq!(log("/mnt/a"), dir.join("mount-mnt-a.log"));
        let long = |letter: &str| format!("/{}/{}", letter.repeat(300), "é/b".repeat(120));
        let (one, other) = (log(&long("x")), log(&long("y")));
        assert_ne!(one, other);
        for log in [one, other] {
            let name = log.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
            assert!(name.starts_with("mount-") && name.ends_with("é-b.log"), "{name}");
            assert!(name.len() + ".1".len() <= 255, "{name}");
        }
    }

    #[test]
    fn the_youngest_logs_stay_and_those_in_use() {
        let _alone = forks::none();
        let dir = std::env::temp_dir().join(format!("nacre-logs-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a scratch directory");
        let log = |number: u64, end: &str| {
            let path = path(&dir, &PathBuf::from(format!("/mnt/{number}")));
            let path = PathBuf::from(format!("{}{end}", path.display()));
            let file = File::create(&path).expect("room");
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + number);
            file.set_modified(at).expect("ours");
            file
        };
        let used = log(0, "");
        keep(&used);
        (1..100).for_each(|number| drop(log(number, if number % 2 == 0 { ".1" } else { "" })));
        fs::write(dir.join("other.log"), "").expect("room");
        sweep(&dir).expect("it is ours");
        let names = || -> Vec<String> {
            let entries = fs::read_dir(&dir).expect("it is ours").flatten();
            let mut names: Vec<_> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        let mut expected: Vec<_> = (84..100)
            .map(|number| format!("mnt-{number}.log{}", if number % 2 == 0 { ".1" } else { "" }))
            .map(|name| format!("mount-{name}"))
            .collect();
        expected.extend(["mount-mnt-0.log".to_owned(), "other.log".to_owned()]);
        expected.sort();
        assert_eq!(names(), expected);
        drop(used);
        sweep(&dir).expect("it is ours");
        assert!(!names().contains(&"mount-mnt-0.log".to_owned()), "its mount is over");
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}
