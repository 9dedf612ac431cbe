//! The commit thread's reports under shuttle, which draws the order in which threads run.

#[path = "told.rs"]
#[allow(clippy::duplicate_mod, reason = "over other locks")]
#[expect(dead_code, reason = "damage and allocations are told by others")]
mod told;

mod sync {
    pub(super) use shuttle::sync::{Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
}

use std::future::poll_fn;
use std::task::Poll;

use shuttle::future::block_on;
use shuttle::sync::Arc;
use shuttle::{check_random, thread};

use told::Told;

/// Orders that the test looks at.
const ORDERS: usize = 500;

#[test]
fn each_report_of_the_commit_thread_is_heard_once_and_in_order() {
    let look = || {
        let told = Arc::new(Told::<u32, u32>::default());
        let theirs = told.clone();
        let committer = thread::spawn(move || {
            theirs.written(1);
            theirs.synced(2);
        });
        let mut heard = Vec::new();
        let hear = poll_fn(|cx| {
            loop {
                let (written, synced) = told.take();
                heard.extend(written.into_iter().chain(synced));
                if heard.len() == 2 {
                    return Poll::Ready(());
                }
                if told.wakes(cx) {
                    return Poll::Pending;
                }
            }
        });
        block_on(hear);
        assert_eq!(heard, [1, 2]);
        committer.join().expect("no panic");
    };
    check_random(look, ORDERS);
}
