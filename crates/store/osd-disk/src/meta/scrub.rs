//! Looks at all pages again while the store is served, a few at a time.
//!
//! Each slice reads the tree that was written out last, from where the one before stopped. Its
//! pages stay as they are until the third commit after it. What a slice saw counts if at most one
//! came meanwhile; else it is read again. What is found before LMDB gets there ends the store by an
//! error that names the page. Damage that LMDB meets first is not caught.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::check::Records;
use super::commit::Reports;
use super::root::RootFile;
use super::walk::{self, Place};

/// Pages of a slice: a millisecond or so.
const PAGES_AT_ONCE: u64 = 256;
/// Before a slice is read again because commits overtook it.
const PAUSE: Duration = Duration::from_millis(100);

/// How often and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Scrub {
    /// Between the end of a pass and the next; also before the first.
    pub interval: Duration,
    /// MiB read in a second at most.
    pub mibps: u32,
}

impl Default for Scrub {
    fn default() -> Scrub {
        Scrub { interval: Duration::from_secs(3_600), mibps: 8 }
    }
}

pub(super) struct Scrubber {
    stop: Option<mpsc::Sender<()>>, // none only while it is dropped
    thread: Option<JoinHandle<()>>,
}

impl Drop for Scrubber {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

struct Pass {
    files: RootFile,
    phase: Arc<AtomicU64>, // of commits: odd while one is written out
    dir: PathBuf,
}

impl Scrubber {
    pub(super) fn start(
        options: Scrub,
        files: RootFile,
        phase: Arc<AtomicU64>,
        dir: PathBuf,
        reports: Reports,
    ) -> std::io::Result<Scrubber> {
        let (stop, stopped) = mpsc::channel();
        let pass = Pass { files, phase, dir };
        let thread = std::thread::Builder::new().name("scrub".to_owned()).spawn(move || {
            let goes_on = |pause| stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout);
            while goes_on(options.interval) {
                match pass.run(options.mibps, &goes_on) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(why) => return reports.damaged(why),
                }
            }
        })?;
        Ok(Scrubber { stop: Some(stop), thread: Some(thread) })
    }
}

impl Pass {
    /// One pass; false where it was stopped.
    fn run(&self, mibps: u32, goes_on: &dyn Fn(Duration) -> bool) -> Result<bool, String> {
        let mut records = Records::new(&self.dir);
        let (mut from, mut pages) = (Place::default(), 0);
        loop {
            let Some((seen, next)) = self.slice(&from, &mut records)? else {
                if !goes_on(PAUSE) {
                    return Ok(false);
                }
                continue;
            };
            pages += seen;
            let Some(next) = next else { break };
            from = next;
            let micros = seen * 4_096 * 1_000_000 / (u64::from(mibps.max(1)) << 20);
            if !goes_on(Duration::from_micros(micros)) {
                return Ok(false);
            }
        }
        tracing::debug!(records = %self.dir.display(), pages, "all pages were checked again");
        Ok(true)
    }

    /// Pages seen, and where to go on; nothing where commits overtook it.
    fn slice(
        &self,
        from: &Place,
        records: &mut Records<'_>,
    ) -> Result<Option<(u64, Option<Place>)>, String> {
        let phase = self.phase.load(Ordering::Acquire);
        let Some((page_bytes, meta)) = self.files.tree() else { return Ok(None) };
        if !phase.is_multiple_of(2) || self.phase.load(Ordering::Acquire) != phase {
            return Ok(None);
        }
        let mut found = Vec::new();
        let mut visit = |name: &[u8], key: &[u8], value: &[u8]| {
            found.extend(records.look(name, key, value));
        };
        let walked =
            walk::slice(self.files.data(), page_bytes, &meta, from, PAGES_AT_ONCE, &mut visit);
        if self.phase.load(Ordering::Acquire) > phase + 2 {
            return Ok(None);
        }
        found.iter().for_each(|error| records.tell(error));
        walked.map(Some).map_err(|damage| super::check::refusal(&damage))
    }
}
