//! Makes transactions durable, one at a time, on a thread or in tasks of the caller's executor.
//!
//! It reports twice for each transaction: when the pages are written out and the next transaction
//! has begun, and when the disk has the pages.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;

use env::{Env, Task};
use osd::Table;
use types::Span;

use super::handed::{CommitThread, Phase};
use super::lmdb::Dbi;
use super::root::RootFile;
use super::running::Running;
use super::told::{Allocated, Told};

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

/// What both steps of a commit need.
struct Work {
    tables: [Dbi; Table::ALL.len()],
    root: RootFile,
    before_sync: BeforeSync,
    phase: Phase,
    told: Arc<Told<Written, Synced>>,
}

impl Work {
    /// Writes the pages out and begins the next transaction; false where that failed.
    fn write_out(&self, running: Box<Running>) -> bool {
        let written = self.phase.during(|| running.write_out(&self.tables));
        let works = written.is_ok();
        self.told.written(written);
        works
    }

    /// Waits until the disk has them; false where it failed.
    fn sync(&mut self) -> bool {
        let synced = self.before_sync.call().and_then(|()| self.root.sync());
        let synced = synced.map_err(|why| format!("commit: {why}"));
        let works = synced.is_ok();
        self.told.synced(synced);
        works
    }
}

/// Commits as tasks of the caller's executor: for simulations.
#[derive(Clone)]
pub struct Inline {
    pub env: Env,
    /// Before each of its two steps a commit waits for a drawn time, at most this.
    pub step_max: Span,
}

impl Inline {
    async fn pause(&self) {
        self.env.sleep(Span(self.env.random() % (self.step_max.0 + 1))).await;
    }
}

/// Where commits are made.
enum Place {
    Thread(CommitThread<Box<Running>>),
    Tasks { inline: Inline, work: Rc<RefCell<Work>>, last: RefCell<Option<Task>> },
}

pub(super) struct Committer {
    phase: Phase,
    reports: Reports,
    told: Arc<Told<Written, Synced>>,
    place: Place,
}

impl Committer {
    /// Commits on a thread, or as tasks of an executor.
    pub(super) fn start(
        tables: [Dbi; Table::ALL.len()],
        root: RootFile,
        before_sync: BeforeSync,
        inline: Option<Inline>,
    ) -> std::io::Result<Committer> {
        let (told, phase) = (Arc::new(Told::default()), Phase::default());
        let work = Work { tables, root, before_sync, phase: phase.clone(), told: told.clone() };
        let place = match inline {
            None => Committer::on_thread(work)?,
            Some(inline) => {
                Place::Tasks { inline, work: Rc::new(RefCell::new(work)), last: RefCell::new(None) }
            }
        };
        let is_damaged = Arc::new(AtomicBool::new(false));
        let reports = Reports { told: told.clone(), is_damaged };
        Ok(Committer { phase, reports, told, place })
    }

    fn on_thread(mut work: Work) -> std::io::Result<Place> {
        let commit = move |running: Box<Running>| work.write_out(running) && work.sync();
        CommitThread::start(commit).map(Place::Thread)
    }

    /// Sends a transaction to be committed; false where the thread is gone.
    pub(super) fn begin(&self, running: Box<Running>) -> bool {
        match &self.place {
            Place::Thread(thread) => thread.begin(running),
            Place::Tasks { inline, work, last } => {
                let (own, work) = (inline.clone(), work.clone());
                let task = inline.env.spawn("commit", async move {
                    own.pause().await;
                    let is_written = work.borrow().write_out(running);
                    if is_written {
                        own.pause().await;
                        work.borrow_mut().sync();
                    }
                });
                *last.borrow_mut() = Some(task);
                true
            }
        }
    }

    /// Steps of the commits.
    pub(super) fn phase(&self) -> Phase {
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

    /// Where all threads of the store report.
    pub(super) fn told(&self) -> Arc<Told<Written, Synced>> {
        self.told.clone()
    }

    /// Takes how an allocation ended.
    pub(super) fn allocation(&self) -> Option<Allocated> {
        self.told.allocation()
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
    /// A thread ends its commit; a task does not: whether that commit has happened is left open.
    fn drop(&mut self) {
        if let Place::Tasks { last, .. } = &self.place
            && let Some(task) = last.take()
        {
            task.abort();
        }
    }
}
