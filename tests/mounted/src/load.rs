//! Steady load on a mount. Every answer is checked and timed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Blocks in each thread's file.
const BLOCKS: u64 = 64;

/// Threads that write blocks and read them back, each in a file of its own.
pub struct Load {
    stop: Arc<AtomicBool>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    done: AtomicU64,
    /// Since it was last asked, ns.
    slowest: AtomicU64,
}

impl Load {
    /// `threads` threads on files in `dir`, in blocks of `block` bytes; every fourth operation
    /// reads.
    #[must_use]
    pub fn start(dir: &Path, threads: u64, block: usize) -> Load {
        let (stop, shared) = (Arc::<AtomicBool>::default(), Arc::<Shared>::default());
        let threads = (0..threads)
            .map(|thread| {
                let path = dir.join(format!("load{thread}"));
                let file = File::options()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(path)
                    .expect("a file");
                let (stop, shared) = (Arc::clone(&stop), Arc::clone(&shared));
                std::thread::spawn(move || work(&file, block, &stop, &shared))
            })
            .collect();
        Load { stop, shared, threads }
    }

    #[must_use]
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// The longest operation that ended since the last call.
    #[must_use]
    pub fn slowest(&self) -> Duration {
        Duration::from_nanos(self.shared.slowest.swap(0, Ordering::Relaxed))
    }

    /// Waits until each thread has done something more.
    pub fn see_progress(&self) {
        let (before, start) = (self.done(), Instant::now());
        while self.done() < before + 2 * self.threads.len() as u64 {
            assert!(start.elapsed() < crate::PATIENCE, "no progress in {:?}", crate::PATIENCE);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the threads. Panics if one of them met an error or wrong data.
    pub fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("no operation fails, no read differs");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn work(file: &File, block: usize, stop: &AtomicBool, shared: &Shared) {
    let mut written = [0_u8; BLOCKS as usize];
    let mut buffer = vec![0; block];
    for round in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let at = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58; // one of 64
        let start = Instant::now();
        if round % 4 == 3 && written[at as usize] != 0 {
            file.read_exact_at(&mut buffer, at * block as u64).expect("read");
            let stamp = written[at as usize];
            assert!(
                buffer.iter().all(|byte| *byte == stamp),
                "block {at} is not what was written last"
            );
        } else {
            let stamp = (round % 255 + 1) as u8;
            buffer.fill(stamp);
            file.write_all_at(&buffer, at * block as u64).expect("write");
            written[at as usize] = stamp;
        }
        let took = u64::try_from(start.elapsed().as_nanos()).expect("centuries");
        shared.slowest.fetch_max(took, Ordering::Relaxed);
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
}
