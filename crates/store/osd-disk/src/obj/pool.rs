//! Threads for calls that block: a queue and its workers. Some exist from the beginning. More are
//! added when all are busy, up to a number that may change. They stay.
//!
//! The caller's locks order the jobs of one object; the pool does not. Dropping the pool waits for
//! all jobs that were begun or queued, so nothing of a target runs after it was closed.
//!
//! A pool without threads makes each call at once, on its caller's thread: for simulations.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use types::Errno;

use super::sync::{Arc, Builder, Condvar, JoinHandle, Mutex, MutexGuard, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Of them, those that wait for a job.
    idle: usize,
    /// Threads that there may be.
    most: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

/// The pool. Its queue needs no bound of its own: a job belongs to a request, and those are bounded
/// by worker slots.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_inline: bool,
}

impl Pool {
    pub(crate) fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::<Shared>::default();
        (shared.lock().threads, shared.lock().most) = (threads, threads);
        let pool = Pool { shared, threads: Mutex::default(), is_inline: threads == 0 };
        (0..threads).try_for_each(|_| pool.spawn())?;
        Ok(pool)
    }

    fn spawn(&self) -> std::io::Result<()> {
        let shared = self.shared.clone();
        let run = move || {
            while let Some(job) = shared.next() {
                job();
            }
        };
        let thread = Builder::new().name("disk".to_owned()).spawn(run)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Whether no job is queued or runs.
    #[cfg(test)]
    #[allow(dead_code, reason = "where it is compiled a second time")]
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.shared.lock();
        queue.jobs.is_empty() && queue.idle == queue.threads
    }

    /// How many threads there may be from now on, where jobs want them.
    pub(crate) fn set_most(&self, most: usize) {
        self.shared.lock().most = most;
    }

    /// Queues a job that nobody waits for here.
    pub(crate) fn post(&self, job: impl FnOnce() + Send + 'static) {
        if self.is_inline {
            return job();
        }
        let mut queue = self.shared.lock();
        queue.jobs.push_back(Box::new(job));
        let grows = queue.idle < queue.jobs.len() && queue.threads < queue.most;
        queue.threads += usize::from(grows);
        drop(queue);
        self.shared.work.notify_one();
        if grows && let Err(error) = self.spawn() {
            tracing::warn!(%error, "no further thread for the disk: the existing ones go on");
            self.shared.lock().threads -= 1;
        }
    }

    /// Runs `job` there; a job that panicked is an I/O error.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        let (done, wait) = oneshot::channel();
        self.post(move || {
            let _nobody_waits = done.send(job());
        });
        wait.await.unwrap_or(Err(Errno::EIO))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ended = thread.join();
        }
    }
}
