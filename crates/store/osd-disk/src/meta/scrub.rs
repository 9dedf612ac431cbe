//! Checks all pages again while the store is served and idle, a few at a time.
//!
//! Each slice reads the tree that was written out last, from where the previous slice stopped. The
//! pages of that tree stay as they are until the third commit after it. A slice counts if at most
//! one commit came meanwhile; otherwise it is read again. Damage that is found before LMDB gets
//! there ends the store with an error that names the page. Damage that LMDB meets first is not
//! caught.
//!
//! A pass waits while the store gets more than [`IDLE_CALLS`] calls a second, but not for ever. A
//! store that is never idle is checked too.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::check::Records;
use super::commit::Reports;
use super::handed::Phase;
use super::root::RootFile;
use super::walk::{self, Place};

/// Pages of a slice: a millisecond or so.
const PAGES_AT_ONCE: u64 = 256;
/// Before a slice is read again because commits overtook it.
const PAUSE: Duration = Duration::from_millis(100);
/// Reads and changes of records in a second, up to which a store is idle: some ten requests.
const IDLE_CALLS: u64 = 100;
/// For how long a pass looks whether the store is idle.
const LOOK: Duration = Duration::from_secs(1);

/// How often, how fast and how patiently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// Between the end of a pass and the next; also before the first.
    pub interval: Duration,
    /// MiB read in a second at most; 0: nothing is looked at.
    pub mibps: u32,
    /// A pass that has waited so long for an idle store waits no more.
    pub patience: Duration,
}

impl Default for Scrub {
    fn default() -> Scrub {
        let hour = Duration::from_secs(3_600);
        Scrub { interval: hour, mibps: 8, patience: hour }
    }
}

/// What the scrub does at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrubPhase {
    /// Waits for the time of the next pass.
    #[default]
    Waiting,
    /// Waits for the store to be idle.
    WaitingForIdle,
    Running,
    /// Its rate is 0.
    Off,
    /// It has found damage.
    Damaged,
}

/// What a scrub has done since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubState {
    pub phase: ScrubPhase,
    /// Pages that the pass under way has seen; 0 between passes.
    pub pages: u64,
    /// Passes that came to their end.
    pub passes: u64,
    /// Pages of the last one.
    pub last_pages: u64,
    /// When it ended, seconds since 1970.
    pub last_ended: Option<u64>,
    /// How long it took, and how much of that it waited for an idle store.
    pub last_took: Duration,
    pub last_waited: Duration,
}

/// What the thread and its owner share.
pub(super) struct Shared {
    options: Mutex<Scrub>,
    state: Mutex<ScrubState>,
    calls: AtomicU64, // reads and changes of records
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(options: Scrub, state: ScrubState) -> Shared {
        Shared { options: Mutex::new(options), state: Mutex::new(state), calls: AtomicU64::new(0) }
    }

    /// The store was asked for something.
    pub(super) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn options(&self) -> Scrub {
        *lock(&self.options)
    }

    fn note(&self, change: impl FnOnce(&mut ScrubState)) {
        change(&mut lock(&self.state));
    }
}

pub(super) struct Scrubber {
    shared: Arc<Shared>,
    wake: Option<mpsc::Sender<()>>, // none without a thread, and while it is dropped
    thread: Option<JoinHandle<()>>,
}

impl Drop for Scrubber {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

struct Pass {
    files: RootFile,
    phase: Phase, // of commits
    dir: PathBuf,
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<()>, // a message: something was set; its end: stop
}

/// Calls of the store since a moment.
struct Load {
    calls: u64,
    since: Instant,
}

impl Load {
    fn new(shared: &Shared) -> Load {
        Load { calls: shared.calls.load(Ordering::Relaxed), since: Instant::now() }
    }

    fn is_busy(&self, shared: &Shared) -> bool {
        let calls = shared.calls.load(Ordering::Relaxed) - self.calls;
        let millis = self.since.elapsed().as_millis();
        u128::from(calls) * 1_000 > u128::from(IDLE_CALLS) * millis
    }
}

/// The store is dropped.
struct Stopped;

/// Why a pass ends before its end.
enum Ended {
    Stopped,
    Damaged(String),
}

impl From<Stopped> for Ended {
    fn from(Stopped: Stopped) -> Ended {
        Ended::Stopped
    }
}

impl Scrubber {
    /// Looks at nothing: for simulations.
    pub(super) fn off(options: Scrub) -> Scrubber {
        let state = ScrubState { phase: ScrubPhase::Off, ..ScrubState::default() };
        Scrubber { shared: Arc::new(Shared::new(options, state)), wake: None, thread: None }
    }

