//! Runs work on all cores. Outcomes come in the order of the requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// As much as the main thread of a process has.
const STACK_BYTES: usize = 8 << 20;

/// Does `work` for each task, `jobs` at a time, and calls `done` with each task and its outcome, in
/// the order of `tasks`.
pub(crate) fn over_cores<T: Sync, O: Send>(
    tasks: &[T],
    jobs: usize,
    work: impl Fn(&T) -> O + Sync,
    mut done: impl FnMut(&T, O),
) {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let labour = |send: mpsc::Sender<(usize, O)>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { return };
            if send.send((index, work(task))).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.min(tasks.len()) {
            let (send, labour) = (send.clone(), &labour);
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, move || labour(send)).expect("a thread for a core starts");
        }
        drop(send);
        let (mut early, mut printed) = (BTreeMap::new(), 0);
        for (index, outcome) in receive {
            early.insert(index, outcome);
            while let Some(outcome) = early.remove(&printed) {
                done(&tasks[printed], outcome);
                printed += 1;
            }
        }
    });
}
