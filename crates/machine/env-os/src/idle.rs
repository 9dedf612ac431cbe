//! An executor without work: tokio calls this module before it parks its thread, and [`Linger`]
//! decides whether to look once more.
//!
//! To look once more is to wake a task that does nothing. The runtime then asks its driver without
//! waiting, runs whatever came, and is back here.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use types::Span;

use crate::executor::now;
use crate::linger::{Linger, Next};

thread_local! {
    /// Of this thread's executor, if it lingers.
    static IDLE: RefCell<Option<Idle>> = const { RefCell::new(None) };
}

struct Idle {
    linger: Linger,
    /// Of the task that does nothing.
    waker: Waker,
}

/// The thread's executor lingers while this lives.
pub(crate) struct Lingering(Option<tokio::task::AbortHandle>);

impl Lingering {
    /// Inside the executor: looks on for `window` at most; zero never does.
    pub(crate) fn start(window: Span) -> Lingering {
        if window == Span::ZERO {
            return Lingering(None);
        }
        let idle = poll_fn(move |cx| {
            IDLE.with_borrow_mut(|idle| match idle {
                Some(idle) if idle.waker.will_wake(cx.waker()) => {}
                _ => *idle = Some(Idle { linger: Linger::new(window), waker: cx.waker().clone() }),
            });
            Poll::<()>::Pending
        });
        Lingering(Some(tokio::task::spawn_local(idle).abort_handle()))
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
            IDLE.set(None);
        }
    }
}

/// The executor is about to park its thread.
pub(crate) fn before_park() {
    IDLE.with_borrow_mut(|idle| {
        let Some(Idle { linger, waker }) = idle else { return };
        let before = now();
        if linger.idle(before) == Next::Look {
            rustix::thread::sched_yield();
            let after = now();
            linger.offered(after, after - before);
            waker.wake_by_ref();
        }
    });
}

pub(crate) fn after_park() {
    IDLE.with_borrow_mut(|idle| {
        if let Some(idle) = idle {
            idle.linger.woke(now());
        }
    });
}