    pub(super) fn start(
        options: Scrub,
        files: RootFile,
        phase: Phase,
        dir: PathBuf,
        reports: Reports,
    ) -> std::io::Result<Scrubber> {
        let (wake, inbox) = mpsc::channel();
        let shared = Arc::new(Shared::new(options, ScrubState::default()));
        let pass = Pass { files, phase, dir, shared: shared.clone(), inbox };
        let thread = std::thread::Builder::new().name("scrub".to_owned()).spawn(move || {
            loop {
                match pass.due().map_err(Ended::from).and_then(|()| pass.run()) {
                    Ok(()) => {}
                    Err(Ended::Stopped) => return,
                    Err(Ended::Damaged(why)) => {
                        pass.shared.note(|state| state.phase = ScrubPhase::Damaged);
                        return reports.damaged(why);
                    }
                }
            }
        })?;
        Ok(Scrubber { shared, wake: Some(wake), thread: Some(thread) })
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn options(&self) -> Scrub {
        self.shared.options()
    }

    pub(super) fn state(&self) -> ScrubState {
        *lock(&self.shared.state)
    }

    /// Holds from the next slice on.
    pub(super) fn set(&self, options: Scrub) {
        *lock(&self.shared.options) = options;
        if let Some(wake) = &self.wake {
            let _its_end_is_damage = wake.send(());
        }
    }
}

impl Pass {
    /// Pauses; whether something was set meanwhile.
    fn pause(&self, pause: Duration) -> Result<bool, Stopped> {
        match self.inbox.recv_timeout(pause) {
            Ok(()) => Ok(true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(Stopped),
        }
    }

    /// Waits until a pass is due.
    fn due(&self) -> Result<(), Stopped> {
        let since = Instant::now();
        loop {
            let left = self.shared.options().interval.saturating_sub(since.elapsed());
            self.shared.note(|state| state.phase = ScrubPhase::Waiting);
            if !self.pause(left)? {
                return Ok(());
            }
        }
    }

    /// Waits while the rate is 0, and for an idle store as long as `waited` allows.
    fn wait_for_idle(&self, waited: &mut Duration) -> Result<(), Stopped> {
        loop {
            let options = self.shared.options();
            if options.mibps == 0 {
                self.shared.note(|state| state.phase = ScrubPhase::Off);
                self.inbox.recv().map_err(|_| Stopped)?;
                continue;
            }
            if *waited >= options.patience {
                return Ok(());
            }
            let load = Load::new(&self.shared);
            self.pause(LOOK.min(options.patience))?;
            if !load.is_busy(&self.shared) {
                return Ok(());
            }
            self.shared.note(|state| state.phase = ScrubPhase::WaitingForIdle);
            *waited += load.since.elapsed();
        }
    }

    /// One pass.
    fn run(&self) -> Result<(), Ended> {
        let (start, mut waited) = (Instant::now(), Duration::ZERO);
        let mut records = Records::new(&self.dir);
        let (mut from, mut pages) = (Place::default(), 0);
        self.wait_for_idle(&mut waited)?;
        let mut load = Load::new(&self.shared);
        loop {
            let is_due = load.since.elapsed() >= LOOK;
            if (is_due && load.is_busy(&self.shared)) || self.shared.options().mibps == 0 {
                self.wait_for_idle(&mut waited)?;
            }
            if is_due {
                load = Load::new(&self.shared);
            }
            self.shared.note(|state| state.phase = ScrubPhase::Running);
            let Some((seen, next)) = self.slice(&from, &mut records).map_err(Ended::Damaged)?
            else {
                self.pause(PAUSE)?;
                continue;
            };
            pages += seen;
            self.shared.note(|state| state.pages = pages);
            let Some(next) = next else { break };
            from = next;
            let mibps = u64::from(self.shared.options().mibps.max(1));
            self.pause(Duration::from_micros(seen * 4_096 * 1_000_000 / (mibps << 20)))?;
        }
        self.shared.note(|state| {
            state.passes += 1;
            (state.pages, state.last_pages) = (0, pages);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            state.last_ended = Some(now.as_secs());
            (state.last_took, state.last_waited) = (start.elapsed(), waited);
        });
        tracing::debug!(records = %self.dir.display(), pages, "all pages were checked again");
        Ok(())
    }

    /// Pages seen, and where to go on; nothing where commits overtook it.
    fn slice(
        &self,
        from: &Place,
        records: &mut Records<'_>,
    ) -> Result<Option<(u64, Option<Place>)>, String> {
        let Some((since, (page_bytes, meta))) = self.phase.settled(|| self.files.tree()) else {
            return Ok(None);
        };
        let mut found = Vec::new();
        let mut visit = |name: &[u8], key: &[u8], value: &[u8]| {
            found.extend(records.look(name, key, value));
        };
        let walked =
            walk::slice(self.files.data(), page_bytes, &meta, from, PAGES_AT_ONCE, &mut visit);
        if self.phase.is_past(since) {
            return Ok(None);
        }
        found.iter().for_each(|error| records.tell(error));
        walked.map(Some).map_err(|damage| super::check::refusal(&damage))
    }
}
