//! Servers of an `up` that was killed a moment ago: they commit, close their ports, and let go of
//! their targets as they end.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use osd_disk::{DiskError, superblock};

/// Their addresses and targets are worth a wait of this length.
const LINGER: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(50);

/// How long a start waits for them.
#[derive(Clone, Copy)]
pub(super) struct Linger(Instant);

impl Linger {
    pub(super) fn from_now() -> Linger {
        Linger(Instant::now() + LINGER)
    }

    /// Sleeps until another look is due; false when it has taken too long, and the next step says
    /// what is in the way.
    pub(super) fn goes_on(self) -> bool {
        let goes_on = Instant::now() < self.0;
        if goes_on {
            std::thread::sleep(LOOK);
        }
        goes_on
    }

    /// Waits until no server has any of the targets. One that cannot be locked for another reason
    /// is not worth it.
    pub(super) fn for_targets(self, dirs: &[PathBuf]) {
        let is_held = |dir: &PathBuf| matches!(superblock::lock(dir), Err(DiskError::InUse(_)));
        while dirs.iter().any(is_held) && self.goes_on() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For everything that must come, also on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn target(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("nacre-linger-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    #[test]
    fn a_target_that_is_let_go_of_ends_the_wait() {
        let _alone = forks::none();
        let dir = target("free");
        let dirs = [dir.clone(), dir.join("missing")];
        let held = superblock::lock(&dir).expect("free");
        let started = Instant::now();
        let holder = std::thread::spawn(move || {
            std::thread::sleep(LOOK * 2);
            drop(held);
        });
        Linger(started + PATIENCE).for_targets(&dirs);
        assert!(superblock::lock(&dir).is_ok(), "and a missing one is not waited for");
        assert!(started.elapsed() >= LOOK * 2 && started.elapsed() < PATIENCE);
        holder.join().expect("ends");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let dir = target("held");
        let _held = superblock::lock(&dir).expect("free");
        let started = Instant::now();
        Linger(started + LOOK * 2).for_targets(std::slice::from_ref(&dir));
        assert!(started.elapsed() >= LOOK * 2 && started.elapsed() < PATIENCE);
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
}
