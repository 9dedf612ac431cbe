//! The work that the threads of a store have finished, and the tasks that wait for it.

use std::task::{Context, Waker};

use super::sync::{Mutex, MutexGuard, PoisonError};

/// Whether there was space, or why that could not be found out.
pub(super) type Allocated = Result<bool, String>;

struct Done<W, S> {
    written: Option<W>,
    synced: Option<S>,
    damage: Option<String>,
    allocated: Option<Allocated>,
    waiting: Vec<Waker>,
}

/// From the threads to the executor.
pub(super) struct Told<W, S>(Mutex<Done<W, S>>);

impl<W, S> Default for Told<W, S> {
    fn default() -> Told<W, S> {
        Told(Mutex::new(Done {
            written: None,
            synced: None,
            damage: None,
            allocated: None,
            waiting: Vec::new(),
        }))
    }
}

impl<W, S> Told<W, S> {
    fn lock(&self) -> MutexGuard<'_, Done<W, S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is finished, and wakes all who wait.
    fn tell(&self, change: impl FnOnce(&mut Done<W, S>)) {
        let mut done = self.lock();
        change(&mut done);
        let waiting = std::mem::take(&mut done.waiting);
        drop(done);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(super) fn written(&self, written: W) {
        self.tell(|done| done.written = Some(written));
    }

    pub(super) fn synced(&self, synced: S) {
        self.tell(|done| done.synced = Some(synced));
    }

    /// A scrub has found damage.
    pub(super) fn damaged(&self, why: String) {
        self.tell(|done| done.damage = Some(why));
    }

    /// An allocation has ended: whether there was space.
    pub(super) fn allocated(&self, allocated: Allocated) {
        self.tell(|done| done.allocated = Some(allocated));
    }

    /// Takes how an allocation ended.
    pub(super) fn allocation(&self) -> Option<Allocated> {
        self.lock().allocated.take()
    }

    /// Takes what a scrub has found.
    pub(super) fn damage(&self) -> Option<String> {
        self.lock().damage.take()
    }

    /// Takes what is finished.
    pub(super) fn take(&self) -> (Option<W>, Option<S>) {
        let mut done = self.lock();
        (done.written.take(), done.synced.take())
    }

    /// Wakes at the next thing that is finished; false if there is one already.
    pub(super) fn wakes(&self, cx: &Context<'_>) -> bool {
        let mut done = self.lock();
        let Done { written, synced, damage, allocated, .. } = &*done;
        if written.is_some() || synced.is_some() || damage.is_some() || allocated.is_some() {
            return false;
        }
        if !done.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            done.waiting.push(cx.waker().clone());
        }
        true
    }
}
