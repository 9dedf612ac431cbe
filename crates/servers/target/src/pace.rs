//! Decides when a target commits: an interval after the first change, or at once if too much is
//! dirty.
//!
//! No timer runs while nothing is dirty.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use env::{Env, Task};
use tokio::sync::Notify;
use types::Span;

/// See the head of the file.
pub struct Pace {
    dirty: Notify,
    now: Notify,
    interval: Cell<Span>,
}

impl Pace {
    /// Acknowledged changes are durable after `interval` at the latest.
    #[must_use]
    pub fn new(interval: Span) -> Rc<Pace> {
        Rc::new(Pace { dirty: Notify::new(), now: Notify::new(), interval: Cell::new(interval) })
    }

    /// There is something to commit; `is_pressed`: too much to wait for the interval.
    pub fn dirtied(&self, is_pressed: bool) {
        self.dirty.notify_one();
        if is_pressed {
            self.now.notify_one();
        }
    }

    /// How long an acknowledged change may wait for its commit.
    #[must_use]
    pub fn interval(&self) -> Span {
        self.interval.get()
    }

    /// Changes the interval. A commit that is waited for begins at once.
    pub fn set_interval(&self, interval: Span) {
        self.interval.set(interval);
        self.now.notify_one();
    }

    /// Lets the loop look at its target now.
    pub fn wake(&self) {
        self.dirtied(true);
    }

    /// Commits by `commit` until it says that the target is over. The task holds the target only
    /// while it commits, so that dropping the last handle ends it.
    pub fn start<T: 'static>(
        self: &Rc<Self>,
        env: &Env,
        name: &'static str,
        target: Weak<T>,
        commit: impl AsyncFn(Rc<T>) -> bool + 'static,
    ) -> Task {
        let (pace, clock) = (Rc::clone(self), env.clone());
        env.spawn(name, async move {
            loop {
                pace.dirty.notified().await;
                let _in_time_or_at_once =
                    clock.timeout(pace.interval.get(), pace.now.notified()).await;
                let Some(target) = target.upgrade() else { return };
                if !commit(target).await {
                    return;
                }
            }
        })
    }
}
