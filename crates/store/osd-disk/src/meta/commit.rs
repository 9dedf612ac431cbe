//! The thread that makes transactions durable, one at a time.
//!
//! It reports twice for each: when the pages are written out and the next transaction has begun,
//! and when the disk has them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Context;
use std::thread::JoinHandle;

use osd::Table;

use super::Running;
use super::lmdb::Dbi;
use super::root::RootFile;
use super::told::Told;

/// Something to do before each sync, for tests: a slow disk sleeps here, one that fails says why.
#[derive(Clone, Default)]
pub struct BeforeSync(Option<Arc<Hook>>);

type Hook = dyn Fn() -> std::io::Result<()> + Send + Sync;

impl BeforeSync {
    #[must_use]
    pub fn new(hook: impl Fn() -> std::io::Result<()> + Send + Sync + 'static) -> BeforeSync {
        BeforeSync(Some(Arc::new(hook)))
    }

    fn call(&self) -> Result<(), String> {
        let called = self.0.as_ref().map_or(Ok(()), |hook| hook());
        called.map_err(|error| error.to_string())
    }
}

impl std::fmt::Debug for BeforeSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "BeforeSync(..)" } else { "BeforeSync" })
    }
}

/// The next transaction, once the last one is written out.
pub(super) type Written = Result<Box<Running>, String>;
/// Whether what was written out is durable.
pub(super) type Synced = Result<(), String>;

/// Where a scrub reports.
#[derive(Clone)]
pub(super) struct Reports {
    told: Arc<Told<Written, Synced>>,
    is_damaged: Arc<AtomicBool>,
}

impl Reports {
    /// The tree is damaged: the store ends.
    pub(super) fn damaged(&self, why: String) {
        self.told.damaged(why);
        self.is_damaged.store(true, Ordering::Release);
    }
}

pub(super) struct Committer {
    phase: Arc<AtomicU64>,
    reports: Reports,
    told: Arc<Told<Written, Synced>>,
    work: Option<mpsc::Sender<Box<Running>>>, // none only while it is dropped
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub(super) fn start(
        tables: [Dbi; Table::ALL.len()],
        mut root: RootFile,
        before_sync: BeforeSync,
    ) -> std::io::Result<Committer> {
        let told = Arc::new(Told::default());
        let (work, inbox) = mpsc::channel::<Box<Running>>();
        let (theirs, phase) = (told.clone(), Arc::new(AtomicU64::new(0)));
        let moves = phase.clone();
        let thread = std::thread::Builder::new().name("commit".to_owned()).spawn(move || {
            while let Ok(running) = inbox.recv() {
                moves.fetch_add(1, Ordering::AcqRel);
                let written = running.write_out(&tables);
                moves.fetch_add(1, Ordering::AcqRel);
                let failed = written.is_err();
                theirs.written(written);
                if failed {
                    return;
                }
                let synced = before_sync.call().and_then(|()| root.sync());
                let synced = synced.map_err(|why| format!("commit: {why}"));
                let failed = synced.is_err();
                theirs.synced(synced);
                if failed {
                    return;
                }
            }
        })?;
        let is_damaged = Arc::new(AtomicBool::new(false));
        let reports = Reports { told: told.clone(), is_damaged };
        Ok(Committer { phase, reports, told, work: Some(work), thread: Some(thread) })
    }

    /// Sends a transaction to be committed; false where the thread is gone.
    pub(super) fn begin(&self, running: Box<Running>) -> bool {
        self.work.as_ref().is_some_and(|work| work.send(running).is_ok())
    }

    /// Rises when a commit begins to be written out, and when it is: odd in between.
    pub(super) fn phase(&self) -> Arc<AtomicU64> {
        self.phase.clone()
    }

    pub(super) fn reports(&self) -> Reports {
        self.reports.clone()
    }

    /// Takes what a scrub has found.
    pub(super) fn damage(&self) -> Option<String> {
        let is_damaged = self.reports.is_damaged.load(Ordering::Acquire);
        is_damaged.then(|| self.told.damage()).flatten()
    }

    /// Takes what is finished.
    pub(super) fn finished(&self) -> (Option<Written>, Option<Synced>) {
        self.told.take()
    }

    /// Wakes at the next thing that is finished; false if there is one already.
    pub(super) fn wakes(&self, cx: &Context<'_>) -> bool {
        self.told.wakes(cx)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
