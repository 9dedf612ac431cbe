//! A worker's life on a mount: from one silence or death of the mount to the next.
//!
//! Handles, files and directories belong to one life. A life ends when the mount dies, falls silent
//! or is heard again. At its end the worker fsyncs its files. Only work that an fsync confirmed
//! must be there for ever. So a mount that was evicted must report it, and a mount that was not
//! must have kept everything.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::found::{Found, Kind, Wrong};
use super::times::{EXCESS_MAX, MOUNTS, Nodes, Times, mount};
use super::workers::Worker;

/// Between two looks at a mount that is not there.
const LOOK: Duration = Duration::from_millis(20);
/// Names and attributes may be believed this long by a mount that was stopped.
pub(super) const BELIEVED: Duration = Duration::from_millis(300);

/// What all threads of a run share.
pub(super) struct Run {
    pub(super) times: Times,
    pub(super) found: Found,
    pub(super) stop: AtomicBool,
    mounts: [Mount; MOUNTS],
    /// Calls that are under way.
    calls: Mutex<Vec<Underway>>,
    next_call: AtomicU64,
}

struct Mount {
    dir: PathBuf,
    /// One more for each death.
    deaths: AtomicU64,
    alive: AtomicBool,
}

struct Underway {
    id: u64,
    told: String,
    needs: Nodes,
    since: Duration,
}

impl Run {
    pub(super) fn new(dirs: [PathBuf; MOUNTS]) -> Run {
        let mount = |dir| Mount { dir, deaths: AtomicU64::new(0), alive: AtomicBool::new(true) };
        Run {
            times: Times::new(),
            found: Found::default(),
            stop: AtomicBool::new(false),
            mounts: dirs.map(mount),
            calls: Mutex::default(),
            next_call: AtomicU64::new(0),
        }
    }

    /// From now on this mount's calls may fail.
    pub(super) fn mount_dies(&self, index: usize) {
        self.mounts[index].alive.store(false, Ordering::SeqCst);
        self.mounts[index].deaths.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn mount_lives(&self, index: usize) {
        self.mounts[index].alive.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_alive(&self, index: usize) -> bool {
        self.mounts[index].alive.load(Ordering::SeqCst)
    }

    fn deaths(&self, index: usize) -> u64 {
        self.mounts[index].deaths.load(Ordering::SeqCst)
    }

    /// Makes a call, keeps its time, and judges both.
    fn call<T>(&self, call: &Call<'_>, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let (id, since) = (self.next_call.fetch_add(1, Ordering::SeqCst), self.times.now());
        let told = format!("{} on {}", call.what, call.path.display());
        let underway = Underway { id, told: told.clone(), needs: call.needs, since };
        self.calls.lock().expect("no panic holds it").push(underway);
        let outcome = make();
        self.calls.lock().expect("no panic holds it").retain(|call| call.id != id);
        let now = self.times.now();
        let excess = self.times.excess(since, now, call.needs);
        self.found.called(call.what, now - since, excess, outcome.is_ok());
        let allowed = self.times.allowed(since, now, call.needs);
        if excess > EXCESS_MAX && excess <= allowed {
            self.found.count("calls over 16 s beyond the faults, with several faults in them", 1);
        }
        if excess > allowed {
            let text = format!(
                "{told} took {:.1} s, {:.1} s beyond the faults: {}",
                (now - since).as_secs_f64(),
                excess.as_secs_f64(),
                self.times.told(since, now)
            );
            self.found.add(Wrong::new(now, Kind::Slow, text));
        }
        outcome
    }

    /// Calls that did not come back.
    pub(super) fn report_hung(&self) {
        let now = self.times.now();
        for call in self.calls.lock().expect("no panic holds it").iter() {
            let text = format!(
                "{} needs {}, did not return since {:.1} s",
                call.told,
                call.needs.shown(),
                call.since.as_secs_f64()
            );
            self.found.add(Wrong::new(now, Kind::Slow, text));
        }
    }
}

struct Call<'a> {
    what: &'static str,
    path: &'a Path,
    needs: Nodes,
}

/// Why a life is over before its time: a call failed, and it was told where that was no right.
#[derive(Debug)]
pub(super) struct Over;

/// One life of one worker.
pub(super) struct Life<'a> {
    run: &'a Run,
    index: usize,
    servers: Nodes,
    deaths: u64,
    silences: usize,
    opened: Duration,
    /// Of this worker, from 0.
    pub(super) number: usize,
}

