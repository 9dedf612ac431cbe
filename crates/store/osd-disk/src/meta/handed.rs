//! Transactions on their way to the commit thread, and the count of its steps for the scrub.
//!
//! Generic over the transaction, so that shuttle's tests hand over numbers.

use super::sync::{Arc, AtomicU64, Builder, JoinHandle, Ordering, mpsc};

/// Rises when a commit begins to be written out, and when it is: odd in between.
#[derive(Clone, Default)]
pub(super) struct Phase(Arc<AtomicU64>);

impl Phase {
    /// Writes a transaction out.
    pub(super) fn during<T>(&self, write_out: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, Ordering::AcqRel);
        let written = write_out();
        self.0.fetch_add(1, Ordering::AcqRel);
        written
    }

    /// What `read` finds of the tree that was written out last, and since when; nothing while a
    /// commit is written out.
    pub(super) fn settled<T>(&self, read: impl FnOnce() -> Option<T>) -> Option<(u64, T)> {
        let since = self.0.load(Ordering::Acquire);
        let found = read()?;
        let is_settled = since.is_multiple_of(2) && self.0.load(Ordering::Acquire) == since;
        is_settled.then_some((since, found))
    }

    /// Whether more than one commit has begun since then: pages of that tree may be overwritten
    /// soon.
    pub(super) fn is_past(&self, since: u64) -> bool {
        self.0.load(Ordering::Acquire) > since + 2
    }
}

/// The commit thread. Dropping it waits for all transactions that it was given.
pub(super) struct CommitThread<T> {
    work: Option<mpsc::Sender<T>>, // none only while it is dropped
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> CommitThread<T> {
    /// Calls `commit` with one transaction after the other, until it fails.
    pub(super) fn start(
        mut commit: impl FnMut(T) -> bool + Send + 'static,
    ) -> std::io::Result<CommitThread<T>> {
        let (work, inbox) = mpsc::channel();
        let run = move || {
            while let Ok(running) = inbox.recv() {
                if !commit(running) {
                    return;
                }
            }
        };
        let thread = Builder::new().name("commit".to_owned()).spawn(run)?;
        Ok(CommitThread { work: Some(work), thread: Some(thread) })
    }

    /// Sends a transaction; false where the thread is gone.
    pub(super) fn begin(&self, running: T) -> bool {
        self.work.as_ref().is_some_and(|work| work.send(running).is_ok())
    }
}

impl<T> Drop for CommitThread<T> {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
