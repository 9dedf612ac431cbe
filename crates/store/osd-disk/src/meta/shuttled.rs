//! The commit thread, its hand-over and its reports under shuttle, which draws the order in which
//! threads run.

#[path = "handed.rs"]
#[allow(clippy::duplicate_mod, reason = "over other locks")]
mod handed;
#[path = "told.rs"]
#[allow(clippy::duplicate_mod, reason = "over other locks")]
#[expect(dead_code, reason = "damage and allocations are told by others")]
mod told;

mod sync {
    pub(super) use shuttle::sync::atomic::{AtomicU64, Ordering};
    pub(super) use shuttle::sync::{Arc, Mutex, MutexGuard, mpsc};
    pub(super) use shuttle::thread::{Builder, JoinHandle};
    pub(super) use std::sync::PoisonError;
}

use std::future::poll_fn;
use std::task::Poll;

use shuttle::future::block_on;
use shuttle::{check_random, thread};

use handed::{CommitThread, Phase};
use sync::{Arc, AtomicU64, Ordering};
use told::Told;

/// Orders that each test looks at.
const ORDERS: usize = 500;
/// Transactions that are committed one after the other.
const COMMITS: u64 = 5;
/// A page that is written at the moment.
const TORN: u64 = u64::MAX;

/// Both reports of a commit, in the order in which they are heard.
fn hear(told: &Told<u64, u64>) -> Vec<u64> {
    let mut heard = Vec::new();
    block_on(poll_fn(|cx| {
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
    }));
    heard
}

/// A tree of one page. As in LMDB, the third tree behind it takes its page again.
#[derive(Default)]
struct Disk {
    newest: AtomicU64,
    pages: [AtomicU64; 3],
}

impl Disk {
    fn page(&self, tree: u64) -> &AtomicU64 {
        &self.pages[(tree % 3) as usize]
    }

    fn write_out(&self, tree: u64) {
        self.page(tree).store(TORN, Ordering::SeqCst);
        self.page(tree).store(tree, Ordering::SeqCst);
        self.newest.store(tree, Ordering::SeqCst);
    }
}

#[test]
fn each_report_of_the_commit_thread_is_heard_once_and_in_order() {
    let look = || {
        let told = Arc::new(Told::<u64, u64>::default());
        let theirs = told.clone();
        let committer = thread::spawn(move || {
            theirs.written(1);
            theirs.synced(2);
        });
        assert_eq!(hear(&told), [1, 2]);
        committer.join().expect("no panic");
    };
    check_random(look, ORDERS);
}

#[test]
fn transactions_come_back_in_order_and_a_scrub_counts_no_page_that_was_overwritten() {
    let look = || {
        let (phase, told, disk) =
            (Phase::default(), Arc::new(Told::<u64, u64>::default()), Arc::new(Disk::default()));
        let (step, reports, theirs) = (phase.clone(), told.clone(), disk.clone());
        let committer = CommitThread::start(move |tree: u64| {
            step.during(|| theirs.write_out(tree));
            reports.written(tree + 1);
            reports.synced(tree);
            true
        });
        let committer = committer.expect("a thread");
        let scrubbed = disk.clone();
        let scrub = thread::spawn(move || {
            for _ in 0..COMMITS {
                let newest = || Some(scrubbed.newest.load(Ordering::SeqCst));
                let Some((since, tree)) = phase.settled(newest) else { continue };
                let seen = scrubbed.page(tree).load(Ordering::SeqCst);
                assert!(seen == tree || phase.is_past(since), "{seen} in a page of tree {tree}");
            }
        });
        for tree in 1..COMMITS {
            assert!(committer.begin(tree), "the thread is there");
            assert_eq!(hear(&told), [tree + 1, tree]);
        }
        assert!(committer.begin(COMMITS), "the thread is there");
        drop(committer);
        assert_eq!(disk.newest.load(Ordering::SeqCst), COMMITS, "a commit that had begun");
        scrub.join().expect("no panic");
    };
    check_random(look, ORDERS);
}
