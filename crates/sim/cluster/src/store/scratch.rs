//! A directory for one run, in memory if there is a tmpfs. It is removed at the run's end.

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// A tmpfs on every Linux; elsewhere what the system has for such files.
const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "nacre-sim-";

/// Its name is never part of what a run does.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        static SWEPT: Once = Once::new();
        let base = base();
        SWEPT.call_once(|| sweep(&base));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the run's stores");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn base() -> PathBuf {
    let memory = PathBuf::from(SHARED_MEMORY);
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// Removes what killed processes have left.
#[expect(clippy::disallowed_methods, reason = "no run depends on what earlier ones have left")]
fn sweep(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _another_sweeps_too = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_leaves_nothing_behind_also_when_it_panics() {
        let scratch = Scratch::new();
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("inside")).expect("made");
        let run = std::panic::catch_unwind(move || {
            let _owned = scratch;
            panic!("a broken promise");
        });
        assert!(run.is_err() && !path.exists());
    }

    #[test]
    fn what_a_killed_process_left_is_swept() {
        let base = Scratch::new();
        let [dead, own] = [u32::MAX, std::process::id()]
            .map(|process| base.path().join(format!("{PREFIX}{process}-0")));
        for path in [&dead, &own] {
            std::fs::create_dir(path).expect("made");
        }
        sweep(base.path());
        assert!(!dead.exists() && own.exists());
    }
}