/// Lives until the run stops. The thread's files are its own: a process that another thread starts
/// would close them first, and the close of a file waits for its mount.
pub(super) fn work(run: &Run, mut worker: Box<dyn Worker>) -> Box<dyn Worker> {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: no pointer; nothing that this thread uses is opened by another one from here on
    let alone = unsafe { libc::unshare(libc::CLONE_FILES) };
    assert_eq!(alone, 0, "{}", io::Error::last_os_error());
    let (index, servers) = worker.place();
    for number in 0.. {
        while !run.is_alive(index) && !run.stop.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK);
        }
        if run.stop.load(Ordering::SeqCst) {
            break;
        }
        let life = Life {
            run,
            index,
            servers,
            deaths: run.deaths(index),
            silences: run.times.silences(mount(index)),
            opened: run.times.now(),
            number,
        };
        if worker.live(&life).is_err() {
            std::thread::sleep(LOOK); // a mount that fails at once
        }
    }
    worker
}

impl Life<'_> {
    /// Below this mount.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.run.mounts[self.index].dir.join(path)
    }

    /// Below the other mount.
    pub(super) fn other(&self, path: &str) -> PathBuf {
        self.run.mounts[1 - self.index].dir.join(path)
    }

    pub(super) fn goes_on(&self) -> bool {
        !self.run.stop.load(Ordering::SeqCst)
            && !self.is_dead()
            && self.silences == self.run.times.silences(mount(self.index))
    }

    pub(super) fn now(&self) -> Duration {
        self.run.times.now()
    }

    /// A call through this mount. An error ends the life. So does the mount's death: the mount that
    /// follows at the same place knows nothing of this life's work, and may confirm what was lost.
    pub(super) fn call<T>(
        &self,
        what: &'static str,
        path: &Path,
        make: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, Over> {
        if self.is_dead() {
            return Err(Over);
        }
        let since = self.run.times.now();
        let needs = self.servers.with(mount(self.index));
        self.run.call(&Call { what, path, needs }, make).map_err(|error| {
            if !self.is_excused() {
                self.wrong_since(
                    Kind::Error,
                    format!("{what} on {}: {error}", path.display()),
                    since,
                );
            }
            Over
        })
    }

    /// A call through the other mount; nothing where its state excuses the error.
    pub(super) fn call_other<T>(
        &self,
        what: &'static str,
        path: &Path,
        make: impl FnOnce() -> io::Result<T>,
    ) -> Option<T> {
        let (other, since) = (1 - self.index, self.run.times.now());
        let deaths = self.run.deaths(other);
        if !self.run.is_alive(other) {
            return None;
        }
        let needs = self.servers.with(mount(other));
        let outcome = self.run.call(&Call { what, path, needs }, make);
        let dead = deaths != self.run.deaths(other);
        let evicted = self.run.times.may_be_evicted(mount(other), since, self.run.times.now());
        match outcome {
            Ok(there) => Some(there),
            Err(_) if dead || evicted || self.is_excused() => None,
            Err(error) => {
                self.wrong_since(
                    Kind::Error,
                    format!("{what} on {}: {error}", path.display()),
                    since,
                );
                None
            }
        }
    }

    /// Whether what this life did may be gone, and its handles with it.
    pub(super) fn is_excused(&self) -> bool {
        self.is_dead()
            || self.run.times.may_be_evicted(mount(self.index), self.opened, self.run.times.now())
    }

    fn is_dead(&self) -> bool {
        self.deaths != self.run.deaths(self.index)
    }

    /// Something is not as it must be, unless this life is excused. The life is over.
    pub(super) fn wrong(&self, kind: Kind, text: String) -> Over {
        if !self.is_excused() {
            self.wrong_since(kind, text, self.opened);
        }
        Over
    }

    fn wrong_since(&self, kind: Kind, text: String, since: Duration) {
        let now = self.run.times.now();
        let told = self.run.times.told(since.saturating_sub(Duration::from_secs(30)), now);
        let text = format!("{text} (from {:.1} s; faults: {told})", since.as_secs_f64());
        self.run.found.add(Wrong::new(now, kind, text));
    }

    pub(super) fn count(&self, what: &'static str) {
        self.run.found.count(what, 1);
    }
}
