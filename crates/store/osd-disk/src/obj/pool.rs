//! Threads for calls that block: a queue and a fixed number of workers.
//!
//! Jobs of one object are ordered by the caller's locks, not here. Dropping the pool waits for what
//! was begun or queued, so that nothing of a target runs on after it was closed.
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
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The pool. Its queue needs no bound of its own: a job belongs to a request, and those are bounded
/// by worker slots.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn new(threads: usize) -> std::io::Result<Pool> {
        let mut pool = Pool { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..threads {
            let shared = pool.shared.clone();
            let run = move || {
                while let Some(job) = shared.next() {
                    job();
                }
            };
            pool.threads.push(Builder::new().name("disk".to_owned()).spawn(run)?);
        }
        Ok(pool)
    }

    /// Queues a job that nobody waits for here.
    pub(crate) fn post(&self, job: impl FnOnce() + Send + 'static) {
        if self.threads.is_empty() {
            return job();
        }
        self.shared.lock().jobs.push_back(Box::new(job));
        self.shared.work.notify_one();
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
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}
