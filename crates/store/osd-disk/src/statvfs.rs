//! Free space of a file system, queried on a thread of its own. A disk that does not answer must
//! not hold up the caller's executor.
//!
//! Each call waits for at most [`WAIT`]. If the answer is not there by then, it returns the last
//! known figures. While one query is open, no other is made.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use osd::Space;

/// Longest wait for an answer: it is there in microseconds, or the disk hangs.
const WAIT: Duration = Duration::from_millis(20);

type Question = dyn Fn(&Path) -> io::Result<Space> + Send;

struct State {
    last: Space,
    is_open: bool, // a question is
    error: Option<io::Error>,
}

#[derive(Clone)]
struct Shared(Arc<(Mutex<State>, Condvar)>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for the room below one directory.
pub struct Statvfs(Asked);

enum Asked {
    Thread { shared: Shared, asks: mpsc::Sender<()> },
    Inline(PathBuf),
}

impl Statvfs {
    /// Asks for the first time, with any wait that this takes.
    pub fn start(dir: &Path) -> io::Result<Statvfs> {
        Statvfs::with(dir, Box::new(ask))
    }

    /// Asks on the caller's thread: for simulations.
    pub(crate) fn inline(dir: &Path) -> Statvfs {
        Statvfs(Asked::Inline(dir.to_owned()))
    }

    fn with(dir: &Path, question: Box<Question>) -> io::Result<Statvfs> {
        let state = State { last: question(dir)?, is_open: false, error: None };
        let shared = Shared(Arc::new((Mutex::new(state), Condvar::new())));
        let (asks, asked) = mpsc::channel();
        let (theirs, dir) = (shared.clone(), PathBuf::from(dir));
        // Not joined: it ends with its last question, which may hang.
        std::thread::Builder::new().name("statvfs".to_owned()).spawn(move || {
            while asked.recv().is_ok() {
                let answer = question(&dir);
                let mut state = theirs.lock();
                state.is_open = false;
                match answer {
                    Ok(stat) => state.last = stat,
                    Err(error) => state.error = Some(error),
                }
                theirs.0.1.notify_all();
            }
        })?;
        Ok(Statvfs(Asked::Thread { shared, asks }))
    }

    /// What there is, or was when the disk answered last.
    pub fn get(&self) -> io::Result<Space> {
        let (shared, asks) = match &self.0 {
            Asked::Thread { shared, asks } => (shared, asks),
            Asked::Inline(dir) => return ask(dir),
        };
        let mut state = shared.lock();
        if !state.is_open {
            state.is_open = true;
            asks.send(()).map_err(io::Error::other)?;
            let answered = &shared.0.1;
            (state, _) = answered
                .wait_timeout_while(state, WAIT, |state| state.is_open)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match state.error.take() {
            None => Ok(state.last),
            Some(error) => Err(error),
        }
    }
}

fn ask(dir: &Path) -> io::Result<Space> {
    Ok(space(&rustix::fs::statvfs(dir)?))
}

/// What a file system says, in our words.
pub(crate) fn space(stat: &rustix::fs::StatVfs) -> Space {
    Space {
        bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        bytes_free: stat.f_bavail.saturating_mul(stat.f_frsize),
        files: stat.f_files,
        files_free: stat.f_ffree,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_disk_that_hangs_keeps_nobody_and_is_asked_once() {
        let (free, hang) = mpsc::channel::<()>();
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        let dir = std::env::temp_dir();
        let real = ask(&dir).expect("answers");
        let statvfs = Statvfs::with(
            &dir,
            Box::new(move |_| {
                let number = count.fetch_add(1, Ordering::SeqCst);
                if number > 0 {
                    let _freed = hang.recv();
                }
                Ok(Space { bytes_free: number, ..real })
            }),
        )
        .expect("answers");
        let start = Instant::now();
        for _ in 0..1_000 {
            assert_eq!(statvfs.get().expect("what is known").bytes_free, 0);
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        free.send(()).expect("the thread lives");
        while statvfs.get().expect("what is known").bytes_free == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "the answer is not taken");
        }
        assert!(asked.load(Ordering::SeqCst) <= 3, "asked while a question was open");
        drop(free);
    }

    #[test]
    fn an_error_is_told_once() {
        let dir = std::env::temp_dir();
        let statvfs = Statvfs::start(&dir).expect("answers");
        let Asked::Thread { shared, .. } = &statvfs.0 else { panic!("it has a thread") };
        shared.lock().error = Some(io::Error::from_raw_os_error(libc::EIO));
        assert_eq!(statvfs.get().expect_err("told").raw_os_error(), Some(libc::EIO));
        assert!(statvfs.get().is_ok());
    }
}
