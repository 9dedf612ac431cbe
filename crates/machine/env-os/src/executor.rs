//! This thread's executor: its clock and its tasks.

use rustix::time::{ClockId, clock_gettime};
use types::Instant;

/// Monotonic time.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// Runs `future` on this thread's executor; a panic in it ends the process.
pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) -> tokio::task::AbortHandle {
    tokio::task::spawn_local(async move {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            let guard = AbortOnPanic;
            let polled = future.as_mut().poll(cx);
            // a task that is dropped because another one panicked has not panicked itself
            std::mem::forget(guard);
            polled
        })
        .await;
    })
    .abort_handle()
}

/// The executor would keep a task's panic to itself and leave everybody waiting who relied on the
/// task.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
